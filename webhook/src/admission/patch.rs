//! The change of a pod, as the JSON that the API server is sent.

use std::fmt;

use json_patch::jsonptr::PointerBuf;
use serde::Serialize;

/// A JSON patch, in its text. <https://datatracker.ietf.org/doc/html/rfc6902>
///
/// Written operation by operation as they are decided: a document in between would cost an admission
/// a fifth of its time.
#[derive(Clone, PartialEq, Eq)]
pub struct Patch(String);

/// A [`Patch`] that grows. Of the operations it has `add` alone, which replaces a member that is there.
pub(super) struct PatchBuilder(Vec<u8>);

#[derive(Serialize)]
struct Operation<V> {
    op: &'static str,
    path: PointerBuf,
    value: V,
}

/// In bytes: what an injection takes, so that the buffer need not grow.
const INITIAL_CAPACITY: usize = 4096;

// === impl Patch ===

impl Patch {
    /// The patch that changes nothing.
    #[must_use]
    pub fn empty() -> Self {
        PatchBuilder::new().into_patch()
    }

    /// True if it changes nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0 == "[]"
    }

    /// Its JSON: an array of operations.
    #[must_use]
    pub fn json(&self) -> &str {
        &self.0
    }

    /// Its operations, for those who carry them out themselves.
    #[must_use]
    pub fn operations(&self) -> json_patch::Patch {
        serde_json::from_str(&self.0).expect("it was written as a patch")
    }
}

impl fmt::Debug for Patch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// === impl PatchBuilder ===

impl PatchBuilder {
    pub(super) fn new() -> Self {
        let mut json = Vec::with_capacity(INITIAL_CAPACITY);
        json.push(b'[');
        Self(json)
    }

    /// Adds a value at a path of keys, which are escaped here.
    pub(super) fn add<const N: usize>(&mut self, path: [&str; N], value: impl Serialize) {
        if self.0.len() > 1 {
            self.0.push(b',');
        }
        let operation = Operation {
            op: "add",
            path: PointerBuf::from_tokens(path),
            value,
        };
        serde_json::to_writer(&mut self.0, &operation)
            .expect("memory takes all bytes, and Kubernetes' types have string keys");
    }

    pub(super) fn into_patch(mut self) -> Patch {
        self.0.push(b']');
        Patch(String::from_utf8(self.0).expect("JSON is written in UTF-8"))
    }
}
