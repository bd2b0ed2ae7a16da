//! An object of a manifest, before the judge of the cluster's pods.

use std::collections::HashMap;

use json_patch::PatchOperation;
use json_patch::jsonptr::{Pointer, PointerBuf};
use serde_json::Value;

use super::{ObjectName, token, unquoted};
use crate::admission::settings::keys::{INJECT, PREFIX};
use crate::admission::{
    self, Code, Decision, Defaults, Diagnostic, MisplacedAnnotation, Patch, PodContext,
    PodTemplate, PodView, decide, misplaced,
};
use crate::manifest::{self, Manifest};

/// A pod, a pod template, or another object that seems to ask for a drainer, and what becomes of it.
#[derive(Debug)]
pub struct WorkloadResult {
    /// Whose pods these are.
    pub object: ObjectName,
    /// The line of the stream where it asks for a drainer, or else where it starts.
    pub line: usize,
    /// What becomes of it.
    pub decision: Decision,
    /// What else is in the object that looks as if it were ours.
    pub lints: Vec<Lint>,
    /// Where its pod template stands in the document.
    pub(super) path: PointerBuf,
    /// The lines of its pod's annotations, by their names under our prefix.
    annotation_lines: HashMap<String, usize>,
}

/// Something that looks like an annotation of ours and counts for no pod.
#[derive(Debug)]
pub struct Lint {
    /// The line of the stream where it stands.
    pub line: usize,
    /// What is to be said of it.
    pub diagnostic: Diagnostic,
}

/// The lines of the annotations of the pod at `path`, by their names under our prefix.
fn annotation_lines(
    pod: &Value,
    path: &Pointer,
    manifest: &Manifest<'_>,
) -> HashMap<String, usize> {
    let annotations = Pointer::from_static("/metadata/annotations");
    let Ok(Value::Object(entries)) = annotations.resolve(pod) else {
        return HashMap::new();
    };
    let path = path.concat(annotations);
    // Those that an alias or `<<` brings stand elsewhere.
    let (written, otherwise) = (manifest.lines(&path), manifest.line(&path));
    let line = |key: &String| {
        let name = key.strip_prefix(PREFIX)?;
        let line = written.get(key.as_str()).copied().unwrap_or(otherwise);
        Some((name.to_owned(), line))
    };
    entries.keys().filter_map(line).collect()
}

/// What becomes of a pod, and the place in its object where it asks, or else where it starts.
fn decide_template(
    template: &PodTemplate<'_>,
    object: &ObjectName,
    defaults: &Defaults,
) -> (PointerBuf, Decision) {
    let PodTemplate { in_job, path, pod } = *template;
    let asks = Pointer::from_static("/metadata/annotations").with_trailing_token(INJECT);
    if asks.resolve(pod).is_ok_and(|asks| !asks.is_null()) {
        let context = PodContext {
            namespace: object.namespace.as_deref(),
            in_job,
            token: token::token(object, pod),
        };
        (path.concat(&asks), decide_pod(pod, &context, defaults))
    } else {
        (path.to_buf(), Decision::NotRequested)
    }
}

/// What becomes of the pods of an object of a kind that is not known.
fn for_unknown_kind(misplaced_annotations: &mut Vec<MisplacedAnnotation>) -> Decision {
    let is_asking = |stray: &MisplacedAnnotation| stray.diagnostic.code == Code::UnknownKind;
    match misplaced_annotations.iter().position(is_asking) {
        Some(asking) => Decision::Skip {
            reason: misplaced_annotations.remove(asking).diagnostic,
            patch: Patch::empty(),
            warnings: Vec::new(),
        },
        None => Decision::NotRequested,
    }
}

