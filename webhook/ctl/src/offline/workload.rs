//! The admission decision on one object of a manifest.

use admission::keys::{INJECT, PREFIX};
use admission::{
    Code, Decision, Defaults, Diagnostic, DrainPlan, Effect, PodContext, PodTemplate, PodView,
    WorkloadObject, decide, misplaced, token,
};
use json_patch::PatchOperation;
use json_patch::jsonptr::Pointer;
use manifest::Manifest;
use serde::Serialize;
use serde_json::Value;

use super::context::ManifestContext;
use crate::object_name::ObjectName;

const ANNOTATIONS: &Pointer = Pointer::from_static("/metadata/annotations");

/// What the webhook would do with a pod, a pod template, or another object that seems to request a drainer.
#[derive(Debug)]
pub struct WorkloadResult {
    pub object: ObjectName,
    /// The line of the stream with the annotation that requests a drainer, or else where the object starts; 0 for an
    /// object of a cluster, which has no lines.
    pub line: usize,
    pub outcome: InjectionOutcome,
    /// The plan; `None` unless it is injected.
    pub plan: Option<Box<DrainPlan>>,
    /// The operations on its document that inject the drainer.
    pub(super) operations: Vec<PatchOperation>,
    /// The reasons to skip or deny it; empty otherwise.
    pub reasons: Vec<LocatedDiagnostic>,
    /// The warnings, also about annotations under our prefix in places that do not reach the pods.
    pub warnings: Vec<LocatedDiagnostic>,
}

/// What the webhook would do with a pod. The names are those of `explain -o json`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum InjectionOutcome {
    /// It gets a drainer.
    Injected,
    /// It requests a drainer, and gets none.
    Skipped,
    /// The same, since it has one already.
    #[serde(rename = "skipped")]
    AlreadyInjected,
    /// It could get a drainer, but its document cannot be changed, or has a denied pod.
    Unchanged,
    /// It would be denied.
    Denied,
    /// It requests no drainer.
    NotRequested,
    /// The same, with the annotation `inject`.
    #[serde(rename = "not-requested")]
    OptedOut,
}

/// A diagnostic, and the line of the stream that it is about.
#[derive(Debug)]
pub struct LocatedDiagnostic {
    /// The line of the first annotation that it is about, or else the object's; 0 for an object of a cluster.
    pub line: usize,
    pub diagnostic: Diagnostic,
}

// === impl WorkloadResult ===

