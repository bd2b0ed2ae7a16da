//! The drain of a pod, by its deletion and by the termination message of its drainer.

use drainer::DrainSummary;
use k8s_openapi::api::core::v1::{ContainerStateTerminated, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::cut::Cut;
use super::{DrainRecord, RecordOutcome, RecordSource};
use crate::check::{drainer, drainer_status, workload_of};

/// Returns the last drain of a pod; `None` if it has not been drained yet, or has no drainer.
pub(super) fn drain_of(pod: &Pod, now: Timestamp) -> Option<DrainRecord> {
    drainer(pod)?;
    let status = drainer_status(pod)?;
    let deleted_at = deleted_at(pod);
    let state = status.state.as_ref();
    if let Some(terminated) = state.and_then(|state| state.terminated.as_ref()) {
        return ended(pod, terminated).or_else(|| killed(pod, terminated, deleted_at?));
    }
    let is_running = state.is_some_and(|state| state.running.is_some());
    if let Some(deleted_at) = deleted_at.filter(|_| is_running) {
        return Some(DrainRecord {
            time: Some(Time(deleted_at)),
            seconds: Some(seconds(deleted_at, now)),
            ..record(pod, RecordOutcome::Draining)
        });
    }
    ended(pod, status.last_state.as_ref()?.terminated.as_ref()?)
}

/// The drain that a drainer summarized when it exited.
fn ended(pod: &Pod, terminated: &ContainerStateTerminated) -> Option<DrainRecord> {
    let message = terminated.message.as_deref()?;
    let summary: DrainSummary = serde_json::from_str(message).ok()?;
    Some(DrainRecord {
        time: terminated.finished_at.clone(),
        seconds: Some(summary.seconds),
        cut: Cut::of(&summary),
        summary: Some(summary.clone()),
        ..record(pod, RecordOutcome::Ended(summary.outcome))
    })
}

/// The drain of a drainer that left no summary; `None` if it had exited before the pod was deleted, as in a completed
/// Job.
fn killed(
    pod: &Pod,
    terminated: &ContainerStateTerminated,
    deleted_at: Timestamp,
) -> Option<DrainRecord> {
    let Time(finished_at) = terminated.finished_at.clone()?;
    (finished_at >= deleted_at).then(|| DrainRecord {
        time: Some(Time(finished_at)),
        seconds: Some(seconds(deleted_at, finished_at)),
        ..record(pod, RecordOutcome::Unknown)
    })
}

/// When the pod was deleted: its `deletionTimestamp` is the end of the grace period.
fn deleted_at(pod: &Pod) -> Option<Timestamp> {
    let Time(grace_end) = pod.metadata.deletion_timestamp.as_ref()?;
    let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or(0);
    grace_end.checked_sub(SignedDuration::from_secs(grace)).ok()
}

/// The seconds from `start` to `end`, or 0.
fn seconds(start: Timestamp, end: Timestamp) -> f64 {
    end.duration_since(start).as_secs_f64().max(0.0)
}

/// A record of a pod, without what depends on the drain.
fn record(pod: &Pod, outcome: RecordOutcome) -> DrainRecord {
    let metadata = &pod.metadata;
    let workload = workload_of("Pod", metadata);
    DrainRecord {
        time: None,
        namespace: metadata.namespace.clone().unwrap_or_default(),
        pod: metadata.name.clone().unwrap_or_default(),
        uid: metadata.uid.clone(),
        workload: (workload.kind != "Pod").then_some(workload),
        outcome,
        seconds: None,
        cut: None,
        source: RecordSource::Pod,
        drains: 1,
        summary: None,
    }
}
