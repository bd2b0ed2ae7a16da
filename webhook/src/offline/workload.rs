//! The admission decision on one object of a manifest.

use std::borrow::Cow;
use std::collections::HashMap;

use json_patch::PatchOperation;
use json_patch::jsonptr::{Pointer, PointerBuf};
use serde_json::Value;

use crate::admission::settings::keys::{INJECT, PREFIX};
use crate::admission::{
    Code, Decision, Defaults, Diagnostic, MisplacedAnnotation, Patch, PodContext, PodTemplate,
    PodView, WorkloadObject, decide, misplaced, token,
};
use crate::manifest::{self, Manifest};
use crate::object_name::ObjectName;

const ANNOTATIONS: &Pointer = Pointer::from_static("/metadata/annotations");

/// The decision on a pod, a pod template, or another object that seems to request a drainer.
#[derive(Debug)]
pub struct WorkloadResult {
    /// The object.
    pub object: ObjectName,
    /// The line of the stream with the annotation that requests a drainer, or else where the object starts.
    pub line: usize,
    /// The decision on its pods.
    pub decision: Decision,
    /// Annotations under our prefix in places that do not reach the pods.
    pub lints: Vec<Lint>,
    /// The path of the pod template in the document.
    pub(super) path: PointerBuf,
    /// The lines of the pod's annotations under our prefix, by the rest of their keys.
    annotation_lines: HashMap<String, usize>,
}

/// A diagnostic about an annotation that has no effect on any pod.
#[derive(Debug)]
pub struct Lint {
    /// The line of the stream.
    pub line: usize,
    /// The diagnostic.
    pub diagnostic: Diagnostic,
}

// === impl WorkloadResult ===

impl WorkloadResult {
    /// Decides on an object; `None` if it has neither pods nor an annotation of ours.
    pub(super) fn decide(
        object: &WorkloadObject<'_>,
        manifest: &Manifest<'_>,
        defaults: &Defaults,
    ) -> Option<Self> {
        let mut misplaced = misplaced(object);
        let name = ObjectName::from(object);
        let (position, decision) = match &object.template {
            Some(template) => decide_template(template, &name, defaults),
            None => {
                let position = misplaced.first()?.path.clone();
                (position, decide_unknown_kind(&mut misplaced))
            }
        };
        let line = |path: &Pointer| manifest.line(&object.path.concat(path));
        let lints = misplaced.into_iter().map(|annotation| Lint {
            line: line(&annotation.path),
            diagnostic: annotation.diagnostic,
        });
        let (path, annotation_lines) = match &object.template {
            Some(PodTemplate { path, pod, .. }) => {
                let path = object.path.concat(path);
                let lines = annotation_lines(pod, &path, manifest);
                (path, lines)
            }
            None => Default::default(),
        };
        Some(Self {
            object: name,
            line: line(&position),
            decision,
            lints: lints.collect(),
            path,
            annotation_lines,
        })
    }

    /// The line of the first annotation that a diagnostic is about, or else the workload's.
    pub fn line_of(&self, diagnostic: &Diagnostic) -> usize {
        let keys = diagnostic.keys.iter();
        let mut lines = keys.filter_map(|key| self.annotation_lines.get(key));
        lines.next().copied().unwrap_or(self.line)
    }

    /// Whether it requests a drainer, whatever the decision.
    pub(super) fn requests_drainer(&self) -> bool {
        !matches!(self.decision, Decision::NotRequested)
    }

    /// How many nodes its drainer adds to the document.
    pub(super) fn added_node_count(&self) -> usize {
        let Decision::Inject { patch, .. } = &self.decision else {
            return 0;
        };
        let nodes = |operation: &PatchOperation| match operation {
            PatchOperation::Add(add) => manifest::count_nodes(&add.value),
            _ => 1,
        };
        patch.operations().0.iter().map(nodes).sum()
    }

    /// Whether its pods get a drainer.
    pub fn is_injected(&self) -> bool {
        matches!(self.decision, Decision::Inject { .. })
    }

    /// Whether the annotation `inject` is there and requests no drainer.
    pub fn opts_out(&self) -> bool {
        matches!(self.decision, Decision::NotRequested)
            && self.annotation_lines.contains_key("inject")
    }

