//! Warnings, logged when Envoy has started, about a setup that will impair drains.

use std::fmt;

use super::server_info::DrainStrategy;
use super::snapshot::{OpenConnections, Snapshot};
use crate::envoy::Setup;

/// One way in which Envoy's setup impairs a drain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SetupWarning {
    /// MODIFY_ONLY listeners, which ignore failed health, under the gradual drain strategy, which closes few
    /// connections at first.
    GradualModifyOnly {
        /// Their names.
        listeners: Vec<String>,
        /// `--drain-time-s`.
        drain_time: String,
    },
    /// `/config_dump` is forbidden, or too large.
    ListenersUnreadable(String),
    /// A `stats_matcher` hides the connections of a listener, or of all.
    ConnectionsHidden {
        /// The listener; `None` for all.
        listener: Option<String>,
        /// Whether `server.total_connections` and `server.uptime` are there instead.
        is_total_visible: bool,
    },
    /// `/stats` is forbidden, or too large.
    StatisticsUnreadable(String),
    /// A `stats_matcher` hides the number of accepted connections.
    NewConnectionsHidden,
    /// A `stats_matcher` hides the HTTP gauges.
    HttpHidden,
    /// A `stats_matcher` hides the number of completed requests.
    RequestsHidden,
}

/// The remedy where both kinds of statistics are needed.
const KEEP_LISTENER_AND_HTTP: &str =
    "have the stats_matcher keep the statistics whose names begin with listener. or http.";

/// Finds what in the `setup`, and in the result of a poll, will impair a drain.
pub(crate) fn setup_warnings(setup: &Setup, snapshot: &Snapshot) -> Vec<SetupWarning> {
    let mut warnings = Vec::new();
    match &setup.listeners {
        Ok(listeners) if setup.server.drain_strategy == DrainStrategy::Gradual => {
            let listeners = listeners.modify_only();
            if !listeners.is_empty() {
                warnings.push(SetupWarning::GradualModifyOnly {
                    listeners: listeners.into_iter().map(str::to_owned).collect(),
                    drain_time: setup.server.drain_time.clone(),
                });
            }
        }
        Ok(_) => {}
        Err(why) => warnings.push(SetupWarning::ListenersUnreadable(why.clone())),
    }
    let hidden_listener = match &setup.hidden_stats {
        Ok(hidden_stats) => hidden_stats.listener.clone(),
        Err(why) => {
            warnings.push(SetupWarning::StatisticsUnreadable(why.clone()));
            return warnings;
        }
    };
    match snapshot {
        Snapshot::Counted(OpenConnections { counters, http, .. }) => {
            if counters.is_none() {
                warnings.push(SetupWarning::NewConnectionsHidden);
            }
            if http.is_none() {
                warnings.push(SetupWarning::HttpHidden);
            } else if counters.is_some_and(|counters| counters.requests.is_none()) {
                warnings.push(SetupWarning::RequestsHidden);
            }
        }
        Snapshot::ServerTotal { uptime, .. } => {
            warnings.push(SetupWarning::ConnectionsHidden {
                listener: hidden_listener,
                is_total_visible: uptime.is_some(),
            });
        }
        Snapshot::Hidden => {
            warnings.push(SetupWarning::ConnectionsHidden {
                listener: hidden_listener,
                is_total_visible: false,
            });
        }
        Snapshot::InvalidResponse(why) => {
            warnings.push(SetupWarning::StatisticsUnreadable(why.clone()))
        }
        Snapshot::NoResponse(_) | Snapshot::ConnectionRefused => {}
    }
    warnings
}

// === impl SetupWarning ===

impl fmt::Display for SetupWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GradualModifyOnly { listeners, drain_time } => write!(
                f,
                "listeners with drain_type MODIFY_ONLY ({}) ignore failed health and close connections only by \
                 the gradual drain strategy, which closes few before {drain_time} have passed: start \
                 Envoy with --drain-strategy immediate",
                listeners.join(", "),
            ),
            Self::ListenersUnreadable(why) => write!(
                f,
                "cannot read Envoy's /config_dump, so ignore-listeners, readiness probes and loopback \
                 listeners are matched by names in statistics only: {why}",
            ),
            Self::ConnectionsHidden {
                listener,
                is_total_visible: true,
            } => write!(
                f,
                "a stats_matcher hides listener.{}*: drains rely on server.total_connections, which \
                 is seconds old, and wait for idle connections too; {KEEP_LISTENER_AND_HTTP}",
                stat_segment(listener.as_deref()),
            ),
            Self::ConnectionsHidden {
                listener,
                is_total_visible: false,
            } => write!(
                f,
                "a stats_matcher hides listener.{}* and server.total_connections or server.uptime: \
                 each drain lasts until its deadline; {KEEP_LISTENER_AND_HTTP}",
                stat_segment(listener.as_deref()),
            ),
            Self::StatisticsUnreadable(why) => write!(
                f,
                "cannot read Envoy's /stats, so drains rely on server.total_connections at best, or last \
                 until their deadline: {why}",
            ),
            Self::NewConnectionsHidden => f.write_str(
                "a stats_matcher hides listener.*.downstream_cx_total: new connections are unknown, so \
                 each drain waits 20 s for them to stop, and for idle connections too; have the \
                 stats_matcher keep the statistics whose names begin with listener.",
            ),
            Self::HttpHidden => f.write_str(
                "a stats_matcher hides http.*: drains wait for idle connections too; have the \
                 stats_matcher keep the statistics whose names begin with http.",
            ),
            Self::RequestsHidden => write!(
                f,
                "a stats_matcher hides listener.*.http.*.downstream_rq_completed or \
                 http.*.downstream_cx_http1_total: the use of connections is unknown, so drains \
                 wait for idle connections too; {KEEP_LISTENER_AND_HTTP}",
            ),
        }
    }
}

