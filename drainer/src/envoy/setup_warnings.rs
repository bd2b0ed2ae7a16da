//! Warnings, logged when Envoy has started, about a setup that will impair drains.

use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantNames};

use super::server_info::DrainStrategy;
use super::snapshot::{OpenConnections, Snapshot};
use crate::duration;
use crate::envoy::Setup;
use crate::exit_rules::MAX_QUIET_WAIT;
use crate::health_failure::HealthFailureDelay;

/// Something in Envoy's configuration that will impair drains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SetupWarning {
    pub(crate) kind: SetupWarningKind,
    /// What it is, and what to do about it.
    pub(crate) text: String,
}

/// The kind of a setup warning, by its name in reports and metrics.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    VariantNames,
    IntoStaticStr,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum SetupWarningKind {
    /// The admin interface cannot be read.
    AdminUnreadable,
    /// Listeners with `drain_type: MODIFY_ONLY`, and the gradual drain strategy.
    ModifyOnlyGradual,
    /// QUIC listeners, and the gradual drain strategy.
    QuicGradual,
    /// `/config_dump` cannot be read.
    ListenersUnreadable,
    /// `/stats` cannot be read.
    StatsUnreadable,
    /// `listener.*.downstream_cx_total` is hidden.
    NewConnectionsHidden,
    /// `http.*` is hidden.
    HttpStatsHidden,
    /// `listener.*.http.*.downstream_rq_completed` or `http.*.downstream_cx_http1_total` is hidden.
    ConnectionUseHidden,
    /// `http.*.downstream_cx_http3_active` is hidden, and drains keep Envoy's health while HTTP/3 connections are open.
    Http3ConnectionsHidden,
    /// `listener.*` is hidden, of one listener at least.
    ListenerStatsHidden,
    /// `listener.*` is hidden, and `server.total_connections` or `server.uptime`.
    ConnectionsHidden,
}

/// The remedy where both kinds of statistics are needed.
const KEEP_LISTENER_AND_HTTP: &str =
    "have the stats_matcher keep the statistics whose names begin with listener. or http.";

/// What makes `/drain_listeners` tell all clients to reconnect at once.
const IMMEDIATE_STRATEGY: &str = "annotate the pod with envoy-drainer.dev/drain-strategy: immediate, or start Envoy \
with --drain-strategy immediate";

