//! Annotations of a workload that have no effect: in the wrong place, unknown, without a request for a drainer, or
//! on the pods of an unknown kind.

use json_patch::jsonptr::{Pointer, PointerBuf, Token};
use serde_json::Value;

use super::objects;
use super::objects::WorkloadObject;
use super::view::WorkloadView;
use crate::diagnostics::{Code, Diagnostic};
use crate::names::{INJECT, PREFIX};
use crate::pod::{Entries, ObjectMeta};
use crate::settings::parse::{MAX_REPORTED_KEYS, inject_requested, is_setting, lint_name};

/// An annotation that has no effect where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MisplacedAnnotation {
    /// Its path in the object.
    pub path: PointerBuf,
    /// What is wrong with it.
    pub diagnostic: Diagnostic,
}

/// Finds annotations of an object that have no effect, at most 32. In a namespace that requests a drainer for each of
/// its Envoys (`injects_all`), settings have one without `inject`.
pub fn misplaced(object: &WorkloadObject<'_>, injects_all: bool) -> Vec<MisplacedAnnotation> {
    let path = object.template.as_ref().map(|template| template.path);
    let path = path.or_else(|| objects::template_path(object.version, object.kind));
    let Some(path) = path else {
        return Vec::from_iter(in_unknown_kind(object));
    };
    let json = object.value.to_string();
    let find = |view| find_misplaced(path, None, &view);
    let mut misplaced = serde_json::from_str(&json).map_or_else(|_| Vec::new(), find);
    misplaced.retain(|it| !injects_all || it.diagnostic.code != Code::SettingsWithoutInject);
    misplaced
}

/// Finds annotations of a workload that have no effect, at most 32. Its pod template is at `template`, with this `pod`'s
/// metadata if that is known.
pub(super) fn find_misplaced<'a>(
    template: &Pointer,
    pod: Option<ObjectMeta<'a>>,
    workload: &WorkloadView<'a>,
) -> Vec<MisplacedAnnotation> {
    let pod_annotations = template.concat(Pointer::from_static("/metadata/annotations"));
    let mut misplaced = Vec::new();
    let pod = pod.map(|pod| (template, pod));
    for (path, metadata) in workload.all_metadata(pod.as_ref()) {
        let maps = [
            ("annotations", &metadata.annotations),
            ("labels", &metadata.labels),
        ];
        for (key, entries) in maps {
            let map = path.with_trailing_token(key);
            let keys = entries.iter().flat_map(Entries::iter);
            let names = keys.filter_map(|(key, _)| key.strip_prefix(PREFIX));
            let names: Vec<_> = names.collect();
            if map == pod_annotations {
                misplaced.extend(without_request(&map, &names));
            } else {
                misplaced.extend(without_effect(&map, &names, &pod_annotations));
            }
        }
    }
    misplaced.truncate(MAX_REPORTED_KEYS);
    misplaced
}

/// Finds the request for a drainer in an object whose pod template is unknown.
fn in_unknown_kind(object: &WorkloadObject<'_>) -> Option<MisplacedAnnotation> {
    let map = requesting_annotations(object.value)?;
    let WorkloadObject { kind, version, .. } = object;
    let to_pods = Pointer::from_static("/spec/infrastructure/annotations");
    let served = objects::served_version(kind).filter(|_| !objects::is_custom(version));
    let diagnostic = if !object.is_gateway() {
        let detail = match served {
            Some(served) => {
                format!("no cluster has a {kind} of `{version}`: it is one of `{served}`")
            }
            None => format!("how a {kind} ({version}) creates its pods is not known"),
        };
        Code::UnknownKind.diagnostic(detail)
    } else if map.as_str() == to_pods.as_str() {
        let detail = "its controller gives these annotations to the pods that it creates, on which the webhook decides: \
            see `explain gateway/NAME`";
        Code::UnknownKind.diagnostic(detail)
    } else {
        let [from, to] = [&*map, to_pods].map(dotted_path);
        let detail = format!("`{INJECT}` in {from} will not reach pods: move to {to}");
        Code::Misplaced.diagnostic(detail)
    };
    Some(MisplacedAnnotation::new(&map, "inject", diagnostic))
}

