//! The rules, on a container with an Envoy and a preStop hook.

use admission::{AUTOSCALER_LIMIT, Container, DEFAULT_DRAIN_TIME, Hook, PodView};

use super::finding::LintCode;
use super::script::{AdminCall, Script};
use crate::text::list_names;

/// What violates a rule.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Violation {
    pub(super) code: LintCode,
    pub(super) message: String,
    pub(super) remedy: String,
    pub(super) annotations: Vec<String>,
}

/// A hook, with its container and pod.
struct HookView<'a> {
    pod: &'a PodView<'a>,
    container: &'a Container<'a>,
    hook: &'a Hook<'a>,
    /// Empty if the hook is no command.
    script: Script<'a>,
    /// The calls of Envoy's admin interface in the script.
    calls: Vec<AdminCall<'a>>,
    /// How long the hook sleeps in all, in seconds.
    sleep: u64,
}

/// The longest sleep that stands for stale endpoints rather than for requests in flight, in seconds.
const MAX_DELAY: u64 = 300;

/// Finds what violates a rule, and a remedy.
type Rule<'a> = fn(&HookView<'a>) -> Option<(String, String)>;

/// Checks the hook of a container; `None` if it has none that is understood, or if neither the container is an Envoy
/// nor the hook calls one.
pub(super) fn check(
    pod: &PodView<'_>,
    container: &Container<'_>,
    is_envoy: bool,
) -> Option<Vec<Violation>> {
    let hook = Hook::parse(container.pre_stop()?)?;
    let hook = HookView::new(pod, container, &hook);
    let rules: [(LintCode, Rule<'_>); 9] = [
        (LintCode::WrongMethod, HookView::wrong_method),
        (LintCode::NoShell, HookView::no_shell),
        (LintCode::SleepExceedsGrace, HookView::sleep_exceeds_grace),
        (LintCode::ImmediateDrain, HookView::immediate_drain),
        (LintCode::ListenersClose, HookView::listeners_close),
        (LintCode::EndlessLoop, HookView::endless_loop),
        (LintCode::SleepOnly, HookView::sleep_only),
        (LintCode::HostNetworkHook, HookView::host_network_hook),
        (LintCode::LongGrace, HookView::long_grace),
    ];
    let violations = rules.iter().filter_map(|(code, rule)| {
        let (message, remedy) = rule(&hook)?;
        Some(Violation {
            code: *code,
            message,
            remedy,
            annotations: hook.replacement(*code),
        })
    });
    (is_envoy || hook.drains()).then(|| violations.collect())
}

// === impl HookView ===

impl<'a> HookView<'a> {
    fn new(pod: &'a PodView<'a>, container: &'a Container<'a>, hook: &'a Hook<'a>) -> Self {
        let (words, sleep): (&[_], _) = match hook {
            Hook::Exec { command } => (command, 0),
            Hook::HttpGet(_) => (&[], 0),
            Hook::Sleep { seconds } => (&[], *seconds),
        };
        let script = Script::new(words.iter().map(String::as_str));
        Self {
            pod,
            container,
            hook,
            calls: script.admin_calls(),
            sleep: sleep + script.sleep().as_secs(),
            script,
        }
    }

    /// Whether it does something for a drain of Envoy's, beside sleeping.
    fn drains(&self) -> bool {
        match self.hook {
            Hook::Exec { .. } => {
                !self.calls.is_empty() || self.script.contains("downstream_cx_active")
            }
            Hook::HttpGet(request) => request.drain_path().is_some(),
            Hook::Sleep { .. } => false,
        }
    }

    /// The first URL of the admin interface in the script for which this is true.
    fn url(&self, is_wanted: impl Fn(&str) -> bool) -> Option<&'a str> {
        let mut urls = self.calls.iter().map(|call| call.url);
        urls.find(|url| is_wanted(url))
    }

    fn wrong_method(&self) -> Option<(String, String)> {
        let (what, url) = match self.hook {
            Hook::HttpGet(request) => (
                "an httpGet hook sends GET".to_owned(),
                request.drain_path()?,
            ),
            Hook::Exec { .. } | Hook::Sleep { .. } => {
                let call = self.calls.iter().find(|call| !call.is_post)?;
                (format!("`{}` sends GET", call.program), call.url)
            }
        };
        Some((
            format!("{what} to `{url}`: Envoy answers 405 and does nothing"),
            "send POST: `curl -X POST` or `wget --post-data ''`".to_owned(),
        ))
    }

    fn no_shell(&self) -> Option<(String, String)> {
        let (image, programs) = (self.container.image(), self.script.programs());
        if !image.contains("distroless") || programs.is_empty() {
            return None;
        }
        let programs = list_names(&programs);
        let message = format!(
            "the hook runs {programs}, which the image `{image}` does not have: the hook fails at each termination"
        );
        let remedy =
            "use the `sleep` action of Kubernetes 1.30 instead of `exec`, or an image with a shell";
        Some((message, remedy.to_owned()))
    }

    fn sleep_exceeds_grace(&self) -> Option<(String, String)> {
        let (sleep, grace) = (self.sleep, self.pod.grace_period());
        let message = format!(
            "the hook sleeps for {sleep} s, and the grace period is {grace} s: Envoy is killed during the sleep"
        );
        let remedy = format!(
            "raise terminationGracePeriodSeconds to more than {}",
            sleep + 10
        );
        (sleep > 0 && sleep >= grace.try_into().unwrap_or(0)).then_some((message, remedy))
    }

    fn immediate_drain(&self) -> Option<(String, String)> {
        let url = self.url(|url| url.contains("/drain_listeners") && !url.contains("graceful"))?;
        Some((
            format!(
                "`{url}` closes the listeners immediately: clients with an old endpoint are refused"
            ),
            "call /drain_listeners?graceful&skip_exit".to_owned(),
        ))
    }

    fn listeners_close(&self) -> Option<(String, String)> {
        let has = |url: &str, text| url.contains(text);
        let is_without = |url: &str| {
            has(url, "drain_listeners") && has(url, "graceful") && !has(url, "skip_exit")
        };
        let url = self.url(is_without)?;
        let time = self.container.flag("--drain-time-s");
        let time = time.and_then(|text| text.parse().ok());
        let time = time.unwrap_or(DEFAULT_DRAIN_TIME);
        let message = format!(
            "without `skip_exit`, `{url}` closes the listeners after {time} s (--drain-time-s), while the hook waits"
        );
        (self.sleep >= time).then(|| (message, "add `&skip_exit`".to_owned()))
    }

    fn endless_loop(&self) -> Option<(String, String)> {
        let has = |text| self.script.contains(text);
        let counts = has("downstream_cx_active") || has("server.total_connections");
        let without_admin = has("listener.") && !has("listener.admin");
        let message = "the loop also counts connections to the admin interface, one of which is its own: \
            the count never becomes zero";
        let remedy = "leave out listener.admin and the workers' statistics";
        let is_endless = self.script.has_loop() && counts && !without_admin;
        is_endless.then(|| (message.to_owned(), remedy.to_owned()))
    }

    fn sleep_only(&self) -> Option<(String, String)> {
        let message = format!(
            "after {} s, SIGTERM cuts what is still open, such as idle connections and long requests",
            self.sleep
        );
        let remedy = "fail Envoy's health and drain its listeners before SIGTERM";
        (!self.drains() && self.sleep > 0).then(|| (message, remedy.to_owned()))
    }

    fn host_network_hook(&self) -> Option<(String, String)> {
        let message = "with hostNetwork, the kubelet calls the hook at the node's address: \
            the call does not reach a server on localhost, and may reach another pod";
        let remedy =
            "set the hook's `host: 127.0.0.1`, and a port that no other pod of the node uses";
        let is_request = matches!(self.hook, Hook::HttpGet(_));
        (self.pod.uses_host_network() && is_request)
            .then(|| (message.to_owned(), remedy.to_owned()))
    }

    fn long_grace(&self) -> Option<(String, String)> {
        let grace = self.pod.grace_period();
        let message = format!(
            "the grace period is {grace} s; the cluster autoscaler waits {AUTOSCALER_LIMIT} s, and spot nodes less"
        );
        let remedy = "shorten the longest stream by Envoy's max_stream_duration, \
            or raise the autoscaler's --max-graceful-termination-sec";
        (grace > AUTOSCALER_LIMIT).then(|| (message, remedy.to_owned()))
    }

    /// The annotations that take the place of a hook that violates this rule.
    fn replacement(&self, code: LintCode) -> Vec<String> {
        use LintCode::{EndlessLoop, HostNetworkHook, ImmediateDrain, ListenersClose, LongGrace};
        let sleep = self.sleep.min(MAX_DELAY);
        let setting = match (code, self.calls.is_empty(), sleep) {
            (HostNetworkHook | LongGrace, ..) => return Vec::new(),
            (ImmediateDrain | ListenersClose | EndlessLoop, ..) => None,
            (_, false, 61..) => Some("drain-timeout"),
            (_, true, 16..) => Some("drain-delay"),
            // The defaults last as long, or as long as new connections arrive.
            _ => None,
        };
        let setting = setting.map(|setting| format!("{setting}: {sleep}s"));
        let replace = "existing-hook: replace".to_owned();
        [replace].into_iter().chain(setting).collect()
    }
}

