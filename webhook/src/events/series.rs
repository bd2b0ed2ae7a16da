//! Aggregates what happens to the pods of an owner into Events, as Kubernetes' own reporters do: the first of a series
//! is written at once, and the count of the others from time to time.
//! <https://github.com/kubernetes/client-go/blob/master/tools/events/event_broadcaster.go>

use std::time::{Duration, SystemTime};

use admission::{Owner, REPORTING_CONTROLLER};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

use super::owner_event::OwnerEvent;
use crate::rate_limit::{Rate, RateLimit};

/// Interval after the first write of an Event. Each further interval is twice as long.
const MIN_INTERVAL: Duration = Duration::from_secs(10);

/// Longest interval between two writes of one Event, however many pods there are. Shorter than [`SERIES_TIMEOUT`], so
/// that no count is lost.
const MAX_INTERVAL: Duration = Duration::from_secs(5 * 60);

/// A series ends this long after its last pod; the next pod starts another.
const SERIES_TIMEOUT: Duration = Duration::from_secs(6 * 60);

/// Maximum number of series. At the limit, one without a pending write is evicted.
const MAX_SERIES: usize = 256;

/// Rate of new Events in one namespace, since reviews may be forged by any pod of the cluster: that of client-go's
/// `EventSourceObjectSpamFilter` for one object.
/// <https://github.com/kubernetes/client-go/blob/master/tools/record/events_cache.go>
const NAMESPACE_RATE: Rate = Rate::new(25, Duration::from_secs(5 * 60));

/// Rate of new Events in all namespaces: more than the rollout of many workloads at once needs. The API server keeps an
/// Event for an hour.
const TOTAL_RATE: Rate = Rate::new(100, Duration::from_secs(60));

/// What happened to the pods of one owner for one reason, which share one Event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Series {
    /// The first one, with its note.
    pub first: OwnerEvent,
    /// How many there are.
    pub count: i32,
    /// When the first one was recorded.
    pub first_observed: SystemTime,
    /// When the last one was recorded.
    pub last_observed: SystemTime,
}

/// The series that have not ended, and when each is due.
#[derive(Debug)]
pub(super) struct EventAggregator {
    entries: Vec<SeriesEntry>,
    /// Limits the Events that this replica creates, by namespace.
    limit: RateLimit<String>,
}

#[derive(Debug)]
struct SeriesEntry {
    series: Series,
    last_recorded: Instant,
    /// Earliest time of the next write.
    not_before: Instant,
    /// Interval after the next write.
    interval: Duration,
    is_pending: bool,
}

// === impl Series ===

impl Series {
    /// The series as an Event of the replica `instance`. For one name only its field `series` may change: all others
    /// are immutable.
    pub(crate) fn event(&self, instance: &str) -> Event {
        let OwnerEvent { owner, reason, .. } = &self.first;
        let annotation = self.first.annotation.as_ref();
        let first = timestamp(self.first_observed);
        let [reason_name, action] = reason.names();
        let reference = |object: &Owner| ObjectReference {
            api_version: Some(object.api_version.clone()),
            kind: Some(object.kind.clone()),
            namespace: Some(object.namespace.clone()),
            name: Some(object.name.clone()),
            uid: Some(object.uid.clone()),
            ..ObjectReference::default()
        };
        Event {
            metadata: ObjectMeta {
                // By uid, since an owner's name may be too long.
                name: Some(format!("{}.{:x}", owner.uid, first.as_nanosecond())),
                namespace: Some(owner.namespace.clone()),
                annotations: annotation
                    .map(|(key, value)| [((*key).to_owned(), value.clone())].into()),
                ..ObjectMeta::default()
            },
            type_: Some("Warning".to_owned()),
            reason: Some(reason_name.to_owned()),
            action: Some(action.to_owned()),
            note: Some(self.first.note.clone()),
            regarding: Some(reference(owner)),
            related: self.first.pod.as_ref().map(reference),
            event_time: Some(MicroTime(first)),
            // A single Event is no series.
            series: (self.count > 1).then(|| EventSeries {
                count: self.count,
                last_observed_time: MicroTime(timestamp(self.last_observed)),
            }),
            reporting_controller: Some(REPORTING_CONTROLLER.to_owned()),
            reporting_instance: Some(instance.to_owned()),
            ..Event::default()
        }
    }
}

/// Converts a time; 1970 if its year has more than four digits.
fn timestamp(time: SystemTime) -> Timestamp {
    Timestamp::try_from(time).unwrap_or_default()
}

// === impl EventAggregator ===

