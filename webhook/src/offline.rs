//! Pods in manifests, before the same judge as those in a cluster.

mod astray;
mod remark;
mod token;
mod unquoted;

pub use remark::{Remark, RemarkKind};

use std::fmt;

use json_patch::Patch;
use json_patch::jsonptr::{Pointer, PointerBuf};
use serde_json::Value;

use crate::admission::annotations::INJECT;
use crate::admission::{Code, Defaults, Facts, Notice, PodView, Verdict, mutate};
use crate::manifest::{self, CannotEdit, Document, Manifest, Template, Unreadable};
use astray::{Stray, astray};

/// A stream of documents.
#[derive(Debug)]
pub struct Input {
    /// The file's path, or `stdin`.
    pub name: String,
    /// All of it.
    pub bytes: Vec<u8>,
}

/// A document and what becomes of its pods.
#[derive(Debug)]
pub struct Review<'a> {
    /// Its pods and pod templates, and what else seems to ask for a drainer, in the order of the text.
    pub cases: Vec<Case>,
    manifest: Manifest<'a>,
}

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
    path: PointerBuf,
}

/// Something that looks like an annotation of ours and counts for no pod.
#[derive(Debug)]
pub struct Hint {
    /// The line of the stream where it stands.
    pub line: usize,
    /// What is to be said of it.
    pub notice: Notice,
}

/// An object as people name it: `Deployment shop/front`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// Its kind.
    pub kind: String,
    /// Its namespace, if the document says it.
    pub namespace: Option<String>,
    /// Its name, or what the API server will begin it with.
    pub name: String,
}

// === impl Review ===

impl<'a> Review<'a> {
    /// Reads a document and decides what becomes of each of its pods.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn of(document: &Document<'a>, defaults: &Defaults) -> Result<Self, Unreadable> {
        let manifest = Manifest::read(document)?;
        let cases = manifest::objects(manifest.value())
            .into_iter()
            .filter_map(|object| Case::decide(&object, &manifest, defaults))
            .collect();
        Ok(Self { cases, manifest })
    }

    /// The document's text with the drainers of all its pods; `None` if none gets one.
    ///
    /// # Errors
    /// Where the text cannot take a change without changing something else.
    pub fn injected(&self) -> Result<Option<String>, CannotEdit> {
        let mut operations = Vec::new();
        for case in &self.cases {
            // A skip's annotation `status` is the cluster's to write: in a manifest it would outlive
            // its reason.
            if let Verdict::Inject { patch, .. } = &case.verdict {
                operations.extend(manifest::rebased(patch.clone(), &case.path));
            }
        }
        match &operations[..] {
            [] => Ok(None),
            operations => self.manifest.patched(operations).map(Some),
        }
    }
}

// === impl Case ===

impl Case {
    /// `None` for an object that has no pods and nothing that looks like ours.
    fn decide(
        written: &manifest::Object<'_>,
        manifest: &Manifest<'_>,
        defaults: &Defaults,
    ) -> Option<Self> {
        let mut strays = astray(written);
        let manifest::Object {
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
        Some(Self {
            object,
            line: manifest.line(&written.path.concat(&place)),
            verdict,
            hints: hints.collect(),
            path: template.map_or_else(PointerBuf::new, |template| {
                written.path.concat(template.path)
            }),
        })
    }

    /// True if the pod gets a drainer.
    #[must_use]
    pub fn is_injected(&self) -> bool {
        matches!(self.verdict, Verdict::Inject { .. })
    }

    /// True if the pod asks for what it cannot have, so that its document stays as it is.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        matches!(self.verdict, Verdict::Deny { .. })
    }
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
            patch: Patch(Vec::new()),
            warnings: Vec::new(),
        },
        None => Verdict::NotAsked,
    }
}

fn decide(pod: &Value, facts: &Facts<'_>, defaults: &Defaults) -> Verdict {
    let (pod, unquoted) = unquoted::quoted(pod, facts.in_job);
    let json = pod.to_string();
    let verdict = match PodView::decode(&json) {
        Ok(pod) => mutate(&pod, facts, defaults),
        Err(error) => {
            let message = error.to_string();
            // The position is one in JSON that nobody has seen.
            let message = message.split(" at line ").next().unwrap_or_default();
            Verdict::Deny {
                reasons: vec![Code::NotAPod.about(message)],
                warnings: Vec::new(),
            }
        }
    };
    if unquoted.is_empty() {
        return verdict;
    }
    let (found, warnings) = match verdict {
        Verdict::Deny { reasons, warnings } => (reasons, warnings),
        Verdict::Inject { warnings, .. } | Verdict::Skip { warnings, .. } => (Vec::new(), warnings),
        Verdict::NotAsked => (Vec::new(), Vec::new()),
    };
    let mut reasons = unquoted;
    for reason in found {
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }
    Verdict::Deny { reasons, warnings }
}

// === impl Object ===

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.kind)?;
        if let Some(namespace) = &self.namespace {
            write!(f, "{namespace}/")?;
        }
        f.write_str(&self.name)
    }
}
