//! The rules, on a container with an Envoy and a preStop hook.

use std::time::Duration;

use serde_json::Value;

use super::LintCode;
use super::hook::{Hook, Script};

/// What violates a rule.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Violation {
    pub(super) code: LintCode,
    pub(super) message: String,
    pub(super) remedy: String,
    pub(super) annotations: Vec<String>,
}

/// Kubernetes' default.
const DEFAULT_GRACE: u64 = 30;

/// How long the cluster autoscaler waits for a pod.
/// <https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/FAQ.md>
const MAX_GRACE: u64 = 600;

/// Envoy's default of `--drain-time-s`.
/// <https://www.envoyproxy.io/docs/envoy/latest/operations/cli#cmdoption-drain-time-s>
const DEFAULT_DRAIN_TIME: u64 = 600;

/// The longest sleep that stands for stale endpoints rather than for requests in flight.
const MAX_DELAY: Duration = Duration::from_secs(300);

/// Checks the hook of a container; `None` if it is no Envoy, or has no hook.
pub(super) fn check(pod: &Value, container: &Value) -> Option<Vec<Violation>> {
    let hook = Hook::of(container)?;
    let drains = match &hook {
        Hook::Exec(script) => {
            !script.admin_calls().is_empty() || script.contains("downstream_cx_active")
        }
        Hook::Http(path) => path.contains("healthcheck/fail") || path.contains("drain_listeners"),
        Hook::Sleep(_) => false,
    };
    if !is_envoy(container) && !drains {
        return None;
    }
    let grace = pod["spec"]["terminationGracePeriodSeconds"]
        .as_u64()
        .unwrap_or(DEFAULT_GRACE);
    let mut found = Vec::new();
    found.extend(wrong_method(&hook));
    found.extend(no_shell(container, &hook));
    found.extend(sleep_exceeds_grace(&hook, grace));
    if let Hook::Exec(script) = &hook {
        found.extend(immediate_drain(script));
        found.extend(listeners_close(container, script, hook.sleep()));
        found.extend(endless_loop(script));
    }
    found.extend(sleep_only(&hook, drains));
    found.extend(host_network_hook(pod, &hook));
    found.extend(long_grace(grace));
    Some(found)
}

/// Whether a container runs an Envoy, by its name, its image or its command.
fn is_envoy(container: &Value) -> bool {
    let image = container["image"].as_str().unwrap_or_default();
    let repository = image.split(['@', ':']).next().unwrap_or_default();
    let command = container["command"][0].as_str().unwrap_or_default();
    [
        container["name"].as_str().unwrap_or_default(),
        repository,
        command,
    ]
    .iter()
    .any(|text| {
        text.rsplit('/')
            .next()
            .is_some_and(|name| name.contains("envoy"))
    })
}

fn wrong_method(hook: &Hook<'_>) -> Option<Violation> {
    let (what, url) = match hook {
        Hook::Exec(script) => {
            let call = script
                .admin_calls()
                .into_iter()
                .find(|call| !call.is_post)?;
            (format!("`{}` sends GET", call.program), call.url.to_owned())
        }
        Hook::Http(path)
            if path.contains("healthcheck/fail") || path.contains("drain_listeners") =>
        {
            ("an httpGet hook sends GET".to_owned(), (*path).to_owned())
        }
        _ => return None,
    };
    Some(Violation {
        code: LintCode::WrongMethod,
        message: format!("{what} to `{url}`: Envoy answers 405 and does nothing"),
        remedy: "send POST: `curl -X POST` or `wget --post-data ''`".to_owned(),
        annotations: replacement(hook),
    })
}

fn no_shell(container: &Value, hook: &Hook<'_>) -> Option<Violation> {
    let Hook::Exec(script) = hook else {
        return None;
    };
    let image = container["image"].as_str().unwrap_or_default();
    let programs = script.programs();
    if !image.contains("distroless") || programs.is_empty() {
        return None;
    }
    let programs = crate::text::list_names(&programs);
    Some(Violation {
        code: LintCode::NoShell,
        message: format!(
            "the hook runs {programs}, which the image `{image}` does not have: the hook fails at each termination"
        ),
        remedy:
            "use the `sleep` action of Kubernetes 1.30 instead of `exec`, or an image with a shell"
                .to_owned(),
        annotations: replacement(hook),
    })
}

fn sleep_exceeds_grace(hook: &Hook<'_>, grace: u64) -> Option<Violation> {
    let sleep = hook.sleep().as_secs();
    (sleep > 0 && sleep >= grace).then(|| Violation {
        code: LintCode::SleepExceedsGrace,
        message: format!("the hook sleeps for {sleep} s, and the grace period is {grace} s: Envoy is killed during the sleep"),
        remedy: format!("raise terminationGracePeriodSeconds to more than {}", sleep + 10),
        annotations: replacement(hook),
    })
}

