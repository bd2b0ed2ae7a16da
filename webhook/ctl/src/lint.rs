//! Findings about hand-written drains: preStop hooks that do not do what they seem to. Pure.

mod finding;
mod rules;
mod sarif;
mod script;

use admission::keys::{INJECT, inject_requested};
use admission::{CONTAINER_NAME, Hook, PodView, WorkloadObject, known_envoys, objects};
use json_patch::jsonptr::PointerBuf;
use manifest::Manifest;
use rules::HookView;
use script::Script;
use serde_json::Value;
use strum::VariantArray;

use crate::object_name::ObjectName;
use crate::offline::{ManifestContext, Message, MessageKind};

pub use finding::{LintCode, LintFinding, LintSeverity};
pub use sarif::{REPOSITORY, to_sarif};

/// The findings about streams.
#[derive(Debug, Default)]
pub struct LintReport {
    /// What is known of the configurations of Envoys.
    pub context: ManifestContext,
    pub findings: Vec<LintFinding>,
    /// What could not be judged, and the streams without pods, with their files.
    pub messages: Vec<(String, Message)>,
    /// The number of pods and pod templates.
    pub pods: usize,
    /// The number of Envoys, with and without a hook.
    pub envoys: usize,
    /// The number of their hooks.
    pub hooks: usize,
    /// The number of hooks of servers in pods without an Envoy that only sleep.
    pub sleeping: usize,
    /// The number of Envoys that have no hook and request no drainer.
    pub undrained: usize,
}

/// Returns true if a value has a list of containers, or one with a preStop hook, at any depth.
fn has_containers(value: &Value) -> bool {
    match value {
        Value::Object(entries) => entries.iter().any(|(key, value)| {
            let is_list = key == "containers" && value[0]["name"].is_string();
            let is_hook = key == "lifecycle" && value["preStop"].is_object();
            is_list || is_hook || has_containers(value)
        }),
        Value::Array(items) => items.iter().any(has_containers),
        _ => false,
    }
}

// === impl LintReport ===

impl LintReport {
    /// Adds the findings about a stream of documents. `has_lines` is false for an object of the cluster.
    pub fn add(&mut self, source: &str, stream: &[u8], has_lines: bool) {
        let before = self.pods + self.messages.len();
        for document in manifest::documents(stream) {
            match Manifest::read(&document) {
                Ok(manifest) => {
                    let objects = objects(manifest.value()).into_iter();
                    objects.for_each(|it| self.add_object(source, &it, &manifest, has_lines));
                }
                Err(error) => self.messages.push((source.to_owned(), error.into())),
            }
        }
        if before == self.pods + self.messages.len() {
            let text = "nothing to check: there is no pod or workload of a known kind".to_owned();
            let (line, column, kind) = (1, None, MessageKind::Skipped);
            let message = Message {
                line,
                column,
                kind,
                text,
            };
            self.messages.push((source.to_owned(), message));
        }
    }

    /// Returns true if something could not be judged, or if there was nothing to judge.
    pub fn is_incomplete(&self) -> bool {
        let mut messages = self.messages.iter();
        self.pods == 0 || messages.any(|(_, it)| it.kind != MessageKind::Skipped)
    }