    /// Whether it has a drainer already.
    pub fn has_drainer(&self) -> bool {
        matches!(&self.decision, Decision::Skip { reason, .. } if reason.code == Code::AlreadyInjected)
    }

    /// Whether its pods would be denied, so that its document is not changed.
    pub fn is_denied(&self) -> bool {
        matches!(self.decision, Decision::Deny { .. })
    }
}

/// The lines of the annotations of the pod at `path`, by their keys without our prefix.
fn annotation_lines(
    pod: &Value,
    path: &Pointer,
    manifest: &Manifest<'_>,
) -> HashMap<String, usize> {
    let Ok(Value::Object(annotations)) = ANNOTATIONS.resolve(pod) else {
        return HashMap::new();
    };
    let path = path.concat(ANNOTATIONS);
    // Annotations from an alias or a merge key are in another mapping of the text.
    let (lines, fallback) = (manifest.lines(&path), manifest.line(&path));
    let line = |key: &String| {
        let name = key.strip_prefix(PREFIX)?;
        let line = lines.get(key.as_str()).copied().unwrap_or(fallback);
        Some((name.to_owned(), line))
    };
    annotations.keys().filter_map(line).collect()
}

/// The decision on a pod template, and the path in its object of the request for a drainer, or else of the template.
fn decide_template(
    template: &PodTemplate<'_>,
    object: &ObjectName,
    defaults: &Defaults,
) -> (PointerBuf, Decision) {
    let PodTemplate { in_job, path, pod } = *template;
    let inject = ANNOTATIONS.with_trailing_token(INJECT);
    if !inject.resolve(pod).is_ok_and(|value| !value.is_null()) {
        return (path.to_buf(), Decision::NotRequested);
    }
    let context = PodContext {
        namespace: object.namespace.as_deref(),
        in_job,
        token: token_of(object, pod),
    };
    (path.concat(&inject), decide_pod(pod, &context, defaults))
}

/// The decision on an object of a kind whose pods are unknown: skipped if it seems to request a drainer.
fn decide_unknown_kind(misplaced: &mut Vec<MisplacedAnnotation>) -> Decision {
    let requests =
        |annotation: &MisplacedAnnotation| annotation.diagnostic.code == Code::UnknownKind;
    match misplaced.iter().position(requests) {
        Some(index) => Decision::Skip {
            reason: misplaced.remove(index).diagnostic,
            patch: Patch::empty(),
            warnings: Vec::new(),
        },
        None => Decision::NotRequested,
    }
}

/// The decision on a pod that has the annotation `inject`; a denial has all reasons at once.
fn decide_pod(pod: &Value, context: &PodContext<'_>, defaults: &Defaults) -> Decision {
    let (pod, mut not_strings) = take_non_strings(pod);
    let json = pod.to_string();
    let decision = match PodView::decode(&json) {
        Ok(pod) => decide(&pod, context, defaults),
        Err(error) => Decision::Deny {
            reasons: vec![Code::NotAPod.diagnostic(error.to_string())],
            warnings: Vec::new(),
        },
    };
    if not_strings.is_empty() {
        return decision;
    }
    let warnings = match decision {
        Decision::NotRequested => Vec::new(),
        Decision::Inject { warnings, .. } => warnings,
        Decision::Skip {
            reason, warnings, ..
        } => [vec![reason], warnings].concat(),
        Decision::Deny { reasons, warnings } => {
            not_strings.extend(reasons);
            warnings
        }
    };
    Decision::Deny {
        reasons: not_strings,
        warnings,
    }
}