/// Returns the listener's segment in the names of its statistics.
fn stat_segment(listener: Option<&str>) -> String {
    listener.map_or_else(String::new, |listener| format!("{listener}."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client_activity::{Counters, RequestCounters};
    use crate::envoy::hidden_stats::HiddenStats;
    use crate::envoy::listeners;
    use crate::envoy::listeners::EnvoyListeners;
    use crate::envoy::server_info::ServerInfo;
    use crate::envoy::snapshot::HttpCounts;

    fn setup(drain_strategy: DrainStrategy, drain_type: &str) -> Setup {
        let dump = format!(
            r#"{{"configs":[{{"listener":{{"name":"web","drain_type":"{drain_type}",
                "address":{{"socket_address":{{"address":"0.0.0.0","port_value":80}}}}}}}}]}}"#
        );
        Setup {
            server: ServerInfo {
                drain_strategy,
                drain_time: "600s".into(),
                ..ServerInfo::default()
            },
            listeners: Ok(EnvoyListeners::new(
                listeners::read(dump.as_bytes()).unwrap(),
                Vec::new(),
            )),
            hidden_stats: Ok(HiddenStats::default()),
        }
    }

    #[test]
    fn each_impairment_is_reported_and_nothing_else() {
        use DrainStrategy::{Gradual, Immediate};
        let counters = Counters {
            requests: Some(RequestCounters::default()),
            ..Counters::default()
        };
        let open = OpenConnections {
            counters: Some(counters),
            http: Some(HttpCounts::default()),
            ..OpenConnections::default()
        };
        let counted = |open: &OpenConnections| Snapshot::Counted(open.clone());
        let connections_hidden = |listener: Option<&str>, is_total_visible| {
            let listener = listener.map(str::to_owned);
            SetupWarning::ConnectionsHidden {
                listener,
                is_total_visible,
            }
        };
        let gradual = SetupWarning::GradualModifyOnly {
            listeners: vec!["web".into()],
            drain_time: "600s".into(),
        };
        let table = [
            (setup(Gradual, "DEFAULT"), counted(&open), vec![]),
            (setup(Immediate, "MODIFY_ONLY"), counted(&open), vec![]),
            (setup(Gradual, "MODIFY_ONLY"), counted(&open), vec![gradual]),
            (
                Setup {
                    listeners: Err("response of more than 7 bytes".into()),
                    ..setup(Gradual, "MODIFY_ONLY")
                },
                counted(&open),
                vec![SetupWarning::ListenersUnreadable(
                    "response of more than 7 bytes".into(),
                )],
            ),
            (
                setup(Gradual, "DEFAULT"),
                counted(&OpenConnections::default()),
                vec![SetupWarning::NewConnectionsHidden, SetupWarning::HttpHidden],
            ),
            (
                setup(Gradual, "DEFAULT"),
                counted(&OpenConnections {
                    counters: Some(Counters::default()),
                    ..open.clone()
                }),
                vec![SetupWarning::RequestsHidden],
            ),
            (
                setup(Gradual, "DEFAULT"),
                counted(&OpenConnections {
                    counters: Some(Counters::default()),
                    ..OpenConnections::default()
                }),
                vec![SetupWarning::HttpHidden],
            ),
            (
                setup(Gradual, "DEFAULT"),
                Snapshot::ServerTotal {
                    connections: 0,
                    uptime: Some(1),
                    live: None,
                },
                vec![connections_hidden(None, true)],
            ),
            (
                setup(Gradual, "DEFAULT"),
                Snapshot::ServerTotal {
                    connections: 0,
                    uptime: None,
                    live: None,
                },
                vec![connections_hidden(None, false)],
            ),
            (
                Setup {
                    hidden_stats: Ok(HiddenStats {
                        listener: Some("web".into()),
                        ..HiddenStats::default()
                    }),
                    ..setup(Gradual, "DEFAULT")
                },
                Snapshot::Hidden,
                vec![connections_hidden(Some("web"), false)],
            ),
            (
                Setup {
                    hidden_stats: Err("response of more than 7 bytes".into()),
                    ..setup(Gradual, "DEFAULT")
                },
                Snapshot::Hidden,
                vec![SetupWarning::StatisticsUnreadable(
                    "response of more than 7 bytes".into(),
                )],
            ),
            (
                setup(Gradual, "DEFAULT"),
                Snapshot::InvalidResponse("403".into()),
                vec![SetupWarning::StatisticsUnreadable("403".into())],
            ),
        ];
        for (setup, snapshot, want) in table {
            assert_eq!(setup_warnings(&setup, &snapshot), want, "{snapshot:?}");
        }
    }
}
