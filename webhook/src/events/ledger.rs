//! Which Events are to be written, and when. As Kubernetes' own reporters have it: the first of a series at
//! once, how many followed from time to time.
//! <https://github.com/kubernetes/client-go/blob/master/tools/events/event_broadcaster.go>

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use crate::admission::Undrained;

/// The pause between two writes of one Event.
const PAUSE: Duration = Duration::from_secs(10);

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
#[derive(Debug, Default)]
pub(super) struct Ledger(Vec<Entry>);

#[derive(Debug)]
struct Entry {
    series: Series,
    seen: Instant,
    /// Not to be written before.
    rested: Instant,
    unwritten: bool,
}

// === impl Ledger ===

impl Ledger {
    /// Counts a pod in the series that it belongs to; false if there is no room for another series.
    pub(super) fn note(&mut self, undrained: Undrained, now: Instant, time: SystemTime) -> bool {
        self.forget(now);
        if let Some(entry) = self.entry(&undrained) {
            entry.series.pods = entry.series.pods.saturating_add(1);
            entry.series.last = time;
            entry.seen = now;
            entry.unwritten = true;
            return true;
        }
        if self.0.len() == MOST && !self.make_room() {
            return false;
        }
        self.0.push(Entry {
            series: Series {
                undrained,
                pods: 1,
                first: time,
                last: time,
            },
            seen: now,
            rested: now,
            unwritten: true,
        });
        true
    }

    /// When a series is to be written next.
    pub(super) fn due(&self) -> Option<Instant> {
        let unwritten = self.0.iter().filter(|entry| entry.unwritten);
        unwritten.map(|entry| entry.rested).min()
    }

    /// Takes the series that was to be written first, up to `now`.
    pub(super) fn take(&mut self, now: Instant) -> Option<Series> {
        self.forget(now);
        let unwritten = self.0.iter_mut().filter(|entry| entry.unwritten);
        let entry = unwritten.min_by_key(|entry| entry.rested)?;
        if entry.rested > now {
            return None;
        }
        entry.unwritten = false;
        entry.rested = now + PAUSE;
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
        self.0.iter_mut().find(|entry| {
            let known = &entry.series.undrained;
            known.code == undrained.code && known.owner.uid == undrained.owner.uid
        })
    }

    /// Forgets the series that has been quiet for longest, of those that are written.
    fn make_room(&mut self) -> bool {
        let entries = self.0.iter().enumerate();
        let written = entries.filter(|(_, entry)| !entry.unwritten);
        let quietest = written.min_by_key(|(_, entry)| entry.seen);
        let Some(index) = quietest.map(|(index, _)| index) else {
            return false;
        };
        self.0.swap_remove(index);
        true
    }

    fn forget(&mut self, now: Instant) {
        self.0.retain(|entry| now.duration_since(entry.seen) < END);
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
                namespace: text(),
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
            let (ledger, start) = (Ledger::default(), Instant::now());
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
    fn there_is_room_for_a_new_series_unless_all_are_unwritten() {
        let mut story = Story::new();
        for uid in 0..MOST {
            assert!(story.note(SECOND, uid, Code::NoEnvoy));
        }
        assert!(!story.note(SECOND, MOST, Code::NoEnvoy));
        assert!(story.note(SECOND, 7, Code::NoEnvoy), "it has its place");
        assert_eq!(story.written(SECOND).len(), MOST);
        assert!(story.note(2 * SECOND, 0, Code::NoEnvoy));
        assert!(story.note(2 * SECOND, MOST, Code::NoEnvoy));
        assert_eq!(story.ledger.0.len(), MOST);
        assert_eq!(
            story.written(SECOND + PAUSE),
            [told(MOST, 1), told(0, 2)].concat()
        );
    }
}
