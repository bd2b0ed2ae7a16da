//! A second look at a pod that has its drainer: what was changed of the injection since, and the patch that restores
//! it.
//!
//! The injection is taken out of the pod in memory, and decided anew with the same token; the drainer's own arguments
//! are the defaults. Whatever differs is restored, but for what others may set in the drainer's container: its image,
//! its resources and whatever else it does not need to drain.

use std::iter;

use drainer::Config;
use serde_json::json;

use super::diagnostics::{Code, Diagnostic, Diagnostics};
use super::names::CONTAINER_NAME;
use super::patch::{EMPTY_LIST, Patch, PatchBuilder, RecordedGrace, RecordedInjection, VERSION};
use super::plan::{DrainPlan, PodContext};
use super::pod::{Container, ContainerList, ContainerRef, Hook, PodView};
use super::removal::Removal;
use super::settings::Defaults;
use super::settings::parse::ParsedSettings;

/// The comparison of a pod with the plan of another decision on it.
struct Repair<'r, 'a> {
    pod: &'r PodView<'a>,
    at: ContainerRef,
    /// The drainer's container.
    drainer: &'r Container<'a>,
    /// Its arguments; `None` if they cannot be read.
    config: Option<Config>,
    recorded: &'r RecordedInjection,
    plan: &'r DrainPlan,
    patch: PatchBuilder,
    changes: Vec<String>,
}