impl WorkloadResult {
    /// Decides on an object; `None` if it has neither pods nor an annotation of ours.
    pub(super) fn decide(
        object: &WorkloadObject<'_>,
        manifest: &Manifest<'_>,
        context: &ManifestContext,
        defaults: &Defaults,
    ) -> Option<Self> {
        let name = ObjectName::new(object.kind, object.namespace, object.name);
        let lints = misplaced(object, context.injects_all).into_iter();
        let lints = lints.map(|annotation| LocatedDiagnostic {
            line: manifest.line(&object.path.concat(&annotation.path)),
            diagnostic: annotation.diagnostic,
        });
        let Some(PodTemplate { in_job, path, pod }) = object.template else {
            return Self::without_template(name, lints.collect());
        };
        let path = object.path.concat(path);
        let inject = ANNOTATIONS.with_trailing_token(INJECT);
        let is_annotated = inject.resolve(pod).is_ok_and(|value| !value.is_null());
        let position = is_annotated.then(|| path.concat(&inject));
        let line = manifest.line(position.as_ref().unwrap_or(&path));
        let (decision, mut not_strings) = if is_annotated || context.injects_all {
            let namespace = name.namespace.as_deref();
            let pod_context = PodContext {
                in_job,
                injects_all: context.injects_all,
                ..PodContext::new(namespace, token_of(&name, pod, &context.token_seed))
            };
            decide_pod(pod, &pod_context, context, defaults)
        } else {
            (Decision::NotRequested, Vec::new())
        };
        let (mut plan, mut operations) = (None, Vec::new());
        let (mut outcome, mut reasons, mut warnings) = match decision {
            Decision::NotRequested if inject.resolve(pod).is_ok() => {
                (InjectionOutcome::OptedOut, vec![], vec![])
            }
            Decision::NotRequested => (InjectionOutcome::NotRequested, vec![], vec![]),
            Decision::Inject {
                plan: injected,
                patch,
                warnings,
            } => {
                plan = Some(injected);
                operations = manifest::rebase(patch.operations(), &path);
                (InjectionOutcome::Injected, vec![], warnings)
            }
            // The annotation `status` of a skipped pod is written in clusters only: in a manifest it would outlive its
            // reason.
            Decision::Skip {
                reason, warnings, ..
            } => match reason.code {
                Code::AlreadyInjected => {
                    (InjectionOutcome::AlreadyInjected, vec![reason], warnings)
                }
                _ => (InjectionOutcome::Skipped, vec![reason], warnings),
            },
            Decision::Deny { reasons, warnings } => (InjectionOutcome::Denied, reasons, warnings),
        };
        if !not_strings.is_empty() {
            // The API server rejects the pod, whatever else was decided. Why it would be skipped is a warning then.
            if outcome != InjectionOutcome::Denied {
                warnings.splice(..0, reasons.drain(..));
            }
            not_strings.append(&mut reasons);
            (outcome, reasons) = (InjectionOutcome::Denied, not_strings);
            (plan, operations) = (None, Vec::new());
        }
        let locate = |diagnostic: Diagnostic| {
            let keys = diagnostic.keys.iter();
            let mut paths =
                keys.map(|key| ANNOTATIONS.with_trailing_token(format!("{PREFIX}{key}")));
            let annotation = paths.find(|annotation| annotation.resolve(pod).is_ok());
            // One from an alias or a merge key is in another mapping of the text.
            let line =
                annotation.map_or(line, |annotation| manifest.line(&path.concat(&annotation)));
            LocatedDiagnostic { line, diagnostic }
        };
        Some(Self {
            object: name,
            line,
            outcome,
            plan,
            operations,
            reasons: reasons.into_iter().map(locate).collect(),
            warnings: warnings.into_iter().map(locate).chain(lints).collect(),
        })
    }

    /// The result for an object whose pods are unknown: skipped if it seems to request a drainer.
    fn without_template(object: ObjectName, lints: Vec<LocatedDiagnostic>) -> Option<Self> {
        let line = lints.first()?.line;
        let is_reason = |lint: &LocatedDiagnostic| lint.diagnostic.code == Code::UnknownKind;
        let (reasons, warnings): (Vec<_>, _) = lints.into_iter().partition(is_reason);
        Some(Self {
            object,
            line,
            outcome: match reasons[..] {
                [] => InjectionOutcome::NotRequested,
                _ => InjectionOutcome::Skipped,
            },
            plan: None,
            operations: Vec::new(),
            reasons,
            warnings,
        })
    }

    /// Whether it requests a drainer, whatever the outcome.
    pub(super) fn requests_drainer(&self) -> bool {
        use InjectionOutcome::{NotRequested, OptedOut};
        !matches!(self.outcome, NotRequested | OptedOut)
    }

    /// Returns true if it requests a drainer and gets none, or if something was assumed.
    pub fn is_assumed(&self) -> bool {
        use InjectionOutcome::{Skipped, Unchanged};
        let mut warnings = self.warnings.iter();
        matches!(self.outcome, Skipped | Unchanged)
            || warnings.any(|warning| warning.diagnostic.code.effect() == Effect::Assumption)
    }

    /// Forgets the lines, for an object that is not from a file.
    pub fn forget_lines(&mut self) {
        let diagnostics = self.reasons.iter_mut().chain(&mut self.warnings);
        diagnostics.for_each(|located| located.line = 0);
        self.line = 0;
    }

