//! The runs of `make servers`: what rollouts of servers that are no Envoy lose, by how their pods end.

use std::collections::BTreeSet;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use strum::VariantArray;

use crate::figures;
use crate::table::Table;

/// A way to end a server's pod.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::Display, VariantArray,
)]
pub enum ServerEnd {
    #[strum(to_string = "SIGTERM alone")]
    Sigterm,
    #[strum(to_string = "preStop hook sleep 15")]
    Sleep15,
    #[strum(to_string = "preStop hook sleep 30")]
    Sleep30,
    #[strum(to_string = "envoy-drainer")]
    Drainer,
}

/// A rollout.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ServerRun {
    pub server: String,
    pub front: String,
    pub end: ServerEnd,
    pub sent: u64,
    pub failed: u64,
    /// How long each pod took from its deletion to its end.
    pub seconds: Vec<f64>,
}

const FILE: &str = "servers";

/// Through what clients reach the servers, by their names in the file.
const FRONTS: [(&str, &str); 3] = [
    ("envoy", "Envoy"),
    ("kube-proxy", "new connections"),
    ("kept", "kept, never pausing"),
];

impl ServerEnd {
    /// How long the preStop hook sleeps, in seconds.
    pub fn sleep(self) -> Option<u64> {
        match self {
            Self::Sleep15 => Some(15),
            Self::Sleep30 => Some(30),
            Self::Sigterm | Self::Drainer => None,
        }
    }
}

impl ServerRun {
    /// One without requests so far.
    pub fn new(server: &str, front: &str, end: ServerEnd) -> Self {
        let (server, front) = (server.to_owned(), front.to_owned());
        let (sent, failed, seconds) = (0, 0, Vec::new());
        Self {
            server,
            front,
            end,
            sent,
            failed,
            seconds,
        }
    }

    /// Adds it to those of docs/measured.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn record(&self) -> Result<()> {
        let mut runs = figures::read::<Vec<Self>>(FILE).unwrap_or_default();
        runs.push(self.clone());
        figures::write(FILE, &runs)
    }
}

/// The table of the runs: requests that failed, and seconds from a pod's deletion to its end.
///
/// # Errors
/// If the figures cannot be read.
pub fn table() -> Result<String> {
    let runs: Vec<ServerRun> = figures::read(FILE)?;
    let servers: BTreeSet<_> = runs.iter().map(|run| &run.server).collect();
    let mut table = Table::new("clients, and how pods stop", &servers);
    for (front, clients) in FRONTS {
        for end in ServerEnd::VARIANTS {
            let cells = servers.iter().map(|server| {
                let mut runs = runs.clone();
                runs.retain(|run| run.server == **server && run.front == front && run.end == *end);
                cell(&runs)
            });
            table.add(format!("{clients}: {end}"), cells);
        }
    }
    Ok(table.to_string())
}

fn cell(runs: &[ServerRun]) -> String {
    if runs.is_empty() {
        return "–".to_owned();
    }
    let failed: u64 = runs.iter().map(|run| run.failed).sum();
    let sent: u64 = runs.iter().map(|run| run.sent).sum();
    let seconds = runs.iter().flat_map(|run| &run.seconds).copied();
    let (min, max) = seconds.fold((f64::MAX, 0.0), |(min, max): (f64, f64), it| {
        (min.min(it), max.max(it))
    });
    let failed = if failed > 0 {
        format!("**{failed}**")
    } else {
        failed.to_string()
    };
    format!("{failed} of {sent} · {min:.0}–{max:.0} s")
}
