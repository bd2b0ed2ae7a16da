//! Annotations of a workload that have no effect: in the wrong place, unknown, without a request for a drainer, or
//! on the pods of an unknown kind.

use std::fmt;

use json_patch::jsonptr::{Pointer, PointerBuf};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::objects;
use super::objects::WorkloadObject;
use super::view::{WorkloadView, decode_or_default};
use crate::admission::diagnostics::{Code, Diagnostic};
use crate::admission::names::{INJECT, PREFIX};
use crate::admission::pod::{Text, from_objects};
use crate::admission::settings::keys::{self, MAX_REPORTED_KEYS};

/// An annotation that has no effect where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MisplacedAnnotation {
    /// Its path in the object.
    pub path: PointerBuf,
    /// What is wrong with it.
    pub diagnostic: Diagnostic,
}

/// The keys under [`PREFIX`] in one map.
#[derive(Default)]
struct PrefixedKeys<'a> {
    /// The keys in their order, at most [`MAX_KEYS`].
    keys: Vec<Text<'a>>,
    /// How many there are.
    count: usize,
    /// Whether [`INJECT`] is among them and not `null`.
    requests_injection: bool,
}

/// The maps of a `metadata` that are checked.
#[derive(Default, Deserialize)]
#[serde(remote = "Self", bound = "'de: 'a")]
struct MetadataMaps<'a> {
    annotations: Option<&'a RawValue>,
    labels: Option<&'a RawValue>,
}

