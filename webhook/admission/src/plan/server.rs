//! The container of a server that is no Envoy, and its ports.

use std::num::NonZeroU16;

use drainer::{ALL_PORTS, ListenerSelector};

use super::envoy::{EnvoyContainer, EnvoyContainerSource, container_not_found, known_envoys};
use crate::diagnostics::{Code, Diagnostic, Diagnostics};
use crate::names::{CONTAINER_NAME, SCRAPED_PORT};
use crate::pod::{Container, ContainerPort, PodView};
use crate::settings::{SettingSource, Settings};

/// The settings of Envoy's, which a server ignores.
const INERT: [&str; 8] = [
    "admin-address",
    "health-failure-delay",
    "exit-at-connections",
    "ignore-kernel",
    "count-listeners",
    "drain-strategy",
    "add-admin",
    "envoy-native-sidecar",
];

/// The names of ports, as they begin, whose connections may carry streams: a silent one looks as if it were idle.
const STREAMS: [&str; 4] = ["grpc", "h2c", "http2", "tcp"];

/// Finds the container of the server called `name`.
///
/// # Errors
/// If there is none, or the pod is one in which servers are not drained.
pub(super) fn find_server<'p, 'a>(
    pod: &'p PodView<'a>,
    name: &str,
    completes: bool,
) -> Result<(EnvoyContainer, &'p Container<'a>), Diagnostic> {
    let envoys = known_envoys(pod);
    let obstacle = match () {
        () if pod.uses_host_network() => {
            Some("on a node's network, where other pods' connections look the same")
        }
        () if completes => Some("in a pod that runs to completion, whose server ends with it"),
        () if !envoys.is_empty() => Some("beside an Envoy, through which its clients leave"),
        () => None,
    };
    if let Some(obstacle) = obstacle {
        let detail = format!("the server `{name}` cannot be drained {obstacle}");
        return Err(Code::ServerNotDrained.diagnostic(detail));
    }
    let found = pod.long_running(name).filter(|_| name != CONTAINER_NAME);
    let (container_ref, container) =
        found.ok_or_else(|| container_not_found(pod, "server-container", name))?;
    let source = EnvoyContainerSource::ServerContainer;
    let name = container.name().to_owned();
    let envoy = EnvoyContainer {
        name,
        container_ref,
        source,
    };
    Ok((envoy, container))
}

/// Drops the settings that a server ignores, with a warning for each that is annotated.
pub(super) fn drop_envoys_settings(settings: &mut Settings, diagnostics: &mut Diagnostics) {
    for name in INERT {
        if settings.source(name) == SettingSource::Annotation {
            let detail =
                format!("`{name}` is for an Envoy: `server-container` names another server");
            diagnostics.warn(Code::SettingWithoutEffect.about(name, detail));
        }
    }
    settings.drop_envoys(&INERT);
}

/// The ports of a server whose connections a drain waits for, and those of them on which none is idle; none for an Envoy. They
/// are the declared ones, or else all. A port of metrics does not count beside others, since a scraper that stays never rests.
///
/// # Errors
/// If none of the declared ones counts.
pub(super) fn ports(
    server: &Container<'_>,
    pod: &PodView<'_>,
    settings: &Settings,
) -> Result<(Vec<ListenerSelector>, Vec<ListenerSelector>), Diagnostic> {
    if !settings.is_of_server() {
        return Ok((Vec::new(), Vec::new()));
    }
    let declared: Vec<_> = server.declared_tcp_ports().collect();
    if declared.is_empty() {
        let all = ListenerSelector::Name(ALL_PORTS.to_owned());
        return Ok((vec![all], Vec::new()));
    }
    let scraped = pod.annotation(SCRAPED_PORT).filter(|_| declared.len() > 1);
    let scraped = scraped.and_then(|port| port.parse().ok());
    let ignored = &settings.values().drain.ignore_listeners;
    let is_served = |port: &&ContainerPort<'_>| {
        let name = ListenerSelector::Name(port.name().to_owned());
        let is_ignored =
            ignored.contains(&name) || selector(port).is_none_or(|it| ignored.contains(&it));
        !is_ignored && port.container_port != scraped
    };
    let served: Vec<_> = declared.into_iter().filter(is_served).collect();
    if served.is_empty() {
        let name = server.name();
        let detail = format!("the server `{name}` has no other port than those that are ignored");
        return Err(Code::ServerNotDrained.diagnostic(detail));
    }
    let is_idle_exit_annotated = settings.source("idle-exit") == SettingSource::Annotation;
    let may_stream = |port: &&&ContainerPort<'_>| {
        let mut streams = STREAMS.iter();
        !is_idle_exit_annotated && streams.any(|begin| port.name().starts_with(begin))
    };
    let streams = served.iter().filter(may_stream);
    let never_idle = streams.filter_map(|port| selector(port)).collect();
    let served = served.into_iter().filter_map(selector).collect();
    Ok((served, never_idle))
}

