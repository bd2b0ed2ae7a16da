//! Warnings, logged when Envoy has started, about a setup that will impair drains.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use strum::{EnumMessage, IntoStaticStr, VariantNames};

use super::Setup;
use super::listeners::{DrainType, Listener};
use super::snapshot::{Counts, OpenConnections, Snapshot};
use crate::settings::config::Config;
use crate::settings::duration::format;
use crate::settings::health_failure_delay::HealthFailureDelay;

/// Something in Envoy's configuration that will impair drains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SetupWarning {
    pub(crate) kind: SetupWarningKind,
    /// The names of listeners, or an error.
    pub(crate) detail: Option<String>,
}

/// The kind of a setup warning, by its name in reports and metrics. Its description here is the text in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[derive(VariantNames, IntoStaticStr, EnumMessage)]
#[strum(serialize_all = "kebab-case")]
pub enum SetupWarningKind {
    /// Envoy's admin interface cannot be read: until it can, each drain lasts until its deadline.
    AdminUnreadable,
    /// No admin interface of an Envoy was found: until there is one, each drain is a plain delay of min-drain-duration, and
    /// Envoy then cuts what is in flight.
    AdminNone,
    /// More than one Envoy has an admin interface, and the drainer does not guess: each drain is a plain delay of
    /// min-drain-duration, and Envoy then cuts what is in flight.
    AdminAmbiguous,
    /// No listener of Envoy is counted, since each is OUTBOUND, internal or in ignore-listeners: drains wait for no
    /// connection. If clients connect to one, annotate the pod with envoy-drainer.dev/count-listeners.
    NoListenerCounted,
    /// Envoy's --drain-time-s is less than 1.5 times drain-timeout: from 1.41 on, Envoy resets upgrades and closes idle
    /// connections after two thirds of that time. Raise it, or annotate the pod with envoy-drainer.dev/drain-strategy.
    DrainTimeShort,
    /// With health-failure-delay and the gradual drain strategy, few clients are told to reconnect before the delay is over:
    /// annotate the pod with envoy-drainer.dev/drain-strategy: immediate, or start Envoy with --drain-strategy immediate.
    HealthDelayGradual,
    /// A drain closes the connections of the app's own calls, on OUTBOUND listeners, after each response: it spares them only
    /// where every counted listener has traffic_direction: INBOUND, and with the immediate drain strategy. Annotate the pod
    /// with envoy-drainer.dev/drain-strategy: immediate, or start Envoy with --drain-strategy immediate.
    OutboundCallsDrained,
    /// Listeners with drain_type MODIFY_ONLY close no connection when health is failed. With the gradual drain strategy,
    /// they close few before Envoy's --drain-time-s has passed: annotate the pod with envoy-drainer.dev/drain-strategy:
    /// immediate, or start Envoy with --drain-strategy immediate.
    ModifyOnlyGradual,
    /// With the gradual drain strategy, only failed health makes clients of QUIC listeners reconnect immediately, and
    /// kube-proxy cuts HTTP/3 requests in flight to a pod that is not ready: annotate the pod with
    /// envoy-drainer.dev/drain-strategy: immediate, or start Envoy with --drain-strategy immediate.
    QuicGradual,
    /// Cannot read Envoy's /config_dump, so the direction of listeners, and the address of one with a stat_prefix, are
    /// unknown: ignore-listeners and count-listeners by port do not match it, and readiness probes and loopback traffic
    /// count as clients.
    ListenersUnreadable,
    /// Cannot read Envoy's /stats, so drains rely on server.total_connections at best, or last until their deadline.
    StatsUnreadable,
    /// A stats_matcher hides listener.*.downstream_cx_total: drains wait 20s for new connections to stop, and for idle ones
    /// too. Keep the statistics whose names begin with listener.
    NewConnectionsHidden,
    /// A stats_matcher hides http.*: drains wait for idle connections too, and do not fail the health of an Envoy with
    /// HTTP/3 before their end. Keep the statistics whose names begin with http.
    HttpStatsHidden,
    /// A stats_matcher hides listener.*.http.*.downstream_rq_completed or http.*.downstream_cx_http1_total, so the use of
    /// connections is unknown: drains wait for idle ones too. Keep the statistics whose names begin with listener.
    /// or http.
    ConnectionUseHidden,
    /// A stats_matcher hides listener.*: drains rely on server.total_connections, which is seconds old, and wait for idle
    /// connections too. Keep the statistics whose names begin with listener. or http.
    ListenerStatsHidden,
    /// A stats_matcher hides listener.* and server.total_connections or server.uptime, or udp.* of a UDP proxy: each drain
    /// lasts until its deadline. Keep the statistics whose names begin with listener., http. or udp.
    ConnectionsHidden,
}

