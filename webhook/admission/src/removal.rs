//! The pod without its drainer: what an injection added, and where it is now.

use std::ops::Range;

use serde_json::value::RawValue;

use super::diagnostics::{Code, Diagnostic};
use super::names::{CONTAINER_NAME, INJECTED, STATUS, WEBHOOK_TOKEN_VOLUME};
use super::patch::{Patch, PatchBuilder, RecordedGrace, RecordedInjection, find_drainer};
use super::pod::{ContainerList, ContainerRef, PodView, Text};

/// The inverse of an injection.
#[derive(Debug)]
pub(super) struct Removal<'s> {
    steps: Vec<Step<'s>>,
    recorded: &'s RecordedInjection,
}

/// A step of a removal. Its indices are those after the steps before it.
#[derive(Debug)]
enum Step<'s> {
    /// The preStop hook becomes the one that was replaced, or none.
    Hook(ContainerRef, Option<&'s RawValue>),
    /// These arguments of Envoy's go.
    Args(ContainerRef, Range<usize>),
    Grace(Option<i64>),
    Volume(usize),
    Container(ContainerRef),
    /// Envoy's container moves back to this index among the pod's containers, and is no native sidecar.
    Move(ContainerRef, usize),
}

/// Returns the patch that takes the drainer out of a pod, with everything that came with it; `None` if it has none. What
/// was changed since stays. Parents that become empty stay too.
///
/// # Errors
/// If it is not recorded what the pod was like before.
pub fn remove(pod: &PodView<'_>) -> Result<Option<Patch>, Diagnostic> {
    let Some((drainer, _)) = find_drainer(pod) else {
        return Ok(None);
    };
    let recorded = RecordedInjection::of(pod);
    match recorded.loss() {
        Some(loss) => Err(Code::NotRemoved.diagnostic(loss)),
        None => Ok(Some(
            Removal::new(pod, drainer, &recorded, false).patch(pod),
        )),
    }
}

