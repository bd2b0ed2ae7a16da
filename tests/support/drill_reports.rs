//! The reports of `make drills`, by how pods end.

use std::fmt::Write;

use anyhow::{Context, Result};
use ctl::drill::report::{ClientReport, DrillReport};

use crate::figures;

/// Ways to end a pod: the name in the reports' files, and what it is.
type PodEnd = (&'static str, &'static str);

const POD_ENDS: [PodEnd; 5] = [
    ("sigterm", "SIGTERM alone"),
    ("sleep", "preStop hook sleep 15"),
    ("envoy-gateway", "Envoy Gateway's shutdown manager"),
    ("contour", "Contour's shutdown manager"),
    ("drainer", "envoy-drainer"),
];

/// What a drill was behind, and under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setting {
    /// kube-proxy, under all kinds of clients. The managers were not drilled there.
    Mixed,
    /// Endpoints that lag 15 s, under sparse traffic.
    BehindLag,
}

/// Reads the reports of a setting, each with how its pods end.
///
/// # Errors
/// If one is missing or invalid.
pub fn read(setting: Setting) -> Result<Vec<(&'static str, DrillReport)>> {
    let (suffix, ends): (_, &[_]) = match setting {
        Setting::Mixed => ("", &["sigterm", "sleep", "drainer"]),
        Setting::BehindLag => ("-behind-lag", &POD_ENDS.map(|(key, _)| key)),
    };
    let drilled = POD_ENDS.iter().filter(|(key, _)| ends.contains(key));
    let reports = drilled.map(|(key, name)| {
        let report = figures::read(&format!("drill-{key}{suffix}"))?;
        Ok((*name, report))
    });
    reports.collect()
}

/// The failed requests by kind of client, and how long pods took to end, as a table in Markdown.
///
/// # Errors
/// As [`read`].
pub fn table(setting: Setting) -> Result<String> {
    let reports = read(setting)?;
    let first = reports.first().context("no reports")?;
    let clients = first.1.clients.iter().map(|client| &*client.name);
    let clients: Vec<_> = clients.collect();
    let mut table = format!(
        "| pods end with | {} | pods gone after |\n",
        clients.join(" | ")
    );
    table += &format!("| --- {}|\n", "| --: ".repeat(clients.len() + 1));
    for (name, report) in &reports {
        let cells = report.clients.iter().map(cell).collect::<Vec<_>>();
        // Writing to a String cannot fail.
        let _ = writeln!(
            table,
            "| {name} | {} | {} |",
            cells.join(" | "),
            ends(report)
        );
    }
    Ok(table.trim_end().to_owned())
}

fn cell(client: &ClientReport) -> String {
    match client.failed {
        0 => format!("0 of {}", client.sent),
        failed => format!("**{failed}** of {}", client.sent),
    }
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
