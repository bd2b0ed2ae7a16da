//! Which Events are to be written, and when. As Kubernetes' own reporters have it: the first of a series at
//! once, how many followed from time to time.
//! <https://github.com/kubernetes/client-go/blob/master/tools/events/event_broadcaster.go>

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use super::limit::EventLimit;
use crate::admission::Undrained;

/// The pause after the first write of an Event. Each further one is twice as long.
const PAUSE: Duration = Duration::from_secs(10);

/// The longest pause between two writes of one Event, so that a flood of pods has a series written no more
/// often than that. Shorter than [`END`], so that no count is lost.
const LONGEST_PAUSE: Duration = Duration::from_secs(5 * 60);

/// A pod that comes so long after the last begins another series.
const END: Duration = Duration::from_secs(6 * 60);

/// The series that are known at a time, at most. One that is written makes room.
const MOST: usize = 256;

/// The pods of one owner that lack their drainers for one reason: one Event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Series {
    /// What is told, in the words of the first.
    pub undrained: Undrained,
    /// How many there were.
    pub pods: i32,
    /// When the first came.
    pub first: SystemTime,
    /// When the last came.
    pub last: SystemTime,
}

/// The series of the last minutes.
#[derive(Debug)]
pub(super) struct Ledger {
    entries: Vec<Entry>,
    limit: EventLimit,
}

#[derive(Debug)]
struct Entry {
    series: Series,
    seen: Instant,
    /// Not to be written before.
    rested: Instant,
    /// The pause after the next write.
    pause: Duration,
    unwritten: bool,
}

// === impl Ledger ===