/// Returns the patch that restores the injection of a pod whose drainer is in this container, and what was changed; or,
/// with an empty patch, why that is not possible.
///
/// An injection of another version, of `inject`, or of which something is not recorded, may differ from what would be
/// injected now, and so may any where the installation is unknown: then only hooks, grace period and the form of the
/// containers are compared.
pub(super) fn repair(
    pod: &PodView<'_>,
    (at, drainer): (ContainerRef, &Container<'_>),
    context: &PodContext<'_>,
    defaults: &Defaults,
) -> (Patch, Vec<Diagnostic>) {
    let recorded = RecordedInjection::of(pod);
    let is_recorded = recorded.version == VERSION && recorded.loss().is_none();
    let is_whole = is_recorded && !recorded.offline && context.configurations.is_none();
    let config = config(drainer);
    // A drainer without a status may be written by hand.
    if recorded.version.is_empty() || config.is_none() && !is_whole {
        return (Patch::default(), Vec::new());
    }
    let without = Removal::new(pod, at, &recorded, true).view(pod);
    let mut hooks = pod
        .located_containers()
        .filter_map(|(_, it)| it.short_hook());
    let token = config.as_ref().map(|config| config.token);
    let token = token.or_else(|| hooks.find_map(|hook| hook.drainer_token()));
    let token = token.unwrap_or(context.token);
    let context = PodContext { token, ..*context };
    let mut defaults = defaults.clone();
    let is_native = at.list == ContainerList::InitContainers;
    defaults.set_injected(&recorded.container, is_native, config.as_ref(), !is_whole);
    let parsed = ParsedSettings::parse(&without, context.in_job, &defaults, &[]);
    let (failures, warnings) = (parsed.bad_values, Vec::new());
    let mut found = Diagnostics { failures, warnings };
    let settings = parsed.settings;
    let plan = DrainPlan::try_new(&without, None, settings, &context, &defaults, &mut found);
    let Some(plan) = plan else {
        return (Patch::default(), found.failures);
    };
    let moves = found
        .warnings
        .iter()
        .filter(|it| it.code == Code::OtherPort);
    let mut repair = Repair {
        pod,
        at,
        drainer,
        config,
        recorded: &recorded,
        plan: &plan,
        patch: PatchBuilder::new(),
        changes: moves.map(|it| it.detail.clone()).collect(),
    };
    repair.restore(is_whole, without.spec.termination_grace_period_seconds);
    let origin = match recorded.offline {
        true => ", which `inject` added".to_owned(),
        false if recorded.version == VERSION => String::new(),
        false => format!(", which version {} injected", recorded.version),
    };
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
    /// Restores everything, or without `is_whole` hooks, grace period and form; `from` is the pod's own grace period.
    fn restore(&mut self, is_whole: bool, from: Option<i64>) {
        // Everything else then changes with the port.
        let is_moved = !self.changes.is_empty();
        let mut changes = self.restore_hooks();
        changes.extend(self.restore_form());
        let container = json!(self.plan.container);
        let (key, index) = (self.at.list.key(), &*self.at.index.to_string());
        for (field, is_kept) in self.fields() {
            if !is_kept && (is_whole || field == "lifecycle") {
                self.patch
                    .set_or_remove(["spec", key, index, field], container.get(field));
                changes.push(format!(
                    "`{field}` of container `{CONTAINER_NAME}` was changed"
                ));
            }
        }
        let is_missing = |name: &str| is_whole && !self.pod.has_volume(name);
        let missing = self.plan.volumes.iter().filter(|it| is_missing(&it.name));
        for (count, volume) in missing.enumerate() {
            let has_volumes = count > 0 || self.pod.spec.volumes.is_some();
            self.patch
                .ensure(["spec", "volumes"], has_volumes, EMPTY_LIST);
            self.patch.add(["spec", "volumes", "-"], volume);
        }
        if !is_moved {
            self.changes = changes;
        }
        let (present, to) = (self.pod.grace_period(), self.plan.grace.to);
        if present < to {
            self.patch
                .add(["spec", "terminationGracePeriodSeconds"], to);
            let change =
                format!("the grace period was changed to {present}s, and {to}s are needed");
            self.changes.push(change);
        }
        if !self.changes.is_empty() {
            self.record(RecordedGrace { from, to });
        }
    }

    /// Restores the hooks of Envoy, and of other containers that wait for the drain.
    fn restore_hooks(&mut self) -> Vec<String> {
        let drainer = &self.plan.drainer;
        let envoy = (&self.plan.envoy.name, drainer.hook_path(), &self.plan.hook);
        let others = self.plan.extra_hooks.iter().map(|it| {
            let path = drainer.container_hook_path(&it.container);
            (&it.container, path, &it.hook)
        });
        let mut changes = Vec::new();
        for (name, path, wanted) in iter::once(envoy).chain(others) {
            let Some((at, container)) = self.pod.find_container(name) else {
                continue;
            };
            let hook = container.short_hook();
            if hook.is_some_and(|hook| hook.gets(&path, drainer.settings.port.get())) {
                continue;
            }
            self.patch.set_pre_stop(self.pod, at, wanted);
            let is_late = !self.recorded.hooks(name);
            changes.push(match container.pre_stop() {
                None if is_late => format!("container `{name}`, which is to wait, was added"),
                None => format!("the preStop hook of container `{name}` was removed"),
                Some(_) => format!("the preStop hook of container `{name}` was changed"),
            });
        }
        changes
    }

    /// Restores `restartPolicy: Always` of the drainer and of Envoy, where they are native sidecars.
    fn restore_form(&mut self) -> Vec<String> {
        let mut changes = Vec::new();
        for name in [CONTAINER_NAME, &self.plan.envoy.name] {
            if let Some((at, container)) = self.pod.find_container(name)
                && at.list == ContainerList::InitContainers
                && container.restart_policy.as_deref() != Some("Always")
            {
                let (list, index) = (at.list.key(), &*at.index.to_string());
                self.patch
                    .add(["spec", list, index, "restartPolicy"], "Always");
                changes.push(format!("`restartPolicy` of container `{name}` was changed"));
            }
        }
        changes
    }

    /// The fields of the drainer's container on which the drain depends, and whether each is as it should be.
    fn fields(&self) -> [(&'static str, bool); 5] {
        let (wanted, drainer) = (&self.plan.container, self.drainer);
        // A longer grace period does no harm.
        let mut config = self.plan.drainer.clone();
        if let Some(own) = &self.config {
            config.grace_period = config.grace_period.min(own.grace_period);
        }
        let ports = drainer.ports.iter().flatten();
        let ports = ports.filter_map(|it| it.container_port).map(i32::from);
        let wanted_ports = wanted.ports.iter().flatten().map(|it| it.container_port);
        let lifecycle = wanted.lifecycle.as_ref();
        let exec = lifecycle.and_then(|it| it.pre_stop.as_ref()?.exec.as_ref());
        let command = exec.and_then(|it| it.command.as_ref());
        let is_wanted =
            |own: Hook<'_>| matches!(own, Hook::Exec { command: own } if Some(&own) == command);
        let mut mounts = wanted.volume_mounts.iter().flatten();
        let has_mounts = mounts.all(|wanted| {
            drainer.volume_mounts.iter().flatten().any(|it| {
                it.name.as_deref() == Some(&wanted.name)
                    && it.mount_path.as_deref() == Some(&wanted.mount_path)
            })
        });
        [
            ("command", drainer.command.is_none()),
            ("args", self.config.as_ref() == Some(&config)),
            ("ports", ports.eq(wanted_ports)),
            ("lifecycle", drainer.short_hook().is_some_and(is_wanted)),
            ("volumeMounts", has_mounts),
        ]
    }

    /// Records the grace period and the hooks in the status, if they differ.
    fn record(&mut self, grace: RecordedGrace) {
        let (recorded, extra) = (self.recorded, &self.plan.extra_hooks);
        if (recorded.grace, recorded.extra_hooks.len()) != (grace, extra.len()) {
            let recorded = RecordedInjection {
                grace,
                extra_hooks: extra.iter().map(|it| it.container.clone()).collect(),
                ..recorded.clone()
            };
            let left_out = self.patch.set_status(self.pod, recorded.to_json());
            self.changes.extend(left_out.map(|it| it.detail));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::decide::{Decision, decide};
    use crate::names::{PREFIX, STATUS};
    use crate::plan::token;
    use crate::settings::DrainerApiDefaults;

    fn defaults() -> Defaults {
        let drainer_api = DrainerApiDefaults {
            address: "webhook.infra.svc:8443".to_owned(),
            ip: None,
            ca: "AAAA".to_owned(),
            replacement: false,
            reports: true,
        };
        Defaults {
            drainer_api: Some(drainer_api),
            ..Defaults::new("image", "infra")
        }
    }

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

    fn decision(pod: &Value, defaults: &Defaults) -> Decision {
        let json = pod.to_string();
        let context = PodContext::new(Some("shop"), token(json.as_bytes()));
        decide(&PodView::decode(&json).unwrap(), &context, defaults)
    }

    fn patched(mut pod: Value, patch: &Patch) -> Value {
        json_patch::patch(&mut pod, &patch.operations()).unwrap();
        pod
    }

    fn injected(pod: Value) -> Value {
        match decision(&pod, &defaults()) {
            Decision::Inject { patch, .. } => patched(pod, &patch),
            other => panic!("{other:?}"),
        }
    }

    /// The details of what is told about a pod with a drainer, and the pod after that.
    fn repaired(pod: Value) -> (Vec<String>, Value) {
        let (found, patch) = match decision(&pod, &defaults()) {
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
        let hook = "/spec/containers/1/lifecycle/preStop";
        let own = "/spec/initContainers/0";
        let sleep = json!({"sleep": {"seconds": 15}});
        let table: Vec<(String, Value, &[&str])> = vec![
            (
                hook.into(),
                sleep.clone(),
                &["the preStop hook of container `proxy` was changed"],
            ),
            (
                hook.into(),
                json!(null),
                &["the preStop hook of container `proxy` was removed"],
            ),
            (
                format!("{hook}/exec"),
                json!({"command": ["sleep", "5"]}),
                &["the preStop hook of container `proxy` was changed"],
            ),
            (
                format!("{hook}/httpGet/port"),
                json!(1),
                &["the preStop hook of container `proxy` was changed"],
            ),
            (
                "/spec/containers/0/lifecycle".into(),
                json!(null),
                &["the preStop hook of container `app` was removed"],
            ),
            (
                format!("{own}/lifecycle"),
                json!(null),
                &["`lifecycle` of container `envoy-drainer` was changed"],
            ),
            (
                "/spec/terminationGracePeriodSeconds".into(),
                json!(45),
                &["the grace period was changed to 45s, and 120s are needed"],
            ),
            (
                format!("{own}/restartPolicy"),
                json!(null),
                &["`restartPolicy` of container `envoy-drainer` was changed"],
            ),
            (
                format!("{own}/command"),
                json!(["sh"]),
                &["`command` of container `envoy-drainer` was changed"],
            ),
            (
                format!("{own}/ports"),
                json!([{"containerPort": 1}]),
                &["`ports` of container `envoy-drainer` was changed"],
            ),
            (
                format!("{own}/args/1"),
                json!("--debug"),
                &["`args` of container `envoy-drainer` was changed"],
            ),
            (
                format!("{own}/volumeMounts/1/mountPath"),
                json!("/elsewhere"),
                &["`volumeMounts` of container `envoy-drainer` was changed"],
            ),
            // What others may set.
            (format!("{own}/image"), json!("mirror/image"), &[]),
            (format!("{own}/resources"), json!({}), &[]),
            (
                format!("{own}/env"),
                json!([{"name": "A", "value": "b"}]),
                &[],
            ),
            (format!("{hook}/httpGet/scheme"), json!("HTTP"), &[]),
            (
                "/spec/terminationGracePeriodSeconds".into(),
                json!(105),
                &[],
            ),
        ];
        let original = injected(pod(&[("extra-lifecycle-hooks", "*")]));
        for (pointer, value, want) in table {
            let mut changed = original.clone();
            set(&mut changed, &pointer, value);
            let (details, after) = repaired(changed.clone());
            assert_eq!(details, want, "{pointer}");
            let again = repaired(after.clone());
            assert_eq!(again, (vec![], after.clone()), "{pointer}");
            if want.is_empty() {
                assert_eq!(after, changed, "{pointer}");
            } else if !pointer.contains("GracePeriod") {
                assert_eq!(after, original, "{pointer}");
            }
        }
    }

    #[test]
    fn containers_that_came_later_wait_and_take_no_port() {
        let original = injected(pod(&[("extra-lifecycle-hooks", "*")]));
        let with = |container: Value| {
            let mut pod = original.clone();
            pod["spec"]["containers"]
                .as_array_mut()
                .unwrap()
                .push(container);
            repaired(pod)
        };
        let (details, after) = with(json!({"name": "late"}));
        let came = "container `late`, which is to wait, was added";
        assert_eq!(details, [came]);
        let path = |pod: &Value, index: usize| {
            pod["spec"]["containers"][index]["lifecycle"]["preStop"]["httpGet"].clone()
        };
        let app = path(&original, 0)["path"]
            .as_str()
            .unwrap()
            .replace("/app", "/late");
        assert_eq!(path(&after, 2)["path"], app);
        let status = after["metadata"]["annotations"][STATUS].as_str().unwrap();
        let status: Value = serde_json::from_str(status).unwrap();
        assert_eq!(status["extraHooks"], json!(["app", "late"]));

        let hook = json!({"preStop": {"sleep": {"seconds": 1}}});
        let late = json!({"name": "late", "ports": [{"containerPort": 15902}], "lifecycle": hook});
        let (details, after) = with(late);
        let moved = "the drainer's port 15902 belongs to container `late`, so 15903 is used";
        assert_eq!(details, [moved]);
        assert_eq!(
            [
                path(&after, 0)["port"].clone(),
                path(&after, 1)["port"].clone()
            ],
            [15903, 15903]
        );
        let drainer = &after["spec"]["initContainers"][0];
        assert_eq!(drainer["args"][2], "--port=15903");
        assert_eq!(
            drainer["lifecycle"]["preStop"]["exec"]["command"][2],
            "--port=15903"
        );
        assert_eq!(repaired(after.clone()), (vec![], after));

        // It was asked for.
        let original = injected(pod(&[("port", "15902")]));
        let mut taken = original.clone();
        taken["spec"]["containers"][0]["ports"][0]["containerPort"] = json!(15902);
        let (details, after) = repaired(taken.clone());
        assert_eq!((details.len(), after), (1, taken));
        assert!(
            details[0].ends_with("port 15902 belongs to container `app`"),
            "{details:?}"
        );
    }

    #[test]
    fn injection_that_may_differ_is_compared_in_part() {
        let mut original = injected(pod(&[]));
        let (own, annotations) = ("/spec/initContainers/0", "/metadata/annotations");
        let status = original["metadata"]["annotations"][STATUS]
            .as_str()
            .unwrap()
            .to_owned();
        let of_version = status.replace(VERSION, "0.0.9");
        let offline = status.replacen('{', r#"{"offline":true,"#, 1);
        let adopted = status.replacen('{', r#"{"adopted":"contour","#, 1);
        let by_others = "the preStop hook of container `proxy` was changed";
        for (status, suffix) in [
            (of_version, ", which version 0.0.9 injected"),
            (offline, ", which `inject` added"),
            (adopted, ""),
        ] {
            set(
                &mut original,
                &format!("{annotations}/envoy-drainer.dev~1status"),
                json!(status),
            );
            original["metadata"]["annotations"][STATUS] = json!(status);
            let mut changed = original.clone();
            set(&mut changed, &format!("{own}/command"), json!(["sh"]));
            assert_eq!(
                repaired(changed.clone()),
                (vec![], changed.clone()),
                "{status}"
            );
            set(
                &mut changed,
                "/spec/containers/1/lifecycle/preStop",
                json!({"sleep": {"seconds": 1}}),
            );
            let (details, after) = repaired(changed);
            assert_eq!(details, [format!("{by_others}{suffix}")]);
            assert_eq!(
                after["spec"]["containers"], original["spec"]["containers"],
                "{status}"
            );
        }
        // Without a status, it may be a drainer by hand; and some pods are never changed.
        let hook = "/spec/containers/1/lifecycle/preStop";
        let mut by_hand = injected(pod(&[]));
        set(&mut by_hand, hook, json!(null));
        let mut mirror = by_hand.clone();
        mirror["metadata"]["annotations"]["kubernetes.io/config.mirror"] = json!("");
        by_hand["metadata"]["annotations"][STATUS] = json!("{}");
        for pod in [by_hand, mirror] {
            assert_eq!(repaired(pod.clone()), (vec![], pod));
        }
    }

    #[test]
    fn native_envoy_stays_one_and_a_longer_grace_stays_its_own() {
        let mut native = pod(&[("drain-timeout", "30s")]);
        let envoy = native["spec"]["containers"]
            .as_array_mut()
            .unwrap()
            .remove(1);
        native["spec"]["initContainers"] = json!([envoy]);
        native["spec"]["initContainers"][0]["restartPolicy"] = json!("Always");
        native["spec"]["terminationGracePeriodSeconds"] = json!(300);
        let original = injected(native);
        let mut changed = original.clone();
        for container in changed["spec"]["initContainers"].as_array_mut().unwrap() {
            container.as_object_mut().unwrap().remove("restartPolicy");
        }
        let (details, after) = repaired(changed);
        let removed = |name| format!("`restartPolicy` of container `{name}` was changed");
        assert_eq!(
            (details, after),
            (
                ["envoy-drainer", "proxy"].map(removed).to_vec(),
                original.clone()
            )
        );
        // The drain needs 45 s.
        let mut changed = original;
        changed["spec"]["terminationGracePeriodSeconds"] = json!(100);
        let (details, after) = repaired(changed);
        assert_eq!(after["spec"]["terminationGracePeriodSeconds"], 100);
        assert!(
            details.len() == 1 && details[0].starts_with("`args`"),
            "{details:?}"
        );
    }
}