/// Finds the first annotations at any depth that request a drainer, and returns their path.
fn requesting_annotations(value: &Value) -> Option<PointerBuf> {
    let inside = |token: Token<'_>, value| {
        let mut path = requesting_annotations(value)?;
        path.push_front(token);
        Some(path)
    };
    match value {
        Value::Object(fields) => {
            let annotations = fields.get("annotations").and_then(|it| it.get(INJECT));
            let is_request = |inject: &Value| match inject.as_str() {
                Some(text) => inject_requested(text) != Ok(false),
                None => !inject.is_null() && *inject != Value::Bool(false),
            };
            if annotations.is_some_and(is_request) {
                return Some(Pointer::from_static("/annotations").to_buf());
            }
            fields
                .iter()
                .find_map(|(key, value)| inside(key.into(), value))
        }
        Value::Array(items) => items
            .iter()
            .enumerate()
            .find_map(|(index, item)| inside(index.into(), item)),
        _ => None,
    }
}

/// Reports the known names of a map's keys in which they have no effect on pods.
fn without_effect(
    map: &Pointer,
    names: &[&str],
    pod_annotations: &Pointer,
) -> Option<MisplacedAnnotation> {
    let is_known = |name: &&&str| **name == "inject" || is_setting(name);
    let names = names.iter().filter(is_known).take(MAX_REPORTED_KEYS);
    let first = names.clone().next()?;
    let quoted: Vec<_> = names.map(|name| format!("`{PREFIX}{name}`")).collect();
    let [from, to] = [map, pod_annotations].map(dotted_path);
    let quoted = quoted.join(", ");
    let detail = format!("{quoted} in {from} will not reach pods: move to {to}");
    let diagnostic = Code::Misplaced.diagnostic(detail);
    Some(MisplacedAnnotation::new(map, first, diagnostic))
}

/// Reports what has no effect in the annotations of pods that request no drainer: unknown keys, or else settings. Pods
/// that request one are checked at their admission.
fn without_request(map: &Pointer, names: &[&str]) -> Vec<MisplacedAnnotation> {
    if names.contains(&"inject") {
        return Vec::new();
    }
    let report = |name: &str, diagnostic| MisplacedAnnotation::new(map, name, diagnostic);
    let unknown = |name: &&str| Some(report(name, lint_name(name)?));
    let unknown = names.iter().filter_map(unknown).take(MAX_REPORTED_KEYS);
    let unknown: Vec<_> = unknown.collect();
    match names.iter().find(|name| is_setting(name)) {
        Some(name) if unknown.is_empty() => {
            let detail = format!("`{PREFIX}{name}` is set, but no `inject` requests a drainer");
            vec![report(name, Code::SettingsWithoutInject.diagnostic(detail))]
        }
        _ => unknown,
    }
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::names::INJECT;

    fn find(version: &str, kind: &str, object: &Value) -> Vec<(String, Code)> {
        let json = object.to_string();
        let template = objects::template_path(version, kind).unwrap();
        let misplaced = find_misplaced(template, None, &serde_json::from_str(&json).unwrap());
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
            (own, inject(), None),
            (template, json!({"annotations": inject()}), None),
            (template, json!({"labels": inject()}), Some("/labels")),
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
            let object = if path == own {
                json!({ "metadata": metadata })
            } else {
                json!({"spec": {"template": {"metadata": metadata}}})
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
    fn request_on_an_unknown_kind_is_found_at_any_depth() {
        let requesting = || json!({"annotations": {INJECT: "true"}});
        let table = [
            (json!({"metadata": requesting()}), Some("/metadata")),
            (
                json!({"spec": {"jobs": [{}, {"spec": {"template": {"metadata": requesting()}}}]}}),
                Some("/spec/jobs/1/spec/template/metadata"),
            ),
            (json!({"spec": {"pod": requesting()}}), Some("/spec/pod")),
            (
                json!({"metadata": {"annotations": {"envoy-drainer.dev/port": "1"}}}),
                None,
            ),
            (json!({"metadata": {"labels": {INJECT: "true"}}}), None),
            (json!({"metadata": {"annotations": {INJECT: null}}}), None),
        ];
        for (mut value, path) in table {
            value["apiVersion"] = "jobset.x-k8s.io/v1alpha2".into();
            value["kind"] = "JobSet".into();
            let found = misplaced(&objects::objects(&value)[0], false).into_iter();
            let found = found.map(|it| (it.path.as_str().to_owned(), it.diagnostic.code));
            let path = path.map(|path| format!("{path}/annotations/envoy-drainer.dev~1inject"));
            let want = path.map(|path| (path, Code::UnknownKind));
            assert!(found.eq(want), "{value}");
        }
    }
}