from_objects! { MetadataMaps<'a> }

/// Maximum number of keys of one map that are kept. More are an attack.
const MAX_KEYS: usize = 128;

/// Finds annotations of an object that have no effect, at most 32.
pub fn misplaced(object: &WorkloadObject<'_>) -> Vec<MisplacedAnnotation> {
    let json = object.value.to_string();
    let view = serde_json::from_str(&json).ok();
    view.map_or_else(Vec::new, |view| {
        find_misplaced(object.version, object.kind, &view)
    })
}

/// Finds annotations of a workload that have no effect, at most 32.
pub(super) fn find_misplaced(
    version: &str,
    kind: &str,
    workload: &WorkloadView<'_>,
) -> Vec<MisplacedAnnotation> {
    let mut misplaced = match objects::template_path(version, kind) {
        Some(template) => in_known_kind(workload, template),
        None => in_unknown_kind(version, kind, workload)
            .into_iter()
            .collect(),
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
    let (map, _) = [template, own].into_iter().find_map(|(path, metadata)| {
        let [_, annotations, _] = keys_by_map(path, metadata);
        Some(annotations).filter(|(_, keys)| keys.requests_injection)
    })?;
    let detail = format!("how a {kind} ({version}) creates its pods is not known");
    Some(MisplacedAnnotation::new(
        &map,
        INJECT,
        Code::UnknownKind.diagnostic(detail),
    ))
}

/// Checks every `metadata` of an object that has its pod template at this path.
fn in_known_kind(workload: &WorkloadView<'_>, template: &Pointer) -> Vec<MisplacedAnnotation> {
    let pod_annotations = template.concat(Pointer::from_static("/metadata/annotations"));
    let mut misplaced = Vec::new();
    for (path, metadata) in workload.all_metadata() {
        for (map, keys) in keys_by_map(path, metadata) {
            match map == pod_annotations {
                true => misplaced.extend(keys.on_pod(&map)),
                false => misplaced.extend(keys.without_effect(&map, &pod_annotations)),
            }
        }
    }
    misplaced
}

/// Reads the keys in a `metadata` itself, in its annotations and in its labels, each with the path of the map.
fn keys_by_map<'a>(
    path: &Pointer,
    metadata: Option<&'a RawValue>,
) -> [(PointerBuf, PrefixedKeys<'a>); 3] {
    let MetadataMaps {
        annotations,
        labels,
    } = decode_or_default(metadata);
    [
        (path.to_buf(), decode_or_default(metadata)),
        (
            path.with_trailing_token("annotations"),
            decode_or_default(annotations),
        ),
        (
            path.with_trailing_token("labels"),
            decode_or_default(labels),
        ),
    ]
}

/// Formats a path as Kubernetes' errors do: `spec.template.metadata`.
fn dotted_path(path: &Pointer) -> String {
    let tokens: Vec<_> = path
        .tokens()
        .map(|token| token.decoded().into_owned())
        .collect();
    tokens.join(".")
}

// === impl MisplacedAnnotation ===

impl MisplacedAnnotation {
    fn new(map: &Pointer, key: &str, diagnostic: Diagnostic) -> Self {
        Self {
            path: map.with_trailing_token(key),
            diagnostic,
        }
    }
}

// === impl PrefixedKeys ===

impl PrefixedKeys<'_> {
    /// Reports the known keys of a map in which they have no effect on pods.
    fn without_effect(
        &self,
        map: &Pointer,
        pod_annotations: &Pointer,
    ) -> Option<MisplacedAnnotation> {
        let keys = self.keys.iter().filter(|key| {
            let name = key.strip_prefix(PREFIX).unwrap_or_default();
            ***key == *INJECT || keys::is_setting(name)
        });
        let keys: Vec<_> = keys.take(MAX_REPORTED_KEYS).collect();
        let quoted: Vec<_> = keys.iter().map(|key| format!("`{}`", &***key)).collect();
        let detail = format!(
            "{} in {} will not reach pods: move to {}",
            quoted.join(", "),
            dotted_path(map),
            dotted_path(pod_annotations)
        );
        let diagnostic = Code::Misplaced.diagnostic(detail);
        Some(MisplacedAnnotation::new(map, keys.first()?, diagnostic))
    }

    /// Reports what has no effect in the annotations of pods that request no drainer: unknown keys, or else
    /// settings. Pods that request one are checked at their admission.
    fn on_pod(&self, map: &Pointer) -> Vec<MisplacedAnnotation> {
        if self.requests_injection {
            return Vec::new();
        }
        let report = |key: &Text<'_>, diagnostic| MisplacedAnnotation::new(map, key, diagnostic);
        let name = |key: &Text<'_>| key.strip_prefix(PREFIX).unwrap_or_default().to_owned();
        let unknown: Vec<_> = self
            .keys
            .iter()
            .filter_map(|key| Some(report(key, keys::lint_name(&name(key), self.count)?)))
            .filter(|misplaced| misplaced.diagnostic.code == Code::UnknownKey)
            .collect();
        let setting = self.keys.iter().find(|key| keys::is_setting(&name(key)));
        match setting {
            Some(key) if unknown.is_empty() => {
                let detail = format!("`{}` is set, but no `inject` requests a drainer", &**key);
                vec![report(key, Code::SettingsAlone.diagnostic(detail))]
            }
            _ => unknown,
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for PrefixedKeys<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PrefixedKeysVisitor;

        impl<'de> Visitor<'de> for PrefixedKeysVisitor {
            type Value = PrefixedKeys<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut keys = PrefixedKeys::default();
                while let Some(key) = map.next_key::<Text<'de>>()? {
                    let value: &RawValue = map.next_value()?;
                    if !key.starts_with(PREFIX) {
                        continue;
                    }
                    keys.requests_injection |= *key == *INJECT && value.get() != "null";
                    keys.count += 1;
                    if keys.keys.len() < MAX_KEYS {
                        keys.keys.push(key);
                    }
                }
                Ok(keys)
            }
        }

        deserializer.deserialize_map(PrefixedKeysVisitor)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

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
            (own, json!([inject()]), None),
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
            (format!("{job}/spec/template/{key}"), Code::SettingsAlone),
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

    #[test]
    fn keys_of_a_map_are_bounded() {
        let keys = (0..200).map(|n| (format!("{PREFIX}{n}"), json!("")));
        let json = Value::Object(keys.collect()).to_string();
        let keys: PrefixedKeys<'_> = serde_json::from_str(&json).unwrap();
        assert_eq!((keys.keys.len(), keys.count), (MAX_KEYS, 200));
    }
}
