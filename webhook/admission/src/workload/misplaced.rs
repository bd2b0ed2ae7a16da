//! Annotations of a workload that have no effect: in the wrong place, unknown, without a request for a drainer, or
//! on the pods of an unknown kind.

use json_patch::jsonptr::{Pointer, PointerBuf};

use super::objects;
use super::objects::WorkloadObject;
use super::view::{MapKeys, WorkloadView};
use crate::diagnostics::{Code, Diagnostic};
use crate::names::PREFIX;
use crate::settings::{MAX_REPORTED_KEYS, is_setting, lint_name};

/// An annotation that has no effect where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MisplacedAnnotation {
    /// Its path in the object.
    pub path: PointerBuf,
    /// What is wrong with it.
    pub diagnostic: Diagnostic,
}

/// Finds annotations of an object that have no effect, at most 32.
pub fn misplaced(object: &WorkloadObject<'_>) -> Vec<MisplacedAnnotation> {
    let json = object.value.to_string();
    let find = |view| find_misplaced(object.version, object.kind, &view);
    serde_json::from_str(&json).map_or_else(|_| Vec::new(), find)
}

/// Finds annotations of a workload that have no effect, at most 32.
pub(super) fn find_misplaced(
    version: &str,
    kind: &str,
    workload: &WorkloadView<'_>,
) -> Vec<MisplacedAnnotation> {
    let mut misplaced = match objects::template_path(version, kind) {
        Some(template) => in_known_kind(workload, template),
        None => Vec::from_iter(in_unknown_kind(version, kind, workload)),
    };
    misplaced.truncate(MAX_REPORTED_KEYS);
    misplaced
}

/// Finds the request for a drainer in an object whose pod template is unknown: in its own annotations, or in
/// those of `spec.template`, which Argo's Rollout and Knative's Service have.
fn in_unknown_kind(
    version: &str,
    kind: &str,
    workload: &WorkloadView<'_>,
) -> Option<MisplacedAnnotation> {
    let [own, .., template] = workload.all_metadata();
    let mut metadata = [template, own].into_iter();
    let (path, _) = metadata.find(|(_, keys)| keys.annotations.requests_injection)?;
    let map = path.with_trailing_token("annotations");
    let detail = format!("how a {kind} ({version}) creates its pods is not known");
    let diagnostic = Code::UnknownKind.diagnostic(detail);
    Some(MisplacedAnnotation::new(&map, "inject", diagnostic))
}

/// Checks every `metadata` of an object that has its pod template at this path.
fn in_known_kind(workload: &WorkloadView<'_>, template: &Pointer) -> Vec<MisplacedAnnotation> {
    let pod_annotations = template.concat(Pointer::from_static("/metadata/annotations"));
    let mut misplaced = Vec::new();
    for (path, metadata) in workload.all_metadata() {
        let [annotations, labels] =
            ["annotations", "labels"].map(|key| path.with_trailing_token(key));
        let maps = [
            (path.to_buf(), metadata.own),
            (annotations, metadata.annotations),
            (labels, metadata.labels),
        ];
        for (map, keys) in maps {
            if map == pod_annotations {
                misplaced.extend(keys.on_pod(&map));
            } else {
                misplaced.extend(keys.without_effect(&map, &pod_annotations));
            }
        }
    }
    misplaced
}

/// Formats a path as Kubernetes' errors do: `spec.template.metadata`.
fn dotted_path(path: &Pointer) -> String {
    path.as_str().trim_start_matches('/').replace('/', ".")
}

// === impl MisplacedAnnotation ===

impl MisplacedAnnotation {
    fn new(map: &Pointer, name: &str, diagnostic: Diagnostic) -> Self {
        Self {
            path: map.with_trailing_token(format!("{PREFIX}{name}")),
            diagnostic,
        }
    }
}

// === impl MapKeys ===

impl MapKeys {
    /// Reports the known keys of a map in which they have no effect on pods.
    fn without_effect(
        &self,
        map: &Pointer,
        pod_annotations: &Pointer,
    ) -> Option<MisplacedAnnotation> {
        let is_known = |name: &&String| *name == "inject" || is_setting(name);
        let names = self.names.iter().filter(is_known).take(MAX_REPORTED_KEYS);
        let first = names.clone().next()?;
        let quoted: Vec<_> = names.map(|name| format!("`{PREFIX}{name}`")).collect();
        let [from, to] = [map, pod_annotations].map(dotted_path);
        let detail = format!(
            "{} in {from} will not reach pods: move to {to}",
            quoted.join(", ")
        );
        let diagnostic = Code::Misplaced.diagnostic(detail);
        Some(MisplacedAnnotation::new(map, first, diagnostic))
    }