fn selector(port: &ContainerPort<'_>) -> Option<ListenerSelector> {
    NonZeroU16::new(port.container_port?).map(ListenerSelector::Port)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;
    use crate::decide::{Decision, decide};
    use crate::plan::{DrainPlan, PodContext};
    use crate::settings::Defaults;
    use drainer::{SettingValue, Token};

    /// Decides on a pod with the container `app`, which has these ports, and with these changes of its spec.
    fn decision(annotations: &Value, ports: &Value, spec: &Value, defaults: &Defaults) -> Decision {
        let mut pod = json!({
            "metadata": {"annotations": {
                "envoy-drainer.dev/inject": "true", "envoy-drainer.dev/server-container": "app",
            }},
            "spec": {"containers": [{"name": "app", "image": "nginx", "ports": ports}]},
        });
        for (key, value) in annotations.as_object().unwrap() {
            let key = key.replace("@", "envoy-drainer.dev/");
            pod["metadata"]["annotations"][key] = value.clone();
        }
        for (key, value) in spec.as_object().unwrap() {
            pod["spec"][key] = value.clone();
        }
        let pod = pod.to_string();
        let pod = PodView::decode(&pod).unwrap();
        let context = PodContext::new(Some("shop"), Token(1));
        decide(&pod, &context, defaults)
    }

    fn injected(annotations: &Value, ports: &Value) -> (Box<DrainPlan>, Vec<Code>) {
        let defaults = Defaults::new("drainer", "envoy-drainer");
        match decision(annotations, ports, &json!({}), &defaults) {
            Decision::Inject { plan, warnings, .. } => {
                let codes = warnings.iter().map(|warning| warning.code);
                (plan, codes.collect())
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn drain_waits_for_the_declared_ports() {
        let ports = |list: &[(u16, &str, &str)]| {
            let port = |&(number, name, protocol): &(u16, &str, &str)| json!({"containerPort": number, "name": name, "protocol": protocol});
            Value::from(list.iter().map(port).collect::<Vec<_>>())
        };
        let (http, grpc) = ((80, "http", "TCP"), (81, "grpc-api", "TCP"));
        let (dns, metrics) = ((53, "dns", "UDP"), (90, "metrics", "TCP"));
        let scraped = json!({"prometheus.io/port": "90"});
        let table = [
            // (annotations, ports, those that are waited for, those whose connections are never idle)
            (json!({}), ports(&[]), "all", ""),
            (json!({}), ports(&[dns]), "all", ""),
            (json!({}), ports(&[http, grpc, dns]), "80,81", "81"),
            (
                json!({"@idle-exit": "5s"}),
                ports(&[http, grpc]),
                "80,81",
                "",
            ),
            (
                json!({"@ignore-listeners": "http"}),
                ports(&[http, grpc]),
                "81",
                "81",
            ),
            (scraped.clone(), ports(&[http, metrics]), "80", ""),
            (scraped, ports(&[metrics]), "90", ""),
            (
                json!({"@ignore-listeners": "81"}),
                ports(&[http, grpc]),
                "80",
                "",
            ),
        ];
        for (annotations, declared, want, never_idle) in table {
            let (plan, _) = injected(&annotations, &declared);
            let ports = [&plan.drainer.server_ports, &plan.drainer.never_idle_ports];
            assert_eq!(
                ports.map(SettingValue::format),
                [want, never_idle],
                "{declared}"
            );
        }
    }

    #[test]
    fn server_has_no_admin_and_an_idle_exit_of_its_own() {
        let (plan, codes) = injected(&json!({}), &json!([{"containerPort": 80}]));
        let args = plan.drainer.args();
        let has = |flag: &str| args.iter().any(|arg| arg.starts_with(flag));
        assert!(
            has("--server-ports=80") && has("--idle-exit=15s"),
            "{args:?}"
        );
        assert!(!has("--admin"), "{args:?}");
        assert_eq!((codes, plan.envoy.name.as_str()), (vec![], "app"));
        assert!(plan.hook.http_get.is_some() && plan.added_args.is_empty());
    }

    #[test]
    fn longer_idle_exit_of_the_installation_is_kept() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        for (of_installation, want) in [
            (seconds(7), seconds(15)),
            (seconds(60), seconds(60)),
            (None, None),
        ] {
            let mut defaults = Defaults::new("drainer", "envoy-drainer");
            let mut values = defaults.settings.values().clone();
            values.drain.timing.idle_exit = of_installation;
            defaults.settings = Settings::try_new(values).unwrap();
            match decision(&json!({}), &json!([]), &json!({}), &defaults) {
                Decision::Inject { plan, .. } => {
                    assert_eq!(plan.settings.timing().idle_exit, want);
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn settings_of_an_envoy_have_no_effect() {
        for name in INERT {
            let value = match name {
                "admin-address" => "127.0.0.1:9901",
                "health-failure-delay" => "end",
                "exit-at-connections" => "3",
                "count-listeners" => "81",
                "drain-strategy" => "immediate",
                _ => "true",
            };
            let (plain, _) = injected(&json!({}), &json!([]));
            let key = format!("@{name}");
            let (plan, codes) = injected(&json!({ key: value }), &json!([]));
            assert_eq!(codes, [Code::SettingWithoutEffect], "{name}");
            assert_eq!(
                (plan.drainer, plan.added_args),
                (plain.drainer, vec![]),
                "{name}"
            );
        }
    }

    #[test]
    fn pod_whose_server_cannot_be_drained_is_denied() {
        let app = json!({"name": "app", "image": "nginx"});
        let envoy = json!({"name": "envoy", "image": "envoyproxy/envoy:v1.36.4"});
        let (ignores, none) = (json!({"@ignore-listeners": "80"}), json!({}));
        for (annotations, spec, obstacle) in [
            (&none, json!({"hostNetwork": true}), "on a node's network"),
            (
                &none,
                json!({"restartPolicy": "Never"}),
                "in a pod that runs to completion",
            ),
            (
                &none,
                json!({"containers": [app, envoy]}),
                "beside an Envoy",
            ),
            (
                &ignores,
                none.clone(),
                "no other port than those that are ignored",
            ),
        ] {
            let defaults = Defaults::new("drainer", "envoy-drainer");
            match decision(
                annotations,
                &json!([{"containerPort": 80}]),
                &spec,
                &defaults,
            ) {
                Decision::Deny { reasons, .. } => {
                    assert_eq!(reasons.len(), 1);
                    assert_eq!(reasons[0].code, Code::ServerNotDrained);
                    assert!(
                        reasons[0].detail.contains(obstacle),
                        "{}",
                        reasons[0].detail
                    );
                }
                other => panic!("{other:?}"),
            }
        }
    }
}
