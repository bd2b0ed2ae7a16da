//! Shares the thread that decides reviews among the addresses they come from.

use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::yield_now;

use super::fair_queue::{FairQueue, Ticket};

/// How long reviews are decided before the runtime looks after all else: connections, handshakes, bodies.
/// An ordinary review takes 11 to 25 µs, so some fifty share one slice; whatever takes longer is followed
/// by a look at all sockets.
const TIME_SLICE: Duration = Duration::from_millis(1);

/// Gives reviews their turn: one at a time, and where some wait, the addresses go round. So a client that
/// sends reviews without a pause, on however many connections, delays another address' review by one of
/// its own.
#[derive(Debug, Default)]
pub(super) struct Scheduler(Mutex<SchedulerState>);

#[derive(Debug, Default)]
struct SchedulerState {
    queue: FairQueue<oneshot::Sender<()>>,
    /// A turn was given that is not over.
    is_busy: bool,
    /// What reviews took since the runtime last looked after all else.
    slice_used: Duration,
}

/// The right to decide one review, or a place among those that wait for it. Dropped, it goes to the next.
#[derive(Debug)]
pub(super) struct ReviewPermit<'a> {
    scheduler: &'a Scheduler,
    ticket: Option<Ticket>,
}

// === impl Scheduler ===

impl Scheduler {
    /// Waits for a turn, if there is need to.
    pub(super) async fn acquire(&self, source: IpAddr) -> ReviewPermit<'_> {
        let (given, turn) = {
            let mut state = self.state();
            let scheduler = self;
            if !state.is_busy {
                state.is_busy = true;
                let ticket = None;
                return ReviewPermit { scheduler, ticket };
            }
            let (give, given) = oneshot::channel();
            let ticket = Some(state.queue.push(source, give));
            (given, ReviewPermit { scheduler, ticket })
        };
        // It is given, never dropped: only its own turn takes it out of the queue.
        let _ = given.await;
        turn
    }

    fn state(&self) -> MutexGuard<'_, SchedulerState> {
        // Nothing in there can panic halfway through a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl ReviewPermit ===

impl ReviewPermit<'_> {
    /// Ends a turn in which a review took so long. If reviews have had their slice, the runtime looks after
    /// all else before the next one.
    pub(super) async fn finish(self, took: Duration) {
        if self.scheduler.state().charge(took) {
            yield_now().await;
        }
    }
}

impl Drop for ReviewPermit<'_> {
    fn drop(&mut self) {
        let mut state = self.scheduler.state();
        let waits = self.ticket.is_some_and(|it| state.queue.remove(it));
        if !waits {
            state.grant_next();
        }
    }
}

// === impl SchedulerState ===

impl SchedulerState {
    /// Returns true if a slice is over with what was just spent.
    fn charge(&mut self, took: Duration) -> bool {
        self.slice_used += took;
        let is_over = self.slice_used >= TIME_SLICE;
        if is_over {
            self.slice_used = Duration::ZERO;
        }
        is_over
    }

    fn grant_next(&mut self) {
        match self.queue.pop() {
            // One that is being dropped passes it on itself.
            Some(next) => drop(next.send(())),
            None => self.is_busy = false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::net::Ipv4Addr;

    use futures_util::FutureExt;
    use futures_util::future::join_all;
    use tokio::time::timeout;

    use super::*;

    const LONG: Duration = Duration::from_millis(2);

    fn address(host: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, host).into()
    }

    #[test]
    fn a_free_turn_neither_waits_nor_yields() {
        let scheduler = Scheduler::default();
        for _ in 0..40 {
            let turn = scheduler.acquire(address(1)).now_or_never().unwrap();
            let ended = turn.finish(Duration::from_micros(20)).now_or_never();
            assert!(ended.is_some());
        }
        let turn = scheduler.acquire(address(1)).now_or_never().unwrap();
        assert!(turn.finish(LONG).now_or_never().is_none());
    }

    #[tokio::test]
    async fn a_crowd_of_one_address_delays_another_by_one_review() {
        let scheduler = Scheduler::default();
        let order = RefCell::new(Vec::new());
        let review = async |host| {
            let turn = scheduler.acquire(address(host)).await;
            order.borrow_mut().push(host);
            turn.finish(LONG).await;
        };
        let hosts = [1, 1, 1, 1, 1, 1, 2, 2];
        join_all(hosts.map(review)).await;
        assert_eq!(*order.borrow(), [1, 1, 2, 1, 2, 1, 1, 1]);
    }

    #[tokio::test]
    async fn between_two_long_reviews_other_tasks_run() {
        let scheduler = Scheduler::default();
        let ran = RefCell::new(String::new());
        let review = async || {
            for _ in 0..3 {
                let turn = scheduler.acquire(address(1)).await;
                ran.borrow_mut().push('r');
                turn.finish(LONG).await;
            }
        };
        let other = async {
            for _ in 0..3 {
                ran.borrow_mut().push('o');
                yield_now().await;
            }
        };
        tokio::join!(review(), review(), other);
        let ran = ran.take();
        let beside = ran.trim_end_matches('r');
        assert!(ran.starts_with('r') && !beside.contains("rr"), "{ran}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_outlives_those_that_leave() {
        let scheduler = Scheduler::default();
        let turn = scheduler.acquire(address(1)).await;
        let mut waiting: Vec<_> = (0..4)
            .map(|_| Box::pin(scheduler.acquire(address(2))))
            .collect();
        for one in &mut waiting {
            assert!(one.as_mut().now_or_never().is_none());
        }
        // One leaves while it waits, one when the turn is its own but before it knows.
        drop(waiting.remove(1));
        drop(turn);
        drop(waiting.remove(0));
        for one in waiting {
            let given = timeout(LONG, one).await;
            drop(given.expect("the turn is passed on"));
        }
        assert!(scheduler.acquire(address(3)).now_or_never().is_some());
    }
}