impl Ledger {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            entries: Vec::new(),
            limit: EventLimit::new(now),
        }
    }

    /// Counts a pod in the series that it belongs to; false if there may be no other series now.
    pub(super) fn note(&mut self, undrained: Undrained, now: Instant, time: SystemTime) -> bool {
        self.forget(now);
        if let Some(entry) = self.entry(&undrained) {
            entry.series.pods = entry.series.pods.saturating_add(1);
            entry.series.last = time;
            entry.seen = now;
            entry.unwritten = true;
            return true;
        }
        if !self.limit.allow(&undrained.owner.namespace, now) {
            return false;
        }
        if self.entries.len() == MOST && !self.make_room() {
            return false;
        }
        self.entries.push(Entry {
            series: Series {
                undrained,
                pods: 1,
                first: time,
                last: time,
            },
            seen: now,
            rested: now,
            pause: PAUSE,
            unwritten: true,
        });
        true
    }

    /// When a series is to be written next.
    pub(super) fn due(&self) -> Option<Instant> {
        let unwritten = self.entries.iter().filter(|entry| entry.unwritten);
        unwritten.map(|entry| entry.rested).min()
    }

    /// Takes the series that was to be written first, up to `now`.
    pub(super) fn take(&mut self, now: Instant) -> Option<Series> {
        self.forget(now);
        let unwritten = self.entries.iter_mut().filter(|entry| entry.unwritten);
        let entry = unwritten.min_by_key(|entry| entry.rested)?;
        if entry.rested > now {
            return None;
        }
        entry.unwritten = false;
        entry.rested = now + entry.pause;
        entry.pause = (entry.pause * 2).min(LONGEST_PAUSE);
        Some(entry.series.clone())
    }

    /// Has a series that was taken and not written written later.
    pub(super) fn put_back(&mut self, series: &Series) {
        if let Some(entry) = self.entry(&series.undrained) {
            entry.unwritten = true;
        }
    }

    /// Has a series that was taken, and will not be written, be quiet about it.
    pub(super) fn give_up(&mut self, series: &Series, now: Instant) {
        if let Some(entry) = self.entry(&series.undrained) {
            entry.rested = now + END;
        }
    }

    fn entry(&mut self, undrained: &Undrained) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|entry| {
            let known = &entry.series.undrained;
            known.code == undrained.code && known.owner.uid == undrained.owner.uid
        })
    }

    /// Forgets the series that has been quiet for longest, of those that are written.
    fn make_room(&mut self) -> bool {
        let entries = self.entries.iter().enumerate();
        let written = entries.filter(|(_, entry)| !entry.unwritten);
        let quietest = written.min_by_key(|(_, entry)| entry.seen);
        let Some(index) = quietest.map(|(index, _)| index) else {
            return false;
        };
        self.entries.swap_remove(index);
        true
    }

    fn forget(&mut self, now: Instant) {
        self.entries
            .retain(|entry| now.duration_since(entry.seen) < END);
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;
    use crate::admission::{Code, Owner};

    const SECOND: Duration = Duration::from_secs(1);

    fn undrained(uid: usize, code: Code) -> Undrained {
        let text = String::new;
        Undrained {
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
    struct Story {
        ledger: Ledger,
        start: Instant,
    }

    impl Story {
        fn new() -> Self {
            let start = Instant::now();
            let ledger = Ledger::new(start);
            Self { ledger, start }
        }

        fn note(&mut self, after: Duration, uid: usize, code: Code) -> bool {
            let undrained = undrained(uid, code);
            let (now, time) = (self.start + after, UNIX_EPOCH + after);
            self.ledger.note(undrained, now, time)
        }

        /// The owners and counts that are written after so long.
        fn written(&mut self, after: Duration) -> Vec<(String, i32)> {
            let taken = std::iter::from_fn(|| self.ledger.take(self.start + after));
            taken
                .map(|series| (series.undrained.owner.uid, series.pods))
                .collect()
        }
    }

    fn told(uid: usize, pods: i32) -> Vec<(String, i32)> {
        vec![(uid.to_string(), pods)]
    }

    #[test]
    fn the_first_of_a_series_is_written_at_once_and_then_their_number() {
        let mut story = Story::new();
        assert_eq!(story.ledger.due(), None);
        story.note(SECOND, 1, Code::ExistingHook);
        assert_eq!(story.ledger.due(), Some(story.start + SECOND));
        assert_eq!(story.written(SECOND), told(1, 1));
        assert_eq!(story.ledger.due(), None);
        for _ in 0..99 {
            story.note(2 * SECOND, 1, Code::ExistingHook);
        }
        assert_eq!(story.ledger.due(), Some(story.start + SECOND + PAUSE));
        assert_eq!(story.written(PAUSE), []);
        assert_eq!(story.written(PAUSE + SECOND), told(1, 100));
        assert_eq!(story.written(3 * PAUSE), []);
    }

    #[test]
    fn a_series_is_of_one_owner_and_one_code_until_it_ends() {
        let mut story = Story::new();
        story.note(SECOND, 1, Code::ExistingHook);
        let first = story.ledger.take(story.start + SECOND).unwrap();
        story.note(SECOND, 1, Code::NoEnvoy);
        assert_eq!(story.written(SECOND), told(1, 1));
        story.note(SECOND, 2, Code::NoEnvoy);
        assert_eq!(story.written(SECOND), told(2, 1));
        let end = END + 2 * SECOND;
        story.note(end, 1, Code::ExistingHook);
        let second = story.ledger.take(story.start + end).unwrap();
        assert_eq!((first.pods, second.pods), (1, 1));
        assert_ne!(first.first, second.first);
    }

    #[test]
    fn what_was_not_written_is_written_later_or_never() {
        let mut story = Story::new();
        story.note(SECOND, 1, Code::ExistingHook);
        let series = story.ledger.take(story.start + SECOND).unwrap();
        story.ledger.put_back(&series);
        assert_eq!(story.written(PAUSE), []);
        assert_eq!(story.written(PAUSE + SECOND), told(1, 1));
        story.ledger.give_up(&series, story.start + 2 * PAUSE);
        story.note(2 * PAUSE, 1, Code::ExistingHook);
        assert_eq!(story.written(END), []);
        story.ledger.put_back(&series);
        assert_eq!(story.written(END + 2 * PAUSE), [], "it has ended");
        assert_eq!(story.ledger.due(), None);
    }

    #[test]
    fn a_new_series_has_room_unless_all_are_unwritten() {
        let mut story = Story::new();
        let minute = 60 * SECOND;
        // As many as the limit allows, none of which ends.
        let mut known = 0;
        while known < MOST {
            let now = minute * u32::try_from(known).unwrap();
            assert!((0..known).all(|uid| story.note(now, uid, Code::NoEnvoy)));
            known += usize::from(story.note(now, known, Code::NoEnvoy));
        }
        let now = minute * u32::try_from(MOST).unwrap();
        assert!(!story.note(now, MOST, Code::NoEnvoy));
        assert!(story.note(now, 7, Code::NoEnvoy), "it has its place");
        assert_eq!(story.written(now).len(), MOST);
        assert!(story.note(now + SECOND, 0, Code::NoEnvoy));
        assert!(story.note(now + minute, MOST, Code::NoEnvoy));
        assert_eq!(story.ledger.entries.len(), MOST);
        let pods = i32::try_from(MOST).unwrap() + 1;
        assert_eq!(
            story.written(now + minute),
            [told(0, pods), told(MOST, 1)].concat()
        );
    }

    #[test]
    fn a_series_is_written_ever_less_often_and_no_pod_is_lost() {
        let mut story = Story::new();
        let mut writes = Vec::new();
        for second in 0..1800 {
            assert!(story.note(SECOND * second, 1, Code::NoEnvoy));
            let written = story.written(SECOND * second);
            writes.extend(written.iter().map(|(_, pods)| pods - 1));
        }
        assert_eq!(writes, [0, 10, 30, 70, 150, 310, 610, 910, 1210, 1510]);
    }

    #[test]
    fn a_flood_of_owners_has_no_more_events_than_the_limit() {
        let mut story = Story::new();
        let noted = (0..1500).filter(|uid| story.note(SECOND, *uid, Code::NoEnvoy));
        assert_eq!(noted.count(), 100);
        assert_eq!(story.written(SECOND).len(), 100);
    }
}