fn immediate_drain(script: &Script<'_>) -> Option<Violation> {
    let calls = script.admin_calls();
    let is_immediate = |url: &str| url.contains("/drain_listeners") && !url.contains("graceful");
    let call = calls.iter().find(|call| is_immediate(call.url))?;
    Some(Violation {
        code: LintCode::ImmediateDrain,
        message: format!(
            "`{}` closes the listeners immediately: clients with an old endpoint are refused",
            call.url
        ),
        remedy: "call /drain_listeners?graceful&skip_exit".to_owned(),
        annotations: vec!["existing-hook: replace".to_owned()],
    })
}

fn listeners_close(container: &Value, script: &Script<'_>, sleep: Duration) -> Option<Violation> {
    let calls = script.admin_calls();
    let is_without = |url: &str| {
        url.contains("drain_listeners") && url.contains("graceful") && !url.contains("skip_exit")
    };
    let call = calls.iter().find(|call| is_without(call.url))?;
    let drain_time = drain_time(container);
    (sleep.as_secs() >= drain_time).then(|| Violation {
        code: LintCode::ListenersClose,
        message: format!("without `skip_exit`, `{}` closes the listeners after {drain_time} s (--drain-time-s), while the hook waits", call.url),
        remedy: "add `&skip_exit`".to_owned(),
        annotations: vec!["existing-hook: replace".to_owned()],
    })
}

/// `--drain-time-s` of Envoy, or its default.
fn drain_time(container: &Value) -> u64 {
    let args = ["command", "args"]
        .into_iter()
        .filter_map(|list| container[list].as_array())
        .flatten();
    let args: Vec<_> = args.filter_map(Value::as_str).collect();
    let following = args
        .windows(2)
        .find(|pair| pair[0] == "--drain-time-s")
        .map(|pair| pair[1]);
    let joined = || {
        args.iter()
            .find_map(|arg| arg.strip_prefix("--drain-time-s="))
    };
    let text = following.or_else(joined);
    text.and_then(|text| text.parse().ok())
        .unwrap_or(DEFAULT_DRAIN_TIME)
}

fn endless_loop(script: &Script<'_>) -> Option<Violation> {
    let counts =
        script.contains("downstream_cx_active") || script.contains("server.total_connections");
    let without_admin = script.contains("listener.") && !script.contains("listener.admin");
    (script.has_loop() && counts && !without_admin).then(|| Violation {
        code: LintCode::EndlessLoop,
        message: "the loop also counts connections to the admin interface, one of which is its own: the count never becomes zero".to_owned(),
        remedy: "leave out listener.admin and the workers' statistics".to_owned(),
        annotations: vec!["existing-hook: replace".to_owned()],
    })
}

fn sleep_only(hook: &Hook<'_>, drains: bool) -> Option<Violation> {
    let sleep = hook.sleep();
    (!drains && !sleep.is_zero()).then(|| Violation {
        code: LintCode::SleepOnly,
        message: format!("after {} s, SIGTERM cuts what is still open, such as idle connections and long requests", sleep.as_secs()),
        remedy: "fail Envoy's health and drain its listeners before SIGTERM".to_owned(),
        annotations: replacement(hook),
    })
}

fn host_network_hook(pod: &Value, hook: &Hook<'_>) -> Option<Violation> {
    let is_host_network = pod["spec"]["hostNetwork"] == true;
    (is_host_network && matches!(hook, Hook::Http(_))).then(|| Violation {
        code: LintCode::HostNetworkHook,
        message: "with hostNetwork, the kubelet calls the hook at the node's address: the call does not reach a server on localhost, and may reach another pod".to_owned(),
        remedy: "set the hook's `host: 127.0.0.1`, and a port that no other pod of the node uses".to_owned(),
        annotations: Vec::new(),
    })
}

fn long_grace(grace: u64) -> Option<Violation> {
    (grace > MAX_GRACE).then(|| Violation {
        code: LintCode::LongGrace,
        message: format!("the grace period is {grace} s; the cluster autoscaler waits {MAX_GRACE} s, and spot nodes less"),
        remedy: "shorten the longest stream by Envoy's max_stream_duration, or raise the autoscaler's --max-graceful-termination-sec".to_owned(),
        annotations: Vec::new(),
    })
}

