//! The results of `make soak`, as JSON and as a table in Markdown; the documentation of `e2e/soak.rs` shows the JSON.

use serde::{Deserialize, Serialize};

use crate::table::Table;

/// All results of a soak.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SoakReport {
    pub version: String,
    /// Of the first part; the second takes half of it.
    pub minutes: u64,
    pub seed: u64,
    pub passed: bool,
    pub cluster: ClusterReport,
    pub busy_envoy: BusyEnvoyReport,
}

/// What was measured in the cluster.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterReport {
    pub loads: Vec<LoadReport>,
    pub disruptions: DisruptionCounts,
    /// Rotations that were due, beside those that were requested.
    pub due_rotations: u64,
    /// Restarts of containers, of which none is expected.
    pub restarts: u64,
    /// Samples that could not be taken, as while the API server is away.
    pub missed_samples: u64,
    pub trends: Vec<Trend>,
}

/// The requests of a load.
#[derive(Debug, Serialize, Deserialize)]
pub struct LoadReport {
    pub name: String,
    pub sent: u64,
    pub failed: u64,
    /// The fraction of its rate that it reached.
    pub reached: f64,
}

/// What has happened in the cluster.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DisruptionCounts {
    pub rollouts: u64,
    /// Evictions of one Envoy each.
    pub evictions: u64,
    /// Envoys that these ended.
    pub terminations: u64,
    /// Rotations of the CA that were requested; its lifetime causes more.
    pub requested_rotations: u64,
    /// Pods of the webhook that were deleted without a grace period.
    pub kills: u64,
    /// How long the API server was away; `None` if it was not.
    pub outage_seconds: Option<u64>,
}

/// What was measured beside a busy Envoy.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BusyEnvoyReport {
    /// The version of Envoy.
    pub envoy: String,
    /// Its listeners, and its statistics.
    pub listeners: usize,
    pub statistics: usize,
    /// In standby, and in the drain.
    pub trends: Vec<Trend>,
}

/// How a measure has changed, in its unit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Trend {
    /// Of what it is a measure.
    pub subject: String,
    pub measure: String,
    pub unit: String,
    /// The number of samples.
    pub samples: usize,
    /// The median of the first quarter of the samples, and of the last one.
    pub first_quarter: f64,
    pub last_quarter: f64,
    /// The slope of the line that fits best, and its standard error, both per hour. `None` for fewer than three.
    pub slope: Option<f64>,
    pub standard_error: Option<f64>,
    /// The slope per hour above which the measure grows; `None` if it is not judged.
    pub bound: Option<f64>,
    /// Whether the slope is above the bound beyond noise.
    pub grows: bool,
}

// === impl SoakReport ===

impl SoakReport {
    /// Says whether the soak passed, if loads have to reach this fraction of their rates.
    #[must_use]
    pub fn judge(mut self, min_reached: f64) -> Self {
        let ClusterReport {
            loads, restarts, ..
        } = &self.cluster;
        let no_failure = loads.iter().all(|load| load.failed == 0);
        let reached = loads.iter().all(|load| load.reached >= min_reached);
        let grows = (self.trends()).any(|trend| trend.grows || trend.slope.is_none());
        self.passed = no_failure && reached && *restarts == 0 && !grows;
        self
    }

    /// The results in Markdown: sentences, and a table of the trends that are judged.
    pub fn text(&self) -> String {
        let columns = ["first quarter", "last quarter", "slope per hour", "bound"];
        let mut table = Table::new("", columns);
        for trend in self.trends().filter(|trend| trend.bound.is_some()) {
            trend.add_to(&mut table);
        }
        let cluster = self.cluster.text(self.minutes);
        let busy = &self.busy_envoy;
        let (envoy, listeners, statistics) = (&busy.envoy, busy.listeners, busy.statistics);
        format!(
            "{cluster}\n\n{table}\n\n\
             The last rows are beside an Envoy {envoy} with {listeners} listeners and {statistics} statistics."
        )
    }

    fn trends(&self) -> impl Iterator<Item = &Trend> {
        let (cluster, busy_envoy) = (&self.cluster.trends, &self.busy_envoy.trends);
        cluster.iter().chain(busy_envoy)
    }
}

// === impl ClusterReport ===

impl ClusterReport {
    fn text(&self, minutes: u64) -> String {
        let Self {
            loads,
            disruptions,
            due_rotations,
            restarts,
            missed_samples,
            ..
        } = self;
        let loads = loads.iter().map(|load| {
            let reached = load.reached * 100.0;
            let (failed, sent, name) = (load.failed, load.sent, &load.name);
            format!("{failed} of {sent} requests of the {name} load failed ({reached:.1} % of its rate was reached)")
        });
        let outage = disruptions.outage_seconds.map_or_else(
            || "the API server was not taken away".to_owned(),
            |seconds| format!("the API server was away for {seconds} s"),
        );
        format!(
            "In the cluster, for {minutes} minutes: {}. There were {} rollouts and {} evictions, which ended {} Envoys, {} rotations of the CA that \
             were requested and {due_rotations} that were due, {} webhooks killed, and {restarts} restarts of \
             containers in the pods that were left; {outage}; {missed_samples} samples were missed.",
            loads.collect::<Vec<_>>().join(", "),
            disruptions.rollouts,
            disruptions.evictions,
            disruptions.terminations,
            disruptions.requested_rotations,
            disruptions.kills,
        )
    }
}

// === impl Trend ===

impl Trend {
    fn add_to(&self, table: &mut Table) {
        let unit = match &*self.unit {
            "" => String::new(),
            unit => format!(", {unit}"),
        };
        let slope = self.slope.zip(self.standard_error);
        let slope = slope.map(|(slope, error)| format!("{slope:.2} ± {error:.2}"));
        let grows = if self.grows { " **grows**" } else { "" };
        let cells = [
            format!("{:.2}", self.first_quarter),
            format!("{:.2}", self.last_quarter),
            slope.unwrap_or_default() + grows,
            self.bound
                .map(|bound| format!("{bound:.2}"))
                .unwrap_or_default(),
        ];
        table.add(format!("{}: {}{unit}", self.subject, self.measure), cells);
    }
}
