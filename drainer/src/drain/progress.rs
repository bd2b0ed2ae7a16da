//! The progress of the drain, which `GET /status` returns.

use serde::{Deserialize, Serialize};
use strum::Display;

use super::exit_rules::DrainOutcome;
use super::summary::Remaining;
use crate::kernel::witness::{Disagreement, SoleWitness};

/// The progress of the drain.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// The current phase.
    pub phase: DrainPhase,
    /// The address of Envoy's admin interface; absent until it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admin: Option<String>,
    /// Whether the drain runs and has not failed Envoy's health yet, as `health-failure-delay` says.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub health_kept: bool,
    /// Whole seconds from the last poll to the deadline of the drain; absent unless the pod terminates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_in: Option<u64>,
    /// Connections at the last poll that counted them; absent before the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remaining: Option<Remaining>,
    /// What the last poll did not show, or why it showed nothing; before a drain, why Envoy's setup cannot be read. Absent
    /// if all is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
    /// What the kernel knows, and Envoy's statistics do not show; absent if nothing, or if it was not asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disagreement: Option<Disagreement>,
    /// The only witness of what is left; absent if Envoy and the kernel are compared, or before the first count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub witness: Option<SoleWitness>,
    /// Addresses of counted listeners at which no socket of Envoy listens, so that the kernel is not asked for them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unseen: Vec<String>,
    /// What the drain waits for while Envoy is still a healthy endpoint, after the drain delay; absent if for nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<String>,
}

/// The phase of the drain, which is the state of the drainer's state machine while it runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, Display)]
#[serde(rename_all = "kebab-case", tag = "name", content = "outcome")]
#[strum(serialize_all = "kebab-case")]
pub enum DrainPhase {
    /// Nothing is ending.
    #[default]
    Standby,
    /// A hook or SIGTERM has arrived, which proves nothing alone.
    Waiting,
    /// Only Envoy's hook is open: its health is failed, which can be undone.
    SoftDraining,
    /// The pod is ending; Envoy is still a healthy endpoint.
    Delaying,
    /// The pod is ending; Envoy drains.
    Draining,
    /// The pod is drained, and hooks return at once.
    #[strum(to_string = "released: {0}")]
    Released(DrainOutcome),
}
