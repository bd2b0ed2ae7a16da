//! The drain in an Event that the webhook wrote on a pod's workload, since something was cut.

use drainer::DrainOutcome;
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::cut::Cut;
use super::{DrainRecord, RecordOutcome, RecordSource};
use crate::kubernetes::REPORTING_CONTROLLER;
use crate::object_name::ObjectName;

/// The reason of Events about drains that cut something.
const DRAIN_CUT: &str = "DrainCut";

/// The field selector of these Events.
pub const DRAIN_CUT_FIELDS: &str = "reason=DrainCut";

/// Returns the drain of an Event: the first one, if it stands for several. `None` if it is not one of the webhook's, or
/// names no pod.
pub(super) fn drain_of(event: &Event) -> Option<DrainRecord> {
    let is_ours = event.reporting_component.as_deref() == Some(REPORTING_CONTROLLER);
    if event.reason.as_deref() != Some(DRAIN_CUT) || !is_ours {
        return None;
    }
    let regarding = &event.involved_object;
    let is_pod = |kind: &Option<String>| kind.as_deref() == Some("Pod");
    let related = event.related.as_ref();
    let pod = related
        .filter(|related| is_pod(&related.kind))
        .or_else(|| is_pod(&regarding.kind).then_some(regarding))?;
    let namespace = event.metadata.namespace.clone()?;
    let workload = (!is_pod(&regarding.kind)).then(|| ObjectName {
        kind: regarding.kind.clone().unwrap_or_default(),
        namespace: Some(namespace.clone()),
        name: regarding.name.clone().unwrap_or_default(),
    });
    let (seconds, cut) = read_note(event.message.as_deref().unwrap_or_default());
    let series = event.series.as_ref();
    Some(DrainRecord {
        time: time(event),
        namespace,
        pod: pod.name.clone()?,
        uid: pod.uid.clone(),
        workload,
        outcome: RecordOutcome::Ended(DrainOutcome::Deadline),
        seconds,
        cut,
        source: RecordSource::Event,
        drains: series.and_then(|series| series.count).unwrap_or(1).max(1),
        summary: None,
    })
}

/// When the Event, or the last one of its series, was observed.
fn time(event: &Event) -> Option<Time> {
    let last = event.series.as_ref();
    let last = last.and_then(|series| series.last_observed_time.as_ref());
    let micro = last.or(event.event_time.as_ref());
    let time = micro.map(|time| Time(time.0));
    time.or_else(|| event.last_timestamp.clone())
        .or_else(|| event.metadata.creation_timestamp.clone())
}

/// Reads the seconds and what was cut from a note such as `The drain of pod web-6d4-abc reached its deadline after 60.0 s
/// and cut 2 requests and 1 upgrade`: an Event has no other place for them.
fn read_note(note: &str) -> (Option<f64>, Option<Cut>) {
    let read = || {
        let (_, rest) = note.split_once(" reached its deadline after ")?;
        let (seconds, list) = rest.split_once(" s and cut ")?;
        Some((seconds.parse().ok()?, Cut::read(list)))
    };
    read().map_or((None, None), |(seconds, cut): (f64, _)| {
        (Some(seconds).filter(|seconds| seconds.is_finite()), cut)
    })
}
