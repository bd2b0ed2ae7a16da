//! Writes Events of the API group `events.k8s.io`.

use std::time::{Duration, SystemTime};

use admission::REPORTING_CONTROLLER;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use tokio::time::timeout;

use crate::events::{OwnerEvent, PublishError, Series};

/// For one Event. The others wait for it.
const DEADLINE: Duration = Duration::from_secs(5);

/// The field manager.
const FIELD_MANAGER: &str = "envoy-drainer";

/// In bytes. The API server rejects longer ones.
const MAX_INSTANCE_LENGTH: usize = 128;

/// Writes the Events of one replica.
pub struct EventWriter {
    client: Client,
    instance: String,
}

// === impl EventWriter ===

impl EventWriter {
    /// A writer on behalf of the replica with this name.
    pub(super) fn new(client: Client, mut instance: String) -> Self {
        instance.truncate(instance.floor_char_boundary(MAX_INSTANCE_LENGTH));
        Self { client, instance }
    }

    /// Creates or updates the Event of a series.
    ///
    /// # Errors
    /// When it could not be written, and whether a retry may help.
    pub async fn write(&self, series: &Series) -> Result<(), PublishError> {
        let event = event(series, &self.instance);
        let namespace = &series.first.owner.namespace;
        let api = Api::<Event>::namespaced(self.client.clone(), namespace);
        let name = event.metadata.name.as_deref().unwrap_or_default();
        // Applied, so that one call creates the Event, updates it, or restores one that was deleted.
        let (params, patch) = (PatchParams::apply(FIELD_MANAGER), Patch::Apply(&event));
        match timeout(DEADLINE, api.patch_metadata(name, &params, &patch)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(kube::Error::Api(status))) if is_permanent(status.code) => {
                Err(PublishError::Rejected(status.message))
            }
            Ok(Err(error)) => Err(PublishError::Transient(error.into())),
            Err(elapsed) => Err(PublishError::Transient(elapsed.into())),
        }
    }
}

/// Returns true for the HTTP status of a request that would fail again.
fn is_permanent(status: u16) -> bool {
    const TOO_MANY_REQUESTS: u16 = 429;
    (400..500).contains(&status) && status != TOO_MANY_REQUESTS
}

/// Builds the Event of a series. For one name only the field `series` may change: all others are immutable.
fn event(series: &Series, instance: &str) -> Event {
    let OwnerEvent {
        owner,
        pod,
        reason,
        note,
        annotation,
    } = &series.first;
    let first = timestamp(series.first_observed);
    Event {
        metadata: ObjectMeta {
            // By uid, since an owner's name may be too long.
            name: Some(format!("{}.{:x}", owner.uid, first.as_nanosecond())),
            namespace: Some(owner.namespace.clone()),
            annotations: annotation
                .as_ref()
                .map(|(key, value)| [((*key).to_owned(), value.clone())].into()),
            ..ObjectMeta::default()
        },
        type_: Some("Warning".to_owned()),
        reason: Some(reason.name().to_owned()),
        action: Some(reason.action().to_owned()),
        note: Some(note.clone()),
        regarding: Some(ObjectReference {
            api_version: Some(owner.api_version.clone()),
            kind: Some(owner.kind.clone()),
            namespace: Some(owner.namespace.clone()),
            name: Some(owner.name.clone()),
            uid: Some(owner.uid.clone()),
            ..ObjectReference::default()
        }),
        related: pod.as_ref().map(|pod| ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            namespace: Some(owner.namespace.clone()),
            name: Some(pod.name.clone()),
            uid: Some(pod.uid.clone()),
            ..ObjectReference::default()
        }),
        event_time: Some(MicroTime(first)),
        // A single Event is no series.
        series: (series.count > 1).then(|| EventSeries {
            count: series.count,
            last_observed_time: MicroTime(timestamp(series.last_observed)),
        }),
        reporting_controller: Some(REPORTING_CONTROLLER.to_owned()),
        reporting_instance: Some(instance.to_owned()),
        ..Event::default()
    }
}

/// Converts a time; 1970 if its year has more than four digits.
fn timestamp(time: SystemTime) -> Timestamp {
    Timestamp::try_from(time).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use serde_json::json;

    use super::*;
    use crate::events::{EventPod, EventReason};
    use admission::{Code, Owner};

    fn series(count: i32) -> Series {
        let text = str::to_owned;
        Series {
            first: OwnerEvent {
                owner: Owner {
                    api_version: text("apps/v1"),
                    kind: text("ReplicaSet"),
                    namespace: text("shop"),
                    name: text("edge-7f"),
                    uid: text("3f2a"),
                },
                pod: None,
                reason: EventReason::DrainerNotInjected(Code::ExistingHook),
                note: text("DRN008: why"),
                annotation: None,
            },
            count,
            first_observed: UNIX_EPOCH + Duration::from_millis(1_500),
            last_observed: UNIX_EPOCH + Duration::from_secs(60),
        }
    }

    #[test]
    fn event_has_the_fields_of_the_api() {
        let event = |count| serde_json::to_value(event(&series(count), "webhook-1")).unwrap();
        let mut want = json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": "3f2a.59682f00", "namespace": "shop"},
            "type": "Warning",
            "reason": "DrainerNotInjected",
            "action": "Inject",
            "note": "DRN008: why",
            "regarding": {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "namespace": "shop",
                "name": "edge-7f",
                "uid": "3f2a",
            },
            "eventTime": "1970-01-01T00:00:01.500000Z",
            "reportingController": "envoy-drainer.dev/webhook",
            "reportingInstance": "webhook-1",
        });
        assert_eq!(event(1), want);
        // All other fields are immutable.
        want["series"] = json!({"count": 2, "lastObservedTime": "1970-01-01T00:01:00.000000Z"});
        assert_eq!(event(2), want);
    }

    #[test]
    fn event_of_a_drain_names_its_pod_and_has_its_summary() {
        let mut series = series(1);
        series.first.reason = EventReason::DrainCut;
        series.first.pod = Some(EventPod {
            name: "edge-7f-1".to_owned(),
            uid: "9".to_owned(),
        });
        series.first.annotation = Some(("envoy-drainer.dev/drain-summary", "{}".to_owned()));
        let event = serde_json::to_value(event(&series, "webhook-1")).unwrap();
        let annotations = json!({"envoy-drainer.dev/drain-summary": "{}"});
        assert_eq!(event["metadata"]["annotations"], annotations);
        assert_eq!(
            (&event["reason"], &event["action"]),
            (&json!("DrainCut"), &json!("Drain"))
        );
        let related = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": "shop",
            "name": "edge-7f-1",
            "uid": "9",
        });
        assert_eq!(event["related"], related);
    }

    #[test]
    fn rejections_are_permanent_except_rate_limits() {
        for (status, want) in [
            (403, true),
            (404, true),
            (422, true),
            (429, false),
            (500, false),
        ] {
            assert_eq!(is_permanent(status), want, "{status}");
        }
    }
}
