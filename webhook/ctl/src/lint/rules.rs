//! The rules, on a container with an Envoy and a preStop hook.

use std::collections::BTreeSet;

use admission::{
    AUTOSCALER_LIMIT, Container, DEFAULT_DRAIN_TIME, EnvoyConfiguration, Hook, PodView, excerpt,
};
use drainer::AdminAddress;

use super::finding::LintCode;
use super::script::{Command, Script};
use crate::offline::has_no_admin;
use crate::text::list_names;

/// A hook, with its container and pod.
pub(super) struct HookView<'a> {
    pub(super) pod: &'a PodView<'a>,
    pub(super) container: &'a Container<'a>,
    /// What is known of Envoy's configuration.
    pub(super) configuration: Option<&'a EnvoyConfiguration>,
    pub(super) hook: &'a Hook<'a>,
    /// That of an `exec` hook; else without commands.
    pub(super) script: Script,
}

/// The shortest wait in which clients and endpoints notice a drain, in seconds.
const MIN_WAIT: f64 = 10.0;

/// The longest sleep that stands for stale endpoints rather than for requests in flight, in seconds.
const MAX_DELAY: u64 = 300;

/// Programs of hooks that a distroless image does not have.
const PROGRAMS: [&str; 17] = [
    "curl", "wget", "nc", "socat", "jq", "python", "python3", "busybox", "ash", "sh", "bash",
    "dash", "sleep", "cat", "echo", "kill", "perl",
];

/// How many of these Envoy's Ubuntu image does not have either, to which Envoy's project adds CA certificates alone.
/// <https://github.com/envoyproxy/envoy/blob/main/distribution/docker/Dockerfile-envoy>
const NOT_IN_UBUNTU: usize = 9;

/// Parameters of `/drain_listeners`.
const PARAMETERS: [&str; 3] = ["graceful", "skip_exit", "inboundonly"];

/// How a hook calls its own pod.
const LOCAL_HOSTS: [&str; 3] = ["localhost", "127.0.0.1", "0.0.0.0"];

// === impl HookView ===