/// Finds words that were added to arguments, the last time they are there.
fn find_added(args: &[Text<'_>], added: &[String]) -> Option<Range<usize>> {
    let mut windows = args.windows(added.len().max(1));
    let start = windows.rposition(|words| words.iter().map(|word| &**word).eq(added))?;
    Some(start..start + added.len())
}

// === impl RecordedInjection ===

impl RecordedInjection {
    /// Returns what cannot be restored, since it is not recorded.
    pub(super) fn loss(&self) -> Option<String> {
        let hook = self.replaced_hook.as_deref();
        if self.version.is_empty() {
            Some(format!(
                "the annotation `{STATUS}` does not tell what was added"
            ))
        } else if let Some(product) = self.adopted {
            Some(format!("the shutdown manager of {product} was removed"))
        } else {
            let is_too_long = hook.is_some_and(|hook| !hook.get().starts_with('{'));
            is_too_long
                .then(|| "the preStop hook that was replaced was too long to record".to_owned())
        }
    }
}

// === impl Removal ===

impl<'s> Removal<'s> {
    /// The steps for a pod with this drainer. With `of_others`, hooks in the place of injected ones are removed too.
    pub(super) fn new(
        pod: &PodView<'_>,
        drainer: ContainerRef,
        recorded: &'s RecordedInjection,
        of_others: bool,
    ) -> Self {
        let mut steps = Vec::new();
        let envoy = pod.find_container(&recorded.container);
        for (at, container) in pod.located_containers() {
            let is_envoy = envoy.is_some_and(|(envoy, _)| envoy == at);
            let token = container.short_hook().and_then(|hook| hook.drainer_token());
            if token.is_some() || of_others && recorded.hooks(container.name()) {
                let replaced = recorded.replaced_hook.as_deref().filter(|_| is_envoy);
                steps.push(Step::Hook(at, replaced));
            }
        }
        if let Some((at, container)) = envoy {
            let args = container.args.as_deref().unwrap_or_default();
            let added = find_added(args, &recorded.added_args);
            steps.extend(added.map(|range| Step::Args(at, range)));
        }
        let RecordedGrace { from, to } = recorded.grace;
        let present = pod.spec.termination_grace_period_seconds;
        if to > 0 && present == Some(to) && from != present {
            steps.push(Step::Grace(from));
        }
        let container = pod.container(drainer).into_iter();
        let mounts = container.flat_map(|it| &it.volume_mounts).flatten();
        let mounts: Vec<_> = mounts.filter_map(|it| it.name.as_deref()).collect();
        let is_added = |name: &str| {
            let is_own = [CONTAINER_NAME, WEBHOOK_TOKEN_VOLUME].contains(&name);
            is_own && (of_others || mounts.contains(&name))
        };
        let volumes = pod.spec.volumes.as_deref().unwrap_or_default();
        let volumes = volumes.iter().enumerate().rev();
        let added = volumes.filter(|(_, it)| it.name.as_deref().is_some_and(is_added));
        steps.extend(added.map(|(index, _)| Step::Volume(index)));
        let mut drainer = drainer;
        if let (Some((envoy, _)), Some(to)) = (envoy, recorded.moved_from)
            && envoy.list == ContainerList::InitContainers
            && drainer.list == envoy.list
            && drainer != envoy
        {
            let containers = pod.spec.list(ContainerList::Containers);
            let count = containers.map_or(0, <[_]>::len);
            steps.push(Step::Move(envoy, to.min(count)));
            drainer.index -= usize::from(envoy.index < drainer.index);
        }
        steps.push(Step::Container(drainer));
        Self { steps, recorded }
    }

    /// The pod after the steps; its Envoy runs as long as the pod, even if another webhook has changed that.
    pub(super) fn view(&self, pod: &PodView<'s>) -> PodView<'s> {
        let mut pod = pod.clone();
        let spec = &mut pod.spec;
        for step in &self.steps {
            match step {
                Step::Hook(at, hook) => {
                    let container = &mut spec.list_mut(at.list)[at.index];
                    container.lifecycle.get_or_insert_default().pre_stop = *hook;
                }
                Step::Args(at, range) => {
                    let container = &mut spec.list_mut(at.list)[at.index];
                    container.args.get_or_insert_default().drain(range.clone());
                }
                Step::Grace(from) => spec.termination_grace_period_seconds = *from,
                Step::Volume(index) => drop(spec.volumes.get_or_insert_default().remove(*index)),
                Step::Container(at) => drop(spec.list_mut(at.list).remove(at.index)),
                Step::Move(at, to) => {
                    let envoy = spec.list_mut(at.list).remove(at.index);
                    spec.list_mut(ContainerList::Containers).insert(*to, envoy);
                }
            }
        }
        let containers = spec.init_containers.iter_mut().flatten();
        for envoy in containers.filter(|it| it.name() == self.recorded.container) {
            envoy.restart_policy = Some(Text::from("Always"));
        }
        pod
    }

    fn patch(&self, pod: &PodView<'_>) -> Patch {
        let mut patch = PatchBuilder::new();
        for step in &self.steps {
            match step {
                Step::Hook(at, hook) => {
                    let (list, index) = (at.list.key(), &*at.index.to_string());
                    let path = ["spec", list, index, "lifecycle", "preStop"];
                    patch.set_or_remove(path, hook.as_ref());
                }
                Step::Args(at, range) => {
                    let (list, index) = (at.list.key(), &*at.index.to_string());
                    for arg in range.clone().rev() {
                        patch.remove(["spec", list, index, "args", &arg.to_string()]);
                    }
                }
                Step::Grace(from) => {
                    patch.set_or_remove(["spec", "terminationGracePeriodSeconds"], from.as_ref());
                }
                Step::Volume(index) => patch.remove(["spec", "volumes", &index.to_string()]),
                Step::Container(at) => patch.remove(["spec", at.list.key(), &at.index.to_string()]),
                Step::Move(at, to) => {
                    let (list, index) = (at.list.key(), &*at.index.to_string());
                    let envoy = pod.find_container(&self.recorded.container);
                    if envoy.is_some_and(|(_, it)| it.restart_policy.is_some()) {
                        patch.remove(["spec", list, index, "restartPolicy"]);
                    }
                    let to = ["spec", "containers", &to.to_string()];
                    patch.move_to(["spec", list, index], to);
                }
            }
        }
        let mut labels = pod.labels().into_iter();
        if labels.any(|labels| labels.get(INJECTED).is_some()) {
            patch.remove(["metadata", "labels", INJECTED]);
        }
        patch.remove(["metadata", "annotations", STATUS]);
        patch.finish()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::decide::{Decision, decide};
    use crate::plan::{PodContext, token};
    use crate::settings::Defaults;

    fn injected(pod: &Value) -> Value {
        let json = pod.to_string();
        let context = PodContext::new(Some("shop"), token(b""));
        let view = PodView::decode(&json).unwrap();
        let decision = decide(&view, &context, &Defaults::new("image", "infra"));
        let Decision::Inject { patch, .. } = decision else {
            panic!("{decision:?}");
        };
        let mut pod = pod.clone();
        json_patch::patch(&mut pod, &patch.operations()).unwrap();
        pod
    }

    /// The pod without its drainer, or why not.
    fn removed(mut pod: Value) -> Result<Value, String> {
        let json = pod.to_string();
        let patch = remove(&PodView::decode(&json).unwrap()).map_err(|it| it.detail)?;
        json_patch::patch(&mut pod, &patch.unwrap().operations()).unwrap();
        Ok(pod)
    }

    fn pod(annotations: &Value, hook: &Value) -> Value {
        let args = json!(["-c", "/e.yaml"]);
        let lifecycle = json!({"preStop": hook});
        json!({
            "metadata": {"annotations": annotations, "labels": {"a": "b"}},
            "spec": {
                "containers": [
                    {"name": "envoy", "image": "envoyproxy/envoy:v1.36.4", "args": args, "lifecycle": lifecycle},
                    {"name": "app", "lifecycle": {}},
                ],
                "initContainers": [{"name": "init"}],
                "volumes": [{"name": "v"}],
            },
        })
    }

    #[test]
    fn everything_that_was_added_is_removed() {
        let inject = |setting: &str, value: &str| {
            let key = format!("envoy-drainer.dev/{setting}");
            let mut annotations = json!({"envoy-drainer.dev/inject": "true"});
            annotations["envoy-drainer.dev/existing-hook"] = json!("replace");
            annotations[key] = json!(value);
            annotations
        };
        let hook = json!({"exec": {"command": ["sleep", "\"5\""]}, "x": 1});
        for (setting, value) in [
            ("port", "1234"),
            ("extra-lifecycle-hooks", "*"),
            ("drain-strategy", "immediate"),
            ("add-admin", "true"),
            ("envoy-native-sidecar", "true"),
            ("native-sidecar", "false"),
        ] {
            for grace in [json!(null), json!(30), json!(74), json!(300)] {
                let mut pod = pod(&inject(setting, value), &hook);
                if !grace.is_null() {
                    pod["spec"]["terminationGracePeriodSeconds"] = grace;
                }
                let injected_pod = injected(&pod);
                assert_eq!(
                    removed(injected_pod.clone()).as_ref(),
                    Ok(&pod),
                    "{setting}"
                );
                assert_eq!(injected(&pod), injected_pod);
            }
        }
        // What somebody else has set since stays.
        let mut changed = injected(&pod(&inject("port", "1"), &hook));
        changed["spec"]["terminationGracePeriodSeconds"] = json!(99);
        let sleep = json!({"sleep": {"seconds": 5}});
        changed["spec"]["containers"][0]["lifecycle"]["preStop"] = sleep.clone();
        let mut want = pod(&inject("port", "1"), &sleep);
        want["spec"]["terminationGracePeriodSeconds"] = json!(99);
        assert_eq!(removed(changed), Ok(want));
    }

    #[test]
    fn what_is_not_recorded_is_named() {
        let annotations = json!({
            "envoy-drainer.dev/inject": "true", "envoy-drainer.dev/existing-hook": "replace",
        });
        let long = json!({"exec": {"command": ["x".repeat(5000)]}});
        let too_long = injected(&pod(&annotations, &long));
        let mut unrecorded = injected(&pod(&annotations, &Value::Null));
        let mut adopted = unrecorded.clone();
        unrecorded["metadata"]["annotations"]
            .as_object_mut()
            .unwrap()
            .remove(STATUS);
        let status = &mut adopted["metadata"]["annotations"][STATUS];
        *status = json!(
            status
                .as_str()
                .unwrap()
                .replacen('{', r#"{"adopted":"contour","#, 1)
        );
        for (pod, want) in [
            (
                too_long,
                "the preStop hook that was replaced was too long to record",
            ),
            (
                unrecorded,
                "the annotation `envoy-drainer.dev/status` does not tell what was added",
            ),
            (adopted, "the shutdown manager of Contour was removed"),
        ] {
            assert_eq!(removed(pod), Err(want.to_owned()));
        }
        let json = pod(&annotations, &Value::Null).to_string();
        assert_eq!(remove(&PodView::decode(&json).unwrap()), Ok(None));
    }

    /// A status is text of the pod's author.
    #[test]
    fn forged_status_causes_no_panic() {
        for status in [
            json!({"version": "1", "container": "envoy-drainer", "movedFrom": 9, "addedArgs": [""]}),
            json!({"version": "1", "container": "envoy", "movedFrom": 9, "envoy": "native"}),
            json!({"version": "1", "container": "", "grace": {"from": 1, "to": 75}}),
            json!({"version": "1", "container": "envoy", "replacedHook": [1], "extraHooks": ["app", "init"]}),
        ] {
            for form in ["true", "false"] {
                let annotations = json!({
                    "envoy-drainer.dev/inject": "true",
                    "envoy-drainer.dev/native-sidecar": form,
                    "envoy-drainer.dev/envoy-container": "envoy",
                });
                let mut forged = injected(&pod(&annotations, &Value::Null));
                forged["metadata"]["annotations"][STATUS] = json!(status.to_string());
                let json = forged.to_string();
                let view = PodView::decode(&json).unwrap();
                let recorded = RecordedInjection::of(&view);
                let (drainer, _) = find_drainer(&view).unwrap();
                Removal::new(&view, drainer, &recorded, true).view(&view);
                let _ = removed(forged);
            }
        }
    }
}
