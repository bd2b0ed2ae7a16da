//! Whom to tell of a pod that asked for a drainer and was admitted without one. The warnings of a pod
//! that a controller made are read by nobody, so its owner is told.

use super::answer::shortened;
use super::codes::{Code, Notice};
use super::review::Review;

/// A pod that was admitted without the drainer it asked for, as its owner is told of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undrained {
    /// The controller that made the pod.
    pub owner: Owner,
    /// Why it has no drainer.
    pub code: Code,
    /// The same in words, and what to do about it; at most [`LONGEST_NOTE`] bytes.
    pub note: String,
}

/// The controller of a pod: a ReplicaSet, a Job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Its `apiVersion`.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// The pod's namespace, which is that of its owner.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

/// In bytes. The API server refuses Events with longer notes.
/// <https://github.com/kubernetes/kubernetes/blob/master/pkg/apis/core/validation/events.go>
pub const LONGEST_NOTE: usize = 1024;

/// In bytes. No name in Kubernetes is longer, but what a request holds is not yet validated.
const LONGEST_NAME: usize = 253;

// === impl Undrained ===

impl Undrained {
    /// What is to be told of the pod, if it will exist, has an owner, and lacks what it asked for.
    pub(super) fn of(review: &Review<'_>, reason: &Notice) -> Option<Self> {
        if review.dry_run || !reason.code.is_told() {
            return None;
        }
        Some(Self {
            owner: Owner::of(review)?,
            code: reason.code,
            note: shortened(&format!("{reason:#}"), LONGEST_NOTE),
        })
    }
}

// === impl Owner ===

impl Owner {
    fn of(review: &Review<'_>) -> Option<Self> {
        let owner = review.pod()?.controller()?;
        let name = |text: Option<&str>| {
            let text = text.filter(|text| (1..=LONGEST_NAME).contains(&text.len()));
            text.map(str::to_owned)
        };
        Some(Self {
            api_version: name(owner.api_version.as_deref())?,
            kind: name(owner.kind.as_deref())?,
            namespace: name(review.namespace.as_deref())?,
            name: name(owner.name.as_deref())?,
            uid: name(owner.uid.as_deref())?,
        })
    }
}
