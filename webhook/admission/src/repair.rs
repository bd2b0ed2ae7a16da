//! A second look at a pod that has its drainer: what was changed of the injection since, and the patch that restores
//! it.
//!
//! What was injected is known from the drainer's own arguments and from the annotation `status`. Compared are hooks, grace
//! period and form. Others may set whatever else they like in the drainer's container, such as its image and resources.

use std::collections::BTreeMap;
use std::iter;
use std::num::NonZeroU16;
use std::time::Duration;

use drainer::Config;
use serde::Serialize;

use super::diagnostics::{Code, Diagnostic};
use super::names::{CONTAINER_NAME, PORT};
use super::patch::{Patch, PatchBuilder, RecordedInjection, VERSION, find_drainer};
use super::plan::{drain_hook, host_ports, late_hooks, wait_hook, whole_seconds};
use super::pod::{Container, ContainerList, ContainerRef, Hook, PodView};
use super::settings::MAX_HOOKED_CONTAINERS;

/// The comparison of a pod with what was injected.
struct Repair<'r, 'a> {
    pod: &'r PodView<'a>,
    at: ContainerRef,
    /// The drainer's container.
    drainer: &'r Container<'a>,
    /// What its arguments set, but for a port that another container has now.
    config: Config,
    /// The port in its arguments.
    port: NonZeroU16,
    recorded: RecordedInjection,
    patch: PatchBuilder,
    changes: Vec<String>,
}

/// Returns what was changed of a pod's injection; nothing if it has no drainer, or one without a status, which may be
/// written by hand.
pub fn changes(pod: &PodView<'_>) -> Vec<Diagnostic> {
    // The installation's margin is unknown.
    repair(pod, Duration::ZERO).1
}

/// Returns the patch that restores the injection, with at least this margin between the drain's time limit and the grace
/// period, and what was changed. What cannot be restored is not in the patch.
pub(super) fn repair(pod: &PodView<'_>, margin: Duration) -> (Patch, Vec<Diagnostic>) {
    let recorded = RecordedInjection::of(pod);
    let drainer = find_drainer(pod).filter(|_| !recorded.container.is_empty());
    let Some((at, drainer)) = drainer else {
        return (Patch::default(), Vec::new());
    };
    let Some(config) = config(drainer) else {
        let detail = format!("`args` of container `{CONTAINER_NAME}` cannot be read");
        return (Patch::default(), vec![Code::Repaired.diagnostic(detail)]);
    };
    let mut repair = Repair {
        pod,
        at,
        drainer,
        port: config.settings.port,
        config,
        recorded,
        patch: PatchBuilder::new(),
        changes: Vec::new(),
    };
    repair.restore_port();
    repair.restore_hooks();
    repair.restore_drainer();
    repair.restore_form();
    repair.restore_grace(margin);
    let version = repair.recorded.other_version();
    let origin = version.map(|version| format!(", which version {version} injected"));
    let origin = origin.unwrap_or_default();
    let changes = repair.changes.iter();
    let changes = changes.map(|it| Code::Repaired.diagnostic(format!("{it}{origin}")));
    (repair.patch.finish(), changes.collect())
}

/// Reads the arguments of a drainer.
fn config(drainer: &Container<'_>) -> Option<Config> {
    let (serve, args) = drainer.args.as_deref()?.split_first()?;
    let args = args.iter().map(|arg| (**arg).into());
    Config::parse(args).ok().filter(|_| **serve == *"serve")
}

// === impl Repair ===

impl Repair<'_, '_> {
    /// Moves the drainer to the next free port if another container declares its own, unless that is annotated.
    fn restore_port(&mut self) {
        let mut used = BTreeMap::new();
        for (at, container) in self.pod.long_running_containers() {
            let ports = container.tcp_ports().filter(|_| at != self.at);
            used.extend(ports.map(|port| (port, container.name())));
        }
        let Some(owner) = used.get(&self.port.get()) else {
            return;
        };
        let mut change = format!(
            "the drainer's port {} belongs to container `{owner}`",
            self.port
        );
        let mut others = (self.port.get()..=u16::MAX).filter(|port| !used.contains_key(port));
        let free = others.find_map(NonZeroU16::new);
        if let Some(free) = free.filter(|_| self.pod.annotation(PORT).is_none()) {
            change += &format!(", so {free} is used");
            self.config.settings.port = free;
            let mut args = self.config.args();
            args.insert(0, "serve".to_owned());
            self.set("args", Some(&args));
            if let Some(ports) = host_ports(&self.config) {
                self.set("ports", Some(&ports));
            }
        }
        self.changes.push(change);
    }

