//! How far things are: what the hooks wait for, and what `GET /status` shows.

use std::fmt;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::exit_rules::DrainOutcome;
use crate::summary::Remaining;

/// How far things are.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// What is being done.
    pub phase: DrainPhase,
    /// What was open at the last look; absent before the first one that told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open: Option<Remaining>,
    /// Why the last look told nothing; absent if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
    /// How many times a hook turned out to be of a container that was restarted alone.
    pub round: u64,
    /// Hooks called since then outlast the end of the last round, since the other signal of the pod's
    /// end may still follow; `None` if there are none.
    #[serde(skip)]
    pub(crate) hooks_kept_since: Option<Instant>,
}

/// What is being done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "name", content = "outcome")]
pub enum DrainPhase {
    /// Nothing ends.
    #[default]
    Idle,
    /// A hook or SIGTERM came, and it is not clear yet what ends.
    Waiting,
    /// Envoy is restarted alone. Its health was failed, in case the pod ends after all, unless it had
    /// lived on after such a hook before.
    Restarting,
    /// The pod ends; Envoy still serves as a healthy endpoint.
    Delaying,
    /// The pod ends; Envoy drains.
    Draining,
    /// The drain has ended, for good.
    Done(DrainOutcome),
}

// === impl DrainPhase ===

impl fmt::Display for DrainPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Idle => f.write_str("idle"),
            Self::Waiting => f.write_str("waiting"),
            Self::Restarting => f.write_str("restarting"),
            Self::Delaying => f.write_str("delaying"),
            Self::Draining => f.write_str("draining"),
            Self::Done(outcome) => write!(f, "done: {outcome}"),
        }
    }
}

/// Waits until a hook that is called now, in the current round, may return.
///
/// Every hook that comes shares this wait, and none owns it: whoever hangs up disturbs nothing.
pub(crate) async fn released(progress: &mut watch::Receiver<Progress>) {
    let called = Instant::now();
    let round = progress.borrow().round;
    let over = |now: &Progress| match now.phase {
        DrainPhase::Done(_) => true,
        _ => now.round != round && now.hooks_kept_since.is_none_or(|since| called <= since),
    };
    // An error means that the drain's task is gone, and nobody would ever answer.
    drop(progress.wait_for(over).await);
}
