//! The runs of `make drills`: what is lost, by how pods end and in which setting.

use std::collections::BTreeMap;
use std::fs;

use anyhow::Result;
use drill::report::DrillReport;
use serde::{Deserialize, Serialize};
use strum::VariantArray;

use crate::figures;
use crate::table::{Table, failed_of, range};

/// A way to end a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum PodEnd {
    Sigterm,
    #[strum(serialize = "sleep-15")]
    Sleep15,
    #[strum(serialize = "sleep-30")]
    Sleep30,
    Contour,
    Marin3r,
    EnvoyGateway,
    EnvoyGatewayTuned,
    /// A pod of Envoy Gateway whose shutdown manager has the drainer's image.
    DropIn,
    Drainer,
    DrainerTuned,
}

/// What a drill disrupts, and under which load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum Setting {
    /// A rollout behind kube-proxy, under several kinds of clients.
    Mixed,
    /// A rollout behind endpoints that lag 15 s, under sparse traffic.
    BehindLag,
    /// The eviction of a Deployment's only pod, whose successor takes 20 s to become ready.
    SolePod,
    /// A rollout of a Deployment's only pod, which is deleted before its successor starts.
    NoSurge,
    /// A rollout behind kube-proxy, under HTTP/3 requests of two seconds.
    Http3,
    /// A rollout behind kube-proxy, beside clients that keep idle connections.
    Idle,
}

/// A run of a cell of the table.
#[derive(Debug, Serialize, Deserialize)]
struct DrillRun {
    /// See [`figures::code`].
    code: String,
    #[serde(flatten)]
    report: DrillReport,
}

/// All runs of a cell.
struct Cell {
    sent: u64,
    /// Of each run.
    failed: Vec<u64>,
    /// How long each pod took from its deletion until it was gone, in seconds; one that was not is left out.
    ends: Vec<f64>,
}

/// The name of the tables' first column.
const CORNER: &str = "pods stop with";

/// The pods of the rollout whose cost is told.
const ROLLOUT: f64 = 10.0;

// === impl PodEnd ===

impl PodEnd {
    /// In tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sigterm => "SIGTERM alone",
            Self::Sleep15 => "preStop hook sleep 15",
            Self::Sleep30 => "preStop hook sleep 30",
            Self::Contour => "Contour's shutdown manager",
            Self::Marin3r => "MARIN3R's shutdown manager",
            Self::EnvoyGateway => "Envoy Gateway's shutdown manager",
            Self::EnvoyGatewayTuned => "Envoy Gateway's, 40 s",
            Self::DropIn => "envoy-drainer as Envoy Gateway's",
            Self::Drainer => "envoy-drainer",
            Self::DrainerTuned => "envoy-drainer, tuned",
        }
    }

    /// Returns true if the product's code decides what is lost.
    fn has_drainer(self) -> bool {
        matches!(self, Self::DropIn | Self::Drainer | Self::DrainerTuned)
    }
}

// === impl Setting ===

impl Setting {
    /// In the heading of a table.
    fn name(self) -> &'static str {
        match self {
            Self::Mixed => "keep-alive, new connections, slow requests, HTTP/2",
            Self::BehindLag => "new connections, endpoints 15 s late",
            Self::SolePod => "eviction of the only pod",
            Self::NoSurge => "rollout of the only pod, without surge",
            Self::Http3 => "HTTP/3",
            Self::Idle => "idle clients",
        }
    }
}

fn file(setting: Setting, end: PodEnd) -> String {
    let (setting, end): (&str, &str) = (setting.into(), end.into());
    format!("drills/{setting}-{end}")
}

/// Returns true if `cell` names it: `all`, a setting, or `SETTING/END`.
pub fn is_of(setting: Setting, end: PodEnd, cell: &str) -> bool {
    // Contour offers no HTTP/3.
    let is_offered = (setting, end) != (Setting::Http3, PodEnd::Contour);
    let (setting, end): (&str, &str) = (setting.into(), end.into());
    is_offered && (cell == "all" || cell == setting || cell == format!("{setting}/{end}"))
}

/// Adds a run to those of docs/measured. Those with a drainer of other code are dropped.
///
/// # Errors
/// If the file cannot be written, or the code is not committed.
pub fn record(setting: Setting, end: PodEnd, mut report: DrillReport) -> Result<()> {
    let code = figures::code(&[])?;
    let name = file(setting, end);
    let mut runs = figures::read_runs::<DrillRun>(&name)?;
    runs.retain(|run| !end.has_drainer() || run.code == code);
    // A picture has the seconds of some.
    if setting != Setting::BehindLag || !runs.is_empty() {
        report.by_second.clear();
    }
    for client in &mut report.clients {
        client.by_second.clear();
        client.first_failures.truncate(1);
    }
    report.pods.iter_mut().for_each(|it| it.summary = None);
    runs.push(DrillRun { code, report });
    fs::create_dir_all(figures::file("drills"))?;
    figures::write(&name, &runs)
}

/// Reads the runs of a cell; none if it was not measured.
///
/// # Errors
/// If one is invalid.
pub fn read(setting: Setting, end: PodEnd) -> Result<Vec<DrillReport>> {
    let runs = figures::read_runs::<DrillRun>(&file(setting, end))?;
    Ok(runs.into_iter().map(|run| run.report).collect())
}

/// The requests of a cell that failed, and that were sent; `None` if it was not measured.
///
/// # Errors
/// As [`read`].
pub fn total(setting: Setting, end: PodEnd) -> Result<Option<(u64, u64)>> {
    Ok(Cell::read(setting, end)?.total())
}

