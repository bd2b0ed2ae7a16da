//! Pods in manifests, before the same judge as those in a cluster.

mod remark;
mod token;

pub use remark::{Remark, RemarkKind};

use std::fmt;

use json_patch::jsonptr::{Pointer, PointerBuf};
use serde_json::Value;

use crate::admission::annotations::{INJECT, PREFIX};
use crate::admission::{Defaults, Facts, PodView, Verdict, mutate};
use crate::manifest::{self, CannotEdit, Document, Manifest, Template, Unreadable};

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
    /// Its pods and pod templates, in the order of the text.
    pub cases: Vec<Case>,
    manifest: Manifest<'a>,
}

/// A pod, or a pod template, and what becomes of it.
#[derive(Debug)]
pub struct Case {
    /// Whose pods these are.
    pub object: Object,
    /// The line of the stream where it asks for a drainer, or else where it starts.
    pub line: usize,
    /// What becomes of it.
    pub verdict: Result<Verdict, NotAPod>,
    path: PointerBuf,
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

/// Why something that asks for a drainer is not a pod, for the API server either.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAPod {
    /// Annotations are texts, and `true` without quotes is none.
    #[error("the annotation `{key}` is not a text: write \"{value}\", with the quotes")]
    Annotation {
        /// Its key.
        key: String,
        /// Its value, as JSON.
        value: String,
    },
    /// A field is not of its type.
    #[error("not a pod: {0}")]
    Field(String),
}

// === impl Review ===

impl<'a> Review<'a> {
    /// Reads a document and decides what becomes of each of its pods.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn of(document: &Document<'a>, defaults: &Defaults) -> Result<Self, Unreadable> {
        let manifest = Manifest::read(document)?;
        let cases = manifest::templates(manifest.value())
            .into_iter()
            .map(|template| Case::decide(template, &manifest, defaults))
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
            if let Ok(Verdict::Inject { patch, .. }) = &case.verdict {
                operations.extend(manifest::rebased(patch.operations(), &case.path));
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
    fn decide(template: Template<'_>, manifest: &Manifest<'_>, defaults: &Defaults) -> Self {
        let Template {
            kind,
            namespace,
            name,
            in_job,
            path,
            pod,
        } = template;
        let object = Object {
            kind: kind.to_owned(),
            namespace: namespace.map(ToOwned::to_owned),
            name: name.to_owned(),
        };
        let asks = Pointer::from_static("/metadata/annotations").with_trailing_token(INJECT);
        let (line, verdict) = if asks.resolve(pod).is_ok_and(|asks| !asks.is_null()) {
            let facts = Facts {
                namespace,
                in_job,
                token: token::token(&object, pod),
            };
            let line = manifest.line(&path.concat(&asks));
            (line, decide(pod, &facts, defaults))
        } else {
            (manifest.line(&path), Ok(Verdict::NotAsked))
        };
        Self {
            object,
            line,
            verdict,
            path,
        }
    }

    /// True if the pod gets a drainer.
    #[must_use]
    pub fn is_injected(&self) -> bool {
        matches!(&self.verdict, Ok(Verdict::Inject { .. }))
    }

    /// True if the pod asks for what it cannot have, so that its document stays as it is.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        matches!(&self.verdict, Err(_) | Ok(Verdict::Deny { .. }))
    }
}

fn decide(pod: &Value, facts: &Facts<'_>, defaults: &Defaults) -> Result<Verdict, NotAPod> {
    let json = pod.to_string();
    let view = PodView::decode(&json).map_err(|error| NotAPod::of(pod, &error))?;
    Ok(mutate(&view, facts, defaults))
}

// === impl NotAPod ===

impl NotAPod {
    fn of(pod: &Value, error: &serde_json::Error) -> Self {
        let annotations = pod
            .pointer("/metadata/annotations")
            .and_then(Value::as_object);
        let no_text = annotations
            .into_iter()
            .flatten()
            .find(|(key, value)| key.starts_with(PREFIX) && !value.is_string() && !value.is_null());
        match no_text {
            Some((key, value)) => Self::Annotation {
                key: key.clone(),
                value: value.to_string(),
            },
            None => {
                let message = error.to_string();
                // The position is one in JSON that nobody has seen.
                let message = message.split(" at line ").next().unwrap_or_default();
                Self::Field(message.to_owned())
            }
        }
    }
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