    /// Reports what has no effect in the annotations of pods that request no drainer: unknown keys, or else
    /// settings. Pods that request one are checked at their admission.
    fn on_pod(&self, map: &Pointer) -> Vec<MisplacedAnnotation> {
        if self.requests_injection {
            return Vec::new();
        }
        let report = |name: &String, diagnostic| MisplacedAnnotation::new(map, name, diagnostic);
        let mut names = self.names.iter();
        let unknown = |name| Some(report(name, lint_name(name, self.count)?));
        let unknown: Vec<_> = names.clone().filter_map(unknown).collect();
        match names.find(|name| is_setting(name)) {
            Some(name) if unknown.is_empty() => {
                let detail = format!("`{PREFIX}{name}` is set, but no `inject` requests a drainer");
                vec![report(name, Code::SettingsWithoutInject.diagnostic(detail))]
            }
            _ => unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::names::INJECT;

    fn find(version: &str, kind: &str, object: &Value) -> Vec<(String, Code)> {
        let json = object.to_string();
        let misplaced = find_misplaced(version, kind, &serde_json::from_str(&json).unwrap());
        misplaced
            .into_iter()
            .map(|misplaced| (misplaced.path.to_string(), misplaced.diagnostic.code))
            .collect()
    }

    #[test]
    fn known_kind_is_checked_in_exact_places() {
        let inject = || json!({"envoy-drainer.dev/inject": "true"});
        let own = "/metadata";
        let template = "/spec/template/metadata";
        let table = [
            (own, json!({"annotations": inject()}), Some("/annotations")),
            (own, json!({"labels": inject()}), Some("/labels")),
            (own, inject(), Some("")),
            (template, json!({"annotations": inject()}), None),
            (template, json!({"labels": inject()}), Some("/labels")),
            (template, inject(), Some("")),
            // Only exact keys in exact places are reported.
            (own, json!({"finalizers": inject()}), None),
            (
                own,
                json!({"annotations": {"envoy-drainer.dev/injct": ""}}),
                None,
            ),
            (
                own,
                json!({"annotations": {"envoydrainer.dev/inject": ""}}),
                None,
            ),
            (
                own,
                json!({"labels": {"envoy-drainer.dev/injected": "true"}}),
                None,
            ),
            (
                own,
                json!({"annotations": ["envoy-drainer.dev/inject"]}),
                None,
            ),
        ];
        for (path, metadata, map) in table {
            let object = match path == own {
                true => json!({ "metadata": metadata }),
                false => json!({"spec": {"template": {"metadata": metadata}}}),
            };
            let key = "envoy-drainer.dev~1inject";
            let want = map.map(|map| (format!("{path}{map}/{key}"), Code::Misplaced));
            let misplaced = find("apps/v1", "Deployment", &object);
            assert_eq!(misplaced, Vec::from_iter(want), "{object}");
        }
    }

    #[test]
    fn job_template_of_a_cron_job_is_not_its_pods() {
        let annotations = || json!({"annotations": {"envoy-drainer.dev/port": "1"}});
        let object = json!({"spec": {"jobTemplate": {
            "metadata": annotations(),
            "spec": {"template": {"metadata": annotations()}},
        }}});
        let job = "/spec/jobTemplate";
        let key = "metadata/annotations/envoy-drainer.dev~1port";
        let want = [
            (format!("{job}/{key}"), Code::Misplaced),
            (
                format!("{job}/spec/template/{key}"),
                Code::SettingsWithoutInject,
            ),
        ];
        assert_eq!(find("batch/v1", "CronJob", &object), want);
    }

    #[test]
    fn unknown_kind_reports_only_a_request() {
        let annotations = |key: &str| json!({"annotations": {(format!("{PREFIX}{key}")): "true"}});
        let unknown = |path: &str| {
            let path = format!("{path}/metadata/annotations/envoy-drainer.dev~1inject");
            vec![(path, Code::UnknownKind)]
        };
        let table = [
            (json!({"metadata": annotations("inject")}), unknown("")),
            (
                json!({"spec": {"template": {"metadata": annotations("inject")}}}),
                unknown("/spec/template"),
            ),
            (
                json!({"metadata": annotations("inject"), "spec": {"template": {"metadata": annotations("inject")}}}),
                unknown("/spec/template"),
            ),
            (json!({"metadata": annotations("port")}), vec![]),
            (json!({"metadata": {"labels": {INJECT: "true"}}}), vec![]),
            (json!({"metadata": {"annotations": {INJECT: null}}}), vec![]),
        ];
        for (object, want) in table {
            let misplaced = find("argoproj.io/v1alpha1", "Rollout", &object);
            assert_eq!(misplaced, want, "{object}");
        }
    }
}
