//! Envoy's version, state and drain strategy, from its admin endpoint `/server_info`.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::settings::duration;

/// The part of `/server_info` that matters to a drain.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct ServerInfo {
    /// `1.40.0`, or the whole `version` if it has another form.
    pub version: String,
    /// How it was started.
    pub command_line_options: CommandLineOptions,
    /// How long this process has been running, as Envoy formats it: `12s`. After a hot restart, the time since that.
    #[serde(default)]
    pub uptime_current_epoch: String,
    /// Whether it serves.
    #[serde(default)]
    pub state: ServerState,
}

/// Envoy's command line.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct CommandLineOptions {
    /// How `/drain_listeners` closes connections, by `--drain-strategy`: `Immediate` means with each response,
    /// `Gradual` with a probability that grows over the drain time.
    pub drain_strategy: String,
    /// `--drain-time-s`, as Envoy formats it: `600s`.
    pub drain_time: String,
    /// All others, by their names.
    #[serde(flatten)]
    pub others: Map<String, Value>,
}

/// Envoy's `state`.
/// <https://www.envoyproxy.io/docs/envoy/latest/api-v3/admin/v3/server_info.proto>
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum ServerState {
    /// It serves and is healthy.
    Live,
    /// Its health is failed; it still serves.
    Draining,
    /// It is starting, or waits for its configuration.
    #[serde(alias = "PRE_INITIALIZING")]
    Initializing,
    /// Absent, or a value that this version does not know.
    #[default]
    #[serde(other)]
    Unknown,
}

// === impl ServerInfo ===

impl ServerInfo {
    /// Parses the body of a response to `/server_info`.
    ///
    /// # Errors
    /// If it is not such a body.
    pub(crate) fn read(body: &[u8]) -> Result<Self, serde_json::Error> {
        let mut info: Self = serde_json::from_slice(body)?;
        // commit/version/tree/build/TLS library
        if let Some(version) = info.version.split('/').nth(1) {
            info.version = version.to_owned();
        }
        Ok(info)
    }

    /// Returns true if `/drain_listeners` makes all clients reconnect at once.
    pub(crate) fn drains_at_once(&self) -> bool {
        self.command_line_options.drain_strategy == "Immediate"
    }

    /// Returns Envoy's drain time and the one that a drain of `drain_timeout` needs, if it is too short. From 1.41 on,
    /// Envoy drains connections by itself in the last third of it: it resets upgrades, and closes idle connections.
    /// <https://www.envoyproxy.io/docs/envoy/latest/intro/arch_overview/operations/draining>
    pub(crate) fn short_drain_time(&self, drain_timeout: Duration) -> Option<(Duration, Duration)> {
        let numbers = self.version.split('.').map_while(|it| it.parse().ok());
        let numbers: Vec<u32> = numbers.take(2).collect();
        let drain_time = duration::parse(&self.command_line_options.drain_time).ok()?;
        let needed = Duration::from_secs((drain_timeout * 3 / 2).as_secs_f64().ceil() as u64);
        (numbers >= vec![1, 41] && drain_time < needed).then_some((drain_time, needed))
    }

    /// Returns for how long this process has been running, in whole seconds; `None` if that is unknown.
    pub(crate) fn uptime(&self) -> Option<Duration> {
        duration::parse(&self.uptime_current_epoch).ok()
    }

    /// Returns true if Envoy does not serve yet.
    pub(crate) fn is_starting(&self) -> bool {
        self.state == ServerState::Initializing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_info_is_parsed() {
        let body = br#"{"version": "abc/1.40.0/Clean/RELEASE/BoringSSL", "state": "LIVE", "uptime_current_epoch": "12s",
            "command_line_options": {"drain_strategy": "Immediate", "drain_time": "600s", "x": 1}}"#;
        let want = ServerInfo {
            version: "1.40.0".into(),
            command_line_options: CommandLineOptions {
                drain_strategy: "Immediate".into(),
                drain_time: "600s".into(),
                others: [("x".to_owned(), 1.into())].into_iter().collect(),
            },
            uptime_current_epoch: "12s".into(),
            state: ServerState::Live,
        };
        let info = ServerInfo::read(body).unwrap();
        assert_eq!(info, want);
        assert_eq!(info.uptime(), Some(Duration::from_secs(12)));
        let bare =
            ServerInfo::read(br#"{"version": "custom", "command_line_options": {}}"#).unwrap();
        assert_eq!(
            (
                bare.version.as_str(),
                bare.command_line_options.drain_strategy.as_str(),
                bare.state
            ),
            ("custom", "", ServerState::Unknown)
        );
        assert_eq!(bare.uptime(), None);
        for state in ["PRE_INITIALIZING", "INITIALIZING"] {
            let body =
                format!(r#"{{"version": "", "state": "{state}", "command_line_options": {{}}}}"#);
            assert!(ServerInfo::read(body.as_bytes()).unwrap().is_starting());
        }
        let odd =
            ServerInfo::read(br#"{"version": "", "state": "PAUSED", "command_line_options": {}}"#)
                .unwrap();
        assert_eq!(odd.state, ServerState::Unknown);
        for other in [&b"OK"[..], br#"{"version": "1.0"}"#] {
            assert!(ServerInfo::read(other).is_err());
        }
    }

    #[test]
    fn drain_time_is_short_from_1_41_on() {
        let table = [
            // (version, drain time, drain-timeout, needed)
            ("1.41.0", "60s", 60, Some(90)),
            ("1.41.0-dev", "89s", 60, Some(90)),
            ("1.41.0", "90s", 60, None),
            ("1.41.2", "600s", 401, Some(602)),
            ("2.0.0", "1s", 1, Some(2)),
            ("1.40.9", "1s", 60, None),
            ("0.99.0", "1s", 60, None),
            ("custom", "1s", 60, None),
            ("1.41.0", "", 60, None),
        ];
        for (version, drain_time, drain_timeout, needed) in table {
            let info = ServerInfo {
                version: version.into(),
                command_line_options: CommandLineOptions {
                    drain_time: drain_time.into(),
                    ..CommandLineOptions::default()
                },
                ..ServerInfo::default()
            };
            let short = info.short_drain_time(Duration::from_secs(drain_timeout));
            let got = short.map(|(_, needed)| needed.as_secs());
            assert_eq!(got, needed, "{version}, {drain_time}, {drain_timeout}");
        }
    }
}