/// What becomes of a pod that asks: everything that is wrong at once.
fn decide_pod(pod: &Value, context: &PodContext<'_>, defaults: &Defaults) -> Decision {
    let (pod, unquoted) = unquoted::quote_annotations(pod, context.in_job);
    let json = pod.to_string();
    let verdict = match PodView::decode(&json) {
        Ok(pod) => decide(&pod, context, defaults),
        Err(unread) => Decision::Deny {
            reasons: vec![Code::NotAPod.diagnostic(unread.to_string())],
            warnings: Vec::new(),
        },
    };
    if unquoted.is_empty() {
        return verdict;
    }
    let (found, warnings) = match verdict {
        Decision::NotRequested => (Vec::new(), Vec::new()),
        Decision::Inject { warnings, .. } => (Vec::new(), warnings),
        Decision::Skip {
            reason,
            mut warnings,
            ..
        } => {
            warnings.insert(0, reason);
            (Vec::new(), warnings)
        }
        Decision::Deny { reasons, warnings } => (reasons, warnings),
    };
    let mut reasons = unquoted;
    for reason in found {
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }
    Decision::Deny { reasons, warnings }
}

// === impl WorkloadResult ===

impl WorkloadResult {
    /// `None` for an object that has no pods and nothing that looks like ours.
    pub(super) fn decide(
        written: &admission::WorkloadObject<'_>,
        manifest: &Manifest<'_>,
        defaults: &Defaults,
    ) -> Option<Self> {
        let mut misplaced_annotations = misplaced(written);
        let admission::WorkloadObject {
            kind,
            namespace,
            name,
            ..
        } = *written;
        let object = ObjectName {
            kind: kind.to_owned(),
            namespace: namespace.map(ToOwned::to_owned),
            name: name.to_owned(),
        };
        let (place, verdict) = match &written.template {
            Some(template) => decide_template(template, &object, defaults),
            None => {
                let place = misplaced_annotations.first()?.path.clone();
                (place, for_unknown_kind(&mut misplaced_annotations))
            }
        };
        let template = written.template.as_ref();
        let hints = misplaced_annotations.into_iter().map(
            |MisplacedAnnotation {
                 path,
                 diagnostic: notice,
             }| Lint {
                line: manifest.line(&written.path.concat(&path)),
                diagnostic: notice,
            },
        );
        let path = template.map_or_else(PointerBuf::new, |template| {
            written.path.concat(template.path)
        });
        Some(Self {
            object,
            annotation_lines: template.map_or_else(HashMap::new, |template| {
                annotation_lines(template.pod, &path, manifest)
            }),
            line: manifest.line(&written.path.concat(&place)),
            decision: verdict,
            lints: hints.collect(),
            path,
        })
    }

    /// The line of the first annotation that a notice is about; where it is about none, the case's.
    #[must_use]
    pub fn line_of(&self, diagnostic: &Diagnostic) -> usize {
        let mut lines = diagnostic
            .keys
            .iter()
            .filter_map(|key| self.annotation_lines.get(key));
        lines.next().copied().unwrap_or(self.line)
    }

    /// True if it asks for a drainer, whatever becomes of that.
    pub(super) fn requests_drainer(&self) -> bool {
        !matches!(self.decision, Decision::NotRequested)
    }

    /// How many nodes its drainer adds to the document.
    pub(super) fn added_node_count(&self) -> usize {
        let Decision::Inject { patch, .. } = &self.decision else {
            return 0;
        };
        let operations = patch.operations();
        let values = operations.0.iter().map(|operation| match operation {
            PatchOperation::Add(add) => manifest::count_nodes(&add.value),
            PatchOperation::Replace(replace) => manifest::count_nodes(&replace.value),
            _ => 1,
        });
        values.sum()
    }

    /// True if the pod gets a drainer.
    #[must_use]
    pub fn is_injected(&self) -> bool {
        matches!(self.decision, Decision::Inject { .. })
    }

    /// True if the pod says that it wants no drainer.
    #[must_use]
    pub fn opts_out(&self) -> bool {
        matches!(self.decision, Decision::NotRequested)
            && self.annotation_lines.contains_key("inject")
    }

    /// True if the pod has a drainer already.
    #[must_use]
    pub fn has_drainer(&self) -> bool {
        matches!(&self.decision, Decision::Skip { reason, .. } if reason.code == Code::AlreadyInjected)
    }

    /// True if the pod asks for what it cannot have, so that its document stays as it is.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        matches!(self.decision, Decision::Deny { .. })
    }
}
