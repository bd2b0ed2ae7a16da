//! The summary of a drain: one log line, the container's termination message, and part of a report to the webhook.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use strum::{Display, IntoStaticStr, VariantNames};
use tracing::{error, info, warn};

use super::exit_rules::DrainOutcome;
use crate::envoy::snapshot::OpenConnections;
use crate::kernel::witness::{Disagreement, SoleWitness};
use crate::text::printable;

/// Maximum size of a termination message in bytes; the kubelet truncates longer ones.
/// <https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/>
const MAX_MESSAGE: usize = 4096;

/// Maximum length of what a wait for a replacement was for, in bytes: it may quote what the webhook answered.
const MAX_WAITING_FOR: usize = 512;

/// The summary of a drain: the drainer's termination message, as JSON. Durations are in seconds.
///
/// An interim one is what the summary would be if the drain ended now. It is written while the pod may be killed, and
/// never sent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DrainSummary {
    /// Why it ended; `deadline` in an interim summary.
    pub outcome: DrainOutcome,
    /// False in an interim summary, else absent.
    #[serde(rename = "final", default = "yes", skip_serializing_if = "bool::clone")]
    pub is_final: bool,
    /// Of the termination: from its start to the end of the drain.
    pub seconds: f64,
    /// From the start of the drain until Envoy's health was failed; absent if that was at once,
    /// or never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds_to_failed_health: Option<f64>,
    /// From the start of the drain to the time since which at most `exit-at-connections` connections were open; absent
    /// if more were open at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds_to_zero: Option<f64>,
    /// From the start of the drain until a poll last showed a new connection, or to the first poll if none did; absent
    /// if Envoy hides new connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds_to_last_new_connection: Option<f64>,
    /// The highest number of connections in one poll.
    pub peak: u64,
    /// Connections at the last poll that counted them; absent if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remaining: Option<Remaining>,
    /// What the kernel knew at the end, and Envoy's statistics did not show; absent if nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disagreement: Option<Disagreement>,
    /// The only witness of what was left; absent if Envoy and the kernel were compared, or if nothing was counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub witness: Option<SoleWitness>,
    /// The wait for a replacement; absent if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replacement: Option<ReplacementWait>,
}

/// The connections that are open at one poll; in a summary those that the drain left open.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Remaining {
    /// All connections.
    pub connections: u64,
    /// Active requests; absent if Envoy hides them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<u64>,
    /// Upgrades, such as WebSockets; absent if Envoy hides them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrades: Option<u64>,
    /// Connections that do not speak HTTP; absent if Envoy hides the HTTP gauges.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp: Option<u64>,
    /// Connections that speak HTTP/3; absent if none is open, or Envoy hides them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http3: Option<u64>,
    /// Connections in flight, of a server or an Envoy without an admin interface: those with an unanswered request, with bytes
    /// on their way, or in a queue of the kernel. The others were silent, or may carry a stream. Absent where Envoy counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<u64>,
    /// Connections by the listener's name in statistics, or by the server's port.
    pub by_listener: BTreeMap<String, u64>,
}

/// How a wait for a replacement ended, and how long it took.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplacementWait {
    /// How it ended.
    pub outcome: ReplacementOutcome,
    /// In seconds.
    pub seconds: f64,
    /// What was missing at the end; absent if nothing was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<String>,
}

/// How a wait for a replacement ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[derive(Display, VariantNames, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum ReplacementOutcome {
    /// Every Service has another ready endpoint.
    Ready,
    /// No Service selects the pod.
    NoService,
    /// `wait-for-replacement` is over.
    Timeout,
}

/// A summary without `final` is that of a drain that has ended.
fn yes() -> bool {
    true
}

// === impl DrainSummary ===

