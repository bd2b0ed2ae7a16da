//! What is added to the arguments of Envoy's container.

use std::time::Duration;

use drainer::duration;
use serde_json::{Map, Value};

use super::admin_endpoint::ADDED_ADMIN;
use super::envoy::{is_envoys_image, last_segment, mentions_envoy, minor_version};
use crate::diagnostics::{Code, Diagnostic, Diagnostics};
use crate::excerpt::excerpt;
use crate::pod::{Container, MAX_MESSAGE_TEXT_LEN, PodView};
use crate::settings::{DrainStrategy, SettingSource, Settings, Switch};

/// Envoy's flags for its own drain, which the annotation `drain-strategy` adds to its arguments.
/// <https://www.envoyproxy.io/docs/envoy/latest/operations/cli>
const STRATEGY_FLAG: &str = "--drain-strategy";
const TIME_FLAG: &str = "--drain-time-s";

/// Envoy's default of `--drain-time-s`.
pub const DEFAULT_DRAIN_TIME: u64 = 600;

/// The first minor version of Envoy 1 that may close connections before its drain time is over.
const MINOR_OF_EARLY_CLOSE: u32 = 41;

/// The flag that merges a configuration into that of the file.
const CONFIG_FLAG: &str = "--config-yaml";

/// Programs that start another with its arguments as they are.
const LAUNCHERS: &str = "-- tini dumb-init env exec docker-entrypoint.sh envoy";

/// The flags that tell one Envoy of a node from another, and their names in the `command_line_options` of `/server_info`.
/// <https://www.envoyproxy.io/docs/envoy/latest/api-v3/admin/v3/server_info.proto>
const IDENTITY_FLAGS: [(&str, &str); 5] = [
    ("--base-id", "base_id"),
    ("-c", "config_path"),
    ("--config-path", "config_path"),
    ("--service-cluster", "service_cluster"),
    ("--service-node", "service_node"),
];

/// Returns the words to add to the end of Envoy's `args`; `None` if some of them cannot be added, which is a failure.
pub(super) fn added_args(
    envoy: &Container<'_>,
    pod: &PodView<'_>,
    settings: &Settings,
    diagnostics: &mut Diagnostics,
) -> Option<Vec<String>> {
    let drain_flags = drain_flags(envoy, settings, diagnostics);
    let drain_flags = diagnostics.fail(drain_flags);
    let admin_flags = diagnostics.fail(admin_flags(envoy, pod, settings));
    Some([drain_flags?, admin_flags?].concat())
}

/// Returns the words to add to the end of Envoy's `args` for the annotation `drain-strategy`; none without it. A flag
/// that is present stays as it is: Envoy exits if one is given twice. A drain time that is too short is a warning in
/// any case.
///
/// # Errors
/// If arguments at the end of `args` would not reach Envoy, or if they contain another strategy.
fn drain_flags(
    envoy: &Container<'_>,
    settings: &Settings,
    diagnostics: &mut Diagnostics,
) -> Result<Vec<String>, Diagnostic> {
    let timeout = settings.timing().drain_timeout;
    let needed = drain_time(timeout);
    let present = envoy.flag(TIME_FLAG);
    let is_requested = settings.values().drain_strategy != DrainStrategy::Unset;
    if (present.is_some() || !is_requested) && needs_drain_time(envoy, settings) {
        let too_short = too_short(present, needed, timeout);
        diagnostics.warnings.extend(too_short);
    }
    if !is_requested {
        return Ok(Vec::new());
    }
    let strategy = &*settings.values().drain_strategy.to_string();
    let present_strategy = envoy.flag(STRATEGY_FLAG);
    let other = present_strategy.filter(|present| *present != strategy);
    let obstacle = obstacle(envoy).or_else(|| {
        let other = excerpt(other?, MAX_MESSAGE_TEXT_LEN);
        Some(format!(
            "has `{STRATEGY_FLAG} {other}` among its arguments already"
        ))
    });
    if let Some(obstacle) = obstacle {
        let detail = format!("container `{}` {obstacle}", envoy.name());
        return Err(Code::DrainFlagsNotAdded.about("drain-strategy", detail));
    }
    let mut flags = Vec::new();
    if present_strategy.is_none() {
        flags.extend([STRATEGY_FLAG.to_owned(), strategy.to_owned()]);
    }
    if present.is_none() {
        flags.extend([TIME_FLAG.to_owned(), needed.to_string()]);
        let detail = format!(
            "`{TIME_FLAG} {needed}` is added to Envoy's arguments, and also applies to listeners that xDS updates or \
             removes"
        );
        diagnostics.warn(Code::DrainTimeOfUpdates.diagnostic(detail));
    }
    Ok(flags)
}

