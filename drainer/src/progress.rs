//! The progress of the drain: hooks wait for it, and `GET /status` returns it.

use std::fmt;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::exit_rules::DrainOutcome;
use crate::summary::Remaining;

/// The progress of the drain.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// The current phase.
    pub phase: DrainPhase,
    /// Whether the drain runs and has not failed Envoy's health yet, so that HTTP/3 clients keep their way to the pod or
    /// because of `health-failure-delay`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub health_kept: bool,
    /// Connections at the last poll with exact counts; absent before the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open: Option<Remaining>,
    /// Why the last poll had no exact counts, or before a drain why Envoy's setup cannot be read; absent if there is no
    /// reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
    /// What the drain waits for while Envoy is still a healthy endpoint, after the drain delay; absent if for nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<String>,
    /// The number of ended rounds. A round begins with the first termination signal, and ends when hooks are
    /// released although the pod is not terminating.
    pub round: u64,
    /// Hooks called after this time still wait: the last round ended just after them, so that the other signal
    /// of the pod's termination may still follow. `None` if that round released every hook.
    #[serde(skip)]
    pub(crate) hooks_kept_since: Option<Instant>,
}

/// The phase of the drain.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "name", content = "outcome")]
pub enum DrainPhase {
    /// Nothing is terminating. Its name in the status is `idle`, which has nothing to do with
    /// [`DrainOutcome::Idle`].
    #[default]
    #[serde(rename = "idle")]
    Standby,
    /// A hook or SIGTERM has arrived, and it is not clear yet what is terminating.
    Waiting,
    /// Only Envoy's hook was called, so Envoy seems to be restarting alone. Its health is failed meanwhile, in
    /// case the pod is terminating; not if Envoy kept running after an earlier call of the hook alone.
    Restarting,
    /// The pod is terminating; Envoy is still a healthy endpoint.
    Delaying,
    /// The pod is terminating; Envoy drains.
    Draining,
    /// The drain has ended.
    Done(DrainOutcome),
}

// === impl DrainPhase ===

impl fmt::Display for DrainPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Standby => f.write_str("idle"),
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
/// All hooks share one drain and none owns it, so a closed connection has no effect on the others.
pub(crate) async fn wait_for_release(progress: &mut watch::Receiver<Progress>) {
    let called = Instant::now();
    let round = progress.borrow().round;
    let is_released = |now: &Progress| match now.phase {
        DrainPhase::Done(_) => true,
        _ => now.round != round && now.hooks_kept_since.is_none_or(|since| called <= since),
    };
    // An error means that the drain's task has ended, so there is nothing to wait for.
    drop(progress.wait_for(is_released).await);
}
