//! The inverse of an injection: the patch that takes the drainer out of a pod.

use std::ops::Range;

use drainer::WEBHOOK_TOKEN_DIR;

use super::diagnostics::{Code, Diagnostic};
use super::names::{CONTAINER_NAME, INJECTED, STATUS, TOKEN_DIR, WEBHOOK_TOKEN_VOLUME};
use super::patch::{Patch, PatchBuilder, RecordedGrace, RecordedInjection, find_drainer};
use super::pod::{Container, ContainerList, PodView, Text};

/// Returns the patch that takes the drainer out of a pod, with everything that came with it; `None` if it has none. What
/// was changed since stays. Parents that become empty stay too.
///
/// # Errors
/// If it is not known what the pod was like before.
pub fn remove(pod: &PodView<'_>) -> Result<Option<Patch>, Diagnostic> {
    let Some((mut drainer, container)) = find_drainer(pod) else {
        return Ok(None);
    };
    let recorded = RecordedInjection::of(pod);
    let envoy = pod.find_container(&recorded.container);
    let args = envoy.and_then(|(_, it)| it.args.as_deref());
    let added = find_added(args.unwrap_or_default(), &recorded.added_args);
    let added = added.ok_or("the words that were added to Envoy's arguments are not there");
    let added = recorded.known().and(added);
    let added = added.map_err(|loss| Code::NotRemoved.diagnostic(loss))?;
    let mut patch = PatchBuilder::new();
    for (at, container) in pod.located_containers() {
        let hook = container.short_hook();
        if hook.is_some_and(|hook| hook.drainer_token().is_some()) {
            let is_envoy = envoy.is_some_and(|(envoy, _)| envoy == at);
            let replaced = recorded.replaced_hook.as_ref().filter(|_| is_envoy);
            let (list, index) = (at.list.key(), &*at.index.to_string());
            patch.set_or_remove(["spec", list, index, "lifecycle", "preStop"], replaced);
        }
    }
    let RecordedGrace { from, to } = recorded.grace;
    if from != Some(to) && pod.spec.termination_grace_period_seconds == Some(to) {
        patch.set_or_remove(["spec", "terminationGracePeriodSeconds"], from.as_ref());
    }
    let volumes = pod.spec.volumes.iter().flatten().enumerate();
    let added_volumes = volumes.filter(|(_, it)| is_added(it.name.as_deref(), container));
    for (index, _) in added_volumes.collect::<Vec<_>>().into_iter().rev() {
        patch.remove(["spec", "volumes", &index.to_string()]);
    }
    if let Some((at, envoy)) = envoy {
        let (list, index) = (at.list.key(), &*at.index.to_string());
        for arg in added.rev() {
            patch.remove(["spec", list, index, "args", &arg.to_string()]);
        }
        if let Some(to) = recorded.moved_from
            && [at.list, drainer.list] == [ContainerList::InitContainers; 2]
            && at != drainer
        {
            if envoy.restart_policy.is_some() {
                patch.remove(["spec", list, index, "restartPolicy"]);
            }
            let others = pod.spec.list(ContainerList::Containers);
            let to = to.min(others.map_or(0, <[_]>::len)).to_string();
            patch.move_to(["spec", list, index], ["spec", "containers", &to]);
            drainer.index -= usize::from(at.index < drainer.index);
        }
    }
    patch.remove(["spec", drainer.list.key(), &drainer.index.to_string()]);
    if pod.labels().is_some_and(|it| it.get(INJECTED).is_some()) {
        patch.remove(["metadata", "labels", INJECTED]);
    }
    patch.remove(["metadata", "annotations", STATUS]);
    Ok(Some(patch.finish()))
}

/// Finds words that were added to arguments, the last time they are there.
fn find_added(args: &[Text<'_>], added: &[String]) -> Option<Range<usize>> {
    if added.is_empty() {
        return Some(0..0);
    }
    let mut windows = args.windows(added.len());
    let start = windows.rposition(|words| words.iter().map(|word| &**word).eq(added))?;
    Some(start..start + added.len())
}

/// Returns true for a volume that came with a drainer, which mounts it at its place.
fn is_added(volume: Option<&str>, drainer: &Container<'_>) -> bool {
    let places = [
        (CONTAINER_NAME, TOKEN_DIR),
        (WEBHOOK_TOKEN_VOLUME, WEBHOOK_TOKEN_DIR),
    ];
    let mut mounts = drainer.volume_mounts.iter().flatten();
    mounts.any(|it| {
        let place = it.name.as_deref().zip(it.mount_path.as_deref());
        it.name.as_deref() == volume && place.is_some_and(|place| places.contains(&place))
    })
}

// === impl RecordedInjection ===

impl RecordedInjection {
    /// Returns nothing if all is recorded that a removal needs.
    ///
    /// # Errors
    /// If not, with what is missing.
    fn known(&self) -> Result<(), &'static str> {
        let hook = self.replaced_hook.as_deref();
        let is_too_long = hook.is_some_and(|hook| !hook.get().starts_with('{'));
        match self {
            _ if self.version.is_empty() => {
                Err("the annotation `status` does not tell what was added")
            }
            _ if self.adopted.is_some() => Err("the pod's shutdown manager was removed"),
            _ if is_too_long => Err("the preStop hook that was replaced was too long to record"),
            _ if self.envoy.is_some() && self.moved_from.is_none() => {
                Err("Envoy's container was moved, and its place before is not recorded")
            }
            _ => Ok(()),
        }
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
        // What another webhook has changed since stays.
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
                "the annotation `status` does not tell what was added",
            ),
            (adopted, "the pod's shutdown manager was removed"),
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
                let _ = crate::repair::changes(&view);
                let _ = removed(forged);
            }
        }
    }
}