    fn add_object(
        &mut self,
        source: &str,
        object: &WorkloadObject<'_>,
        manifest: &Manifest<'_>,
        has_lines: bool,
    ) {
        let name = ObjectName::new(object.kind, object.namespace, object.name);
        let mut unknown = |reason: &str| {
            let line = manifest.line(&object.path);
            let reason = format!("its hooks are not checked: {reason}");
            let message = Message::for_object(&name, line, MessageKind::Warning, reason);
            self.messages.push((source.to_owned(), message));
        };
        let Some(template) = &object.template else {
            if has_containers(object.value) {
                unknown("this kind is not known; check the pods that it makes");
            }
            return;
        };
        let json = template.pod.to_string();
        let pod = &match PodView::decode(&json) {
            Ok(pod) => pod,
            Err(error) => return unknown(&error.to_string()),
        };
        self.pods += 1;
        let envoys = known_envoys(pod);
        let known = (self.context).configurations(object.namespace, pod, template.pod);
        let containers = pod.long_running_containers();
        for (at, container) in containers.filter(|_| !pod.has_container(CONTAINER_NAME)) {
            let (list, index, is_envoy) = (at.list.key(), at.index, envoys.contains(&at));
            self.envoys += usize::from(is_envoy);
            let Some(written) = container.pre_stop() else {
                let inject = template.pod["metadata"]["annotations"][INJECT].as_str();
                let is_asking = inject.is_some_and(|text| inject_requested(text) == Ok(true));
                self.undrained += usize::from(is_envoy && !is_asking);
                continue;
            };
            let hook = Hook::parse(written);
            let Some(hook) = &hook else {
                if is_envoy {
                    unknown("the action of one is not known")
                }
                continue;
            };
            let script = Script::new(hook, &template.pod["spec"][list][index]["env"]);
            let configuration = known.get(container.name());
            let view = HookView {
                pod,
                container,
                configuration,
                hook,
                script,
            };
            if !is_envoy && !view.drains() {
                self.sleeping += usize::from(envoys.is_empty() && hook.is_sleep());
                if container.name() == "istio-proxy" {
                    unknown("that of Istio's Envoy is for Istio's agent; see docs/moving/istio.md");
                }
                continue;
            }
            self.hooks += 1;
            self.envoys += usize::from(!is_envoy);
            if let Some(command) = view.unknown_command() {
                unknown(&format!(
                    "it is not known what `{command}` does, or how long"
                ));
            }
            let place = PointerBuf::parse(format!("/spec/{list}/{index}/lifecycle/preStop"));
            let place = place.map(|it| object.path.concat(template.path).concat(&it));
            let place = place.ok().filter(|_| has_lines);
            let line = place.map(|it| manifest.line(&it));
            let found = LintCode::VARIANTS.iter().filter_map(|code| {
                let message = view.violation(*code)?;
                Some(LintFinding {
                    code: *code,
                    severity: code.severity(),
                    source: source.to_owned(),
                    line,
                    object: name.clone(),
                    container: container.name().to_owned(),
                    message,
                    remedy: code.remedy(),
                    annotations: view.replacement(*code),
                })
            });
            self.findings.extend(found);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn envoys_that_nothing_drains_are_counted() {
        let pod = |annotations: Value, lifecycle: Value| {
            let envoy = json!({"name": "envoy", "image": "envoyproxy/envoy:v1.36.4", "lifecycle": lifecycle});
            json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "edge", "annotations": annotations},
                "spec": {"containers": [envoy, {"name": "app"}]},
            })
        };
        let hook = json!({"preStop": {"exec": {"command": ["sleep", "5"]}}});
        for (annotations, lifecycle, want) in [
            (json!({}), json!(null), 1),
            (json!({INJECT: "false"}), json!(null), 1),
            (json!({INJECT: "true"}), json!(null), 0),
            (json!({INJECT: "enabled"}), json!(null), 0),
            (json!({}), hook, 0),
        ] {
            let mut report = LintReport::default();
            let manifest = pod(annotations, lifecycle).to_string();
            report.add("edge.yaml", manifest.as_bytes(), true);
            assert_eq!((report.envoys, report.undrained), (1, want), "{manifest}");
        }
    }

    #[test]
    fn sleeping_hooks_are_counted_in_pods_without_an_envoy() {
        let sleep = json!({"preStop": {"sleep": {"seconds": 5}}});
        let app = |command: &[&str]| {
            let hook = json!({"preStop": {"exec": {"command": command}}});
            json!({"name": "app", "lifecycle": hook})
        };
        let slept = json!({"name": "app", "lifecycle": sleep});
        for (containers, want) in [
            (json!([slept]), 1),
            (json!([app(&["sleep", "5"])]), 1),
            (json!([app(&["sh", "-c", "sleep 5"])]), 1),
            (json!([app(&["/stop"])]), 0),
            (
                json!([slept, {"name": "envoy", "image": "envoyproxy/envoy:v1.36.4"}]),
                0,
            ),
        ] {
            let mut report = LintReport::default();
            let manifest = json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "edge"}, "spec": {"containers": containers},
            });
            report.add("edge.yaml", manifest.to_string().as_bytes(), true);
            assert_eq!(report.sleeping, want, "{manifest}");
        }
    }
}
