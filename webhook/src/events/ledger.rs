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
