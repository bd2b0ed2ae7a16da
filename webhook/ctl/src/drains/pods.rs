//! The drain of a pod, by its deletion and by the termination message of its drainer.

use admission::Cut;
use drainer::DrainSummary;
use k8s_openapi::api::core::v1::{ContainerStateTerminated, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::record::{DrainRecord, RecordOutcome, RecordSource};
use crate::object_name::owner_name;
use crate::pod_status::drainer_status;

/// Returns the last drain of a pod; `None` if it has not been drained yet, or has no drainer.
pub fn from_pod(pod: &Pod, now: Timestamp) -> Option<DrainRecord> {
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
    let outcome = if summary.is_final {
        RecordOutcome::Ended(summary.outcome)
    } else {
        RecordOutcome::Killed
    };
    Some(DrainRecord {
        time: terminated.finished_at.clone(),
        seconds: Some(summary.seconds),
        cut: Cut::of(&summary),
        summary: Some(summary),
        ..record(pod, outcome)
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
        cut: Some(Cut::Unknown),
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
    let workload = owner_name("Pod", metadata);
    DrainRecord {
        time: None,
        namespace: metadata.namespace.clone().unwrap_or_default(),
        pod: Some(metadata.name.clone().unwrap_or_default()),
        follows: None,
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

#[cfg(test)]
mod tests {
    use admission::CutCounts;
    use serde_json::{Value, json};

    use super::*;

    const MESSAGE: &str = r#"{"outcome":"deadline","seconds":60.004,"peak":12,"remaining":{"connections":4,"requests":3,"upgrades":1,"tcp":0,"byListener":{"0.0.0.0_8080":4}}}"#;

    #[test]
    fn drain_of_a_shutdown_manager_is_read() {
        let terminated = json!({"terminated": {"exitCode": 0, "message": MESSAGE}});
        let mut web = serde_json::to_value(pod(true, &terminated, &json!({}))).unwrap();
        web["spec"]["containers"] = json!([{"name": "envoy"}, {"name": "shutdown-manager"}]);
        web["spec"]["initContainers"] = json!(null);
        web["status"]["initContainerStatuses"][0]["name"] = json!("shutdown-manager");
        let outcome = |pod: &Value| {
            let pod = serde_json::from_value(pod.clone()).unwrap();
            from_pod(&pod, Timestamp::UNIX_EPOCH).map(|it| it.outcome)
        };
        for (image, args, is_read) in [
            ("r/drainer:1", &["envoy", "shutdown-manager"][..], true),
            ("drainer@sha256:0", &["shutdown-manager", "--port=1"], true),
            ("r/gateway:1", &["envoy", "shutdown-manager"], false),
            ("r/drainer:1", &["serve"], false),
        ] {
            let manager = &mut web["spec"]["containers"][1];
            (manager["image"], manager["args"]) = (json!(image), json!(args));
            let want = is_read.then_some(RecordOutcome::Ended(drainer::DrainOutcome::Deadline));
            assert_eq!(outcome(&web), want, "{image} {args:?}");
        }
    }

    /// A pod of the Deployment `web`, as an API server sends it, with this state and last state of its drainer; deleted
    /// at 10:00:00 with a grace period of 75 s, if it is deleted.
    fn pod(is_deleted: bool, state: &Value, last_state: &Value) -> Pod {
        let mut pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": "web-5b4977cc78-2sv4r",
                "generateName": "web-5b4977cc78-",
                "namespace": "shop",
                "uid": "0c2a3c5e-6f0e-4e0c-9f57-7e3c1d1f0a11",
                "resourceVersion": "4711",
                "creationTimestamp": "2026-01-02T08:00:00Z",
                "labels": {"app": "web", "pod-template-hash": "5b4977cc78", "envoy-drainer.dev/injected": "true"},
                "ownerReferences": [{
                    "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5b4977cc78",
                    "uid": "1", "controller": true, "blockOwnerDeletion": true,
                }],
            },
            "spec": {
                "initContainers": [{"name": "envoy-drainer", "image": "drainer:1", "restartPolicy": "Always"}],
                "containers": [{"name": "envoy", "image": "envoy:1"}],
                "terminationGracePeriodSeconds": 75,
            },
            "status": {
                "phase": "Running",
                "initContainerStatuses": [{
                    "name": "envoy-drainer", "image": "drainer:1", "imageID": "", "ready": true,
                    "restartCount": 0, "started": true, "state": state, "lastState": last_state,
                }],
                "containerStatuses": [{
                    "name": "envoy", "image": "envoy:1", "imageID": "", "ready": true, "restartCount": 0,
                    "state": {"running": {"startedAt": "2026-01-02T08:00:02Z"}}, "lastState": {},
                }],
            },
        });
        if is_deleted {
            pod["metadata"]["deletionTimestamp"] = json!("2026-01-02T10:01:15Z");
            pod["metadata"]["deletionGracePeriodSeconds"] = json!(75);
        }
        serde_json::from_value(pod).unwrap()
    }

    fn running() -> Value {
        json!({"running": {"startedAt": "2026-01-02T08:00:01Z"}})
    }

    fn terminated(finished_at: &str, message: &str) -> Value {
        json!({"terminated": {
            "exitCode": 0, "reason": "Completed", "startedAt": "2026-01-02T08:00:01Z", "finishedAt": finished_at,
            "containerID": "containerd://a", "message": message,
        }})
    }

    /// The time, outcome and seconds of a pod's drain at 10:00:12.
    fn drain(pod: &Pod) -> Option<(String, String, f64)> {
        let now = "2026-01-02T10:00:12Z".parse().unwrap();
        let record = from_pod(pod, now)?;
        let time = record.time.unwrap().0.to_string();
        Some((time, record.outcome.to_string(), record.seconds.unwrap()))
    }

    #[test]
    fn drain_is_found_by_deletion_and_message() {
        let some = |time: &str, outcome: &str, seconds| {
            Some((time.to_owned(), outcome.to_owned(), seconds))
        };
        let ended = "2026-01-02T10:01:00Z";
        let (message, none) = (terminated(ended, MESSAGE), json!({}));
        let table = [
            // The pod runs.
            (false, running(), none.clone(), None),
            // It is deleted.
            (
                true,
                running(),
                none.clone(),
                some("2026-01-02T10:00:00Z", "draining", 12.0),
            ),
            // The drainer has exited, after the drain of a deleted or an evicted pod.
            (
                true,
                message.clone(),
                none.clone(),
                some(ended, "deadline", 60.004),
            ),
            (
                false,
                message.clone(),
                none.clone(),
                some(ended, "deadline", 60.004),
            ),
            // It runs again.
            (
                false,
                running(),
                message.clone(),
                some(ended, "deadline", 60.004),
            ),
            (
                true,
                running(),
                message,
                some("2026-01-02T10:00:00Z", "draining", 12.0),
            ),
            // It was killed in the drain, with an interim summary and without one, or writes what is not known here.
            (
                true,
                terminated(ended, &MESSAGE.replace("peak", r#"final":false,"peak"#)),
                none.clone(),
                some(ended, "killed", 60.004),
            ),
            (
                true,
                terminated(ended, ""),
                none.clone(),
                some(ended, "unknown", 60.0),
            ),
            (
                true,
                terminated(ended, r#"{"outcome":"bored","seconds":1}"#),
                none.clone(),
                some(ended, "unknown", 60.0),
            ),
            // It had exited before the pod was deleted.
            (
                true,
                terminated("2026-01-02T09:00:00Z", ""),
                none.clone(),
                None,
            ),
            (false, terminated(ended, "panic"), none.clone(), None),
            // It has not started.
            (
                true,
                json!({"waiting": {"reason": "PodInitializing"}}),
                none,
                None,
            ),
        ];
        for (is_deleted, state, last_state, want) in table {
            let pod = pod(is_deleted, &state, &last_state);
            assert_eq!(drain(&pod), want, "{is_deleted} {state} {last_state}");
        }
    }

    #[test]
    fn record_has_workload_and_cut() {
        let cut = Cut::Counted(CutCounts {
            requests: 2,
            upgrades: 1,
            ..CutCounts::default()
        });
        let state = terminated("2026-01-02T10:01:00Z", MESSAGE);
        let pod = pod(true, &state, &json!({}));
        let record = from_pod(&pod, Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(record.workload.unwrap().to_string(), "Deployment shop/web");
        assert_eq!(record.cut, Some(cut));
        assert_eq!(record.summary.unwrap().peak, 12);
    }

    #[test]
    fn other_containers_have_no_drain() {
        let mut pod = pod(
            true,
            &terminated("2026-01-02T10:01:00Z", MESSAGE),
            &json!({}),
        );
        let spec = pod.spec.as_mut().unwrap();
        spec.init_containers = None;
        assert_eq!(drain(&pod), None);
    }
}