impl DrainSummary {
    /// Logs the summary, an interim one without an outcome.
    pub(crate) fn log(&self, message: &str) {
        let outcome = self.is_final.then_some(self.outcome);
        match outcome {
            Some(DrainOutcome::Deadline) => {
                warn!("Drain reached its deadline: what is still in flight will be cut");
            }
            Some(DrainOutcome::Unreachable) => warn!(
                "Envoy was not drained, or a server listened on none of its ports: what is in flight will be cut. Annotate the pod with envoy-drainer.dev/admin-address, or declare the server's ports"
            ),
            Some(DrainOutcome::CallsForbidden) => error!(
                "Envoy has not told all clients to reconnect, since its admin interface rejects calls: write {{prefix: /healthcheck/}} and {{prefix: /drain_listeners}} in admin.allow_paths, or correct envoy-drainer.dev/admin-address"
            ),
            Some(DrainOutcome::HookMissed) => error!(
                "Envoy, or the server, has ended, and its preStop hook was never called: if iptables rules of an init container redirect the call, exclude the drainer's port from them. One that exits by itself looks the same"
            ),
            _ => {}
        }
        let (remaining, replacement) = (self.remaining.as_ref(), self.replacement.as_ref());
        info!(
            outcome = outcome.map(<&str>::from),
            seconds = self.seconds,
            seconds_to_failed_health = self.seconds_to_failed_health,
            seconds_to_zero = self.seconds_to_zero,
            seconds_to_last_new_connection = self.seconds_to_last_new_connection,
            peak = self.peak,
            remaining_connections = remaining.map(|left| left.connections),
            remaining_requests = remaining.and_then(|left| left.requests),
            remaining_upgrades = remaining.and_then(|left| left.upgrades),
            remaining_tcp = remaining.and_then(|left| left.tcp),
            remaining_in_flight = remaining.and_then(|left| left.in_flight),
            remaining_http3 = remaining.and_then(|left| left.http3),
            disagreement = self.disagreement.as_ref().map(tracing::field::debug),
            remaining_by_listener = remaining.map(|left| tracing::field::debug(&left.by_listener)),
            replacement = replacement.map(|wait| <&str>::from(wait.outcome)),
            "{message}"
        );
    }

    /// Returns the summary as a termination message has it: if it is too long, what the wait for a replacement was for is
    /// cut off, and the list of listeners is halved until it fits. The totals stay complete.
    pub(crate) fn shortened(mut self) -> Self {
        let waiting_for = self.replacement.as_mut().map(|wait| &mut wait.waiting_for);
        if let Some(Some(text)) = waiting_for {
            text.truncate(text.floor_char_boundary(MAX_WAITING_FOR));
        }
        // The length of the summary itself is always less.
        while serde_json::to_string(&self).is_ok_and(|json| json.len() > MAX_MESSAGE)
            && let Some(Remaining { by_listener, .. }) = &mut self.remaining
            && !by_listener.is_empty()
        {
            let half = by_listener.len() / 2;
            *by_listener = std::mem::take(by_listener).into_iter().take(half).collect();
        }
        self
    }

    /// Writes the summary, which is [shortened](Self::shortened), as termination message, or logs why not. A pod may
    /// end twice: the message of an earlier drain stays if that says more.
    pub(crate) fn write(&self, termination_log: &Path) {
        let written = std::fs::read(termination_log).unwrap_or_default();
        let written = serde_json::from_slice::<Self>(&written);
        if written.is_ok_and(|written| written.rank() > self.rank()) {
            return;
        }
        let json = serde_json::to_vec(self).map_err(io::Error::from);
        if let Err(error) = json.and_then(|json| std::fs::write(termination_log, json)) {
            warn!(%error, file = %termination_log.display(), "Cannot write the termination message");
        }
    }

    /// How much the summary says: an interim one less than a final one, and that the more, the more was active at its
    /// end.
    fn rank(&self) -> Option<(u64, u64)> {
        let by_use = |left: &Remaining| Some(left.requests?.saturating_add(left.tcp?));
        let active = |left: &Remaining| by_use(left).unwrap_or(left.connections);
        // Without counts, something may have been in flight.
        let active = self.remaining.as_ref().map_or(1, active);
        let active = active.saturating_add(self.disagreement.is_some().into());
        self.is_final.then_some((active, self.peak))
    }
}

// === impl Remaining ===

