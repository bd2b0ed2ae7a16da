//! What happened to a pod, for an Event on its owner.

use admission::{Code, DRAIN_CUT, Owner, SkippedPod};
use strum::Display;

/// Something that happened to a pod, for an Event on its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerEvent {
    /// The pod's owner, or the pod itself.
    pub owner: Owner,
    /// The pod, where its name is known and `owner` is another object.
    pub pod: Option<Owner>,
    /// What happened.
    pub reason: EventReason,
    /// What happened as text, without control characters; at most [`MAX_NOTE_LEN`](admission::MAX_NOTE_LEN) bytes.
    pub note: String,
    /// What happened as data, for programs: the key of an annotation, and a value of at most
    /// [`MAX_NOTE_LEN`](admission::MAX_NOTE_LEN) bytes.
    pub annotation: Option<(&'static str, String)>,
}

/// What happened to a pod. Events on one owner for the same reason share one Event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display)]
pub enum EventReason {
    /// It was admitted without the drainer it requests.
    #[strum(to_string = "DrainerNotInjected {0}")]
    DrainerNotInjected(Code),
    /// What was changed of its injection was restored.
    #[strum(to_string = "DrainerRepaired {0}")]
    DrainerRepaired(Code),
    /// Its drain cut something.
    DrainCut,
}

// === impl OwnerEvent ===

impl From<SkippedPod> for OwnerEvent {
    fn from(pod: SkippedPod) -> Self {
        let SkippedPod { owner, code, note } = pod;
        Self {
            owner,
            // It has none yet.
            pod: None,
            reason: match code {
                Code::Repaired => EventReason::DrainerRepaired(code),
                code => EventReason::DrainerNotInjected(code),
            },
            note,
            annotation: None,
        }
    }
}

// === impl EventReason ===

impl EventReason {
    /// The Event's `reason`, one for all codes, and its `action`.
    pub(super) fn names(self) -> [&'static str; 2] {
        match self {
            Self::DrainerNotInjected(_) => ["DrainerNotInjected", "Inject"],
            Self::DrainerRepaired(_) => ["DrainerRepaired", "Inject"],
            Self::DrainCut => [DRAIN_CUT, "Drain"],
        }
    }
}