/// Describes what in the `setup`, and in the statistics of a poll, will impair a drain with this delay of failed health.
///
/// `polled` is what the poll counted, or why Envoy rejected it.
pub(crate) fn setup_warnings(
    setup: &Setup,
    polled: Result<&Snapshot, &String>,
    health_failure_delay: HealthFailureDelay,
) -> Vec<SetupWarning> {
    let mut warnings = Vec::new();
    macro_rules! warn {
        ($kind:ident, $($text:tt)*) => {
            warnings.push(SetupWarning { kind: SetupWarningKind::$kind, text: format!($($text)*) })
        };
    }
    match &setup.listeners {
        Ok(listeners) => {
            let options = &setup.server.command_line_options;
            let is_gradual = options.drain_strategy == DrainStrategy::Gradual;
            let modify_only = listeners.modify_only();
            if !modify_only.is_empty() && is_gradual {
                warn!(
                    ModifyOnlyGradual,
                    "listeners with drain_type MODIFY_ONLY ({}) close no connection when health is failed, and with the \
                     gradual drain strategy few before {} have passed: {IMMEDIATE_STRATEGY}",
                    modify_only.join(", "),
                    options.drain_time
                );
            }
            let quic = listeners.default_quic();
            if !quic.is_empty() && is_gradual {
                warn!(
                    QuicGradual,
                    "with the gradual drain strategy, only failed health makes clients of QUIC listeners ({}) reconnect \
                     at once, and kube-proxy cuts HTTP/3 requests in flight to a pod that is not ready: \
                     {IMMEDIATE_STRATEGY}",
                    quic.join(", ")
                );
            }
        }
        // Forbidden, or too large.
        Err(why) => warn!(
            ListenersUnreadable,
            "cannot read Envoy's /config_dump, so the address of a listener with a stat_prefix is unknown: \
             ignore-listeners by port does not match it, and readiness probes and loopback traffic count as \
             clients: {why}"
        ),
    }
    let (hidden_stats, snapshot) = match (&setup.hidden_stats, polled) {
        (Ok(hidden_stats), Ok(snapshot)) => (hidden_stats, snapshot),
        // Forbidden, or too large.
        (Err(why), _) | (_, Err(why)) => {
            warn!(
                StatsUnreadable,
                "cannot read Envoy's /stats, so drains rely on server.total_connections at best, or last \
                 until their deadline: {why}"
            );
            return warnings;
        }
    };
    // What is hidden: the statistics of one listener, or of all.
    let listener = match &hidden_stats.listener {
        Some(listener) => format!("listener.{listener}.*"),
        None => "listener.*".to_owned(),
    };
    match snapshot {
        Snapshot::Counted(OpenConnections {
            counters,
            http,
            http3,
            ..
        }) => {
            if counters.is_none() {
                warn!(
                    NewConnectionsHidden,
                    "a stats_matcher hides listener.*.downstream_cx_total: new connections are unknown, so \
                     each drain waits {} for them to stop, and for idle connections too; have the \
                     stats_matcher keep the statistics whose names begin with listener.",
                    duration::format(MAX_QUIET_WAIT)
                );
            }
            if http.is_none() {
                warn!(
                    HttpStatsHidden,
                    "a stats_matcher hides http.*: drains wait for idle connections too; have the \
                     stats_matcher keep the statistics whose names begin with http."
                );
            } else if counters.is_some_and(|counters| counters.requests.is_none()) {
                warn!(
                    ConnectionUseHidden,
                    "a stats_matcher hides listener.*.http.*.downstream_rq_completed or \
                     http.*.downstream_cx_http1_total: the use of connections is unknown, so drains \
                     wait for idle connections too; {KEEP_LISTENER_AND_HTTP}"
                );
            }
            let is_http3_awaited =
                health_failure_delay == HealthFailureDelay::Auto && setup.drains_http3();
            if is_http3_awaited && http3.is_none() {
                warn!(
                    Http3ConnectionsHidden,
                    "a stats_matcher hides http.*.downstream_cx_http3_active: open HTTP/3 connections are \
                     unknown, so drains keep Envoy's health until they end; have the stats_matcher keep the \
                     statistics whose names begin with http."
                );
            }
        }
        Snapshot::ServerTotal {
            uptime: Some(_), ..
        } => warn!(
            ListenerStatsHidden,
            "a stats_matcher hides {listener}: drains rely on server.total_connections, which \
             is seconds old, and wait for idle connections too; {KEEP_LISTENER_AND_HTTP}"
        ),
        Snapshot::ServerTotal { uptime: None, .. } | Snapshot::Hidden => warn!(
            ConnectionsHidden,
            "a stats_matcher hides {listener} and server.total_connections or server.uptime: \
             each drain lasts until its deadline; {KEEP_LISTENER_AND_HTTP}"
        ),
    }
    warnings
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;
    use crate::client_activity::{Counters, RequestCounters};
    use crate::envoy::hidden_stats::HiddenStats;
    use crate::envoy::listeners;
    use crate::envoy::listeners::EnvoyListeners;
    use crate::envoy::server_info::{CommandLineOptions, ServerInfo};
    use crate::envoy::snapshot::HttpCounts;

    fn setup(drain_strategy: DrainStrategy, drain_type: &str) -> Setup {
        setup_with(drain_strategy, &format!(r#""drain_type":"{drain_type}""#))
    }

    /// An Envoy with one listener, with this field.
    fn setup_with(drain_strategy: DrainStrategy, field: &str) -> Setup {
        let dump = format!(
            r#"{{"configs":[{{"listener":{{"name":"web",{field},
                "address":{{"socket_address":{{"address":"0.0.0.0","port_value":80}}}}}}}}]}}"#
        );
        Setup {
            server: ServerInfo {
                command_line_options: CommandLineOptions {
                    drain_strategy,
                    drain_time: "600s".into(),
                },
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
            http3: Some(0),
            ..OpenConnections::default()
        };
        let without_http3 = OpenConnections {
            http3: None,
            ..open.clone()
        };
        let counted = |open: &OpenConnections| Ok(Snapshot::Counted(open.clone()));
        let gradual = "listeners with drain_type MODIFY_ONLY (web) close no connection when health is failed, and \
        with the gradual drain strategy few before 600s have passed: ";
        let quic = r#""udp_listener_config":{"quic_options":{}}"#;
        let modify_only_quic = format!(r#"{quic},"drain_type":"MODIFY_ONLY""#);
        let gradual_quic = "with the gradual drain strategy, only failed health makes clients of QUIC listeners (web) ";
        let no_listeners = "cannot read Envoy's /config_dump, so the address of a listener with a stat_prefix is \
        unknown: ";
        let no_statistics = |why| {
            format!(
                "cannot read Envoy's /stats, so drains rely on server.total_connections at best, or last until \
                 their deadline: {why}"
            )
        };
        let no_new_connections = "a stats_matcher hides listener.*.downstream_cx_total: ";
        let no_http = "a stats_matcher hides http.*: ";
        let no_requests = "a stats_matcher hides listener.*.http.*.downstream_rq_completed or ";
        let no_http3 = "a stats_matcher hides http.*.downstream_cx_http3_active: ";
        let table: [(Setup, Result<Snapshot, String>, &[&str]); 17] = [
            (setup(Gradual, "DEFAULT"), counted(&open), &[]),
            (setup(Immediate, "MODIFY_ONLY"), counted(&open), &[]),
            (setup(Gradual, "MODIFY_ONLY"), counted(&open), &[gradual]),
            (setup_with(Immediate, quic), counted(&open), &[]),
            (setup_with(Gradual, quic), counted(&open), &[gradual_quic]),
            (
                setup_with(Immediate, quic),
                counted(&without_http3),
                &[no_http3],
            ),
            (setup(Immediate, "DEFAULT"), counted(&without_http3), &[]),
            (
                setup_with(Gradual, &modify_only_quic),
                counted(&open),
                &[gradual],
            ),
            (
                Setup {
                    listeners: Err("response of more than 7 bytes".into()),
                    ..setup(Gradual, "MODIFY_ONLY")
                },
                counted(&open),
                &[no_listeners],
            ),
            (
                setup(Gradual, "DEFAULT"),
                counted(&OpenConnections::default()),
                &[no_new_connections, no_http],
            ),
            (
                setup(Gradual, "DEFAULT"),
                counted(&OpenConnections {
                    counters: Some(Counters::default()),
                    ..open.clone()
                }),
                &[no_requests],
            ),
            (
                setup(Gradual, "DEFAULT"),
                counted(&OpenConnections {
                    counters: Some(Counters::default()),
                    ..OpenConnections::default()
                }),
                &[no_http],
            ),
            (
                setup(Gradual, "DEFAULT"),
                Ok(Snapshot::ServerTotal {
                    connections: 0,
                    uptime: Some(1),
                    live: None,
                }),
                &["a stats_matcher hides listener.*: drains rely on server.total_connections, "],
            ),
            (
                setup(Gradual, "DEFAULT"),
                Ok(Snapshot::ServerTotal {
                    connections: 0,
                    uptime: None,
                    live: None,
                }),
                &[
                    "a stats_matcher hides listener.* and server.total_connections or server.uptime: ",
                ],
            ),
            (
                Setup {
                    hidden_stats: Ok(HiddenStats {
                        listener: Some("web".into()),
                        ..HiddenStats::default()
                    }),
                    ..setup(Gradual, "DEFAULT")
                },
                Ok(Snapshot::Hidden),
                &[
                    "a stats_matcher hides listener.web.* and server.total_connections or server.uptime: ",
                ],
            ),
            (
                Setup {
                    hidden_stats: Err("response of more than 7 bytes".into()),
                    ..setup(Gradual, "DEFAULT")
                },
                Ok(Snapshot::Hidden),
                &[&no_statistics("response of more than 7 bytes")],
            ),
            (
                setup(Gradual, "DEFAULT"),
                Err("403".into()),
                &[&no_statistics("403")],
            ),
        ];
        let mut kinds = BTreeMap::new();
        for (setup, polled, want) in table {
            let got = setup_warnings(&setup, polled.as_ref(), HealthFailureDelay::Auto);
            assert_eq!(got.len(), want.len(), "{polled:?}: {got:?}");
            for (SetupWarning { kind, text: got }, want) in got.iter().zip(want) {
                let text = kinds.entry(*kind).or_insert(*want);
                // A kind has one text, but for what it quotes.
                assert_eq!(text[..28], want[..28], "{kind:?}");
                assert!(got.starts_with(want), "{polled:?}: {got}");
                let is_of_strategy = want.contains("gradual drain strategy");
                assert_eq!(got.ends_with(IMMEDIATE_STRATEGY), is_of_strategy, "{got}");
            }
        }
        let at_once = HealthFailureDelay::After(Duration::ZERO);
        let quic = setup_with(Immediate, quic);
        let got = setup_warnings(&quic, counted(&without_http3).as_ref(), at_once);
        assert_eq!(got, []);
        // Without the admin interface there is no setup.
        kinds.insert(SetupWarningKind::AdminUnreadable, "");
        let names: Vec<_> = kinds.into_keys().map(<&str>::from).collect();
        assert_eq!(names, SetupWarningKind::VARIANTS);
        for name in names {
            let kind: SetupWarningKind = serde_json::from_value(name.into()).unwrap();
            assert_eq!(<&str>::from(kind), name);
        }
    }
}