    /// Restores the hooks of Envoy, and of other containers that wait for the drain, also of those that came later.
    fn restore_hooks(&mut self) {
        let uses_host_network = self.config.host_network;
        let host = if uses_host_network { "127.0.0.1" } else { "" };
        let late = late_hooks(self.pod);
        let late = late
            .into_iter()
            .filter(|name| !self.recorded.hooks(name))
            .collect::<Vec<_>>();
        let mut recorded = self.recorded.clone();
        recorded.extra_hooks.extend(late.iter().cloned());
        // A status that was forged may name more.
        let extra = recorded.extra_hooks.iter().take(MAX_HOOKED_CONTAINERS);
        let extra = extra.map(|name| (name, self.config.container_hook_path(name)));
        let envoy = (&recorded.container, self.config.hook_path());
        for (name, path) in iter::once(envoy).chain(extra) {
            let Some((at, container)) = self.pod.find_container(name) else {
                continue;
            };
            let is_own = |hook: &Hook<'_>| {
                let has_host =
                    matches!(hook, Hook::HttpGet(it) if it.host.as_deref().unwrap_or("") == host);
                has_host && hook.gets(&path, self.port.get())
            };
            let is_kept = container.short_hook().as_ref().is_some_and(is_own);
            if !is_kept || self.port != self.config.settings.port {
                self.patch
                    .set_pre_stop(self.pod, at, &wait_hook(&self.config, path));
            }
            if !is_kept {
                self.changes.push(match container.pre_stop() {
                    None if late.contains(name) => {
                        format!("container `{name}`, which is to wait for the drain, has no hook")
                    }
                    None => format!("the preStop hook of container `{name}` was removed"),
                    Some(_) => format!("the preStop hook of container `{name}` was changed"),
                });
            }
        }
        if !late.is_empty() {
            let left_out = self.patch.set_status(self.pod, recorded.to_json());
            self.changes.extend(left_out.map(|it| it.detail));
        }
    }

    /// Restores what the drainer's container needs to run its program; that of another version may need something else.
    fn restore_drainer(&mut self) {
        if self.recorded.version != VERSION {
            return;
        }
        if self.drainer.command.is_some() {
            self.set("command", None::<&()>);
            self.changes.push(format!(
                "`command` of container `{CONTAINER_NAME}` was added"
            ));
        }
        let hook = drain_hook(self.port);
        let command = hook.exec.as_ref().and_then(|it| it.command.as_ref());
        let is_kept = matches!(self.drainer.short_hook(), Some(Hook::Exec { command: own }) if Some(&own) == command);
        if !is_kept || self.port != self.config.settings.port {
            let hook = drain_hook(self.config.settings.port);
            self.patch.set_pre_stop(self.pod, self.at, &hook);
        }
        if !is_kept {
            self.changes.push(format!(
                "the preStop hook of container `{CONTAINER_NAME}` was changed"
            ));
        }
    }

    /// Restores `restartPolicy: Always` of the drainer and of Envoy, where they are native sidecars.
    fn restore_form(&mut self) {
        for name in [CONTAINER_NAME, &self.recorded.container] {
            if let Some((at, container)) = self.pod.find_container(name)
                && at.list == ContainerList::InitContainers
                && container.restart_policy.as_deref() != Some("Always")
            {
                let (list, index) = (at.list.key(), &*at.index.to_string());
                let path = ["spec", list, index, "restartPolicy"];
                self.patch.add(path, "Always");
                self.changes
                    .push(format!("`restartPolicy` of container `{name}` was changed"));
            }
        }
    }

    /// Restores a grace period that is shorter than the injected one and than the drain's time limit with the margin; what
    /// other containers need after the drain is not known apart.
    fn restore_grace(&mut self, margin: Duration) {
        let limit = self.config.settings.timing.time_limit();
        let limit = whole_seconds(limit.saturating_add(margin));
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let needed = match (self.recorded.grace.to, &self.recorded.extra_hooks[..]) {
            (0, _) => limit,
            (to, []) => to.min(limit),
            (to, _) => to,
        };
        let present = self.pod.grace_period();
        if present < needed {
            self.patch
                .add(["spec", "terminationGracePeriodSeconds"], needed);
            self.changes.push(format!(
                "the grace period was changed to {present}s, and {needed}s are needed"
            ));
        }
    }

    /// Sets a field of the drainer's container, or removes it.
    fn set(&mut self, field: &str, value: Option<&impl Serialize>) {
        let (list, index) = (self.at.list.key(), &*self.at.index.to_string());
        self.patch
            .set_or_remove(["spec", list, index, field], value);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::decide::{Decision, decide};
    use crate::names::{PREFIX, STATUS};
    use crate::plan::{PodContext, token};
    use crate::settings::Defaults;

    const HOOK: &str = "/spec/containers/1/lifecycle/preStop";
    const OWN: &str = "/spec/initContainers/0";

    fn pod(annotations: &[(&str, &str)]) -> Value {
        let annotations = [("inject", "true")].iter().chain(annotations);
        let annotations =
            annotations.map(|(name, value)| (format!("{PREFIX}{name}"), json!(value)));
        json!({
            "metadata": {"annotations": Value::Object(annotations.collect())},
            "spec": {
                "terminationGracePeriodSeconds": 30,
                "containers": [
                    {"name": "app", "ports": [{"containerPort": 8080}]},
                    {"name": "proxy", "image": "envoyproxy/envoy", "args": ["-c", "/e.yaml"]},
                ],
            },
        })
    }

    fn decision(pod: &Value) -> Decision {
        let json = pod.to_string();
        let context = PodContext::new(Some("shop"), token(json.as_bytes()));
        let defaults = Defaults::new("image", "infra");
        decide(&PodView::decode(&json).unwrap(), &context, &defaults)
    }

    fn patched(mut pod: Value, patch: &Patch) -> Value {
        json_patch::patch(&mut pod, &patch.operations()).unwrap();
        pod
    }

    fn injected(pod: Value) -> Value {
        match decision(&pod) {
            Decision::Inject { patch, .. } => patched(pod, &patch),
            other => panic!("{other:?}"),
        }
    }

    /// The details of what is told about a pod with a drainer, and the pod after that.
    fn repaired(pod: Value) -> (Vec<String>, Value) {
        let (found, patch) = match decision(&pod) {
            Decision::Repair { patch, changes } => (changes, patch),
            Decision::Skip {
                patch, warnings, ..
            } => (warnings, patch),
            other => panic!("{other:?}"),
        };
        let details = found.iter().map(|it| it.detail.clone()).collect();
        (details, patched(pod, &patch))
    }

    /// Sets a value at a JSON pointer; `null` removes it.
    fn set(pod: &mut Value, pointer: &str, value: Value) {
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        let parent = pod.pointer_mut(parent).unwrap();
        match (parent, value) {
            (Value::Array(items), value) => items[key.parse::<usize>().unwrap()] = value,
            (Value::Object(entries), Value::Null) => drop(entries.remove(key)),
            (parent, value) => parent[key] = value,
        }
    }

    #[test]
    fn what_another_webhook_changed_is_restored() {
        let sleep = json!({"sleep": {"seconds": 15}});
        let changed = "the preStop hook of container `proxy` was changed";
        let removed = "the preStop hook of container `proxy` was removed";
        let table: [(&str, &str, Value, &str); 14] = [
            (HOOK, "", sleep, changed),
            (HOOK, "", json!(null), removed),
            (HOOK, "/exec", json!({"command": ["sleep", "5"]}), changed),
            (HOOK, "/httpGet/port", json!(1), changed),
            (HOOK, "/httpGet/host", json!("localhost"), changed),
            (
                "/spec/containers/0/lifecycle",
                "",
                json!(null),
                "the preStop hook of container `app` was removed",
            ),
            (
                OWN,
                "/lifecycle",
                json!(null),
                "the preStop hook of container `envoy-drainer` was changed",
            ),
            (
                "/spec/terminationGracePeriodSeconds",
                "",
                json!(45),
                "the grace period was changed to 45s, and 105s are needed",
            ),
            (
                OWN,
                "/restartPolicy",
                json!(null),
                "`restartPolicy` of container `envoy-drainer` was changed",
            ),
            (
                OWN,
                "/command",
                json!(["sh"]),
                "`command` of container `envoy-drainer` was added",
            ),
            // What others may set.
            (OWN, "/image", json!("mirror/image"), ""),
            (OWN, "/resources", json!({}), ""),
            (HOOK, "/httpGet/scheme", json!("HTTP"), ""),
            ("/spec/terminationGracePeriodSeconds", "", json!(106), ""),
        ];
        let original = injected(pod(&[("extra-lifecycle-hooks", "*")]));
        for (parent, child, value, want) in table {
            let (mut changed, pointer) = (original.clone(), format!("{parent}{child}"));
            set(&mut changed, &pointer, value);
            let (details, after) = repaired(changed.clone());
            assert_eq!(details.concat(), want, "{pointer}");
            assert_eq!(repaired(after.clone()), (vec![], after.clone()));
            let restored = if want.is_empty() { &changed } else { &original };
            assert_eq!(after["spec"], restored["spec"], "{pointer}");
        }
        let mut unreadable = original;
        set(&mut unreadable, &format!("{OWN}/args/1"), json!("--debug"));
        let (details, after) = repaired(unreadable.clone());
        assert_eq!(
            details,
            ["`args` of container `envoy-drainer` cannot be read"]
        );
        assert_eq!(after, unreadable);
    }

    #[test]
    fn containers_that_came_later_wait_and_take_no_port() {
        let original = injected(pod(&[("extra-lifecycle-hooks", "*")]));
        let with = |container: Value| {
            let mut pod = original.clone();
            let containers = pod["spec"]["containers"].as_array_mut();
            containers.unwrap().push(container);
            repaired(pod)
        };
        let hook = |pod: &Value, index: usize| {
            pod["spec"]["containers"][index]["lifecycle"]["preStop"]["httpGet"].clone()
        };
        let (details, after) = with(json!({"name": "late"}));
        let late = "container `late`, which is to wait for the drain, has no hook";
        assert_eq!(details, [late]);
        let path = hook(&original, 0)["path"].as_str().unwrap().to_owned();
        assert_eq!(hook(&after, 2)["path"], path.replace("/app", "/late"));
        let status = after["metadata"]["annotations"][STATUS].as_str().unwrap();
        let status: Value = serde_json::from_str(status).unwrap();
        assert_eq!(status["extraHooks"], json!(["app", "late"]));

        let sleep = json!({"preStop": {"sleep": {"seconds": 1}}});
        let late = json!({"name": "late", "ports": [{"containerPort": 15902}], "lifecycle": sleep});
        let (details, after) = with(late);
        let moved = "the drainer's port 15902 belongs to container `late`, so 15903 is used";
        assert_eq!(details, [moved]);
        for index in [0, 1] {
            assert_eq!(hook(&after, index)["port"], 15903);
        }
        let drainer = &after["spec"]["initContainers"][0];
        assert_eq!(drainer["args"][2], "--port=15903");
        let command = &drainer["lifecycle"]["preStop"]["exec"]["command"];
        assert_eq!(command[2], "--port=15903");
        assert_eq!(repaired(after.clone()), (vec![], after));

        // It was annotated.
        let mut taken = injected(pod(&[("port", "15902")]));
        set(
            &mut taken,
            "/spec/containers/0/ports/0/containerPort",
            json!(15902),
        );
        let (details, after) = repaired(taken.clone());
        assert_eq!(
            details,
            ["the drainer's port 15902 belongs to container `app`"]
        );
        assert_eq!(after, taken);
    }

    #[test]
    fn program_of_another_version_is_its_own() {
        let original = injected(pod(&[]));
        let sleep = json!({"sleep": {"seconds": 1}});
        let mut changed = original.clone();
        let status = &mut changed["metadata"]["annotations"][STATUS];
        *status = json!(status.as_str().unwrap().replace(VERSION, "0.0.9"));
        set(&mut changed, &format!("{OWN}/command"), json!(["sh"]));
        assert_eq!(repaired(changed.clone()), (vec![], changed.clone()));
        set(&mut changed, HOOK, sleep.clone());
        let (details, after) = repaired(changed);
        let want =
            "the preStop hook of container `proxy` was changed, which version 0.0.9 injected";
        assert_eq!(details, [want]);
        assert_eq!(after.pointer(HOOK), original.pointer(HOOK));

        // Without a status, it may be a drainer by hand; and some pods are never changed.
        let mut by_hand = original;
        set(&mut by_hand, HOOK, sleep);
        let mut mirror = by_hand.clone();
        mirror["metadata"]["annotations"]["kubernetes.io/config.mirror"] = json!("");
        by_hand["metadata"]["annotations"][STATUS] = json!("{}");
        for pod in [by_hand, mirror] {
            assert_eq!(repaired(pod.clone()), (vec![], pod));
        }
    }

    #[test]
    fn grace_period_is_as_long_as_hooks_need() {
        let mut native = pod(&[("drain-timeout", "30s")]);
        let containers = native["spec"]["containers"].as_array_mut();
        let mut envoy = containers.unwrap().remove(1);
        envoy["restartPolicy"] = json!("Always");
        native["spec"]["initContainers"] = json!([envoy]);
        native["spec"]["terminationGracePeriodSeconds"] = json!(300);
        let original = injected(native);
        let with = |grace: i64| {
            let mut changed = original.clone();
            set(
                &mut changed,
                "/spec/terminationGracePeriodSeconds",
                json!(grace),
            );
            set(&mut changed, &format!("{OWN}/restartPolicy"), json!(null));
            let (details, after) = repaired(changed);
            (
                details.len(),
                after["spec"]["terminationGracePeriodSeconds"].clone(),
            )
        };
        assert_eq!(with(100), (1, json!(100)));
        assert_eq!(with(44), (2, json!(45)));
    }
}
