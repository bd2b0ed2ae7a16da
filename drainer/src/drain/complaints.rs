//! When to complain of an Envoy that does not answer: what is asked again and again is not said each
//! time.

use std::time::Duration;

use tokio::time::Instant;

/// An Envoy that has not answered for so long after the drainer's start is not just starting.
const START_PATIENCE: Duration = Duration::from_secs(5);

/// How often it is then said again.
const REMINDER: Duration = Duration::from_secs(60);

pub(super) struct Complaints {
    next: Instant,
    every: Duration,
    made: bool,
}

// === impl Complaints ===

impl Complaints {
    /// The first is due at `first`, the others so long after each other.
    pub(super) fn new(first: Instant, every: Duration) -> Self {
        Self {
            next: first,
            every,
            made: false,
        }
    }

    /// Those of an Envoy that may just be starting.
    pub(super) fn at_start() -> Self {
        Self::new(Instant::now() + START_PATIENCE, REMINDER)
    }

    /// Returns true if one is to be made now: when it is time, or at once if Envoy `answered` that it
    /// will not.
    pub(super) fn are_due(&mut self, now: Instant, answered: bool) -> bool {
        let due = now >= self.next || answered && !self.made;
        if due {
            self.made = true;
            self.next = now + self.every;
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_wait_for_their_time_or_for_an_answer_and_keep_their_distance() {
        const SECOND: Duration = Duration::from_secs(1);
        let start = Instant::now();
        let mut complaints = Complaints::new(start + 5 * SECOND, 10 * SECOND);
        for (after, answered, wanted) in [
            (0, false, false),
            (4, false, false),
            (4, true, true),
            (5, true, false),
            (13, false, false),
            (14, false, true),
            (15, true, false),
        ] {
            let due = complaints.are_due(start + after * SECOND, answered);
            assert_eq!(due, wanted, "{after} s, {answered}");
        }
    }
}
