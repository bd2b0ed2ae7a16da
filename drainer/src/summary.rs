//! Last words: what a drain did, as one log line and as the container's termination message.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::envoy::stats::OpenConnections;
use crate::exit_rules::{DrainHistory, DrainOutcome};

/// The kubelet reads no more of a container's termination message.
/// <https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/>
const MAX_MESSAGE: usize = 4096;

/// What a drain did. Durations are in seconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Summary {
    /// Why it ended.
    pub outcome: DrainOutcome,
    /// From the first hook to the hooks' return.
    pub seconds: f64,
    /// From failed health until few enough connections were left for good; absent if more are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds_to_zero: Option<f64>,
    /// The most connections open at once.
    pub peak: u64,
    /// What was open at the last look; absent if Envoy never told.
    #[serde(rename = "left", skip_serializing_if = "Option::is_none")]
    pub remaining: Option<Remaining>,
}

/// What a drain left open.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Remaining {
    /// All connections.
    pub connections: u64,
    /// Requests under way; absent if Envoy hides them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<u64>,
    /// WebSockets and the like; absent if Envoy hides them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrades: Option<u64>,
    /// Connections outside HTTP; absent if Envoy hides what is HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp: Option<u64>,
    /// Connections by listener, under its name in statistics.
    pub by_listener: BTreeMap<String, u64>,
}

// === impl Summary ===

impl Summary {
    /// Sums up a drain that began at `since` and ended at `now`.
    #[must_use]
    pub(crate) fn new(
        outcome: DrainOutcome,
        since: Instant,
        now: Instant,
        record: &DrainHistory,
    ) -> Self {
        let seconds = |span: Duration| (span.as_secs_f64() * 1000.0).round() / 1000.0;
        Self {
            outcome,
            seconds: seconds(now.saturating_duration_since(since)),
            seconds_to_zero: record.time_to_zero().map(seconds),
            peak: record.peak,
            remaining: record.last_open.as_ref().map(Remaining::from),
        }
    }

    /// Logs the summary, each fact as a field.
    pub(crate) fn log(&self) {
        let left = self.remaining.as_ref();
        tracing::info!(
            outcome = %self.outcome,
            seconds = self.seconds,
            seconds_to_zero = self.seconds_to_zero,
            peak = self.peak,
            connections = left.map(|left| left.connections),
            requests = left.and_then(|left| left.requests),
            upgrades = left.and_then(|left| left.upgrades),
            tcp = left.and_then(|left| left.tcp),
            by_listener = left.map(|left| tracing::field::debug(&left.by_listener)),
            "The drain has ended"
        );
    }

    /// Writes the summary as termination message. Listeners that do not fit are left out.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn write(&self, termination_log: &Path) -> io::Result<()> {
        let mut shortened = self.clone();
        let mut message = serde_json::to_string(&shortened)?;
        while message.len() > MAX_MESSAGE {
            let Some(left) = shortened.remaining.as_mut() else {
                break;
            };
            let half = left.by_listener.len() / 2;
            left.by_listener = std::mem::take(&mut left.by_listener)
                .into_iter()
                .take(half)
                .collect();
            message = serde_json::to_string(&shortened)?;
        }
        std::fs::write(termination_log, message)
    }
}

// === impl Remaining ===

impl From<&OpenConnections> for Remaining {
    fn from(open: &OpenConnections) -> Self {
        Self {
            connections: open.connections,
            requests: open.http.map(|http| http.requests),
            upgrades: open.http.map(|http| http.upgrades),
            tcp: open.http.map(|http| http.non_http),
            by_listener: open.by_listener.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn summary(listeners: usize) -> Summary {
        Summary {
            outcome: DrainOutcome::Deadline,
            seconds: 60.001,
            seconds_to_zero: None,
            peak: 12,
            remaining: Some(Remaining {
                connections: 2,
                requests: Some(1),
                upgrades: Some(0),
                tcp: Some(1),
                by_listener: (0..listeners)
                    .map(|n| (format!("0.0.0.0_{n}"), 1))
                    .collect(),
            }),
        }
    }

    fn read_written_message(summary: &Summary) -> serde_json::Value {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("log");
        summary.write(&file).unwrap();
        let message = std::fs::read(&file).unwrap();
        assert!(message.len() <= MAX_MESSAGE, "{}", message.len());
        serde_json::from_slice(&message).unwrap()
    }

    #[test]
    fn the_message_says_what_was_left() {
        let want = json!({
            "outcome": "deadline", "seconds": 60.001, "peak": 12,
            "left": {"connections": 2, "requests": 1, "upgrades": 0, "tcp": 1,
                "byListener": {"0.0.0.0_0": 1, "0.0.0.0_1": 1}},
        });
        assert_eq!(read_written_message(&summary(2)), want);
    }

    #[test]
    fn a_message_with_very_many_listeners_stays_whole_json() {
        let message = read_written_message(&summary(5000));
        let listeners = message
            .pointer("/left/byListener")
            .unwrap()
            .as_object()
            .unwrap();
        assert!((50..5000).contains(&listeners.len()), "{}", listeners.len());
        assert_eq!(message.pointer("/left/connections"), Some(&json!(2)));
    }
}
