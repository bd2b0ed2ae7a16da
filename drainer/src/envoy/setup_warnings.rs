//! What will spoil a drain, told at start, when it can still be mended.

use std::fmt;

use super::server_info::DrainStrategy;
use super::stats::{Count, OpenConnections};
use crate::envoy::{Setup, Snapshot};

/// One way in which this Envoy's setup spoils a drain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SetupWarning {
    /// Listeners that ignore failed health, while the drain they heed hardly closes anything.
    GradualModifyOnly {
        /// Their names.
        listeners: Vec<String>,
        /// `--drain-time-s`.
        drain_time: String,
    },
    /// The listeners are forbidden, or more than can be read.
    ListenersUnreadable(String),
    /// A `stats_matcher` hides the statistics of a listener, or of all.
    ConnectionsHidden {
        /// Which listener's; `None` for all.
        listener: Option<String>,
        /// Whether `server.total_connections` can stand in, with `server.uptime`.
        is_total_visible: bool,
    },
    /// Statistics are forbidden, or more than can be read.
    StatisticsUnreadable(String),
    /// A `stats_matcher` hides how many connections were accepted.
    AcceptedHidden,
    /// A `stats_matcher` hides HTTP's statistics.
    HttpHidden,
    /// A `stats_matcher` hides which requests were completed.
    RequestsHidden,
}

/// Finds what will spoil a drain of an Envoy that is set up and looks like this.
#[must_use]
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
    let hidden = match &setup.hidden_stats {
        Ok(hidden) => hidden.listener.clone(),
        Err(why) => {
            warnings.push(SetupWarning::StatisticsUnreadable(why.clone()));
            return warnings;
        }
    };
    match snapshot {
        Snapshot::Counted(Count::Listeners(OpenConnections { counters, http, .. })) => {
            if counters.is_none() {
                warnings.push(SetupWarning::AcceptedHidden);
            }
            if http.is_none() {
                warnings.push(SetupWarning::HttpHidden);
            } else if counters.is_some_and(|counters| counters.requests.is_none()) {
                warnings.push(SetupWarning::RequestsHidden);
            }
        }
        Snapshot::Counted(Count::Server { uptime, .. }) => {
            warnings.push(SetupWarning::ConnectionsHidden {
                listener: hidden,
                is_total_visible: uptime.is_some(),
            });
        }
        Snapshot::Counted(Count::Hidden) => {
            warnings.push(SetupWarning::ConnectionsHidden {
                listener: hidden,
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
                "drain_type MODIFY_ONLY of {} heeds only the gradual drain strategy, which closes \
                 few connections before {drain_time} are over: start Envoy with \
                 --drain-strategy immediate",
                listeners.join(", "),
            ),
            Self::ListenersUnreadable(why) => write!(
                f,
                "Envoy's /config_dump cannot be read, so ignore-listeners, readiness probes and \
                 loopback listeners are known by their names in statistics only: {why}",
            ),
            Self::ConnectionsHidden {
                listener,
                is_total_visible: true,
            } => write!(
                f,
                "a stats_matcher hides listener.{}*: drains rely on server.total_connections, which \
                 is seconds old, and wait for idle connections; let listener.* and http.* through",
                stat_segment(listener.as_deref()),
            ),
            Self::ConnectionsHidden {
                listener,
                is_total_visible: false,
            } => write!(
                f,
                "a stats_matcher hides listener.{}* and server.total_connections or server.uptime: \
                 each drain lasts to its deadline; let listener.* and http.* through",
                stat_segment(listener.as_deref()),
            ),
            Self::StatisticsUnreadable(why) => write!(
                f,
                "Envoy's /stats cannot be read, so drains rely on server.total_connections at best, \
                 or last to their deadline: {why}",
            ),
            Self::AcceptedHidden => f.write_str(
                "a stats_matcher hides listener.*.downstream_cx_total: quiet cannot be seen, so \
                 each drain waits 20 s for it, and for idle connections too; let listener.* through",
            ),
            Self::HttpHidden => f.write_str(
                "a stats_matcher hides http.*: drains wait for idle connections too; let http.* \
                 through",
            ),
            Self::RequestsHidden => f.write_str(
                "a stats_matcher hides listener.*.http.*.downstream_rq_completed or \
                 http.*.downstream_cx_http1_total: whether a connection is used cannot be seen, so \
                 drains wait for idle connections too; let listener.* and http.* through",
            ),
        }
    }
}

/// The listener's part in the names of its statistics.
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
    use crate::envoy::stats::HttpCounts;

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
    fn each_spoiler_is_found_and_nothing_else() {
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
        let listeners = |open: &OpenConnections| Snapshot::Counted(Count::Listeners(open.clone()));
        let connections_hidden = |listener: Option<&str>, total_shown| {
            let listener = listener.map(str::to_owned);
            SetupWarning::ConnectionsHidden {
                listener,
                is_total_visible: total_shown,
            }
        };
        let gradual = SetupWarning::GradualModifyOnly {
            listeners: vec!["web".into()],
            drain_time: "600s".into(),
        };
        let table = [
            (setup(Gradual, "DEFAULT"), listeners(&open), vec![]),
            (setup(Immediate, "MODIFY_ONLY"), listeners(&open), vec![]),
            (
                setup(Gradual, "MODIFY_ONLY"),
                listeners(&open),
                vec![gradual],
            ),
            (
                Setup {
                    listeners: Err("answer of more than 7 bytes".into()),
                    ..setup(Gradual, "MODIFY_ONLY")
                },
                listeners(&open),
                vec![SetupWarning::ListenersUnreadable(
                    "answer of more than 7 bytes".into(),
                )],
            ),
            (
                setup(Gradual, "DEFAULT"),
                listeners(&OpenConnections::default()),
                vec![SetupWarning::AcceptedHidden, SetupWarning::HttpHidden],
            ),
            (
                setup(Gradual, "DEFAULT"),
                listeners(&OpenConnections {
                    counters: Some(Counters::default()),
                    ..open.clone()
                }),
                vec![SetupWarning::RequestsHidden],
            ),
            (
                setup(Gradual, "DEFAULT"),
                listeners(&OpenConnections {
                    counters: Some(Counters::default()),
                    ..OpenConnections::default()
                }),
                vec![SetupWarning::HttpHidden],
            ),
            (
                setup(Gradual, "DEFAULT"),
                Snapshot::Counted(Count::Server {
                    connections: 0,
                    uptime: Some(1),
                    live: None,
                }),
                vec![connections_hidden(None, true)],
            ),
            (
                setup(Gradual, "DEFAULT"),
                Snapshot::Counted(Count::Server {
                    connections: 0,
                    uptime: None,
                    live: None,
                }),
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
                Snapshot::Counted(Count::Hidden),
                vec![connections_hidden(Some("web"), false)],
            ),
            (
                Setup {
                    hidden_stats: Err("answer of more than 7 bytes".into()),
                    ..setup(Gradual, "DEFAULT")
                },
                Snapshot::Counted(Count::Hidden),
                vec![SetupWarning::StatisticsUnreadable(
                    "answer of more than 7 bytes".into(),
                )],
            ),
            (
                setup(Gradual, "DEFAULT"),
                Snapshot::InvalidResponse("403".into()),
                vec![SetupWarning::StatisticsUnreadable("403".into())],
            ),
        ];
        for (setup, seen, want) in table {
            assert_eq!(setup_warnings(&setup, &seen), want, "{seen:?}");
        }
    }
}
