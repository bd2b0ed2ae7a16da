//! Which Events are to be written, and when. As Kubernetes' own reporters have it: the first of a series at
//! once, how many followed from time to time.
//! <https://github.com/kubernetes/client-go/blob/master/tools/events/event_broadcaster.go>

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use super::rate_limit::EventLimit;
use crate::admission::SkippedPod;

/// The pause after the first write of an Event. Each further one is twice as long.
const MIN_INTERVAL: Duration = Duration::from_secs(10);

/// The longest pause between two writes of one Event, so that a flood of pods has a series written no more
/// often than that. Shorter than [`END`], so that no count is lost.
const MAX_INTERVAL: Duration = Duration::from_secs(5 * 60);

/// A pod that comes so long after the last begins another series.
const SERIES_TIMEOUT: Duration = Duration::from_secs(6 * 60);

/// The series that are known at a time, at most. One that is written makes room.
const MAX_SERIES: usize = 256;

/// The pods of one owner that lack their drainers for one reason: one Event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Series {
    /// What is told, in the words of the first.
    pub skipped_pod: SkippedPod,
    /// How many there were.
    pub count: i32,
    /// When the first came.
    pub first_observed: SystemTime,
    /// When the last came.
    pub last_observed: SystemTime,
}

/// The series of the last minutes.
#[derive(Debug)]
pub(super) struct EventAggregator {
    entries: Vec<SeriesEntry>,
    limit: EventLimit,
}

#[derive(Debug)]
struct SeriesEntry {
    series: Series,
    last_recorded: Instant,
    /// Not to be written before.
    not_before: Instant,
    /// The pause after the next write.
    interval: Duration,
    is_pending: bool,
}

// === impl EventAggregator ===