/// Reports annotations under our prefix that are not strings, for which the API server rejects the pod: to YAML `90` is
/// a number and `off` is `false`. Returns the pod without them, and with `inject: "true"` if that is one of them, so
/// that the rest of the pod can be checked.
fn take_non_strings(pod: &Value) -> (Cow<'_, Value>, Vec<Diagnostic>) {
    let mut strings_only = Cow::Borrowed(pod);
    let mut diagnostics = Vec::new();
    let annotations = ANNOTATIONS.resolve(pod).ok().and_then(Value::as_object);
    for (key, value) in annotations.into_iter().flatten() {
        let Some(name) = key.strip_prefix(PREFIX) else {
            continue;
        };
        let value_type = match value {
            // The API server reads null as an empty string.
            Value::String(_) | Value::Null => continue,
            Value::Bool(_) => "boolean",
            Value::Number(_) => "number",
            Value::Array(_) => "list",
            Value::Object(_) => "mapping",
        };
        let detail = format!("`{key}` is a {value_type}, not a string: quote it");
        diagnostics.push(Code::BadValue.diagnostic(detail).for_annotations([name]));
        let Some(annotations) = strings_only.to_mut()["metadata"]["annotations"].as_object_mut()
        else {
            continue;
        };
        match key == INJECT {
            true => annotations.insert(key.clone(), "true".into()),
            false => annotations.shift_remove(key),
        };
    }
    (strings_only, diagnostics)
}

/// The token of a pod that has no admission request: a hash of the object's kind, namespace and name, and of the value
/// of its pod template. Every run derives the same token from the same document, and only a change that rolls the pods
/// anyway changes it. Comments, quotes and the order of keys do not count.
fn token_of(object: &ObjectName, pod: &Value) -> drainer::Token {
    let mut source = String::new();
    let ObjectName {
        kind,
        namespace,
        name,
    } = object;
    for part in [kind, namespace.as_deref().unwrap_or_default(), name] {
        source.push_str(part);
        source.push('\0');
    }
    write_canonical(pod, &mut source);
    token(source.as_bytes())
}

/// Writes JSON with sorted keys, whatever serde_json's feature `preserve_order`.
fn write_canonical(value: &Value, source: &mut String) {
    match value {
        Value::Object(entries) => {
            let mut entries: Vec<_> = entries.iter().collect();
            entries.sort_unstable_by_key(|(key, _)| *key);
            source.push('{');
            for (key, value) in entries {
                source.push_str(&Value::from(key.as_str()).to_string());
                write_canonical(value, source);
            }
            source.push('}');
        }
        Value::Array(items) => {
            source.push('[');
            for item in items {
                write_canonical(item, source);
            }
            source.push(']');
        }
        scalar => {
            source.push_str(&scalar.to_string());
            source.push(',');
        }
    }
}

// === impl ObjectName ===

impl From<&WorkloadObject<'_>> for ObjectName {
    fn from(object: &WorkloadObject<'_>) -> Self {
        Self {
            kind: object.kind.to_owned(),
            namespace: object.namespace.map(ToOwned::to_owned),
            name: object.name.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn non_string_annotations_are_bad_values() {
        let table = [
            ("inject", json!(true), "boolean"),
            ("drain-timeout", json!(90), "number"),
            ("drain-timeout", json!(1.5), "number"),
            ("drain-timeout", json!(true), "boolean"),
            ("drain-delay", json!(0), "number"),
            ("idle-exit", json!(false), "boolean"),
            ("ignore-listeners", json!([8080, "probes"]), "list"),
            ("ignore-listeners", json!({"a": 1}), "mapping"),
            ("prot", json!(9903), "number"),
            ("port", json!(0), "number"),
        ];
        for (name, value, value_type) in table {
            let key = format!("{PREFIX}{name}");
            let pod = json!({"metadata": {"annotations": {(key.as_str()): value, "other": 1}}});
            let (strings_only, diagnostics) = take_non_strings(&pod);
            let want = format!("`{key}` is a {value_type}, not a string: quote it");
            assert_eq!(
                diagnostics,
                [Code::BadValue.diagnostic(want).for_annotations([name])],
                "{name}"
            );
            let annotations = &strings_only["metadata"]["annotations"];
            let rest = (name == "inject").then(|| json!("true"));
            assert_eq!(annotations.get(&key), rest.as_ref(), "{name}");
            assert_eq!(annotations["other"], 1);
        }
    }

    #[test]
    fn string_annotations_are_kept() {
        for annotations in [
            json!({"envoy-drainer.dev/inject": "true", "envoy-drainer.dev/port": null, "a": 1}),
            json!(null),
            json!([1]),
        ] {
            let pod = json!({"metadata": {"annotations": annotations}});
            let (strings_only, diagnostics) = take_non_strings(&pod);
            assert_eq!(
                (&*strings_only, diagnostics),
                (&pod, vec![]),
                "{annotations}"
            );
        }
    }
}
