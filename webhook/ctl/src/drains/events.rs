//! The drain in an Event that the webhook wrote on a pod's workload, since something was cut.

use admission::{Cut, DRAIN_CUT, REPORTING_CONTROLLER, SUMMARY_ANNOTATION};
use drainer::DrainSummary;
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use super::record::{DrainRecord, RecordOutcome, RecordSource};
use crate::object_name::ObjectName;

/// The maximum length of a summary that is read, in bytes: that of a termination message. Any account that may create
/// Events in the namespace may have written it.
const MAX_SUMMARY_LEN: usize = 4096;

/// Returns the drains of an Event: the first one, and one record for all that it counts after that, of which it says
/// only when the last one ended. Empty if it is not one of the webhook's: it names no pod, or has no summary that can
/// be read.
pub(super) fn drains_of(event: &Event) -> impl Iterator<Item = DrainRecord> {
    let first = first_drain_of(event);
    let later = first.as_ref().and_then(|first| later_drains(event, first));
    first.into_iter().chain(later)
}

fn first_drain_of(event: &Event) -> Option<DrainRecord> {
    let is_ours = event.reporting_component.as_deref() == Some(REPORTING_CONTROLLER);
    if event.reason.as_deref() != Some(DRAIN_CUT) || !is_ours {
        return None;
    }
    let regarding = &event.involved_object;
    let mut objects = event.related.iter().chain([regarding]);
    let pod = objects.find(|object| object.kind.as_deref() == Some("Pod"))?;
    let namespace = event.metadata.namespace.clone()?;
    let [kind, name] =
        [&regarding.kind, &regarding.name].map(|it| it.as_deref().unwrap_or_default());
    let workload = ObjectName::new(kind, Some(&namespace), name);
    let json = event.annotations().get(SUMMARY_ANNOTATION);
    let json = json.filter(|json| json.len() <= MAX_SUMMARY_LEN)?;
    let summary: DrainSummary = serde_json::from_str(json).ok()?;
    Some(DrainRecord {
        time: time(event),
        namespace,
        pod: Some(pod.name.clone()?),
        follows: None,
        uid: pod.uid.clone(),
        workload: (kind != "Pod").then_some(workload),
        outcome: RecordOutcome::Ended(summary.outcome),
        seconds: Some(summary.seconds),
        cut: Cut::of(&summary),
        source: RecordSource::Event,
        drains: 1,
        summary: Some(summary),
    })
}

fn later_drains(event: &Event, first: &DrainRecord) -> Option<DrainRecord> {
    let series = event.series.as_ref()?;
    let drains = series.count.filter(|count| *count > 1)? - 1;
    Some(DrainRecord {
        time: series.last_observed_time.as_ref().map(|time| Time(time.0)),
        pod: None,
        follows: first.pod.clone(),
        seconds: None,
        cut: Some(Cut::Unknown),
        summary: None,
        drains,
        ..first.clone()
    })
}

/// When the Event was observed.
fn time(event: &Event) -> Option<Time> {
    let time = event.event_time.as_ref().map(|time| Time(time.0));
    time.or_else(|| event.last_timestamp.clone())
        .or_else(|| event.metadata.creation_timestamp.clone())
}

#[cfg(test)]
mod tests {
    use drainer::DrainOutcome;
    use serde_json::{Value, json};

    use super::*;

    const SUMMARY: &str = r#"{"outcome":"deadline","seconds":60.0,"peak":9,"remaining":{"connections":3,"requests":3,"upgrades":1,"tcp":0,"byListener":{}}}"#;