impl Remaining {
    /// What is open; `None` if the number of connections is unknown. Names of listeners are made [`printable`].
    pub(crate) fn new(open: &OpenConnections) -> Option<Self> {
        let names = open.by_listener.iter();
        Some(Self {
            connections: open.connections?,
            requests: open.http.map(|http| http.requests),
            upgrades: open.http.map(|http| http.upgrades),
            tcp: open.http.map(|http| http.non_http),
            http3: open.http.map(|http| http.http3).filter(|count| *count > 0),
            in_flight: open.server.map(|server| server.in_flight),
            by_listener: names.map(|(name, n)| (printable(name), *n)).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn summary(listeners: usize) -> DrainSummary {
        DrainSummary {
            outcome: DrainOutcome::Deadline,
            is_final: true,
            seconds: 60.001,
            seconds_to_failed_health: Some(15.5),
            seconds_to_zero: None,
            seconds_to_last_new_connection: Some(2.5),
            peak: 12,
            remaining: Some(Remaining {
                connections: 2,
                requests: Some(1),
                upgrades: Some(0),
                tcp: Some(1),
                http3: Some(1),
                in_flight: None,
                by_listener: (0..listeners)
                    .map(|n| (format!("0.0.0.0_{n}"), 1))
                    .collect(),
            }),
            disagreement: None,
            witness: None,
            replacement: None,
        }
    }

    fn read_written_message(summary: &DrainSummary) -> serde_json::Value {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("log");
        summary.clone().shortened().write(&file);
        let message = std::fs::read(&file).unwrap();
        assert!(message.len() <= MAX_MESSAGE, "{}", message.len());
        serde_json::from_slice(&message).unwrap()
    }

    #[test]
    fn message_has_what_was_left() {
        let want = json!({
            "outcome": "deadline", "seconds": 60.001, "secondsToFailedHealth": 15.5,
            "secondsToLastNewConnection": 2.5, "peak": 12,
            "remaining": {"connections": 2, "requests": 1, "upgrades": 0, "tcp": 1, "http3": 1,
                "byListener": {"0.0.0.0_0": 1, "0.0.0.0_1": 1}},
        });
        assert_eq!(read_written_message(&summary(2)), want);
        let read: DrainSummary = serde_json::from_value(want).unwrap();
        assert_eq!(read, summary(2));
    }

    #[test]
    fn message_gives_way_to_one_that_says_as_much() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("log");
        let (first, clean) = (summary(0), Some(Remaining::default()));
        let interim = DrainSummary {
            is_final: false,
            peak: 90,
            ..summary(0)
        };
        let later = |change: fn(&mut DrainSummary)| {
            let mut later = summary(0);
            change(&mut later);
            later
        };
        for (summary, is_written) in [
            (interim.clone(), true),
            (later(|it| it.is_final = false), true),
            (later(|it| (it.remaining, it.peak) = (None, 0)), true),
            (first.clone(), true),
            (interim, false),
            (later(|it| it.peak = 3), false),
            (later(|it| it.remaining = None), false),
            (later(|it| it.remaining = Some(Remaining::default())), false),
            (later(|it| it.peak = 13), true),
        ] {
            summary.write(&file);
            let message = std::fs::read(&file).unwrap();
            let written: DrainSummary = serde_json::from_slice(&message).unwrap();
            assert_eq!(written == summary, is_written, "{summary:?}");
        }
        let unknown = later(|it| it.remaining = None);
        assert!(
            unknown.rank()
                > DrainSummary {
                    remaining: clean,
                    ..first
                }
                .rank()
        );
    }

    #[test]
    fn message_with_many_listeners_is_complete_json() {
        let message = read_written_message(&summary(5000));
        let listeners = message
            .pointer("/remaining/byListener")
            .unwrap()
            .as_object()
            .unwrap();
        assert!((50..5000).contains(&listeners.len()), "{}", listeners.len());
        assert_eq!(message.pointer("/remaining/connections"), Some(&json!(2)));
    }

    #[test]
    fn long_reason_of_a_wait_is_cut_off() {
        let wait = ReplacementWait {
            outcome: ReplacementOutcome::Timeout,
            seconds: 30.0,
            waiting_for: Some("ä".repeat(8 << 10)),
        };
        for remaining in [None, summary(5000).remaining] {
            let message = read_written_message(&DrainSummary {
                remaining,
                replacement: Some(wait.clone()),
                ..summary(0)
            });
            let waiting_for = message.pointer("/replacement/waitingFor").unwrap();
            assert_eq!(waiting_for.as_str().unwrap().len(), MAX_WAITING_FOR);
        }
    }
}
