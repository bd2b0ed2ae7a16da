//! Warnings, logged when Envoy has started, about a setup that will impair drains.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use strum::{EnumMessage, IntoStaticStr, VariantNames};

use super::Setup;
use super::listeners::{DrainType, Listener};
use super::snapshot::Snapshot;
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
    /// Envoy's admin interface forbids paths that the drainer calls, without which a drain may not reach all clients, or may
    /// last until its deadline. Add to admin.allow_paths in Envoy's bootstrap: {prefix: /server_info}, {prefix: /healthcheck/},
    /// {prefix: /drain_listeners}, {prefix: /stats}, {prefix: /listeners}, {prefix: /config_dump}. An exact path does not match
    /// one with a query.
    AdminPathsForbidden,
    /// No listener of Envoy is counted, since each is OUTBOUND, internal or in ignore-listeners: drains wait for no
    /// connection. If clients connect to one, annotate the pod with envoy-drainer.dev/count-listeners.
    NoListenerCounted,
    /// Envoy's --drain-time-s is less than 1.5 times drain-timeout: from 1.41 on, Envoy resets upgrades and closes idle
    /// connections after two thirds of that time. Raise it, or annotate the pod with envoy-drainer.dev/drain-strategy.
    DrainTimeShort,
    /// A drain closes the connections of the app's own calls, on OUTBOUND listeners, after each response: it spares them only
    /// where every counted listener has traffic_direction: INBOUND, and with the immediate drain strategy. Annotate the pod
    /// with envoy-drainer.dev/drain-strategy: immediate, or start Envoy with --drain-strategy immediate.
    OutboundCallsDrained,
    /// Unless Envoy's drain strategy is immediate, few clients are told to reconnect in time where only /drain_listeners tells
    /// them: of listeners with drain_type MODIFY_ONLY, of QUIC listeners, whose requests kube-proxy cuts once health has
    /// failed, and with health-failure-delay of all. Annotate the pod with envoy-drainer.dev/drain-strategy: immediate, or
    /// start Envoy with --drain-strategy immediate.
    GradualStrategy,
    /// Cannot read Envoy's /config_dump, so the direction of listeners, and the address of one with a stat_prefix, are
    /// unknown: ignore-listeners and count-listeners by port do not match it, and readiness probes and loopback traffic
    /// count as clients.
    ListenersUnreadable,
    /// Cannot read Envoy's /stats, so drains rely on the kernel's number of connections at best, or last until their
    /// deadline.
    StatsUnreadable,
    /// A stats_matcher hides statistics, so drains last longer than they need to, to their deadline at worst: they wait for
    /// idle connections too. Keep the statistics whose names begin with listener., http., udp. or server.
    StatsHidden,
    /// The server that takes Envoy's place listens on none of its ports: until it does, each drain is a plain delay of
    /// min-drain-duration, and what is in flight is then cut.
    ServerNotListening,
}

/// Statistics of the counted listeners: accepted connections, and those that tell whether a connection is used.
const ACCEPTED: &str = "listener.*.downstream_cx_total";
const COMPLETED: &str = "listener.*.downstream_rq_completed or http.*.downstream_cx_http1_total";

