//! The results of a soak: a table, a file, and whether it passed.

use std::fmt;

use serde::Serialize;

use super::busy_envoy::BusyEnvoyReport;
use super::cluster::ClusterReport;
use super::series::Trend;
use crate::traffic::MIN_RATE_RATIO;

/// The results; the format of the file is that of [`super`].
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SoakReport {
    pub(crate) version: &'static str,
    pub(crate) minutes: u64,
    pub(crate) seed: u64,
    pub(crate) passed: bool,
    pub(crate) cluster: ClusterReport,
    pub(crate) busy_envoy: BusyEnvoyReport,
}

// === impl SoakReport ===

impl SoakReport {
    /// Returns a report that says whether the soak passed.
    pub(crate) fn judge(mut self) -> Self {
        let ClusterReport {
            loads, restarts, ..
        } = &self.cluster;
        let no_failure = loads.iter().all(|load| load.failed == 0);
        let reached = loads.iter().all(|load| load.reached >= MIN_RATE_RATIO);
        let grows = self.trends().any(|trend| trend.grows);
        self.passed = no_failure && reached && *restarts == 0 && !grows;
        self
    }

    fn trends(&self) -> impl Iterator<Item = &Trend> {
        let (cluster, busy_envoy) = (&self.cluster.trends, &self.busy_envoy.trends);
        cluster.iter().chain(busy_envoy)
    }
}

impl fmt::Display for SoakReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ClusterReport {
            loads,
            disruptions,
            due_rotations,
            restarts,
            missed_samples,
            ..
        } = &self.cluster;
        for load in loads {
            writeln!(
                f,
                "{} load: {} of {} requests failed, at {:.1} % of the intended rate",
                load.name,
                load.failed,
                load.sent,
                load.reached * 100.0
            )?;
        }
        let outage = disruptions.outage_seconds.map_or_else(
            || "not taken away: E2E_API_SERVER is not set".to_owned(),
            |seconds| format!("away for {seconds} s"),
        );
        writeln!(
            f,
            "{} rollouts, {} evictions, {} rotations of the CA requested and {due_rotations} due, {} webhooks killed; \
             {restarts} restarts; the API server was {outage}; {missed_samples} samples missed\n",
            disruptions.rollouts,
            disruptions.evictions,
            disruptions.requested_rotations,
            disruptions.kills,
        )?;
        let BusyEnvoyReport {
            envoy,
            listeners,
            statistics,
            ..
        } = &self.busy_envoy;
        writeln!(
            f,
            "{:52} {:>7} {:>9} {:>9} {:>20} {:>8}",
            "", "samples", "first ¼", "last ¼", "slope per hour", "bound"
        )?;
        for trend in self.trends() {
            writeln!(f, "{trend}")?;
        }
        writeln!(
            f,
            "\nThe last rows are beside an Envoy {envoy} with {listeners} listeners and {statistics} statistics."
        )?;
        f.write_str(if self.passed { "passed" } else { "FAILED" })
    }
}

impl fmt::Display for Trend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.unit {
            "" => String::new(),
            unit => format!(" ({unit})"),
        };
        let name = format!("{}: {}{unit}", self.subject, self.measure);
        let slope = self.slope.zip(self.standard_error);
        let slope = slope.map(|(slope, error)| format!("{slope:.2} ± {error:.2}"));
        let bound = self.bound.map(|bound| format!("{bound:.2}"));
        write!(
            f,
            "{name:52} {:7} {:9.2} {:9.2} {:>20} {:>8}{}",
            self.samples,
            self.first_quarter,
            self.last_quarter,
            slope.unwrap_or_default(),
            bound.unwrap_or_default(),
            if self.grows { "  GROWS" } else { "" },
        )
    }
}