#[cfg(test)]
mod tests {
    use admission::known_envoys;
    use serde_json::{Value, json};

    use super::*;

    /// Checks the first container of a pod.
    fn check_first(pod: &Value) -> Option<Vec<Violation>> {
        let pod = pod.to_string();
        let pod = PodView::decode(&pod).unwrap();
        let (at, container) = pod.long_running_containers().next().unwrap();
        check(&pod, container, known_envoys(&pod).contains(&at))
    }

    fn codes(pod: &Value) -> Vec<String> {
        let found = check_first(pod).unwrap_or_default();
        found.iter().map(|it| it.code.to_string()).collect()
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
        let app = json!({"name": "app", "image": "registry.example.com/app:1"});
        let control_plane = json!({"name": "envoy-gateway", "image": "envoyproxy/gateway:v1.9.1",
            "args": ["server", "--config-path=/config/envoy-gateway.yaml"]});
        let log_shipper = json!({"name": "envoy-logs", "image": "fluent/fluent-bit"});
        for containers in [
            json!([app]),
            json!([control_plane]),
            json!([log_shipper, app]),
        ] {
            let mut pod = json!({"spec": {"containers": containers}});
            pod["spec"]["containers"][0]["lifecycle"] =
                json!({"preStop": {"sleep": {"seconds": 600}}});
            assert_eq!(check_first(&pod), None, "{pod}");
        }
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
            let envoy = json!({"name": "envoy", "lifecycle": {"preStop": hook}});
            // Each hook sleeps for longer.
            let pod = json!({"spec": {"terminationGracePeriodSeconds": 1, "containers": [envoy]}});
            let annotations = &check_first(&pod).unwrap()[0].annotations;
            assert_eq!(annotations[0], "existing-hook: replace");
            assert_eq!(annotations.get(1).map(String::as_str), want, "{pod}");
        }
    }
}
