//! What a drain cut: the work that was left when it reached its deadline.

use std::fmt;

use drainer::{DrainOutcome, DrainSummary, Remaining};
use serde::Serialize;

use crate::check::plural;

/// What a drain cut. Idle HTTP connections are not cut: their clients send the next request to another pod.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Cut {
    /// Active requests.
    pub requests: u64,
    /// Upgrades, such as WebSockets.
    pub upgrades: u64,
    /// Connections that do not speak HTTP.
    pub tcp: u64,
    /// All connections, where Envoy hides what they carry; else 0.
    pub connections: u64,
}

// === impl Cut ===

impl Cut {
    /// What a drain cut; `None` for nothing.
    pub fn of(summary: &DrainSummary) -> Option<Self> {
        let Remaining {
            connections,
            requests,
            upgrades,
            tcp,
            ..
        } = summary.remaining.as_ref()?;
        let cut = match (requests, upgrades, tcp) {
            (None, None, None) => Self {
                connections: *connections,
                ..Self::default()
            },
            _ => Self {
                requests: requests.unwrap_or(0),
                upgrades: upgrades.unwrap_or(0),
                tcp: tcp.unwrap_or(0),
                connections: 0,
            },
        };
        (summary.outcome == DrainOutcome::Deadline && cut != Self::default()).then_some(cut)
    }

    /// Reads a list such as `2 requests and 1 upgrade`; `None` if there is nothing that is known in it.
    pub(super) fn read(list: &str) -> Option<Self> {
        let mut cut = Self::default();
        for part in list.split(" and ").flat_map(|part| part.split(", ")) {
            let (count, noun) = part.split_once(' ')?;
            let field = match noun.trim_end_matches('s') {
                "request" => &mut cut.requests,
                "upgrade" => &mut cut.upgrades,
                "TCP connection" => &mut cut.tcp,
                "connection" => &mut cut.connections,
                _ => return None,
            };
            *field = count.parse().ok()?;
        }
        (cut != Self::default()).then_some(cut)
    }

    /// The parts that are not zero, each with its noun.
    fn parts(self) -> impl Iterator<Item = (u64, &'static str)> {
        let Self {
            requests,
            upgrades,
            tcp,
            connections,
        } = self;
        let all = [
            (requests, "request"),
            (upgrades, "upgrade"),
            (tcp, "TCP connection"),
            (connections, "connection"),
        ];
        all.into_iter().filter(|(count, _)| *count > 0)
    }
}

/// A list, such as `2 requests, 1 upgrade`.
impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = self
            .parts()
            .map(|(count, noun)| plural(usize::try_from(count).unwrap_or(usize::MAX), noun));
        f.write_str(&parts.collect::<Vec<_>>().join(", "))
    }
}
