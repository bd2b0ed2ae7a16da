//! What drains cut, from their summaries, and how an Event about such a drain is found and read.

use std::fmt;

use drainer::text::plural;
use drainer::{DrainOutcome, DrainSummary};
use serde::Serialize;

/// The reason of an Event about a drain that cut something.
pub const DRAIN_CUT: &str = "DrainCut";

/// The annotation of that Event with the [`DrainSummary`], as JSON.
pub const SUMMARY_ANNOTATION: &str = "envoy-drainer.dev/drain-summary";

/// What a drain cut: what was in flight when it reached its deadline. Displayed as `2 requests and 1 upgrade`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Cut {
    /// Requests, without upgrades.
    pub requests: u64,
    /// Upgrades, such as WebSockets.
    pub upgrades: u64,
    /// Connections that do not speak HTTP.
    pub tcp: u64,
    /// Connections of which Envoy hides what they are used for, so that some may have been idle; 0 if any other number
    /// is known.
    pub connections: u64,
}

// === impl Cut ===

impl Cut {
    /// Returns true if what the drain cut is unknown: it reached its deadline and no poll had exact counts, or Envoy
    /// had no admin interface.
    pub fn is_unknown(drain: &DrainSummary) -> bool {
        let is_ended = matches!(
            drain.outcome,
            DrainOutcome::Deadline | DrainOutcome::Unreachable
        );
        is_ended && drain.remaining.is_none()
    }

    /// What the drain cut: the requests, upgrades and TCP connections that were left at its deadline, or all
    /// connections if Envoy hides what they are used for. `None` if nothing was left, as idle HTTP connections are not
    /// cut.
    pub fn of(drain: &DrainSummary) -> Option<Self> {
        if drain.outcome != DrainOutcome::Deadline {
            return None;
        }
        let remaining = drain.remaining.as_ref()?;
        let [requests, upgrades, tcp] = [remaining.requests, remaining.upgrades, remaining.tcp];
        let is_hidden = requests.or(upgrades).or(tcp).is_none();
        let [requests, upgrades, tcp] = [requests, upgrades, tcp].map(Option::unwrap_or_default);
        let cut = Self {
            // Envoy counts an upgrade as a request too.
            requests: requests.saturating_sub(upgrades),
            upgrades,
            tcp,
            connections: if is_hidden { remaining.connections } else { 0 },
        };
        (cut != Self::default()).then_some(cut)
    }

    /// Each number, and what it counts, as metrics name it.
    pub fn numbers(self) -> [(&'static str, u64); 4] {
        [
            ("requests", self.requests),
            ("upgrades", self.upgrades),
            ("tcp", self.tcp),
            ("connections", self.connections),
        ]
    }
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nouns = ["request", "upgrade", "TCP connection", "connection"];
        let numbers = self.numbers().into_iter().map(|(_, number)| number);
        let parts = numbers.zip(nouns).filter(|(number, _)| *number > 0);
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
    use drainer::Remaining;

    use super::*;

    fn summary(outcome: DrainOutcome, remaining: Option<Remaining>) -> DrainSummary {
        DrainSummary {
            outcome,
            seconds: 60.0,
            seconds_to_failed_health: None,
            seconds_to_zero: None,
            peak: 12,
            remaining,
            replacement: None,
        }
    }

    #[test]
    fn what_was_cut_is_unknown_at_the_deadline_without_counts() {
        let is_unknown = |outcome, remaining| Cut::is_unknown(&summary(outcome, remaining));
        assert!(is_unknown(DrainOutcome::Deadline, None));
        assert!(is_unknown(DrainOutcome::Unreachable, None));
        assert!(!is_unknown(
            DrainOutcome::Deadline,
            Some(Remaining::default())
        ));
        assert!(!is_unknown(DrainOutcome::Gone, None));
    }

    #[test]
    fn only_what_is_in_flight_at_the_deadline_is_cut() {
        use DrainOutcome::{Deadline, Gone};
        let left = |requests: Option<u64>, upgrades: Option<u64>, tcp: Option<u64>| Remaining {
            connections: 9,
            requests,
            upgrades,
            tcp,
            ..Remaining::default()
        };
        let counted =
            |requests, upgrades, tcp| Some(left(Some(requests), Some(upgrades), Some(tcp)));
        for (outcome, remaining, want) in [
            (Deadline, None, None),
            (Deadline, counted(0, 0, 0), None),
            (Gone, counted(2, 0, 0), None),
            (Deadline, counted(2, 0, 0), Some("2 requests")),
            (Deadline, counted(1, 1, 0), Some("1 upgrade")),
            (Deadline, counted(3, 1, 0), Some("2 requests and 1 upgrade")),
            (
                Deadline,
                counted(2, 1, 2),
                Some("1 request, 1 upgrade and 2 TCP connections"),
            ),
            // Impossible counts.
            (
                Deadline,
                counted(0, u64::MAX, 0),
                Some("18446744073709551615 upgrades"),
            ),
            (
                Deadline,
                Some(left(None, None, None)),
                Some("9 connections"),
            ),
            (Deadline, Some(Remaining::default()), None),
            (Deadline, Some(left(Some(0), None, None)), None),
        ] {
            let summary = summary(outcome, remaining);
            let cut = Cut::of(&summary).map(|cut| cut.to_string());
            assert_eq!(cut.as_deref(), want, "{summary:?}");
        }
    }
}