/// The annotations that take the place of a hook.
fn replacement(hook: &Hook<'_>) -> Vec<String> {
    let sleep = hook.sleep().min(MAX_DELAY).as_secs();
    let drains = matches!(hook, Hook::Exec(script) if !script.admin_calls().is_empty());
    let setting = match (drains, sleep) {
        (true, 61..) => Some("drain-timeout"),
        (false, 16..) => Some("drain-delay"),
        // The defaults last as long, or as long as new connections arrive.
        _ => None,
    };
    let setting = setting.map(|setting| format!("{setting}: {sleep}s"));
    let replace = "existing-hook: replace".to_owned();
    [replace].into_iter().chain(setting).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn codes(pod: &Value) -> Vec<String> {
        let found = check(pod, &pod["spec"]["containers"][0]);
        found
            .unwrap_or_default()
            .iter()
            .map(|it| it.code.name())
            .collect()
    }

    fn exec(script: &str) -> Value {
        json!({"exec": {"command": ["/bin/sh", "-c", script]}})
    }

    #[test]
    fn each_rule_finds_its_hook_and_leaves_a_right_one() {
        let graceful = "curl -X POST 'localhost:9901/drain_listeners?graceful&skip_exit'; sleep 20";
        // (hook, changes of the container and of the spec, codes)
        let table = [
            (exec(graceful), json!({}), json!({}), ""),
            (
                exec("wget -qO- 127.0.0.1:9901/healthcheck/fail && sleep 10"),
                json!({}),
                json!({}),
                "LNT001",
            ),
            (
                json!({"httpGet": {"path": "/healthcheck/fail", "port": 9901}}),
                json!({}),
                json!({}),
                "LNT001",
            ),
            (
                exec(graceful),
                json!({"image": "envoyproxy/envoy:distroless-v1.36"}),
                json!({}),
                "LNT002",
            ),
            (
                exec(graceful),
                json!({}),
                json!({"terminationGracePeriodSeconds": 20}),
                "LNT003",
            ),
            (
                exec("curl -X POST localhost:9901/drain_listeners; sleep 5"),
                json!({}),
                json!({}),
                "LNT004",
            ),
            (
                exec("curl -X POST 'localhost:9901/drain_listeners?graceful'; sleep 20"),
                json!({"args": ["--drain-time-s", "10"]}),
                json!({}),
                "LNT005",
            ),
            (
                exec("curl -X POST 'localhost:9901/drain_listeners?graceful'; sleep 20"),
                json!({}),
                json!({}),
                "",
            ),
            (
                json!({"sleep": {"seconds": 15}}),
                json!({}),
                json!({}),
                "LNT006",
            ),
            (
                json!({"httpGet": {"path": "/shutdown", "port": 8090}}),
                json!({}),
                json!({"hostNetwork": true}),
                "LNT007",
            ),
            (
                exec(graceful),
                json!({}),
                json!({"terminationGracePeriodSeconds": 3600}),
                "LNT008",
            ),
            (
                exec(
                    "while [ $(curl -s localhost:9901/stats?filter=downstream_cx_active | wc -l) != 0 ]; do sleep 1; done",
                ),
                json!({}),
                json!({}),
                "LNT009",
            ),
        ];
        for (hook, container, spec, want) in table {
            let mut envoy = json!({"name": "envoy", "lifecycle": {"preStop": hook}});
            envoy
                .as_object_mut()
                .unwrap()
                .extend(container.as_object().unwrap().clone());
            let mut pod = json!({"spec": {"containers": [envoy]}});
            pod["spec"]
                .as_object_mut()
                .unwrap()
                .extend(spec.as_object().unwrap().clone());
            assert_eq!(codes(&pod).join(" "), want, "{pod}");
        }
    }

    #[test]
    fn other_containers_are_not_checked() {
        let pod = json!({"spec": {"containers": [{
            "name": "app", "image": "registry.example.com/app:1", "lifecycle": {"preStop": {"sleep": {"seconds": 600}}},
        }]}});
        assert_eq!(check(&pod, &pod["spec"]["containers"][0]), None);
    }

    #[test]
    fn what_the_defaults_do_not_cover_becomes_an_annotation() {
        let sleep = |seconds: u64| json!({"sleep": {"seconds": seconds}});
        let drain = |seconds| {
            exec(&format!(
                "curl -X POST localhost:9901/healthcheck/fail; sleep {seconds}"
            ))
        };
        for (hook, want) in [
            (sleep(10), None),
            (sleep(15), None),
            (sleep(120), Some("drain-delay: 120s")),
            (drain(60), None),
            (drain(120), Some("drain-timeout: 120s")),
        ] {
            let container = json!({"lifecycle": {"preStop": hook}});
            let annotations = replacement(&Hook::of(&container).unwrap());
            assert_eq!(annotations[0], "existing-hook: replace");
            assert_eq!(annotations.get(1).map(String::as_str), want, "{container}");
        }
    }
}
