//! The reports of `make drills`: what is lost, by how pods end and in which setting.

use anyhow::{Context, Result};
use drill::report::{ClientReport, DrillReport};

use crate::figures;
use crate::table::{Table, failed_of};

/// A way to end a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum PodEnd {
    Sigterm,
    Sleep,
    EnvoyGateway,
    Contour,
    Drainer,
}

/// What a drill disrupts, and under which load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Setting {
    /// A rollout behind kube-proxy, under all kinds of clients.
    Mixed,
    /// A rollout behind endpoints that lag 15 s, under sparse traffic.
    BehindLag,
    /// The eviction of a Deployment's only pod, whose successor takes 20 s to become ready.
    SolePod,
    /// A rollout behind kube-proxy, under HTTP/3 requests of two seconds.
    Http3,
}

/// The name of the tables' first column.
const CORNER: &str = "pods stop with";

// === impl PodEnd ===

impl PodEnd {
    pub const ALL: [Self; 5] = [
        Self::Sigterm,
        Self::Sleep,
        Self::EnvoyGateway,
        Self::Contour,
        Self::Drainer,
    ];

    /// In tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sigterm => "SIGTERM alone",
            Self::Sleep => "preStop hook sleep 15",
            Self::EnvoyGateway => "Envoy Gateway's shutdown manager",
            Self::Contour => "Contour's shutdown manager",
            Self::Drainer => "envoy-drainer",
        }
    }
}

// === impl Setting ===

impl Setting {
    pub const ALL: [Self; 4] = [Self::Mixed, Self::BehindLag, Self::SolePod, Self::Http3];

    /// In the heading of a table.
    fn name(self) -> &'static str {
        match self {
            Self::Mixed => "keep-alive, new connections, slow requests, HTTP/2",
            Self::BehindLag => "new connections, endpoints 15 s late",
            Self::SolePod => "eviction of the only pod",
            Self::Http3 => "HTTP/3",
        }
    }
}

/// The name of a report's file, without its extension.
pub fn file_name(setting: Setting, end: PodEnd) -> String {
    let (setting, end): (&str, &str) = (setting.into(), end.into());
    format!("drill-{setting}-{end}")
}

/// Reads the reports of a setting, in the order of [`PodEnd::ALL`].
///
/// # Errors
/// If one is missing or invalid.
pub fn read(setting: Setting) -> Result<Vec<(PodEnd, DrillReport)>> {
    let reports = PodEnd::ALL.map(|end| Ok((end, figures::read(&file_name(setting, end))?)));
    reports.into_iter().collect()
}

/// The failed requests by setting, as a table in Markdown.
///
/// # Errors
/// As [`read`].
pub fn overview() -> Result<String> {
    let mut columns = Setting::ALL.map(|setting| (setting, Vec::new()));
    for (setting, reports) in &mut columns {
        *reports = read(*setting)?;
    }
    let names = columns.each_ref().map(|(setting, _)| setting.name());
    let mut table = Table::new(CORNER, names);
    for (row, end) in PodEnd::ALL.into_iter().enumerate() {
        let cells = columns.each_ref().map(|(setting, reports)| {
            let report = &reports[row].1;
            match (setting, end) {
                // It does not offer HTTP/3.
                (Setting::Http3, PodEnd::Contour) => "–".to_owned(),
                _ => failed_of(report.failed, report.sent),
            }
        });
        table.add(end.name(), cells);
    }
    Ok(table.to_string())
}

/// The failed requests of a setting by kind of client, and how long pods took to end, as a table in Markdown.
///
/// # Errors
/// As [`read`].
pub fn table(setting: Setting) -> Result<String> {
    let reports = read(setting)?;
    let first = reports.first().context("no reports")?;
    let clients = first.1.clients.iter().map(|client| &*client.name);
    let mut table = Table::new(CORNER, clients.chain(["pods gone after"]));
    for (end, report) in &reports {
        let clients = report.clients.iter();
        let cells = clients.map(|ClientReport { failed, sent, .. }| failed_of(*failed, *sent));
        table.add(end.name(), cells.chain([ends(report)]));
    }
    Ok(table.to_string())
}

/// The shortest and the longest end.
fn ends(report: &DrillReport) -> String {
    let ends = report.pods.iter();
    let ends = ends.filter_map(|pod| Some(pod.gone_at? - pod.deleted_at));
    let (min, max) = ends.fold((f64::INFINITY, 0.0), |(min, max): (f64, f64), end| {
        (min.min(end), max.max(end))
    });
    let (min, max) = (format!("{min:.0}"), format!("{max:.0}"));
    if min == max {
        format!("{max} s")
    } else {
        format!("{min} to {max} s")
    }
}