    /// An Event that was written as `events.k8s.io/v1`, as an API server sends it as `v1`; changed.
    fn event(change: impl FnOnce(&mut Value)) -> Event {
        let mut event = json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": "3f2a.59682f00",
                "namespace": "shop",
                "creationTimestamp": "2026-01-02T10:01:01Z",
                "annotations": {"envoy-drainer.dev/drain-summary": SUMMARY},
            },
            "type": "Warning",
            "reason": "DrainCut",
            "action": "Drain",
            "message": "The drain of pod web-6d4-abc reached its deadline after 60.0 s and cut 2 requests and 1 upgrade",
            "involvedObject": {
                "apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": "web", "uid": "3f2a",
            },
            "related": {"apiVersion": "v1", "kind": "Pod", "namespace": "shop", "name": "web-6d4-abc", "uid": "9"},
            "eventTime": "2026-01-02T10:01:00.500000Z",
            "firstTimestamp": null,
            "lastTimestamp": null,
            "source": {},
            "reportingComponent": "envoy-drainer.dev/webhook",
            "reportingInstance": "webhook-1",
        });
        change(&mut event);
        serde_json::from_value(event).unwrap()
    }

    /// The only drain of an Event.
    fn drain_of(event: &Event) -> Option<DrainRecord> {
        let mut drains = drains_of(event);
        let drain = drains.next();
        assert_eq!(drains.next(), None);
        drain
    }

    #[test]
    fn event_becomes_a_record() {
        let record = drain_of(&event(|_| {})).unwrap();
        let want = json!({
            "time": "2026-01-02T10:01:00Z",
            "namespace": "shop",
            "pod": "web-6d4-abc",
            "workload": {"kind": "Deployment", "namespace": "shop", "name": "web"},
            "outcome": "deadline",
            "seconds": 60.0,
            "cut": {"requests": 2, "upgrades": 1, "tcp": 0, "connections": 0},
            "source": "event",
            "drains": 1,
            "summary": serde_json::from_str::<Value>(SUMMARY).unwrap(),
        });
        assert_eq!(serde_json::to_value(&record).unwrap(), want);
    }

    #[test]
    fn event_of_an_unreachable_envoy_says_so() {
        let summary = r#"{"outcome":"unreachable","seconds":10.0,"peak":0}"#;
        let record = drain_of(&event(|event| {
            event["metadata"]["annotations"][SUMMARY_ANNOTATION] = json!(summary);
        }));
        let outcome = record.unwrap().outcome;
        assert_eq!(outcome, RecordOutcome::Ended(DrainOutcome::Unreachable));
    }

    #[test]
    fn events_without_a_readable_summary_are_ignored() {
        let listener = "9".repeat(MAX_SUMMARY_LEN);
        let long = SUMMARY.replace("{}", &json!({listener: 1}).to_string());
        assert!(serde_json::from_str::<DrainSummary>(&long).is_ok());
        for summary in ["{}", "odd", &long] {
            let annotations = json!({ SUMMARY_ANNOTATION: summary });
            let event = event(|event| event["metadata"]["annotations"] = annotations);
            assert_eq!(drain_of(&event), None);
        }
        let event = event(|event| event["metadata"]["annotations"] = json!(null));
        assert_eq!(drain_of(&event), None);
    }

    #[test]
    fn series_is_its_first_drain_and_the_later_ones() {
        let series = |count: i32| {
            event(|event| {
                event["series"] =
                    json!({"count": count, "lastObservedTime": "2026-01-02T10:05:00.000000Z"});
            })
        };
        let single = drain_of(&event(|_| {}));
        assert_eq!(drain_of(&series(1)), single);
        let [first, later] = &drains_of(&series(4)).collect::<Vec<_>>()[..] else {
            panic!("two records")
        };
        assert_eq!(Some(first), single.as_ref());
        let want = json!({
            "time": "2026-01-02T10:05:00Z",
            "namespace": "shop",
            "pod": null,
            "workload": {"kind": "Deployment", "namespace": "shop", "name": "web"},
            "outcome": "deadline",
            "seconds": null,
            "cut": "unknown",
            "source": "event",
            "drains": 3,
            "summary": null,
        });
        assert_eq!(serde_json::to_value(later).unwrap(), want);
    }

    #[test]
    fn pod_without_workload_is_what_the_event_regards() {
        let record = drain_of(&event(|event| {
            event["involvedObject"] = event["related"].clone();
        }));
        let record = record.unwrap();
        assert_eq!(
            (record.pod.as_deref(), record.workload),
            (Some("web-6d4-abc"), None)
        );
    }

    #[test]
    fn other_events_are_ignored() {
        type Change = fn(&mut Value);
        let changes: [Change; 4] = [
            |event| event["reason"] = json!("DrainerNotInjected"),
            |event| event["reportingComponent"] = json!("kubelet"),
            |event| event["related"] = json!(null),
            |event| event["related"]["kind"] = json!("Node"),
        ];
        for change in changes {
            assert_eq!(drain_of(&event(change)), None);
        }
    }
}
