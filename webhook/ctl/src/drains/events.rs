//! The drain in an Event that the webhook wrote on a pod's workload, since something was cut.

use admission::REPORTING_CONTROLLER;
use admission::settings::keys::PREFIX;
use drainer::{DrainOutcome, DrainSummary};
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{DrainRecord, RecordOutcome, RecordSource};
use crate::cut::Cut;
use crate::object_name::ObjectName;

/// The annotation with the drainer's summary, as JSON, under our prefix. Events of 0.1.0 have none.
const SUMMARY: &str = "drain-summary";

/// The reason of Events about drains that cut something.
const DRAIN_CUT: &str = "DrainCut";

/// The field selector of these Events.
pub const DRAIN_CUT_FIELDS: &str = "reason=DrainCut";

/// Returns the drains of an Event: the first one, and one record for all that it counts after that, of which it says only
/// when the last one ended. Empty if it is not one of the webhook's, or names no pod.
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
    let is_pod = |kind: &Option<String>| kind.as_deref() == Some("Pod");
    let related = event.related.as_ref();
    let pod = related
        .filter(|related| is_pod(&related.kind))
        .or_else(|| is_pod(&regarding.kind).then_some(regarding))?;
    let namespace = event.metadata.namespace.clone()?;
    let [kind, name] =
        [&regarding.kind, &regarding.name].map(|it| it.as_deref().unwrap_or_default());
    let workload = ObjectName::new(kind, Some(&namespace), name);
    let annotations = event.metadata.annotations.as_ref();
    let summary = annotations.and_then(|all| all.get(&format!("{PREFIX}{SUMMARY}")));
    let summary = summary.and_then(|json| serde_json::from_str::<DrainSummary>(json).ok());
    let (seconds, cut) = match &summary {
        Some(summary) => (Some(summary.seconds), Cut::of(summary)),
        None => read_note(event.message.as_deref().unwrap_or_default()),
    };
    Some(DrainRecord {
        time: time(event),
        namespace,
        pod: Some(pod.name.clone()?),
        follows: None,
        uid: pod.uid.clone(),
        workload: (kind != "Pod").then_some(workload),
        outcome: RecordOutcome::Ended(DrainOutcome::Deadline),
        seconds,
        cut,
        source: RecordSource::Event,
        drains: 1,
        summary,
    })
}

fn later_drains(event: &Event, first: &DrainRecord) -> Option<DrainRecord> {
    let series = event.series.as_ref()?;
    let last_observed = series.last_observed_time.as_ref();
    let drains = series.count.filter(|count| *count > 1)? - 1;
    Some(DrainRecord {
        time: last_observed.map(|time| Time(time.0)),
        pod: None,
        follows: first.pod.clone(),
        seconds: None,
        cut: None,
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

/// Reads the seconds and what was cut from a note of 0.1.0 such as `The drain of pod web-6d4-abc reached its deadline after 60.0 s
/// and cut 2 requests and 1 upgrade`.
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// An Event that was written as `events.k8s.io/v1`, as an API server sends it as `v1`; changed.
    fn event(change: impl FnOnce(&mut Value)) -> Event {
        let mut event = json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": "3f2a.59682f00", "namespace": "shop", "creationTimestamp": "2026-01-02T10:01:01Z"},
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
            "summary": null,
        });
        assert_eq!(serde_json::to_value(&record).unwrap(), want);
    }

    #[test]
    fn summary_in_an_annotation_comes_before_the_note() {
        let summary = r#"{"outcome":"deadline","seconds":30.5,"peak":9,"remaining":{"connections":3,"requests":3,"upgrades":0,"tcp":0,"byListener":{}}}"#;
        for (annotation, seconds, cut) in [(summary, 30.5, 3), ("{}", 60.0, 2), ("odd", 60.0, 2)] {
            let annotations = json!({"envoy-drainer.dev/drain-summary": annotation});
            let event = event(|event| event["metadata"]["annotations"] = annotations);
            let record = drain_of(&event).unwrap();
            assert_eq!(record.seconds, Some(seconds), "{annotation}");
            assert_eq!(
                record.cut.map(|cut| cut.requests),
                Some(cut),
                "{annotation}"
            );
            assert_eq!(record.summary.is_some(), annotation == summary);
        }
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
            "cut": null,
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
    fn other_notes_leave_the_details_unknown() {
        for note in [
            "",
            "The drain was cut",
            "x reached its deadline after NaN s and cut 1 cake",
        ] {
            let record = drain_of(&event(|event| event["message"] = json!(note))).unwrap();
            assert_eq!((record.seconds, record.cut), (None, None), "{note}");
        }
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
