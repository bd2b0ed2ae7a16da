//! An object of a manifest, before the judge of the cluster's pods.

use std::collections::HashMap;

use json_patch::PatchOperation;
use json_patch::jsonptr::{Pointer, PointerBuf};
use serde_json::Value;

use super::{Object, token, unquoted};
use crate::admission::annotations::{INJECT, PREFIX};
use crate::admission::{
    self, Code, Defaults, Facts, Notice, Patch, PodView, Stray, Template, Verdict, astray, mutate,
};
use crate::manifest::{self, Manifest};

/// A pod, a pod template, or another object that seems to ask for a drainer, and what becomes of it.
#[derive(Debug)]
pub struct Case {
    /// Whose pods these are.
    pub object: Object,
    /// The line of the stream where it asks for a drainer, or else where it starts.
    pub line: usize,
    /// What becomes of it.
    pub verdict: Verdict,
    /// What else is in the object that looks as if it were ours.
    pub hints: Vec<Hint>,
    /// Where its pod template stands in the document.
    pub(super) path: PointerBuf,
    /// The lines of its pod's annotations, by their names under our prefix.
    lines: HashMap<String, usize>,
}

/// Something that looks like an annotation of ours and counts for no pod.
#[derive(Debug)]
pub struct Hint {
    /// The line of the stream where it stands.
    pub line: usize,
    /// What is to be said of it.
    pub notice: Notice,
}

/// The lines of the annotations of the pod at `path`, by their names under our prefix.
fn lines(pod: &Value, path: &Pointer, manifest: &Manifest<'_>) -> HashMap<String, usize> {
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
fn judged(template: &Template<'_>, object: &Object, defaults: &Defaults) -> (PointerBuf, Verdict) {
    let Template { in_job, path, pod } = *template;
    let asks = Pointer::from_static("/metadata/annotations").with_trailing_token(INJECT);
    if asks.resolve(pod).is_ok_and(|asks| !asks.is_null()) {
        let facts = Facts {
            namespace: object.namespace.as_deref(),
            in_job,
            token: token::token(object, pod),
        };
        (path.concat(&asks), decide(pod, &facts, defaults))
    } else {
        (path.to_buf(), Verdict::NotAsked)
    }
}

/// What becomes of the pods of an object of a kind that is not known.
fn of_unknown_kind(strays: &mut Vec<Stray>) -> Verdict {
    let is_asking = |stray: &Stray| stray.notice.code == Code::UnknownKind;
    match strays.iter().position(is_asking) {
        Some(asking) => Verdict::Skip {
            reason: strays.remove(asking).notice,
            patch: Patch::none(),
            warnings: Vec::new(),
        },
        None => Verdict::NotAsked,
    }
}

/// What becomes of a pod that asks: everything that is wrong at once.
fn decide(pod: &Value, facts: &Facts<'_>, defaults: &Defaults) -> Verdict {
    let (pod, unquoted) = unquoted::quoted(pod, facts.in_job);
    let json = pod.to_string();
    let verdict = match PodView::decode(&json) {
        Ok(pod) => mutate(&pod, facts, defaults),
        Err(unread) => Verdict::Deny {
            reasons: vec![Code::NotAPod.about(unread.to_string())],
            warnings: Vec::new(),
        },
    };
    if unquoted.is_empty() {
        return verdict;
    }
    let (found, warnings) = match verdict {
        Verdict::NotAsked => (Vec::new(), Vec::new()),
        Verdict::Inject { warnings, .. } => (Vec::new(), warnings),
        Verdict::Skip {
            reason,
            mut warnings,
            ..
        } => {
            warnings.insert(0, reason);
            (Vec::new(), warnings)
        }
        Verdict::Deny { reasons, warnings } => (reasons, warnings),
    };
    let mut reasons = unquoted;
    for reason in found {
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }
    Verdict::Deny { reasons, warnings }
}

// === impl Case ===

impl Case {
    /// `None` for an object that has no pods and nothing that looks like ours.
    pub(super) fn decide(
        written: &admission::Object<'_>,
        manifest: &Manifest<'_>,
        defaults: &Defaults,
    ) -> Option<Self> {
        let mut strays = astray(written);
        let admission::Object {
            kind,
            namespace,
            name,
            ..
        } = *written;
        let object = Object {
            kind: kind.to_owned(),
            namespace: namespace.map(ToOwned::to_owned),
            name: name.to_owned(),
        };
        let (place, verdict) = match &written.template {
            Some(template) => judged(template, &object, defaults),
            None => {
                let place = strays.first()?.path.clone();
                (place, of_unknown_kind(&mut strays))
            }
        };
        let template = written.template.as_ref();
        let hints = strays.into_iter().map(|Stray { path, notice }| Hint {
            line: manifest.line(&written.path.concat(&path)),
            notice,
        });
        let path = template.map_or_else(PointerBuf::new, |template| {
            written.path.concat(template.path)
        });
        Some(Self {
            object,
            lines: template.map_or_else(HashMap::new, |template| {
                lines(template.pod, &path, manifest)
            }),
            line: manifest.line(&written.path.concat(&place)),
            verdict,
            hints: hints.collect(),
            path,
        })
    }

    /// The line of the first annotation that a notice is about; where it is about none, the case's.
    #[must_use]
    pub fn line_of(&self, notice: &Notice) -> usize {
        let mut lines = notice.keys.iter().filter_map(|key| self.lines.get(key));
        lines.next().copied().unwrap_or(self.line)
    }

    /// True if it asks for a drainer, whatever becomes of that.
    pub(super) fn asks(&self) -> bool {
        !matches!(self.verdict, Verdict::NotAsked)
    }

    /// How many nodes its drainer adds to the document.
    pub(super) fn nodes(&self) -> usize {
        let Verdict::Inject { patch, .. } = &self.verdict else {
            return 0;
        };
        let operations = patch.operations();
        let values = operations.0.iter().map(|operation| match operation {
            PatchOperation::Add(add) => manifest::count(&add.value),
            PatchOperation::Replace(replace) => manifest::count(&replace.value),
            _ => 1,
        });
        values.sum()
    }

    /// True if the pod gets a drainer.
    #[must_use]
    pub fn is_injected(&self) -> bool {
        matches!(self.verdict, Verdict::Inject { .. })
    }

    /// True if the pod says that it wants no drainer.
    #[must_use]
    pub fn declines(&self) -> bool {
        matches!(self.verdict, Verdict::NotAsked) && self.lines.contains_key("inject")
    }

    /// True if the pod has a drainer already.
    #[must_use]
    pub fn has_one(&self) -> bool {
        matches!(&self.verdict, Verdict::Skip { reason, .. } if reason.code == Code::AlreadyInjected)
    }

    /// True if the pod asks for what it cannot have, so that its document stays as it is.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        matches!(self.verdict, Verdict::Deny { .. })
    }
}
