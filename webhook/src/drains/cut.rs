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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cut(outcome: &str, left: &serde_json::Value) -> Option<String> {
        let summary = json!({"outcome": outcome, "seconds": 60.0, "peak": 9, "left": left});
        let summary = serde_json::from_value(summary).unwrap();
        Cut::of(&summary).map(|cut| cut.to_string())
    }

    #[test]
    fn work_that_is_left_at_the_deadline_is_cut() {
        let left = |requests, upgrades, tcp| json!({"connections": 9, "requests": requests, "upgrades": upgrades, "tcp": tcp, "byListener": {}});
        let hidden = |connections| json!({"connections": connections, "byListener": {}});
        for (outcome, left, want) in [
            ("deadline", left(2, 1, 0), Some("2 requests, 1 upgrade")),
            ("deadline", left(0, 0, 3), Some("3 TCP connections")),
            ("deadline", left(0, 0, 0), None),
            ("deadline", hidden(1), Some("1 connection")),
            ("deadline", hidden(0), None),
            ("deadline", json!(null), None),
            ("idle", left(0, 0, 1), None),
            ("gone", left(2, 0, 0), None),
        ] {
            assert_eq!(cut(outcome, &left).as_deref(), want, "{outcome} {left}");
        }
    }

    #[test]
    fn lists_are_read() {
        let cut = |requests, upgrades, tcp, connections| {
            Some(Cut {
                requests,
                upgrades,
                tcp,
                connections,
            })
        };
        for (list, want) in [
            ("1 request", cut(1, 0, 0, 0)),
            ("2 requests and 1 upgrade", cut(2, 1, 0, 0)),
            (
                "2 requests, 3 upgrades and 1 TCP connection",
                cut(2, 3, 1, 0),
            ),
            ("4 connections", cut(0, 0, 0, 4)),
            ("0 requests", None),
            ("2 requests and more", None),
            ("-1 request", None),
            ("", None),
        ] {
            assert_eq!(Cut::read(list), want, "{list}");
        }
    }
}