impl EventAggregator {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            entries: Vec::new(),
            limit: RateLimit::new(NAMESPACE_RATE, TOTAL_RATE, now),
        }
    }

    /// Counts an event in its series. Returns false if it would start one, and a limit does not allow that.
    pub(super) fn record(&mut self, event: OwnerEvent, now: Instant, time: SystemTime) -> bool {
        self.evict_expired(now);
        if let Some(entry) = self.entry(&event) {
            entry.series.count = entry.series.count.saturating_add(1);
            entry.series.last_observed = time;
            entry.last_recorded = now;
            entry.is_pending = true;
            return true;
        }
        if !self.limit.try_take(&event.owner.namespace, now) {
            return false;
        }
        if self.entries.len() == MAX_SERIES && !self.evict_oldest() {
            return false;
        }
        self.entries.push(SeriesEntry {
            series: Series {
                first: event,
                count: 1,
                first_observed: time,
                last_observed: time,
            },
            last_recorded: now,
            not_before: now,
            interval: MIN_INTERVAL,
            is_pending: true,
        });
        true
    }

    /// When the next write is due.
    pub(super) fn due(&self) -> Option<Instant> {
        let pending = self.entries.iter().filter(|entry| entry.is_pending);
        pending.map(|entry| entry.not_before).min()
    }

    /// Takes the series whose write has been due for longest.
    pub(super) fn take(&mut self, now: Instant) -> Option<Series> {
        self.evict_expired(now);
        let pending = self.entries.iter_mut().filter(|entry| entry.is_pending);
        let entry = pending.min_by_key(|entry| entry.not_before)?;
        if entry.not_before > now {
            return None;
        }
        entry.is_pending = false;
        entry.not_before = now + entry.interval;
        entry.interval = (entry.interval * 2).min(MAX_INTERVAL);
        Some(entry.series.clone())
    }

    /// Schedules a series again whose write failed.
    pub(super) fn put_back(&mut self, series: &Series) {
        if let Some(entry) = self.entry(&series.first) {
            entry.is_pending = true;
        }
    }

    /// Stops writing a series whose write was rejected, until [`SERIES_TIMEOUT`] ends.
    pub(super) fn drop_after_failures(&mut self, series: &Series, now: Instant) {
        if let Some(entry) = self.entry(&series.first) {
            entry.not_before = now + SERIES_TIMEOUT;
        }
    }

    fn entry(&mut self, event: &OwnerEvent) -> Option<&mut SeriesEntry> {
        self.entries.iter_mut().find(|entry| {
            let first = &entry.series.first;
            // The UID alone may be that of an object in another namespace: a review may be forged.
            first.reason == event.reason && first.owner == event.owner
        })
    }

    /// Evicts the series without a pending write whose last pod is the oldest. Returns false if there is none.
    fn evict_oldest(&mut self) -> bool {
        let written = (0..self.entries.len()).filter(|&index| !self.entries[index].is_pending);
        let oldest = written.min_by_key(|&index| self.entries[index].last_recorded);
        oldest
            .map(|index| self.entries.swap_remove(index))
            .is_some()
    }

    fn evict_expired(&mut self, now: Instant) {
        self.entries
            .retain(|entry| now.duration_since(entry.last_recorded) < SERIES_TIMEOUT);
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;
    use crate::events::EventReason;
    use admission::Code;
    use serde_json::json;

    const SECOND: Duration = Duration::from_secs(1);

    fn event(uid: usize, code: Code) -> OwnerEvent {
        let text = String::new;
        OwnerEvent {
            owner: Owner {
                api_version: text(),
                kind: text(),
                namespace: uid.to_string(),
                name: text(),
                uid: uid.to_string(),
            },
            pod: None,
            reason: EventReason::DrainerNotInjected(code),
            note: text(),
            annotation: None,
        }
    }

    /// An aggregator and its two clocks.
    struct AggregatorFixture {
        aggregator: EventAggregator,
        start: Instant,
    }

    impl AggregatorFixture {
        fn new() -> Self {
            let start = Instant::now();
            let aggregator = EventAggregator::new(start);
            Self { aggregator, start }
        }

        fn record(&mut self, after: Duration, uid: usize, code: Code) -> bool {
            let event = event(uid, code);
            let (now, time) = (self.start + after, UNIX_EPOCH + after);
            self.aggregator.record(event, now, time)
        }

        /// Takes all series that are due: their owners and counts.
        fn take_due(&mut self, after: Duration) -> Vec<(String, i32)> {
            let due = std::iter::from_fn(|| self.aggregator.take(self.start + after));
            due.map(|series| (series.first.owner.uid, series.count))
                .collect()
        }
    }

    fn expected(uid: usize, pods: i32) -> Vec<(String, i32)> {
        vec![(uid.to_string(), pods)]
    }

    #[test]
    fn first_pod_is_written_at_once_then_the_count() {
        let mut fixture = AggregatorFixture::new();
        assert_eq!(fixture.aggregator.due(), None);
        fixture.record(SECOND, 1, Code::ExistingHook);
        assert_eq!(fixture.aggregator.due(), Some(fixture.start + SECOND));
        assert_eq!(fixture.take_due(SECOND), expected(1, 1));
        assert_eq!(fixture.aggregator.due(), None);
        for _ in 0..99 {
            fixture.record(2 * SECOND, 1, Code::ExistingHook);
        }
        assert_eq!(
            fixture.aggregator.due(),
            Some(fixture.start + SECOND + MIN_INTERVAL)
        );
        assert_eq!(fixture.take_due(MIN_INTERVAL), []);
        assert_eq!(fixture.take_due(MIN_INTERVAL + SECOND), expected(1, 100));
        assert_eq!(fixture.take_due(3 * MIN_INTERVAL), []);
    }

    #[test]
    fn series_has_one_owner_and_one_code() {
        let mut fixture = AggregatorFixture::new();
        fixture.record(SECOND, 1, Code::ExistingHook);
        let first = fixture.aggregator.take(fixture.start + SECOND).unwrap();
        fixture.record(SECOND, 1, Code::NoEnvoy);
        assert_eq!(fixture.take_due(SECOND), expected(1, 1));
        fixture.record(SECOND, 2, Code::NoEnvoy);
        assert_eq!(fixture.take_due(SECOND), expected(2, 1));
        let end = SERIES_TIMEOUT + 2 * SECOND;
        fixture.record(end, 1, Code::ExistingHook);
        let second = fixture.aggregator.take(fixture.start + end).unwrap();
        assert_eq!((first.count, second.count), (1, 1));
        assert_ne!(first.first_observed, second.first_observed);
    }

    #[test]
    fn failed_writes_are_retried_and_rejected_ones_dropped() {
        let mut fixture = AggregatorFixture::new();
        fixture.record(SECOND, 1, Code::ExistingHook);
        let series = fixture.aggregator.take(fixture.start + SECOND).unwrap();
        fixture.aggregator.put_back(&series);
        assert_eq!(fixture.take_due(MIN_INTERVAL), []);
        assert_eq!(fixture.take_due(MIN_INTERVAL + SECOND), expected(1, 1));
        fixture
            .aggregator
            .drop_after_failures(&series, fixture.start + 2 * MIN_INTERVAL);
        fixture.record(2 * MIN_INTERVAL, 1, Code::ExistingHook);
        assert_eq!(fixture.take_due(SERIES_TIMEOUT), []);
        fixture.aggregator.put_back(&series);
        assert_eq!(
            fixture.take_due(SERIES_TIMEOUT + 2 * MIN_INTERVAL),
            [],
            "the series has ended"
        );
        assert_eq!(fixture.aggregator.due(), None);
    }

    #[test]
    fn new_series_evicts_an_old_one_without_pending_write() {
        let mut fixture = AggregatorFixture::new();
        let minute = 60 * SECOND;
        // As many as the rate limit allows, none of which ends.
        let mut known = 0;
        while known < MAX_SERIES {
            let now = minute * u32::try_from(known).unwrap();
            assert!((0..known).all(|uid| fixture.record(now, uid, Code::NoEnvoy)));
            known += usize::from(fixture.record(now, known, Code::NoEnvoy));
        }
        let now = minute * u32::try_from(MAX_SERIES).unwrap();
        assert!(!fixture.record(now, MAX_SERIES, Code::NoEnvoy));
        assert!(
            fixture.record(now, 7, Code::NoEnvoy),
            "it belongs to a series"
        );
        assert_eq!(fixture.take_due(now).len(), MAX_SERIES);
        assert!(fixture.record(now + SECOND, 0, Code::NoEnvoy));
        assert!(fixture.record(now + minute, MAX_SERIES, Code::NoEnvoy));
        assert_eq!(fixture.aggregator.entries.len(), MAX_SERIES);
        let pods = i32::try_from(MAX_SERIES).unwrap() + 1;
        assert_eq!(
            fixture.take_due(now + minute),
            [expected(0, pods), expected(MAX_SERIES, 1)].concat()
        );
    }

    #[test]
    fn write_intervals_double_and_no_pod_is_lost() {
        let mut fixture = AggregatorFixture::new();
        let mut writes = Vec::new();
        for second in 0..1800 {
            assert!(fixture.record(SECOND * second, 1, Code::NoEnvoy));
            let written = fixture.take_due(SECOND * second);
            writes.extend(written.iter().map(|(_, pods)| pods - 1));
        }
        assert_eq!(writes, [0, 10, 30, 70, 150, 310, 610, 910, 1210, 1510]);
    }

    #[test]
    fn flood_of_owners_is_limited() {
        let mut fixture = AggregatorFixture::new();
        let recorded = (0..1500).filter(|uid| fixture.record(SECOND, *uid, Code::NoEnvoy));
        assert_eq!(recorded.count(), 100);
        assert_eq!(fixture.take_due(SECOND).len(), 100);
    }

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
        let event = |count| serde_json::to_value(series(count).event("webhook-1")).unwrap();
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
        series.first.pod = Some(Owner {
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            namespace: "shop".to_owned(),
            name: "edge-7f-1".to_owned(),
            uid: "9".to_owned(),
        });
        series.first.annotation = Some(("envoy-drainer.dev/drain-summary", "{}".to_owned()));
        let event = serde_json::to_value(series.event("webhook-1")).unwrap();
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
}
