//! What drains cut, from their summaries, and how an Event about such a drain is found and read.

use std::fmt;

use drainer::{DrainOutcome, DrainSummary, Remaining};
use serde::Serialize;
use strum::Display;

use super::excerpt::plural;

/// The reason of an Event about a drain that cut something.
pub const DRAIN_CUT: &str = "DrainCut";

/// The annotation of that Event with the [`DrainSummary`], as JSON.
pub const SUMMARY_ANNOTATION: &str = "envoy-drainer.dev/drain-summary";

/// What a drain cut: what was in flight when it ended, whatever ended it. A drain that cut nothing has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Cut {
    /// There are no counts; or by the counts nothing was in flight, but they are from before the end, or the kernel
    /// contradicts them.
    Unknown,
    /// At least this.
    #[serde(untagged)]
    #[strum(to_string = "{0}")]
    Counted(CutCounts),
}

/// What is in flight. Displayed as `2 requests and 1 upgrade`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct CutCounts {
    /// Requests, without upgrades.
    pub requests: u64,
    /// Upgrades, such as WebSockets.
    pub upgrades: u64,
    /// Connections that do not speak HTTP.
    pub tcp: u64,
    /// Connections of which Envoy hides what they are used for, so that some may have been idle; 0 if any other number
    /// is known. Of a server that is no Envoy, those in flight.
    pub connections: u64,
}

/// How many connections a drain left open of which the kernel knows only that they were silent: a stream among them was cut.
pub fn silent_connections(drain: &DrainSummary) -> u64 {
    let remaining = (drain.remaining.as_ref()).filter(|_| drain.outcome == DrainOutcome::Silent);
    remaining.map_or(0, |left| left.connections)
}

// === impl Cut ===

impl Cut {
    /// What the drain cut, by its numbers alone: with each outcome, something may have been left. `None` if nothing
    /// was, as idle HTTP connections are not cut, nor those of a server that were silent.
    pub fn of(drain: &DrainSummary) -> Option<Self> {
        let Some(remaining) = &drain.remaining else {
            return Some(Self::Unknown);
        };
        let counts = CutCounts::from(remaining);
        // What only the kernel knows to be open may carry streams, which it cannot tell from silence.
        let is_silent = drain.outcome == DrainOutcome::Silent;
        let may_stream = remaining.in_flight.is_some() && remaining.connections > 0 && !is_silent;
        let may_be_more = !drain.is_final || drain.disagreement.is_some() || may_stream;
        if may_be_more && counts == CutCounts::default() {
            return Some(Self::Unknown);
        }
        (counts != CutCounts::default()).then_some(Self::Counted(counts))
    }