/// Finds what in the `setup`, and in the statistics of a poll, will impair a drain with this `config`.
///
/// `polled` is what the poll counted, or why Envoy rejected it; `forbidden` are the paths of
/// [`AdminClient::forbidden`](super::admin_client::AdminClient::forbidden).
pub(crate) fn setup_warnings(
    setup: &Setup,
    polled: Result<&Snapshot, &String>,
    forbidden: &BTreeSet<&str>,
    config: &Config,
) -> Vec<SetupWarning> {
    use SetupWarningKind as Kind;

    let mut warnings = Vec::new();
    let mut warn = |kind, detail: Option<String>| warnings.push(SetupWarning { kind, detail });
    if !forbidden.is_empty() {
        let paths: Vec<_> = forbidden.iter().copied().collect();
        warn(Kind::AdminPathsForbidden, Some(paths.join(", ")));
    }
    let drain_timeout = config.settings.timing.drain_timeout;
    if let Some((drain_time, needed)) = setup.server.short_drain_time(drain_timeout) {
        let (drain_time, needed) = (format(drain_time), format(needed));
        let detail = format!("{drain_time}, drain-timeout needs {needed}");
        warn(Kind::DrainTimeShort, Some(detail));
    }
    let delay = config.settings.health_failure_delay;
    match &setup.listeners {
        Err(error) => warn(Kind::ListenersUnreadable, Some(error.clone())),
        Ok(listeners) => {
            if listeners.are_all_excluded() {
                warn(Kind::NoListenerCounted, None);
            }
            let is_intended =
                delay == HealthFailureDelay::After(Duration::ZERO) || setup.can_spare_outbound();
            if !is_intended && let Some(names) = listeners.untold_beside_outbound() {
                let names = Some(names.join(", ")).filter(|names| !names.is_empty());
                warn(Kind::OutboundCallsDrained, names);
            }
            let is_delayed = !delay.duration().is_zero();
            let is_late = |it: &Listener| {
                is_delayed || it.speaks_quic() || it.drain_type == DrainType::ModifyOnly
            };
            let late = listeners.names_where(is_late);
            if !late.is_empty() && !setup.server.drains_at_once() {
                warn(Kind::GradualStrategy, Some(late.join(", ")));
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
    let open = &snapshot.open;
    let is_counted = open.connections.is_some();
    let requests = open.counters.map(|counters| counters.requests);
    // An old process of a hot restart exits.
    let hides_listeners = !is_counted && !hidden_stats.udp && !snapshot.has_parent;
    let hidden = [
        (hidden_stats.udp, "udp.*"),
        (hides_listeners, "listener.*"),
        (is_counted && requests.is_none(), ACCEPTED),
        (is_counted && open.http.is_none(), "http.*"),
        (is_counted && requests == Some(None), COMPLETED),
    ];
    let hidden: Vec<_> = hidden.iter().filter(|it| it.0).map(|it| it.1).collect();
    if !hidden.is_empty() {
        warn(Kind::StatsHidden, Some(hidden.join(", ")));
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
    use crate::envoy::snapshot::{HttpCounts, OpenConnections};
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

    /// A poll that counts everything, but for what `hide` hides.
    fn counted(hide: impl FnOnce(&mut OpenConnections)) -> Polled {
        let mut open = OpenConnections {
            connections: Some(0),
            counters: Some(Counters {
                requests: Some(RequestCounters::default()),
                ..Counters::default()
            }),
            http: Some(HttpCounts::default()),
            ..OpenConnections::default()
        };
        hide(&mut open);
        Ok(Snapshot {
            open,
            ..Snapshot::default()
        })
    }

    #[test]
    fn each_impairment_is_reported_and_nothing_else() {
        const GRADUAL: &str = "Gradual";
        const IMMEDIATE: &str = "Immediate";
        use SetupWarningKind::*;

        let plain = || setup(GRADUAL, DEFAULT);
        let all = || counted(|_| ());
        let hidden = || counted(|open| *open = OpenConnections::default());
        let both = setup(GRADUAL, &format!("{MODIFY_ONLY}{QUIC}"));
        let unreadable_listeners = Setup {
            listeners: Err("403".into()),
            ..setup(GRADUAL, MODIFY_ONLY)
        };
        let udp_hidden = Setup {
            hidden_stats: Ok(HiddenStats {
                udp: true,
                ..HiddenStats::default()
            }),
            ..plain()
        };
        let old_process = hidden().map(|snapshot| Snapshot {
            has_parent: true,
            ..snapshot
        });
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
        fn hides(names: &str) -> [(SetupWarningKind, &str); 1] {
            [(StatsHidden, names)]
        }
        let accepted_and_http = format!("{ACCEPTED}, http.*");
        let http_and_completed = format!("http.*, {COMPLETED}");
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
                &[(GradualStrategy, "web")],
            ),
            (setup(IMMEDIATE, QUIC), all(), &[]),
            (setup(GRADUAL, QUIC), all(), &[(GradualStrategy, "web")]),
            (both, all(), &[(GradualStrategy, "web")]),
            (unreadable_listeners, all(), &[(ListenersUnreadable, "403")]),
            (plain(), only_connections, &hides(&accepted_and_http)),
            (plain(), without_requests, &hides(COMPLETED)),
            (plain(), only_accepted, &hides(&http_and_completed)),
            (plain(), hidden(), &hides("listener.*")),
            (udp_hidden, hidden(), &hides("udp.*")),
            (plain(), old_process, &[]),
            (unreadable_stats, hidden(), &[(StatsUnreadable, "403")]),
            (plain(), Err("403".into()), &[(StatsUnreadable, "403")]),
        ];
        let mut config = Config::new(Token(0));
        let mut found = vec![
            "admin-unreadable",
            "admin-none",
            "admin-ambiguous",
            "server-not-listening",
        ];
        for (setup, polled, want) in table {
            let got = setup_warnings(&setup, polled.as_ref(), &BTreeSet::new(), &config);
            let got = got
                .iter()
                .map(|it| (it.kind, it.detail.as_deref().unwrap_or_default()));
            let got: Vec<_> = got.collect();
            assert_eq!(got, want, "{polled:?}");
            found.extend(got.iter().map(|(kind, _)| <&str>::from(kind)));
        }
        config.settings.health_failure_delay = HealthFailureDelay::After(Duration::from_secs(1));
        let delayed = |strategy| {
            let setup = setup(strategy, DEFAULT);
            let warnings = setup_warnings(&setup, all().as_ref(), &BTreeSet::new(), &config);
            warnings.first().map(|warning| warning.kind)
        };
        assert_eq!([GRADUAL, ""].map(delayed), [Some(GradualStrategy); 2]);
        assert_eq!(delayed(IMMEDIATE), None);
        config.settings.health_failure_delay = HealthFailureDelay::After(Duration::ZERO);
        let intended = beside_outbound(GRADUAL, INBOUND);
        let forbidden = BTreeSet::from(["/healthcheck/ok", "/stats"]);
        let warnings = setup_warnings(&intended, all().as_ref(), &forbidden, &config);
        let forbidden = SetupWarning {
            kind: AdminPathsForbidden,
            detail: Some("/healthcheck/ok, /stats".into()),
        };
        assert_eq!(warnings, [forbidden]);
        found.push(AdminPathsForbidden.into());
        for name in SetupWarningKind::VARIANTS {
            assert!(found.contains(name), "{name}");
            let kind: SetupWarningKind = serde_json::from_value((*name).into()).unwrap();
            assert_eq!(<&str>::from(kind), *name);
            let message = kind.message();
            assert!(message.len() > 50 && !message.contains('\n'), "{message}");
        }
    }
}