/// Finds what in the `setup`, and in the statistics of a poll, will impair a drain with this `config`.
///
/// `polled` is what the poll counted, or why Envoy rejected it.
pub(crate) fn setup_warnings(
    setup: &Setup,
    polled: Result<&Snapshot, &String>,
    config: &Config,
) -> Vec<SetupWarning> {
    use SetupWarningKind as Kind;

    let mut warnings = Vec::new();
    let mut warn = |kind, detail: Option<String>| warnings.push(SetupWarning { kind, detail });
    let server = &setup.server;
    let drain_timeout = config.settings.timing.drain_timeout;
    if let Some((drain_time, needed)) = server.short_drain_time(drain_timeout) {
        let (drain_time, needed) = (format(drain_time), format(needed));
        let detail = format!("{drain_time}, drain-timeout needs {needed}");
        warn(Kind::DrainTimeShort, Some(detail));
    }
    let delay = config.settings.health_failure_delay;
    if !delay.duration().is_zero() && server.drains_gradually() {
        warn(Kind::HealthDelayGradual, None);
    }
    match &setup.listeners {
        Err(error) => warn(Kind::ListenersUnreadable, Some(error.clone())),
        Ok(listeners) => {
            if listeners.are_all_excluded() {
                warn(Kind::NoListenerCounted, None);
            }
            let is_intended =
                delay == HealthFailureDelay::After(Duration::ZERO) || setup.can_spare_outbound();
            let untold = listeners.untold_beside_outbound();
            if let Some(names) = untold.filter(|_| !is_intended) {
                let names = Some(names.join(", ")).filter(|names| !names.is_empty());
                warn(Kind::OutboundCallsDrained, names);
            }
            let modify_only = |it: &Listener| it.drain_type == DrainType::ModifyOnly;
            let other_quic = |it: &Listener| it.speaks_quic() && !modify_only(it);
            let gradual = [
                (Kind::ModifyOnlyGradual, listeners.names_where(modify_only)),
                (Kind::QuicGradual, listeners.names_where(other_quic)),
            ];
            for (kind, names) in gradual {
                if !names.is_empty() && !server.drains_at_once() {
                    warn(kind, Some(names.join(", ")));
                }
            }
        }
    }
    let (hidden_stats, snapshot) = match (&setup.hidden_stats, polled) {
        (Ok(hidden_stats), Ok(snapshot)) => (hidden_stats, snapshot),
        (Err(error), _) | (_, Err(error)) => {
            warn(Kind::StatsUnreadable, Some(error.clone()));
            return warnings;
        }
    };
    let listener = hidden_stats.listener.clone();
    match &snapshot.counts {
        Counts::Exact(OpenConnections { counters, http, .. }) => {
            if counters.is_none() {
                warn(Kind::NewConnectionsHidden, None);
            }
            if http.is_none() {
                warn(Kind::HttpStatsHidden, None);
            } else if counters.is_some_and(|counters| counters.requests.is_none()) {
                warn(Kind::ConnectionUseHidden, None);
            }
        }
        Counts::ServerTotal {
            uptime: Some(_), ..
        } => warn(Kind::ListenerStatsHidden, listener),
        Counts::ServerTotal { .. } | Counts::Hidden => warn(Kind::ConnectionsHidden, listener),
    }
    warnings
}