impl EventAggregator {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            entries: Vec::new(),
            limit: EventLimit::new(now),
        }
    }

    /// Counts a pod in the series that it belongs to; false if there may be no other series now.
    pub(super) fn record(&mut self, undrained: SkippedPod, now: Instant, time: SystemTime) -> bool {
        self.evict_expired(now);
        if let Some(entry) = self.entry(&undrained) {
            entry.series.count = entry.series.count.saturating_add(1);
            entry.series.last_observed = time;
            entry.last_recorded = now;
            entry.is_pending = true;
            return true;
        }
        if !self.limit.allow(&undrained.owner.namespace, now) {
            return false;
        }
        if self.entries.len() == MAX_SERIES && !self.evict_oldest() {
            return false;
        }
        self.entries.push(SeriesEntry {
            series: Series {
                skipped_pod: undrained,
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

    /// When a series is to be written next.
    pub(super) fn due(&self) -> Option<Instant> {
        let unwritten = self.entries.iter().filter(|entry| entry.is_pending);
        unwritten.map(|entry| entry.not_before).min()
    }

    /// Takes the series that was to be written first, up to `now`.
    pub(super) fn take(&mut self, now: Instant) -> Option<Series> {
        self.evict_expired(now);
        let unwritten = self.entries.iter_mut().filter(|entry| entry.is_pending);
        let entry = unwritten.min_by_key(|entry| entry.not_before)?;
        if entry.not_before > now {
            return None;
        }
        entry.is_pending = false;
        entry.not_before = now + entry.interval;
        entry.interval = (entry.interval * 2).min(MAX_INTERVAL);
        Some(entry.series.clone())
    }

    /// Has a series that was taken and not written written later.
    pub(super) fn put_back(&mut self, series: &Series) {
        if let Some(entry) = self.entry(&series.skipped_pod) {
            entry.is_pending = true;
        }
    }

    /// Has a series that was taken, and will not be written, be quiet about it.
    pub(super) fn drop_after_failures(&mut self, series: &Series, now: Instant) {
        if let Some(entry) = self.entry(&series.skipped_pod) {
            entry.not_before = now + SERIES_TIMEOUT;
        }
    }

    fn entry(&mut self, undrained: &SkippedPod) -> Option<&mut SeriesEntry> {
        self.entries.iter_mut().find(|entry| {
            let known = &entry.series.skipped_pod;
            known.code == undrained.code && known.owner.uid == undrained.owner.uid
        })
    }

    /// Forgets the series that has been quiet for longest, of those that are written.
    fn evict_oldest(&mut self) -> bool {
        let entries = self.entries.iter().enumerate();
        let written = entries.filter(|(_, entry)| !entry.is_pending);
        let quietest = written.min_by_key(|(_, entry)| entry.last_recorded);
        let Some(index) = quietest.map(|(index, _)| index) else {
            return false;
        };
        self.entries.swap_remove(index);
        true
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
    use crate::admission::{Code, Owner};

    const SECOND: Duration = Duration::from_secs(1);

    fn skipped_pod(uid: usize, code: Code) -> SkippedPod {
        let text = String::new;
        SkippedPod {
            owner: Owner {
                api_version: text(),
                kind: text(),
                namespace: uid.to_string(),
                name: text(),
                uid: uid.to_string(),
            },
            code,
            note: text(),
        }
    }

    /// A ledger and its two clocks.
    struct AggregatorFixture {
        aggregator: EventAggregator,
        start: Instant,
    }

    impl AggregatorFixture {
        fn new() -> Self {
            let start = Instant::now();
            let ledger = EventAggregator::new(start);
            Self {
                aggregator: ledger,
                start,
            }
        }

        fn record(&mut self, after: Duration, uid: usize, code: Code) -> bool {
            let undrained = skipped_pod(uid, code);
            let (now, time) = (self.start + after, UNIX_EPOCH + after);
            self.aggregator.record(undrained, now, time)
        }

        /// The owners and counts that are written after so long.
        fn take_due(&mut self, after: Duration) -> Vec<(String, i32)> {
            let taken = std::iter::from_fn(|| self.aggregator.take(self.start + after));
            taken
                .map(|series| (series.skipped_pod.owner.uid, series.count))
                .collect()
        }
    }

    fn expected(uid: usize, pods: i32) -> Vec<(String, i32)> {
        vec![(uid.to_string(), pods)]
    }

    #[test]
    fn the_first_of_a_series_is_written_at_once_and_then_their_number() {
        let mut story = AggregatorFixture::new();
        assert_eq!(story.aggregator.due(), None);
        story.record(SECOND, 1, Code::ExistingHook);
        assert_eq!(story.aggregator.due(), Some(story.start + SECOND));
        assert_eq!(story.take_due(SECOND), expected(1, 1));
        assert_eq!(story.aggregator.due(), None);
        for _ in 0..99 {
            story.record(2 * SECOND, 1, Code::ExistingHook);
        }
        assert_eq!(
            story.aggregator.due(),
            Some(story.start + SECOND + MIN_INTERVAL)
        );
        assert_eq!(story.take_due(MIN_INTERVAL), []);
        assert_eq!(story.take_due(MIN_INTERVAL + SECOND), expected(1, 100));
        assert_eq!(story.take_due(3 * MIN_INTERVAL), []);
    }

    #[test]
    fn a_series_is_of_one_owner_and_one_code_until_it_ends() {
        let mut story = AggregatorFixture::new();
        story.record(SECOND, 1, Code::ExistingHook);
        let first = story.aggregator.take(story.start + SECOND).unwrap();
        story.record(SECOND, 1, Code::NoEnvoy);
        assert_eq!(story.take_due(SECOND), expected(1, 1));
        story.record(SECOND, 2, Code::NoEnvoy);
        assert_eq!(story.take_due(SECOND), expected(2, 1));
        let end = SERIES_TIMEOUT + 2 * SECOND;
        story.record(end, 1, Code::ExistingHook);
        let second = story.aggregator.take(story.start + end).unwrap();
        assert_eq!((first.count, second.count), (1, 1));
        assert_ne!(first.first_observed, second.first_observed);
    }

    #[test]
    fn what_was_not_written_is_written_later_or_never() {
        let mut story = AggregatorFixture::new();
        story.record(SECOND, 1, Code::ExistingHook);
        let series = story.aggregator.take(story.start + SECOND).unwrap();
        story.aggregator.put_back(&series);
        assert_eq!(story.take_due(MIN_INTERVAL), []);
        assert_eq!(story.take_due(MIN_INTERVAL + SECOND), expected(1, 1));
        story
            .aggregator
            .drop_after_failures(&series, story.start + 2 * MIN_INTERVAL);
        story.record(2 * MIN_INTERVAL, 1, Code::ExistingHook);
        assert_eq!(story.take_due(SERIES_TIMEOUT), []);
        story.aggregator.put_back(&series);
        assert_eq!(
            story.take_due(SERIES_TIMEOUT + 2 * MIN_INTERVAL),
            [],
            "it has ended"
        );
        assert_eq!(story.aggregator.due(), None);
    }

    #[test]
    fn a_new_series_has_room_unless_all_are_unwritten() {
        let mut story = AggregatorFixture::new();
        let minute = 60 * SECOND;
        // As many as the limit allows, none of which ends.
        let mut known = 0;
        while known < MAX_SERIES {
            let now = minute * u32::try_from(known).unwrap();
            assert!((0..known).all(|uid| story.record(now, uid, Code::NoEnvoy)));
            known += usize::from(story.record(now, known, Code::NoEnvoy));
        }
        let now = minute * u32::try_from(MAX_SERIES).unwrap();
        assert!(!story.record(now, MAX_SERIES, Code::NoEnvoy));
        assert!(story.record(now, 7, Code::NoEnvoy), "it has its place");
        assert_eq!(story.take_due(now).len(), MAX_SERIES);
        assert!(story.record(now + SECOND, 0, Code::NoEnvoy));
        assert!(story.record(now + minute, MAX_SERIES, Code::NoEnvoy));
        assert_eq!(story.aggregator.entries.len(), MAX_SERIES);
        let pods = i32::try_from(MAX_SERIES).unwrap() + 1;
        assert_eq!(
            story.take_due(now + minute),
            [expected(0, pods), expected(MAX_SERIES, 1)].concat()
        );
    }

    #[test]
    fn a_series_is_written_ever_less_often_and_no_pod_is_lost() {
        let mut story = AggregatorFixture::new();
        let mut writes = Vec::new();
        for second in 0..1800 {
            assert!(story.record(SECOND * second, 1, Code::NoEnvoy));
            let written = story.take_due(SECOND * second);
            writes.extend(written.iter().map(|(_, pods)| pods - 1));
        }
        assert_eq!(writes, [0, 10, 30, 70, 150, 310, 610, 910, 1210, 1510]);
    }

    #[test]
    fn a_flood_of_owners_has_no_more_events_than_the_limit() {
        let mut story = AggregatorFixture::new();
        let noted = (0..1500).filter(|uid| story.record(SECOND, *uid, Code::NoEnvoy));
        assert_eq!(noted.count(), 100);
        assert_eq!(story.take_due(SECOND).len(), 100);
    }
}