/// A part of a cell's result, for a table; `None` if it was not measured.
type Show = fn(&Cell) -> Option<String>;

/// The failed requests by setting, and what a rollout costs, as a table in Markdown: of what was measured.
///
/// # Errors
/// As [`read`].
pub fn overview() -> Result<String> {
    let costs = [
        (Setting::Mixed, "pod-seconds of a rollout of ten"),
        (Setting::Idle, "the same with idle clients"),
    ];
    let costs = costs.map(|(setting, name)| (setting, name, Cell::cost as Show));
    by_setting(columns(Cell::losses).chain(costs))
}

/// The fewest and the most requests that failed in a run, and how long pods took to end, as a table in Markdown.
///
/// # Errors
/// As [`read`].
pub fn ranges() -> Result<String> {
    by_setting(columns(Cell::range))
}

/// A column for each setting.
fn columns(show: Show) -> impl Iterator<Item = (Setting, &'static str, Show)> {
    (Setting::VARIANTS.iter()).map(move |it| (*it, it.name(), show))
}

/// A table with these columns, without those and rows that were not measured.
fn by_setting(columns: impl Iterator<Item = (Setting, &'static str, Show)>) -> Result<String> {
    let columns = columns.map(|(setting, name, show)| {
        let cells = PodEnd::VARIANTS.iter();
        let cells = cells.map(|end| Ok(show(&Cell::read(setting, *end)?)));
        Ok((name, cells.collect::<Result<Vec<Option<String>>>>()?))
    });
    let mut columns = columns.collect::<Result<Vec<_>>>()?;
    columns.retain(|(_, cells)| cells.iter().any(Option::is_some));
    let mut table = Table::new(CORNER, columns.iter().map(|(name, _)| name));
    for (row, end) in PodEnd::VARIANTS.iter().enumerate() {
        let cells = columns.iter().map(|(_, cells)| cells[row].as_deref());
        if cells.clone().any(|it| it.is_some()) {
            table.add(end.name(), cells.map(|it| it.unwrap_or("–")));
        }
    }
    Ok(table.to_string())
}

/// The failed requests under several kinds of clients, by kind, as a table in Markdown.
///
/// # Errors
/// As [`read`].
pub fn by_client() -> Result<String> {
    let mut rows = Vec::new();
    let mut columns = Vec::new();
    for end in PodEnd::VARIANTS {
        let reports = read(Setting::Mixed, *end)?;
        let mut clients = BTreeMap::<String, (u64, u64)>::new();
        for client in reports.iter().flat_map(|report| &report.clients) {
            if !columns.contains(&client.name) {
                columns.push(client.name.clone());
            }
            let (failed, sent) = clients.entry(client.name.clone()).or_default();
            (*failed, *sent) = (*failed + client.failed, *sent + client.sent);
        }
        rows.push((end, clients));
    }
    let mut table = Table::new(CORNER, &columns);
    for (end, clients) in rows.iter().filter(|(_, clients)| !clients.is_empty()) {
        let cell = |name| (clients.get(name)).map_or("–".to_owned(), |it| failed_of(it.0, it.1));
        table.add(end.name(), columns.iter().map(cell));
    }
    Ok(table.to_string())
}

/// How many pods the runs ended in all, as a number in a sentence.
///
/// # Errors
/// As [`read`].
pub fn terminations() -> Result<String> {
    let settings = Setting::VARIANTS.iter();
    let cells = settings.flat_map(|setting| PodEnd::VARIANTS.iter().map(|end| (*setting, *end)));
    let pods = cells.map(|(setting, end)| Ok(Cell::read(setting, end)?.ends.len()));
    let pods: Result<usize> = pods.sum();
    pods.map(|it| it.to_string())
}

// === impl Cell ===

impl Cell {
    fn of(reports: &[DrillReport]) -> Self {
        let pods = reports.iter().flat_map(|report| &report.pods);
        Self {
            sent: reports.iter().map(|report| report.sent).sum(),
            failed: reports.iter().map(|report| report.failed).collect(),
            ends: pods
                .filter_map(|pod| Some(pod.gone_at? - pod.deleted_at))
                .collect(),
        }
    }

    fn read(setting: Setting, end: PodEnd) -> Result<Self> {
        Ok(Self::of(&read(setting, end)?))
    }

    /// The requests that failed, and that were sent; `None` if it was not measured, as the others.
    fn total(&self) -> Option<(u64, u64)> {
        (!self.failed.is_empty()).then(|| (self.failed.iter().sum(), self.sent))
    }

    fn losses(&self) -> Option<String> {
        self.total().map(|(failed, sent)| failed_of(failed, sent))
    }

    fn range(&self) -> Option<String> {
        let failed = range(self.failed.iter().map(|it| *it as f64), "–");
        let ends = range(self.ends.iter().copied(), "–");
        let bold = if failed == "0" { "" } else { "**" };
        (!self.failed.is_empty()).then(|| format!("{bold}{failed}{bold} · {ends} s"))
    }

    /// For how many seconds a rollout of [`ROLLOUT`] pods holds old ones beside the new ones.
    fn cost(&self) -> Option<String> {
        let mean = self.ends.iter().sum::<f64>() / self.ends.len() as f64;
        (!self.ends.is_empty()).then(|| format!("{:.0}", ROLLOUT * mean))
    }
}