    /// Records why API servers do not call the webhook for these pods, unless they request no drainer.
    pub fn skip(&mut self, diagnostic: Diagnostic) {
        if self.requests_drainer() {
            self.outcome = InjectionOutcome::Skipped;
            self.plan = None;
            let line = self.line;
            self.reasons = vec![LocatedDiagnostic { line, diagnostic }];
        }
    }

    /// Records that the document of this workload is not changed.
    pub(super) fn leave_unchanged(&mut self) {
        if self.plan.take().is_some() {
            self.outcome = InjectionOutcome::Unchanged;
        }
    }
}

/// The decision on a pod, and the diagnostics of annotations that are not strings.
fn decide_pod(
    pod: &Value,
    context: &PodContext<'_>,
    known: &ManifestContext,
    defaults: &Defaults,
) -> (Decision, Vec<Diagnostic>) {
    let (pod, not_strings) = take_non_strings(pod.clone());
    let decision = match PodView::decode(&pod.to_string()) {
        Ok(view) => {
            let configurations = known.configurations(context.namespace, &view, &pod);
            let context = PodContext {
                configurations: Some(&configurations),
                ..*context
            };
            decide(&view, &context, defaults)
        }
        Err(error) => Decision::Deny {
            reasons: vec![Code::NotAPod.diagnostic(error.to_string())],
            warnings: Vec::new(),
        },
    };
    (decision, not_strings)
}

/// Reports annotations under our prefix that are not strings, for which the API server rejects the pod: to YAML `90` is
/// a number and `off` is `false`. Returns the pod without them, and with `inject: "true"` if that is one of them, so
/// that the rest of the pod can be checked.
fn take_non_strings(mut pod: Value) -> (Value, Vec<Diagnostic>) {
    let mut diagnostics = Vec::new();
    let mut is_kept = |key: &String, value: &mut Value| {
        let Some(name) = key.strip_prefix(PREFIX) else {
            return true;
        };
        let value_type = match value {
            // The API server reads null as an empty string.
            Value::String(_) | Value::Null => return true,
            Value::Bool(_) => "boolean",
            Value::Number(_) => "number",
            Value::Array(_) => "list",
            Value::Object(_) => "mapping",
        };
        let detail = format!("`{key}` is a {value_type}, not a string: quote it");
        diagnostics.push(Code::BadValue.about(name, detail));
        *value = "true".into();
        key == INJECT
    };
    if let Ok(Value::Object(annotations)) = ANNOTATIONS.resolve_mut(&mut pod) {
        // One pass: to remove a key moves all that follow it.
        annotations.retain(&mut is_kept);
    }
    (pod, diagnostics)
}

/// The token of a pod that has no admission request: a hash of the object's kind, namespace and name, and of the value
/// of its pod template. Every run derives the same token from the same document, and only a change that rolls the pods
/// anyway changes it. Comments, quotes and the order of keys do not count. Without the seed, if there is one, it cannot
/// be derived.
fn token_of(object: &ObjectName, pod: &Value, seed: &str) -> drainer::Token {
    let mut pod = pod.clone();
    pod.sort_all_objects();
    let namespace = object.namespace.as_deref().unwrap_or_default();
    let source = [&*object.kind, namespace, &object.name, &pod.to_string()];
    let source = source.join("\0");
    // On both sides: the hash could be undone from the end that is known.
    token(format!("{seed}{source}{seed}").as_bytes())
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
            let (strings_only, diagnostics) = take_non_strings(pod.clone());
            let want = format!("`{key}` is a {value_type}, not a string: quote it");
            assert_eq!(diagnostics, [Code::BadValue.about(name, want)], "{name}");
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
            let (strings_only, diagnostics) = take_non_strings(pod.clone());
            assert_eq!((strings_only, diagnostics), (pod, vec![]), "{annotations}");
        }
    }
}
