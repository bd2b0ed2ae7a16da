//! One drain, as it was found.

use admission::Cut;
use drainer::{DrainOutcome, DrainSummary};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Serialize;

use crate::object_name::ObjectName;

/// A drain that runs or has ended. Serialized, it is a line of `drains -o json`, whose members are stable.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DrainRecord {
    /// When it ended; while it runs, when the pod was deleted.
    pub time: Option<Time>,
    pub namespace: String,
    /// The pod's name; `None` for the drains that an Event counts after its first one.
    pub pod: Option<String>,
    /// The pod of the Event's first drain, for those that it counts after that.
    #[serde(skip)]
    pub follows: Option<String>,
    /// The uid of either pod, if it is known: a StatefulSet gives the next pod the same name.
    #[serde(skip)]
    pub uid: Option<String>,
    /// The pod's workload; `None` for a pod without one.
    pub workload: Option<ObjectName>,
    /// How far it is, or why it ended.
    pub outcome: RecordOutcome,
    /// Its duration so far, or in all, in seconds.
    pub seconds: Option<f64>,
    /// What it cut; `None` for nothing, and while it runs.
    pub cut: Option<Cut>,
    /// Where it was found.
    pub source: RecordSource,
    /// How many drains these are: 1, unless an Event counts them after its first one.
    pub drains: i32,
    /// The drainer's summary; that of an Event is without texts. `None` while it runs, and where none can be read.
    pub summary: Option<DrainSummary>,
}

// === impl DrainRecord ===

impl DrainRecord {
    /// Whether it runs, or ended at this time or later.
    pub fn is_since(&self, start: &Time) -> bool {
        self.outcome == RecordOutcome::Draining
            || self.time.as_ref().is_none_or(|time| time >= start)
    }

    /// Whether it cut something, or may have.
    pub fn has_cut(&self) -> bool {
        // There is an Event only for such drains.
        self.cut.is_some() || self.source == RecordSource::Event
    }
}

/// How far a drain is, or why it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, strum::Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum RecordOutcome {
    /// It runs.
    Draining,
    /// The pod was killed before it ended: its summary is an interim one.
    Killed,
    /// The drainer exited without a summary: it was killed, had no Envoy to drain, or is of another version.
    Unknown,
    /// It ended for this reason.
    #[serde(untagged)]
    #[strum(to_string = "{0}")]
    Ended(DrainOutcome),
}

/// Where a drain was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RecordSource {
    /// In the pod itself.
    Pod,
    /// In an Event on its workload.
    Event,
}
