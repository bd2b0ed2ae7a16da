//! What clients lose of servers that are no Envoy, by how their pods end: the runs of `make servers`, and of
//! `make streams`.

use std::collections::BTreeSet;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use strum::VariantArray;

use crate::figures;
use crate::table::{Table, failed_of, range};

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

/// Through what clients reach the servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum Front {
    /// An Envoy whose endpoints lag.
    Envoy,
    KubeProxy,
    /// The same as kube-proxy, by clients that keep their connections and never pause.
    Kept,
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
const STREAMS: &str = "streams";

impl Front {
    /// Its clients, in the table.
    fn clients(self) -> &'static str {
        match self {
            Self::Envoy => "Envoy",
            Self::KubeProxy => "new connections",
            Self::Kept => "kept, never pausing",
        }
    }
}

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
        Self {
            server: server.to_owned(),
            front: front.to_owned(),
            end,
            sent: 0,
            failed: 0,
            seconds: Vec::new(),
        }
    }

    /// Adds it to those of docs/measured.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn record(&self) -> Result<()> {
        let mut runs = figures::read_runs::<Self>(FILE)?;
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
    for front in Front::VARIANTS {
        for end in ServerEnd::VARIANTS {
            let cells =
                servers.iter().map(|server| {
                    let front = front.to_string();
                    cell(runs.iter().filter(|run| {
                        run.server == **server && run.front == front && run.end == *end
                    }))
                });
            table.add(format!("{}: {end}", front.clients()), cells);
        }
    }
    Ok(table.to_string())
}

/// Writes the runs of `make streams`: each has the kind of its clients as `front`, and the name of the port as `server`.
///
/// # Errors
/// If the file cannot be written.
pub fn write_streams(runs: &[ServerRun]) -> Result<()> {
    figures::write(STREAMS, &runs)
}

/// The table of the runs of `make streams`, and of the clients of `make servers` that never pause.
///
/// # Errors
/// If the figures cannot be read.
pub fn streams() -> Result<String> {
    let mut runs: Vec<ServerRun> = figures::read(STREAMS)?;
    let kept = figures::read::<Vec<ServerRun>>(FILE)?.into_iter();
    runs.extend(
        kept.filter(|run| run.front == Front::Kept.to_string())
            .map(|run| ServerRun {
                server: "http".to_owned(),
                front: "requests on kept connections that never pause".to_owned(),
                ..run
            }),
    );
    let columns = [
        ("sleep 15", ServerEnd::Sleep15, "http"),
        ("sleep 30", ServerEnd::Sleep30, "http"),
        ("envoy-drainer", ServerEnd::Drainer, "http"),
        (
            "envoy-drainer, port `grpc` or `tcp`",
            ServerEnd::Drainer,
            "grpc, tcp",
        ),
    ];
    let mut table = Table::new("cut, of all", columns.map(|(name, ..)| name));
    let fronts: Vec<_> = runs.iter().map(|run| run.front.clone()).collect();
    for (number, front) in fronts.iter().enumerate() {
        if !fronts[..number].contains(front) {
            let cells = columns.map(|(_, end, port)| {
                cell(
                    runs.iter()
                        .filter(|run| run.front == *front && run.end == end && run.server == port),
                )
            });
            table.add(front, cells);
        }
    }
    Ok(table.to_string())
}

fn cell<'a>(runs: impl Iterator<Item = &'a ServerRun>) -> String {
    let runs: Vec<_> = runs.collect();
    if runs.is_empty() {
        return "–".to_owned();
    }
    let failed = runs.iter().map(|run| run.failed).sum();
    let sent = runs.iter().map(|run| run.sent).sum();
    let seconds = runs.iter().flat_map(|run| &run.seconds).copied();
    format!("{} · {} s", failed_of(failed, sent), range(seconds, "–"))
}