impl HookView<'_> {
    /// Whether it does something for a drain of Envoy's, beside sleeping.
    pub(super) fn drains(&self) -> bool {
        match self.hook {
            Hook::HttpGet(request) => request.drain_path().is_some(),
            _ => self.url(|_| true).is_some() || self.script.text.contains("downstream_cx_active"),
        }
    }

    /// How long it sleeps in all, as far as that is known, in seconds.
    fn sleep(&self) -> u64 {
        match self.hook {
            Hook::Sleep { seconds } => *seconds,
            _ => self.script.sleep() as u64,
        }
    }

    /// The first command of a hook without a call of the admin interface of which it is not known how long it takes.
    pub(super) fn unknown_command(&self) -> Option<String> {
        let mut commands = self.script.commands.iter();
        let unknown = commands.find(|it| it.wait().is_none() || self.script.has_loop());
        let unknown = unknown.filter(|_| !self.drains())?;
        Some(excerpt(&unknown.words.join(" "), 60))
    }

    /// The calls of the admin interface, with their URLs.
    fn calls(&self) -> impl Iterator<Item = (&Command, &str)> {
        let commands = self.script.commands.iter();
        commands.filter_map(|it| Some((it, it.admin_url()?)))
    }

    /// The first URL of the admin interface for which this is true.
    fn url(&self, is_wanted: impl Fn(&str) -> bool) -> Option<&str> {
        self.calls().map(|(_, url)| url).find(|url| is_wanted(url))
    }

    /// The programs that the image does not have, as far as that is known.
    fn lacks(&self) -> &'static [&'static str] {
        match self.container.image() {
            image if image.contains("distroless") && !image.contains("debug") => &PROGRAMS,
            image if image.contains("envoyproxy/envoy-alpine") => &["bash", "curl"],
            image if image.contains("envoyproxy/envoy") => &PROGRAMS[..NOT_IN_UBUNTU],
            _ => &[],
        }
    }

    /// The address of Envoy's admin interface in its configuration, as far as it is known.
    fn admin_address(&self) -> Option<&AdminAddress> {
        (self.configuration).and_then(EnvoyConfiguration::admin_address)
    }

    /// Whether no hook and no drainer can call Envoy, as far as is known.
    fn lacks_admin(&self) -> bool {
        (self.configuration).is_some_and(|known| has_no_admin(self.container, known))
    }

    /// Envoy's drain time, in seconds; `None` if it is a variable.
    fn drain_time(&self) -> Option<u64> {
        let time = self.container.flag("--drain-time-s");
        time.map_or(Some(DEFAULT_DRAIN_TIME), |time| time.trim().parse().ok())
    }

    /// What violates a rule; `None` if nothing does.
    pub(super) fn violation(&self, code: LintCode) -> Option<String> {
        let (sleep, grace) = (self.sleep(), self.pod.grace_period());
        let has = |text| self.script.text.contains(text);
        match code {
            LintCode::WrongMethod => self.wrong_method(),
            LintCode::NoShell => self.no_shell(),
            LintCode::SleepExceedsGrace => (sleep > 0 && sleep >= grace.try_into().unwrap_or(0)).then(|| {
                let time = if sleep == u64::MAX { "ever".to_owned() } else { format!("{sleep} s") };
                format!("the hook sleeps for {time}, and the grace period is {grace} s: Envoy is killed during the sleep")
            }),
            LintCode::ImmediateDrain => {
                let stops = |url: &str| url.contains("/drain_listeners") && !url.contains("graceful");
                let quits = |url: &str| url.contains("/quitquitquit");
                let is_early = self.script.sleep_before(|it| it.admin_url().is_some_and(quits)) == 0.0;
                let url = self.url(|url| stops(url) || is_early && quits(url))?;
                Some(format!("`{url}` is to close the listeners immediately: clients with an old endpoint are then refused"))
            }
            LintCode::ListenersClose => {
                let url = self.url(|url| url.contains("graceful") && !url.contains("skip_exit"))?;
                let time = self.drain_time().filter(|time| sleep > *time)?;
                Some(format!(
                    "without `skip_exit`, `{url}` closes the listeners after {time} s (--drain-time-s), while the hook waits"
                ))
            }
            LintCode::SleepOnly => (sleep > 0 && !self.drains() && self.unknown_command().is_none()).then(|| format!(
                "after {sleep} s, SIGTERM cuts what is still open, such as idle connections and long requests"
            )),
            LintCode::HostNetworkHook => {
                let Hook::HttpGet(request) = self.hook else { return None };
                (self.pod.uses_host_network() && request.host.is_none()).then(|| "with hostNetwork, the kubelet calls the \
                    hook at the node's address: the call does not reach a server on localhost, and may reach another pod"
                    .to_owned())
            }
            LintCode::LongGrace => (grace > AUTOSCALER_LIMIT).then(|| format!(
                "the grace period is {grace} s; the cluster autoscaler waits {AUTOSCALER_LIMIT} s, and spot nodes less"
            )),
            LintCode::EndlessLoop => {
                let counts = has("downstream_cx_active") || has("downstream_rq_active") || has("server.total_connections");
                // Of a pattern, one without the admin interface's.
                let is_chosen = has("listener.") && !has("listener.admin") && !has("listener.*")
                    || has("http.") && !has("http.admin") && !has("http.*");
                let without_admin = is_chosen || has("grep -v");
                (self.script.has_loop() && counts && !without_admin).then(|| "the loop also counts connections to the admin \
                    interface, one of which is its own: the count never becomes zero".to_owned())
            }
            LintCode::NoWait => {
                let is_instant = !self.script.commands.is_empty() && self.script.wait() == Some(0.0);
                let call = self.url(|_| true).map_or("immediately".to_owned(), |url| format!("right after `{url}`"));
                is_instant.then(|| format!("the hook returns {call}: SIGTERM follows, and cuts what is in flight"))
            }
            LintCode::ShortWait => self.short_wait(),
            LintCode::UnreadWords => self.unread_words(),
            LintCode::OtherServer => self.calls().find_map(|(_, url)| self.miss(url)),
        }
    }

    fn wrong_method(&self) -> Option<String> {
        let (program, url) = match self.hook {
            Hook::HttpGet(request) => ("an httpGet hook", request.drain_path()?),
            _ => {
                let (call, url) = self.calls().find(|(call, _)| !call.is_post())?;
                (call.program()?, url)
            }
        };
        let effect = "Envoy answers 405 and does nothing";
        Some(format!("{program} sends no POST to `{url}`: {effect}"))
    }

    fn no_shell(&self) -> Option<String> {
        let (shell, commands) = (self.script.shell.as_deref(), &self.script.commands);
        let lacks = |program: &&str| self.lacks().contains(program);
        let shell_fails = shell.is_some_and(|shell| lacks(&shell));
        // One of its ways to call Envoy works, or the script looks for one.
        let works = |call: &Command| !call.is_piped() && call.program().filter(lacks).is_none();
        let is_working = self.calls().any(|(call, _)| works(call));
        let is_careful = is_working || self.script.text.contains("command -v");
        let programs = commands.iter().filter_map(Command::program);
        let programs = programs.filter(|_| shell_fails || !is_careful);
        let missing = shell.into_iter().chain(programs).filter(lacks);
        let missing: BTreeSet<&str> = missing.collect();
        let effect = match (shell, self.calls().next()) {
            (Some(_), Some(_)) if !shell_fails => "the call fails, and Envoy does not drain",
            (Some(_), None) if !shell_fails => "the command fails",
            _ => "the hook fails at each termination",
        };
        let (programs, image) = (list_names(&missing), self.container.image());
        let message =
            format!("the hook runs {programs}, which the image `{image}` does not have: {effect}");
        (!missing.is_empty()).then_some(message)
    }

    fn short_wait(&self) -> Option<String> {
        let wait = self.script.wait().filter(|wait| *wait > 0.0)?;
        let url = self.url(|_| true)?;
        let strategy = self.container.flag("--drain-strategy");
        let is_gradual = strategy.is_none_or(|it| it.trim() != "immediate")
            && self.url(|url| url.contains("/healthcheck/fail")).is_none()
            && self.url(|url| url.contains("graceful")).is_some();
        // From Envoy 1.40 on, each client has been asked to leave after half of the drain time.
        let time = self.drain_time().filter(|_| is_gradual).unwrap_or(0) / 2;
        let needed = MIN_WAIT.max(time as f64);
        let message =
            format!("the hook waits {wait} s after `{url}`: clients need {needed} s to leave");
        (wait < needed).then_some(message)
    }

    fn unread_words(&self) -> Option<String> {
        let (text, commands) = (&self.script.text, self.script.commands.iter());
        let mut programs = commands.clone().filter_map(Command::program);
        if let Some(word) = programs.find(|program| PARAMETERS.contains(program)) {
            let message = format!("a URL without quotes ends at `&`: `{word}` is a command");
            return Some(message);
        }
        let mut words = commands.flat_map(|it| &it.words).enumerate();
        let starts = |word: &str, with: &[&str]| with.iter().any(|it| word.starts_with(it));
        match (self.script.shell.as_deref(), &self.script.argument) {
            (None, _) => {
                let is_shells = |word: &str| starts(word, &[">", "&&", ";", "|", "$"]);
                let (_, word) =
                    words.find(|(at, it)| is_shells(it) || *at == 0 && it.contains(' '))?;
                Some(format!(
                    "no shell runs the hook: `{word}` is taken literally"
                ))
            }
            (Some(shell), Some(argument)) => Some(format!(
                "`{shell} -c` runs only `{text}`, which does not use `{argument}` and what follows"
            )),
            (Some("bash"), None) => {
                let (_, word) = words.find(|(_, it)| starts(it, &[">/dev/tcp/"]))?;
                Some(format!(
                    "`{word}` is in quotes: it is an argument, and nothing is sent"
                ))
            }
            _ if text.contains("bash -c") => None,
            (Some(shell), None) => (self.lacks().contains(&"curl") && text.contains("/dev/tcp/"))
                .then(|| {
                    format!("`{shell}` of this image has no /dev/tcp, unlike bash: nothing is sent")
                }),
        }
    }

    /// How a call misses Envoy's admin interface.
    fn miss(&self, url: &str) -> Option<String> {
        if self.lacks_admin() {
            let message = "Envoy's configuration has no admin interface: Envoy does not drain";
            return Some(message.to_owned());
        }
        // Istio's agent takes it, too.
        let url = url.rsplit("://").next();
        let url = url.filter(|url| !url.contains("/quitquitquit"))?;
        // `/dev/tcp/HOST/PORT`
        let by_bash = self.script.text.split("/dev/tcp/").nth(1);
        let by_bash = by_bash.map(|address| address.replacen('/', ":", 1));
        let authority = by_bash.as_deref().unwrap_or(url);
        // Not a part of a substitution.
        let is_host = |it: char| it.is_ascii_alphanumeric() || it == '.';
        // A call of a Unix socket has no port either.
        let is_tcp = !self.script.text.contains("--unix-socket");
        let name = authority.split('/').next();
        let local = name.filter(|it| is_tcp && LOCAL_HOSTS.contains(it));
        let with_port = authority.split_once(':');
        let (host, port) = with_port.or(local.map(|host| (host, "80")))?;
        let is_literal = host.starts_with(is_host) && !host.contains(['$', ')', '/']);
        if is_literal && !LOCAL_HOSTS.contains(&host) {
            return Some(format!(
                "the hook calls `{host}`, which is not this pod: Envoy does not drain"
            ));
        }
        // Nothing of a variable.
        let port = port.split(|it: char| !it.is_ascii_digit()).next()?;
        let named = || Some(format!("127.0.0.1:{}", self.container.port_named("admin")?));
        let admin = self
            .admin_address()
            .map(ToString::to_string)
            .or_else(named)?;
        let is_admin = port.is_empty() || admin.ends_with(&format!(":{port}"));
        (!is_admin).then(|| format!("the hook calls port {port}, and Envoy's admin interface is {admin}: Envoy does not drain"))
    }

    /// The annotations that take the place of a hook that violates this rule.
    pub(super) fn replacement(&self, code: LintCode) -> Vec<String> {
        use LintCode::{EndlessLoop, HostNetworkHook, ImmediateDrain, ListenersClose, LongGrace};
        let sleep = self.sleep().min(MAX_DELAY);
        if self.lacks_admin() {
            return Vec::new();
        }
        let setting = match (code, self.calls().next().is_none(), sleep) {
            (HostNetworkHook | LongGrace, ..) => return Vec::new(),
            (ImmediateDrain | ListenersClose | EndlessLoop, ..) => None,
            (_, false, 61..) => Some("drain-timeout"),
            (_, true, 16..) => Some("drain-delay"),
            // The defaults last as long, or as long as new connections arrive.
            _ => None,
        };
        let setting = setting.map(|setting| format!("{setting}: {sleep}s"));
        // The webhook reads no configuration, and the drainer does not search for these.
        let is_hidden = |it: &&AdminAddress| {
            matches!(it, AdminAddress::Path(_)) || self.pod.uses_host_network()
        };
        let admin = self.admin_address().filter(is_hidden);
        let admin = admin.map(|address| format!("admin-address: {address}"));
        let replace = Some("existing-hook: replace".to_owned());
        [replace, setting, admin].into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use admission::{Bootstrap, known_envoys};
    use serde_json::{Value, json};
    use strum::VariantArray;

    use super::*;

    /// Checks the first container of a pod.
    fn check_first(json: &Value) -> Option<Vec<(LintCode, Vec<String>)>> {
        check_with_admin("127.0.0.1:9901", json)
    }

    fn check_with_admin(admin: &str, json: &Value) -> Option<Vec<(LintCode, Vec<String>)>> {
        let pod = json.to_string();
        let pod = &PodView::decode(&pod).unwrap();
        let (at, container) = pod.long_running_containers().next().unwrap();
        let hook = &Hook::parse(container.pre_stop()?)?;
        let script = Script::new(hook, &json["spec"]["containers"][0]["env"]);
        let configuration = EnvoyConfiguration {
            arguments: Bootstrap {
                admin: Some(Ok(admin.parse().unwrap())),
                ..Bootstrap::default()
            },
            file: None,
        };
        let configuration = Some(&configuration);
        let view = HookView {
            pod,
            container,
            configuration,
            hook,
            script,
        };
        let found = LintCode::VARIANTS
            .iter()
            .filter(|it| view.violation(**it).is_some());
        let found = found.map(|code| (*code, view.replacement(*code)));
        (known_envoys(pod).contains(&at) || view.drains()).then(|| found.collect())
    }

    fn codes(pod: &Value) -> Vec<String> {
        let found = check_first(pod).unwrap_or_default();
        found.iter().map(|(code, _)| code.to_string()).collect()
    }

    fn exec(script: &str) -> Value {
        json!({"exec": {"command": ["/bin/sh", "-c", script]}})
    }

    #[test]
    fn each_rule_finds_its_hook_and_leaves_a_right_one() {
        let graceful = "curl -X POST localhost:9901/healthcheck/fail && \
            curl -X POST 'localhost:9901/drain_listeners?graceful&skip_exit' >/dev/null; sleep 20";
        let bash = |script: &str| json!({"exec": {"command": ["bash", "-c", script]}});
        let words = |words: Value| json!({"exec": {"command": words}});
        let own = json!({"image": "docker.io/envoyproxy/envoy:v1.36-latest"});
        // As in docs/moving/hand-written-hooks.md.
        let by_bash = "# sleep 20   it's for a load balancer\nexec 3<>/dev/tcp/127.0.0.1/9901\n\
            printf 'POST /healthcheck/fail HTTP/1.1\\r\\nHost: admin\\r\\n\\r\\n' >&3\ncat <&3\nsleep 60\n";
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
                exec("curl -X POST localhost:9901/drain_listeners; sleep 15"),
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
                bash(by_bash),
                own.clone(),
                json!({"terminationGracePeriodSeconds": 75}),
                "",
            ),
            (exec(graceful), own.clone(), json!({}), "LNT002"),
            (
                exec(graceful),
                json!({"image": "registry.example.com/envoy:1"}),
                json!({}),
                "",
            ),
            (
                exec("command -v curl && echo; sleep 20"),
                own.clone(),
                json!({}),
                "LNT006",
            ),
            (
                exec(
                    "curl -X POST localhost:9901/healthcheck/fail || /opt/curl -X POST localhost:9901/healthcheck/fail; sleep 20",
                ),
                own.clone(),
                json!({}),
                "",
            ),
            (words(json!(["/opt/drain"])), own.clone(), json!({}), ""),
            (
                words(json!(["sleep", "20"])),
                json!({"image": "envoyproxy/envoy:distroless-v1.36"}),
                json!({}),
                "LNT002 LNT006",
            ),
            (
                exec("curl -X POST localhost:9901/healthcheck/fail; sleep $TIME"),
                json!({"env": [{"name": "TIME", "value": "45"}]}),
                json!({}),
                "LNT003",
            ),
            (
                exec("curl -X POST localhost:9901/quitquitquit"),
                json!({}),
                json!({}),
                "LNT004 LNT010",
            ),
            (
                exec(
                    "curl -X POST localhost:9901/healthcheck/fail; sleep 20; curl -X POST localhost:9901/quitquitquit",
                ),
                json!({}),
                json!({}),
                "",
            ),
            (
                exec("curl -X POST localhost:9901/healthcheck/fail"),
                json!({}),
                json!({}),
                "LNT010",
            ),
            (
                words(json!([
                    "curl",
                    "-X",
                    "POST",
                    "localhost:9901/healthcheck/fail"
                ])),
                json!({}),
                json!({}),
                "LNT010",
            ),
            (
                exec("sleep 15; curl -X POST localhost:9901/healthcheck/fail"),
                json!({}),
                json!({}),
                "LNT010",
            ),
            (exec("echo stopping"), json!({}), json!({}), "LNT010"),
            (exec("curl localhost:8090/wait"), json!({}), json!({}), ""),
            (
                exec("curl -X POST localhost:9901/healthcheck/fail; sleep 2"),
                json!({}),
                json!({}),
                "LNT011",
            ),
            (
                exec("curl -X POST 'localhost:9901/drain_listeners?graceful'; sleep 20"),
                json!({}),
                json!({}),
                "LNT011",
            ),
            (
                exec("curl -X POST 'localhost:9901/drain_listeners?graceful'; sleep 20"),
                json!({"args": ["--drain-strategy immediate"]}),
                json!({}),
                "",
            ),
            (
                words(json!([
                    "bash",
                    "-c",
                    "--",
                    "echo",
                    "POST /healthcheck/fail",
                    ">/dev/tcp/127.0.0.1/9901"
                ])),
                json!({}),
                json!({}),
                "LNT010 LNT012",
            ),
            (
                words(json!([
                    "sh",
                    "-c",
                    "--",
                    "curl -X POST localhost:9901/healthcheck/fail; sleep 15",
                    "sh"
                ])),
                json!({}),
                json!({}),
                "",
            ),
            (
                bash("echo 'POST /healthcheck/fail' '>/dev/tcp/127.0.0.1/9901'; sleep 15"),
                own.clone(),
                json!({}),
                "LNT006 LNT012",
            ),
            (
                exec("echo 'POST /healthcheck/fail' >/dev/tcp/127.0.0.1/9901; sleep 15"),
                own.clone(),
                json!({}),
                "LNT012",
            ),
            (
                words(json!([
                    "curl",
                    "-XPOST",
                    "localhost:9901/healthcheck/fail",
                    "&&",
                    "sleep",
                    "15"
                ])),
                json!({}),
                json!({}),
                "LNT010 LNT012",
            ),
            (
                words(json!([
                    "curl -XPOST localhost:9901/healthcheck/fail; sleep 15"
                ])),
                json!({}),
                json!({}),
                "LNT012",
            ),
            (
                bash(
                    "printf 'GET /healthcheck/fail HTTP/1.0\r\n\r\n' >/dev/tcp/localhost/9901; sleep 15",
                ),
                own.clone(),
                json!({}),
                "LNT001",
            ),
            (
                exec("curl -X POST localhost:9902/healthcheck/fail; sleep 15"),
                json!({}),
                json!({}),
                "LNT013",
            ),
            (
                exec("curl -X POST http://edge:9901/healthcheck/fail; sleep 15"),
                json!({}),
                json!({}),
                "LNT013",
            ),
            (
                exec("curl -X POST http://$(hostname -i):9901/healthcheck/fail; sleep 15"),
                json!({}),
                json!({}),
                "",
            ),
            (
                exec("curl -X POST \"http://$(hostname -i):9901/healthcheck/fail\"; sleep 15"),
                json!({}),
                json!({}),
                "",
            ),
            (
                exec("{ curl -X POST localhost:9901/healthcheck/fail; sleep 15; } &"),
                json!({}),
                json!({}),
                "LNT010",
            ),
            (
                exec("curl -X POST $HOST:$PORT/healthcheck/fail; sleep 15"),
                json!({}),
                json!({}),
                "",
            ),
            (
                exec("curl --unix-socket /a.sock -X POST http://admin/healthcheck/fail; sleep 15"),
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
                json!({"httpGet": {"path": "/shutdown", "port": 8090, "host": "127.0.0.1"}}),
                json!({}),
                json!({"hostNetwork": true}),
                "",
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
            (
                exec(
                    "while [ $(curl -s localhost:9901/stats?filter=http.edge.downstream_cx_active | grep -v ': 0') ]; do sleep 1; done",
                ),
                json!({}),
                json!({}),
                "",
            ),
            (
                exec(
                    "bash -c 'exec 3<>/dev/tcp/127.0.0.1/9901; printf \"POST /healthcheck/fail HTTP/1.1\\r\\n\\r\\n\" >&3'; sleep 15",
                ),
                own.clone(),
                json!({}),
                "",
            ),
            (
                exec("curl -X POST localhost:9901/healthcheck/fail; sleep infinity"),
                json!({}),
                json!({}),
                "LNT003",
            ),
            (
                exec("curl -X POST localhost:9901/quitquitquit; sleep 20"),
                json!({}),
                json!({}),
                "LNT004",
            ),
            (
                exec("curl -X POST localhost:9901/drain_listeners?graceful&skip_exit; sleep 20"),
                json!({}),
                json!({}),
                "LNT012",
            ),
            (
                bash(
                    "printf 'POST /healthcheck/fail HTTP/1.1\r\nHost: a\r\n\r\n' | nc localhost 9901; sleep 20",
                ),
                own.clone(),
                json!({}),
                "LNT002",
            ),
            (
                exec("echo 'calls /healthcheck/fail' >>/proc/1/fd/1; sleep 20"),
                json!({}),
                json!({}),
                "LNT006",
            ),
            (
                exec("sleep 20 # not: curl -X POST localhost:9901/healthcheck/fail; don't"),
                json!({}),
                json!({}),
                "LNT006",
            ),
            (
                exec(
                    "curl -X POST localhost:9901/healthcheck/fail; sleep 15; curl -X POST localhost:15020/quitquitquit",
                ),
                json!({}),
                json!({}),
                "",
            ),
            (
                exec("curl -X POST http://localhost/healthcheck/fail; sleep 15"),
                json!({}),
                json!({}),
                "LNT013",
            ),
            (
                exec(
                    "curl --unix-socket /a.sock -X POST http://localhost/healthcheck/fail; sleep 15",
                ),
                json!({}),
                json!({}),
                "",
            ),
            (
                exec(
                    "curl -X POST 127.0.0.1:9901/healthcheck/fail; curl -X POST 127.0.0.1:15000/healthcheck/fail; sleep 15",
                ),
                json!({}),
                json!({}),
                "LNT013",
            ),
            (
                words(json!([
                    "env",
                    "bash",
                    "-c",
                    "curl localhost:9901/healthcheck/fail; sleep 20"
                ])),
                json!({}),
                json!({}),
                "LNT001",
            ),
            (
                exec(
                    "while [ $(curl -s 'localhost:9901/stats?filter=listener.*cx_active' | grep -c downstream_cx_active) ]; do sleep 1; done",
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
    fn unknown_commands_are_not_judged() {
        for (script, want) in [
            ("/scripts/drain.sh && sleep 10", Some("/scripts/drain.sh")),
            ("sleep $TIME", Some("sleep $TIME")),
            ("for i in 1 2; do sleep 10; done", Some("for i in 1 2")),
            ("sleep 15", None),
            (
                "/drain.sh; curl -X POST localhost:9901/healthcheck/fail",
                None,
            ),
        ] {
            let hook = Hook::Exec {
                command: ["sh", "-c", script].map(str::to_owned).into(),
            };
            let pod = json!({"spec": {"containers": [{"name": "envoy"}]}}).to_string();
            let pod = &PodView::decode(&pod).unwrap();
            let (_, container) = pod.long_running_containers().next().unwrap();
            let view = HookView {
                pod,
                container,
                configuration: None,
                hook: &hook,
                script: Script::new(&hook, &Value::Null),
            };
            assert_eq!(view.unknown_command().as_deref(), want, "{script}");
            let sleeps = view.violation(LintCode::SleepOnly);
            assert_eq!(sleeps.is_some(), script == "sleep 15");
        }
    }

    #[test]
    fn other_containers_are_not_checked() {
        let app = json!({"name": "app", "image": "registry.example.com/app:1"});
        let control_plane = json!({"name": "envoy-gateway", "image": "envoyproxy/gateway:v1.9.1",
            "args": ["server", "--config-path=/config/envoy-gateway.yaml"]});
        let mirrored = json!({"name": "envoy-gateway", "image": "registry.example.com/envoy-gateway:v1.9.1",
            "command": ["envoy-gateway"], "args": ["server", "--config-path=/config/envoy-gateway.yaml"]});
        let log_shipper = json!({"name": "envoy-logs", "image": "fluent/fluent-bit", "args": ["-c", "/fluent-bit.conf"]});
        for containers in [
            json!([app]),
            json!([control_plane]),
            json!([mirrored]),
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
            let annotations = &check_first(&pod).unwrap()[0].1;
            assert_eq!(annotations[0], "existing-hook: replace");
            assert_eq!(annotations.get(1).map(String::as_str), want, "{pod}");
        }
    }

    #[test]
    fn admin_that_a_drainer_does_not_find_becomes_an_annotation() {
        for (admin, host_network, want) in [
            ("127.0.0.1:9901", false, None),
            (
                "127.0.0.1:9901",
                true,
                Some("admin-address: 127.0.0.1:9901"),
            ),
            ("unix:@admin", false, None),
            (
                "unix:/run/a.sock",
                false,
                Some("admin-address: unix:/run/a.sock"),
            ),
        ] {
            let hook = json!({"preStop": {"sleep": {"seconds": 15}}});
            let envoy = json!({"name": "envoy", "lifecycle": hook});
            let pod = json!({"spec": {"hostNetwork": host_network, "containers": [envoy]}});
            let annotations = &check_with_admin(admin, &pod).unwrap()[0].1;
            assert_eq!(annotations.get(1).map(String::as_str), want, "{admin}");
        }
    }
}