    /// Each number, and what it counts, as metrics name it. `unknown` counts drains.
    pub fn numbers(self) -> [(&'static str, u64); 5] {
        let (counts, unknown) = match self {
            Self::Unknown => (CutCounts::default(), 1),
            Self::Counted(counts) => (counts, 0),
        };
        [
            ("requests", counts.requests),
            ("upgrades", counts.upgrades),
            ("tcp", counts.tcp),
            ("connections", counts.connections),
            ("unknown", unknown),
        ]
    }
}

// === impl CutCounts ===

impl From<&Remaining> for CutCounts {
    fn from(remaining: &Remaining) -> Self {
        let [requests, upgrades, tcp] = [remaining.requests, remaining.upgrades, remaining.tcp];
        let is_hidden = requests.or(upgrades).or(tcp).is_none();
        let [requests, upgrades, tcp] = [requests, upgrades, tcp].map(Option::unwrap_or_default);
        Self {
            // Envoy counts an upgrade as a request too.
            requests: requests.saturating_sub(upgrades),
            upgrades,
            tcp,
            connections: match remaining.in_flight {
                Some(in_flight) => in_flight,
                None if is_hidden => remaining.connections,
                None => 0,
            },
        }
    }
}

impl fmt::Display for CutCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            (self.requests, "request"),
            (self.upgrades, "upgrade"),
            (self.tcp, "TCP connection"),
            (self.connections, "connection"),
        ];
        let parts = parts.into_iter().filter(|(number, _)| *number > 0);
        let parts: Vec<_> = parts.map(|(number, noun)| plural(number, noun)).collect();
        match parts.split_last() {
            None => f.write_str("nothing"),
            Some((last, [])) => f.write_str(last),
            Some((last, others)) => write!(f, "{} and {last}", others.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use drainer::DrainOutcome;

    use super::*;

    fn summary(outcome: DrainOutcome, remaining: Option<Remaining>) -> DrainSummary {
        DrainSummary {
            outcome,
            is_final: true,
            seconds: 60.0,
            seconds_to_failed_health: None,
            seconds_to_zero: None,
            seconds_to_last_new_connection: None,
            peak: 12,
            remaining,
            disagreement: None,
            witness: None,
            replacement: None,
        }
    }

    #[test]
    fn server_cuts_what_was_in_flight_and_its_silent_connections_are_told_apart() {
        use DrainOutcome::{Deadline, Drained, Silent, Unreachable};
        let counted = |connections| {
            let counts = CutCounts {
                connections,
                ..CutCounts::default()
            };
            Some(Cut::Counted(counts))
        };
        for (outcome, connections, in_flight, cut, silent) in [
            (Drained, 0, 0, None, 0),
            (Silent, 3, 0, None, 3),
            (Deadline, 3, 2, counted(2), 0),
            (Deadline, 3, 0, Some(Cut::Unknown), 0),
            (Unreachable, 3, 1, counted(1), 0),
            (Unreachable, 3, 0, Some(Cut::Unknown), 0),
        ] {
            let left = Remaining {
                connections,
                in_flight: Some(in_flight),
                ..Remaining::default()
            };
            let drain = summary(outcome, Some(left));
            assert_eq!(
                (Cut::of(&drain), silent_connections(&drain)),
                (cut, silent),
                "{outcome}"
            );
        }
    }

    #[test]
    fn killed_drain_may_have_cut_more() {
        let mut killed = summary(DrainOutcome::Deadline, Some(Remaining::default()));
        assert_eq!(Cut::of(&killed), None);
        killed.is_final = false;
        assert_eq!(Cut::of(&killed), Some(Cut::Unknown));
    }

    #[test]
    fn what_the_kernel_alone_knows_is_cut() {
        let mut drain = summary(DrainOutcome::Deadline, Some(Remaining::default()));
        drain.disagreement = Some(drainer::Disagreement::default());
        assert_eq!(Cut::of(&drain), Some(Cut::Unknown));
    }

    #[test]
    fn what_was_in_flight_is_cut_whatever_the_outcome() {
        use DrainOutcome::{Deadline, Drained, Gone, Idle, Unreachable};
        let left = |requests: Option<u64>, upgrades: Option<u64>, tcp: Option<u64>| Remaining {
            connections: 9,
            requests,
            upgrades,
            tcp,
            ..Remaining::default()
        };
        let counted =
            |requests, upgrades, tcp| Some(left(Some(requests), Some(upgrades), Some(tcp)));
        for (remaining, want) in [
            (None, Some("unknown")),
            (counted(0, 0, 0), None),
            (counted(2, 0, 0), Some("2 requests")),
            (counted(1, 1, 0), Some("1 upgrade")),
            (counted(3, 1, 0), Some("2 requests and 1 upgrade")),
            (
                counted(2, 1, 2),
                Some("1 request, 1 upgrade and 2 TCP connections"),
            ),
            // Impossible counts.
            (
                counted(0, u64::MAX, 0),
                Some("18446744073709551615 upgrades"),
            ),
            (Some(left(None, None, None)), Some("9 connections")),
            (Some(Remaining::default()), None),
            (Some(left(Some(0), None, None)), None),
        ] {
            for outcome in [Drained, Idle, Gone, Deadline, Unreachable] {
                let summary = summary(outcome, remaining.clone());
                let cut = Cut::of(&summary).map(|cut| cut.to_string());
                assert_eq!(cut.as_deref(), want, "{summary:?}");
            }
        }
    }
}