// === impl SetupWarningKind ===

impl SetupWarningKind {
    /// The text in the log.
    pub(crate) fn message(self) -> String {
        let text = self.get_documentation().unwrap_or_default();
        text.trim_end_matches(['.', '\n']).replace('\n', " ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envoy::counters::{Counters, RequestCounters};
    use crate::envoy::hidden_stats::HiddenStats;
    use crate::envoy::listeners;
    use crate::envoy::listeners::EnvoyListeners;
    use crate::envoy::server_info::{CommandLineOptions, ServerInfo};
    use crate::envoy::snapshot::HttpCounts;
    use crate::settings::token::Token;

    const DEFAULT: &str = r#""drain_type":"DEFAULT","#;
    const MODIFY_ONLY: &str = r#""drain_type":"MODIFY_ONLY","#;
    const OUTBOUND: &str = r#""traffic_direction":"OUTBOUND","#;
    const INBOUND: &str = r#""traffic_direction":"INBOUND","#;
    const QUIC: &str = r#""udp_listener_config":{"quic_options":{}},"#;

    /// An Envoy with one listener, with these fields besides its address.
    fn setup(drain_strategy: &str, fields: &str) -> Setup {
        let drain_strategy = drain_strategy.to_owned();
        let dump = format!(
            r#"{{"configs":[{{"listener":{{"name":"web",{fields}
                "address":{{"socket_address":{{"address":"0.0.0.0","port_value":80}}}}}}}}]}}"#
        );
        let listeners = listeners::read(dump.as_bytes()).unwrap();
        Setup {
            server: ServerInfo {
                command_line_options: CommandLineOptions {
                    drain_strategy,
                    drain_time: "600s".into(),
                    ..CommandLineOptions::default()
                },
                version: "1.41.0".into(),
                ..ServerInfo::default()
            },
            listeners: Ok(EnvoyListeners::new(listeners, Default::default())),
            hidden_stats: Ok(HiddenStats::default()),
        }
    }

    /// The same beside an OUTBOUND listener.
    fn beside_outbound(drain_strategy: &str, fields: &str) -> Setup {
        let out =
            format!(r#"{OUTBOUND}"stat_prefix":"out"}}}},{{"listener":{{"name":"web",{fields}"#);
        setup(drain_strategy, &out)
    }

    type Polled = Result<Snapshot, String>;

    fn polled(counts: Counts) -> Polled {
        Ok(Snapshot {
            counts,
            ..Snapshot::default()
        })
    }

    /// A poll that counts everything, but for what `hide` hides.
    fn counted(hide: impl FnOnce(&mut OpenConnections)) -> Polled {
        let mut open = OpenConnections {
            counters: Some(Counters {
                requests: Some(RequestCounters::default()),
                ..Counters::default()
            }),
            http: Some(HttpCounts::default()),
            ..OpenConnections::default()
        };
        hide(&mut open);
        polled(Counts::Exact(open))
    }

    fn server_total(uptime: Option<u64>) -> Polled {
        let connections = 0;
        polled(Counts::ServerTotal {
            connections,
            uptime,
        })
    }

    #[test]
    fn each_impairment_is_reported_and_nothing_else() {
        const GRADUAL: &str = "Gradual";
        const IMMEDIATE: &str = "Immediate";
        use SetupWarningKind::*;

        let plain = || setup(GRADUAL, DEFAULT);
        let all = || counted(|_| ());
        let hidden = || polled(Counts::Hidden);
        let both = setup(GRADUAL, &format!("{MODIFY_ONLY}{QUIC}"));
        let unreadable_listeners = Setup {
            listeners: Err("403".into()),
            ..setup(GRADUAL, MODIFY_ONLY)
        };
        let web_hidden = Setup {
            hidden_stats: Ok(HiddenStats {
                listener: Some("web".into()),
                ..HiddenStats::default()
            }),
            ..plain()
        };
        let unreadable_stats = Setup {
            hidden_stats: Err("403".into()),
            ..plain()
        };
        let only_connections = counted(|open| (open.counters, open.http) = (None, None));
        let without_requests = counted(|open| open.counters = Some(Counters::default()));
        let only_accepted = counted(|open| {
            open.counters = Some(Counters::default());
            open.http = None;
        });
        type Warnings<'a> = &'a [(SetupWarningKind, &'a str)];
        let no_http = (HttpStatsHidden, "");
        let mut short = plain();
        short.server.command_line_options.drain_time = "89s".into();
        let table: [(Setup, Polled, Warnings<'_>); 20] = [
            (plain(), all(), &[]),
            (
                setup(IMMEDIATE, OUTBOUND),
                all(),
                &[(NoListenerCounted, "")],
            ),
            (beside_outbound(IMMEDIATE, INBOUND), all(), &[]),
            (
                beside_outbound(GRADUAL, INBOUND),
                all(),
                &[(OutboundCallsDrained, "")],
            ),
            (
                beside_outbound(IMMEDIATE, DEFAULT),
                all(),
                &[(OutboundCallsDrained, "web")],
            ),
            (
                short,
                all(),
                &[(DrainTimeShort, "89s, drain-timeout needs 90s")],
            ),
            (setup(IMMEDIATE, MODIFY_ONLY), all(), &[]),
            (
                setup(GRADUAL, MODIFY_ONLY),
                all(),
                &[(ModifyOnlyGradual, "web")],
            ),
            (setup(IMMEDIATE, QUIC), all(), &[]),
            (setup(GRADUAL, QUIC), all(), &[(QuicGradual, "web")]),
            (both, all(), &[(ModifyOnlyGradual, "web")]),
            (unreadable_listeners, all(), &[(ListenersUnreadable, "403")]),
            (
                plain(),
                only_connections,
                &[(NewConnectionsHidden, ""), no_http],
            ),
            (plain(), without_requests, &[(ConnectionUseHidden, "")]),
            // The use of connections needs no warning of its own then.
            (plain(), only_accepted, &[no_http]),
            (plain(), server_total(Some(1)), &[(ListenerStatsHidden, "")]),
            (plain(), server_total(None), &[(ConnectionsHidden, "")]),
            (web_hidden, hidden(), &[(ConnectionsHidden, "web")]),
            (unreadable_stats, hidden(), &[(StatsUnreadable, "403")]),
            (plain(), Err("403".into()), &[(StatsUnreadable, "403")]),
        ];
        let mut config = Config::new(Token(0));
        let mut found = vec!["admin-unreadable", "admin-none", "admin-ambiguous"];
        for (setup, polled, want) in table {
            let got = setup_warnings(&setup, polled.as_ref(), &config);
            let got = got
                .iter()
                .map(|it| (it.kind, it.detail.as_deref().unwrap_or_default()));
            let got: Vec<_> = got.collect();
            assert_eq!(got, want, "{polled:?}");
            found.extend(got.iter().map(|(kind, _)| <&str>::from(kind)));
        }
        config.settings.health_failure_delay = HealthFailureDelay::After(Duration::from_secs(1));
        let delayed = |strategy| {
            let warnings = setup_warnings(&setup(strategy, DEFAULT), all().as_ref(), &config);
            warnings.first().map(|warning| warning.kind)
        };
        assert_eq!(delayed(GRADUAL), Some(HealthDelayGradual));
        assert_eq!([delayed(IMMEDIATE), delayed("")], [None; 2]);
        config.settings.health_failure_delay = HealthFailureDelay::After(Duration::ZERO);
        let intended = beside_outbound(GRADUAL, INBOUND);
        assert_eq!(setup_warnings(&intended, all().as_ref(), &config), []);
        found.push(HealthDelayGradual.into());
        for name in SetupWarningKind::VARIANTS {
            assert!(found.contains(name), "{name}");
            let kind: SetupWarningKind = serde_json::from_value((*name).into()).unwrap();
            assert_eq!(<&str>::from(kind), *name);
            let message = kind.message();
            assert!(message.len() > 50 && !message.contains('\n'), "{message}");
        }
    }
}