/// Returns the words to add for the annotation `add-admin`; none without it.
///
/// # Errors
/// If they would not reach Envoy, if its arguments contain a configuration, of which Envoy takes only one, or if other
/// pods of the node could reach the admin interface.
fn admin_flags(
    envoy: &Container<'_>,
    pod: &PodView<'_>,
    settings: &Settings,
) -> Result<Vec<String>, Diagnostic> {
    if settings.values().add_admin == Switch::False {
        return Ok(Vec::new());
    }
    let other = if envoy.flag(CONFIG_FLAG).is_some() {
        Some("has `--config-yaml` already: add `admin` there")
    } else if !starts_envoy_itself(envoy) {
        Some(
            "is not known to start Envoy itself: a wrapper may add `--config-yaml`, which Envoy takes only once",
        )
    } else if settings.source("admin-address") == SettingSource::Annotation {
        Some("has an admin interface according to the annotation `admin-address`")
    } else if pod.uses_host_network() {
        Some("uses the node's network, on which every such pod could call the admin interface")
    } else {
        None
    };
    let obstacle = obstacle(envoy).or_else(|| other.map(str::to_owned));
    if let Some(obstacle) = obstacle {
        let detail = format!("container `{}` {obstacle}", envoy.name());
        return Err(Code::AdminNotAdded.about("add-admin", detail));
    }
    // A name that begins with `@` is that of an abstract socket.
    let admin = format!(r#"{{"admin":{{"address":{{"pipe":{{"path":"@{ADDED_ADMIN}"}}}}}}}}"#);
    Ok(vec![CONFIG_FLAG.to_owned(), admin])
}

/// Returns the flags by which the drainer tells this Envoy from other pods' on the node's network, as they are written and
/// as Envoy names them. Variables are not compared: they are those of Envoy's container.
pub(super) fn envoy_flags(envoy: &Container<'_>, pod: &PodView<'_>) -> Map<String, Value> {
    let is_compared = pod.uses_host_network() && obstacle(envoy).is_none();
    let flags = IDENTITY_FLAGS.iter().filter(|_| is_compared);
    let flags = flags.filter_map(|(flag, name)| Some((*name, envoy.flag(flag)?)));
    let known = flags.filter(|(_, value)| !value.contains("$("));
    known
        .map(|(name, value)| (name.to_owned(), value.into()))
        .collect()
}

/// Returns true if Envoy is started with the strategy that makes clients reconnect from the beginning.
pub(super) fn is_immediate(envoy: &Container<'_>, settings: &Settings) -> bool {
    settings.values().drain_strategy == DrainStrategy::Immediate
        || envoy.flag(STRATEGY_FLAG) == Some("immediate")
}

/// Returns why words at the end of `args` would not reach Envoy as its arguments.
fn obstacle(envoy: &Container<'_>) -> Option<String> {
    if envoy.command_line().next().is_none() {
        let image = "has neither `args` nor `command`: arguments would replace those of its image";
        return Some(image.to_owned());
    }
    let program = envoy.program();
    let is_envoy = match program {
        Some(program) => last_segment(program) == "envoy",
        None => mentions_envoy(envoy) || envoy.has_configuration_flag(),
    };
    let program = program.unwrap_or(envoy.image());
    (!is_envoy).then(|| {
        let program = excerpt(program, MAX_MESSAGE_TEXT_LEN);
        format!("runs `{program}`, which may not pass arguments on to Envoy")
    })
}

/// Returns true if a container's command line is Envoy's own, and not that of a wrapper around it: by the programs before
/// its flags, or else by an image whose entry point is Envoy.
fn starts_envoy_itself(envoy: &Container<'_>) -> bool {
    let is_known = |word| LAUNCHERS.split(' ').any(|it| it == last_segment(word));
    envoy.programs().all(is_known) && (envoy.program().is_some() || is_envoys_image(envoy))
}

/// Returns true if Envoy's drain time must outlast the drain, unless that is known of an adopted manager's Envoy alone,
/// whose drain time the manager sets. A timeout that the pod's own grace period allows may be shorter in effect.
fn needs_drain_time(envoy: &Container<'_>, settings: &Settings) -> bool {
    let is_adopted = settings.source("ignore-listeners") == SettingSource::ShutdownManager;
    let closes_early = minor_version(envoy).map(|minor| minor >= MINOR_OF_EARLY_CLOSE);
    let is_derived = settings.source("drain-timeout") == SettingSource::GracePeriod;
    closes_early.unwrap_or(!is_adopted) && !is_derived
}

/// The drain time in seconds that lets connections last for the whole of `drain_timeout`. From 1.41 on, Envoy may close
/// upgrades from two thirds of its drain time on, whatever its strategy.
/// <https://github.com/envoyproxy/envoy/blob/main/source/common/http/conn_manager_impl.cc>
fn drain_time(drain_timeout: Duration) -> u64 {
    whole_seconds(drain_timeout * 3 / 2).max(1)
}

/// Rounds a duration up to seconds.
pub(crate) fn whole_seconds(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}

/// Returns a warning about a drain time that is shorter than `needed`. Envoy itself reports one that is not a number.
fn too_short(drain_time: Option<&str>, needed: u64, timeout: Duration) -> Option<Diagnostic> {
    let (seconds, present): (u64, _) = match drain_time {
        Some(text) => (text.parse().ok()?, format!("`{TIME_FLAG} {text}`")),
        None => (
            DEFAULT_DRAIN_TIME,
            format!("Envoy's default drain time of {DEFAULT_DRAIN_TIME}s"),
        ),
    };
    let timeout = duration::format(timeout);
    (seconds < needed).then(|| {
        let detail =
            format!("{present} is shorter than the {needed}s that `drain-timeout` {timeout} needs from Envoy 1.41 on");
        Code::ShortDrainTime.diagnostic(detail)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::pod::PodView;
    use crate::settings::Defaults;
    use crate::settings::parse::ParsedSettings;
    use crate::shutdown_manager::ManagerDefault;

    #[test]
    fn flags_that_identify_envoy_are_passed_as_written() {
        let flags = |container: Value| {
            let pod = json!({"spec": {"hostNetwork": true, "containers": [container]}}).to_string();
            let pod = PodView::decode(&pod).unwrap();
            let (_, envoy) = pod.long_running_containers().next().unwrap();
            Value::from(envoy_flags(envoy, &pod)).to_string()
        };
        let words = [
            "--config-path",
            "/e.yaml",
            "--base-id=7",
            "--service-node",
            "$(NODE)",
            "--service-cluster",
            "a,b",
        ];
        for (container, want) in [
            (
                json!({"args": words}),
                r#"{"base_id":"7","config_path":"/e.yaml","service_cluster":"a,b"}"#,
            ),
            (
                json!({"command": ["/usr/bin/envoy"], "args": ["-c", "/e.yaml"]}),
                r#"{"config_path":"/e.yaml"}"#,
            ),
            (json!({"command": ["sh"], "args": ["-c", "envoy"]}), "{}"),
            (json!({"args": ["proxy", "-c", "/e.yaml"]}), "{}"),
            (json!({}), "{}"),
        ] {
            assert_eq!(flags(container.clone()), want, "{container}");
        }
    }

    /// The added flags or the refusal, and the codes of the warnings.
    fn flags(annotations: &Value, container: &Value) -> (Result<String, String>, Vec<Code>) {
        let pod = json!({
            "metadata": {"annotations": annotations},
            "spec": {"containers": [container]},
        });
        let pod = pod.to_string();
        let pod = PodView::decode(&pod).unwrap();
        let defaults = Defaults::new("image", "own");
        let settings = ParsedSettings::parse(&pod, false, &defaults, &[]).settings;
        let (_, envoy) = pod.long_running_containers().next().unwrap();
        let mut diagnostics = Diagnostics::default();
        let flags = drain_flags(envoy, &settings, &mut diagnostics)
            .map(|flags| flags.join(" "))
            .map_err(|refusal| {
                assert_eq!(refusal.code, Code::DrainFlagsNotAdded);
                refusal.detail
            });
        let warnings = diagnostics.warnings.iter();
        (flags, warnings.map(|warning| warning.code).collect())
    }

    fn strategy(strategy: &str) -> Value {
        json!({"envoy-drainer.dev/drain-strategy": strategy})
    }

    #[test]
    fn nothing_is_added_without_the_annotation() {
        let shell = json!({"name": "envoy", "command": ["sh"]});
        assert_eq!(flags(&json!({}), &shell), (Ok(String::new()), vec![]));
    }

    #[test]
    fn only_missing_flags_are_added() {
        let envoy = |args: &str| {
            let args: Vec<_> = args.split(' ').collect();
            json!({"name": "envoy", "args": args})
        };
        let both = "--drain-strategy immediate --drain-time-s 90";
        let updates = vec![Code::DrainTimeOfUpdates];
        let table = [
            ("-c /envoy.yaml", both, updates.clone()),
            (
                "-c /envoy.yaml --drain-strategy immediate",
                "--drain-time-s 90",
                updates,
            ),
            (
                "--drain-time-s 90 -c /envoy.yaml",
                "--drain-strategy immediate",
                vec![],
            ),
            (
                "--drain-time-s 89 -c /envoy.yaml",
                "--drain-strategy immediate",
                vec![Code::ShortDrainTime],
            ),
            (
                "--drain-time-s $(TIME)",
                "--drain-strategy immediate",
                vec![],
            ),
            ("--drain-time-s 600 --drain-strategy immediate", "", vec![]),
            (
                "-c /envoy.yaml --service-cluster dash --service-node sh",
                both,
                vec![Code::DrainTimeOfUpdates],
            ),
        ];
        for (args, want, warnings) in table {
            assert_eq!(
                flags(&strategy("immediate"), &envoy(args)),
                (Ok(want.to_owned()), warnings),
                "{args}"
            );
        }
    }

    #[test]
    fn drain_time_is_one_and_a_half_drain_timeouts() {
        for (timeout, seconds) in [("90500ms", 136), ("1m", 90)] {
            let annotations = json!({
                "envoy-drainer.dev/drain-strategy": "gradual",
                "envoy-drainer.dev/drain-timeout": timeout,
            });
            let envoy = json!({"name": "envoy", "command": ["envoy"]});
            let want = format!("--drain-strategy gradual --drain-time-s {seconds}");
            assert_eq!(flags(&annotations, &envoy).0, Ok(want), "{timeout}");
        }
        assert_eq!(drain_time(Duration::ZERO), 1);
    }

    #[test]
    fn drain_time_is_short_only_for_envoys_that_close_early() {
        let short = |image: &str, annotations: &Value, grace: Value| {
            let mut pod = json!({
                "metadata": {"annotations": annotations},
                "spec": {"terminationGracePeriodSeconds": grace, "containers": [
                    {"name": "envoy", "image": image, "args": ["-c", "/e.yaml", "--drain-time-s", "60"]},
                ]},
            });
            pod["metadata"]["annotations"]["envoy-drainer.dev/inject"] = json!("true");
            let pod = pod.to_string();
            let pod = PodView::decode(&pod).unwrap();
            let defaults = Defaults::new("", "");
            let manager = [ManagerDefault {
                setting: "ignore-listeners",
                value: "1".to_owned(),
                origin: String::new(),
            }];
            let manager = if image.contains("adopted") {
                &manager[..]
            } else {
                &[]
            };
            let settings = ParsedSettings::parse(&pod, false, &defaults, manager).settings;
            let (_, envoy) = pod.long_running_containers().next().unwrap();
            let mut diagnostics = Diagnostics::default();
            drain_flags(envoy, &settings, &mut diagnostics).unwrap();
            !diagnostics.warnings.is_empty()
        };
        for (image, want) in [
            ("envoyproxy/envoy:v1.36-latest", false),
            ("envoyproxy/envoy:distroless-v1.40.0", false),
            ("envoyproxy/envoy:v1.41.0", true),
            ("envoyproxy/envoy:dev", true),
            ("acme/envoy:1.0.0", true),
            ("adopted/envoy:1.0.0", false),
            ("adopted/envoyproxy/envoy:v1.41.0", true),
        ] {
            assert_eq!(short(image, &json!({}), Value::Null), want, "{image}");
        }
        let timeout = json!({"envoy-drainer.dev/drain-timeout": "300s"});
        let dev = "envoyproxy/envoy:dev";
        assert!(!short(dev, &json!({}), json!(930)));
        assert!(short(dev, &timeout, json!(930)));
    }

    #[test]
    fn admin_is_not_added_behind_a_wrapper() {
        let refused = |container: Value| {
            let pod = json!({
                "metadata": {"annotations": {"envoy-drainer.dev/add-admin": "true"}},
                "spec": {"containers": [container]},
            });
            let pod = pod.to_string();
            let pod = PodView::decode(&pod).unwrap();
            let settings = ParsedSettings::parse(&pod, false, &Defaults::new("", ""), &[]).settings;
            let (_, envoy) = pod.long_running_containers().next().unwrap();
            admin_flags(envoy, &pod, &settings).is_err()
        };
        let flags = ["--service-node", "a"];
        for (container, want) in [
            (
                json!({"image": "quay.io/solo-io/gloo-envoy-wrapper:1.20", "args": flags}),
                true,
            ),
            (
                json!({"image": "kgateway-dev/envoy-wrapper", "args": flags}),
                true,
            ),
            (
                json!({"name": "envoy", "command": ["/start.sh", "envoy"], "args": flags}),
                true,
            ),
            (
                json!({"name": "envoy", "command": ["/start-envoy.sh"], "args": flags}),
                true,
            ),
            (
                json!({"image": "envoyproxy/envoy:v1.36.4", "args": flags}),
                false,
            ),
            (
                json!({"image": "mirror.example/envoy:v1.36.4", "args": flags}),
                false,
            ),
            (
                json!({"command": ["tini", "--", "/usr/local/bin/envoy"], "args": flags}),
                false,
            ),
        ] {
            assert_eq!(refused(container.clone()), want, "{container}");
        }
    }

    #[test]
    fn flags_that_would_not_reach_envoy_are_refused() {
        let image = "has neither `args` nor `command`: arguments would replace those of its image";
        let shell = |name: &str| format!("runs `{name}`, which may not pass arguments on to Envoy");
        let table = [
            (json!({"name": "envoy"}), image.to_owned()),
            (
                json!({"name": "envoy", "args": [], "command": null}),
                image.to_owned(),
            ),
            (
                json!({"name": "envoy", "command": ["/bin/sh", "-c", "envoy"]}),
                shell("/bin/sh"),
            ),
            (
                json!({"name": "envoy", "command": ["tini", "--"], "args": ["bash", "/start"]}),
                shell("/start"),
            ),
            (
                json!({"name": "gw", "command": ["consul-dataplane"], "args": ["-grpc-port=8502"]}),
                shell("consul-dataplane"),
            ),
            (
                json!({"name": "gw", "image": "hashicorp/consul-dataplane", "args": ["-grpc-port=8502"]}),
                shell("hashicorp/consul-dataplane"),
            ),
            (
                json!({"name": "envoy", "args": ["--drain-strategy", "gradual"]}),
                "has `--drain-strategy gradual` among its arguments already".to_owned(),
            ),
        ];
        for (container, want) in table {
            let name = container["name"].as_str().unwrap();
            let want = Err(format!("container `{name}` {want}"));
            let refused = flags(&strategy("immediate"), &container);
            assert_eq!(refused, (want, vec![]), "{container}");
        }
    }
}
