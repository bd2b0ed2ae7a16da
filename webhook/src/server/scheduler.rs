//! Schedules reviews on the admission thread, fairly among client addresses.

use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::yield_now;

use super::fair_queue::{FairQueue, Ticket};

/// How long reviews are processed before the runtime runs other tasks: connections, handshakes, bodies. An ordinary
/// review takes 11 to 25 µs, so some fifty share one slice; after a longer one, the runtime polls all sockets.
const TIME_SLICE: Duration = Duration::from_millis(1);

/// Permits one review at a time, and the waiting addresses in turn. So a client that sends reviews without a pause,
/// on however many connections, delays a review of another address by one of its own.
#[derive(Debug, Default)]
pub(super) struct Scheduler(Mutex<SchedulerState>);

#[derive(Debug, Default)]
struct SchedulerState {
    queue: FairQueue<oneshot::Sender<()>>,
    /// Whether a permit is granted and not yet released.
    is_busy: bool,
    /// How long reviews took since other tasks last ran.
    slice_used: Duration,
}

/// The permit to process one review, or a place in the queue for it. Its drop grants the next one.
#[derive(Debug)]
pub(super) struct ReviewPermit<'a> {
    scheduler: &'a Scheduler,
    ticket: Option<Ticket>,
}

// === impl Scheduler ===

impl Scheduler {
    /// Waits for a permit.
    pub(super) async fn acquire(&self, source: IpAddr) -> ReviewPermit<'_> {
        let (granted, permit) = {
            let mut state = self.state();
            let scheduler = self;
            if !state.is_busy {
                state.is_busy = true;
                let ticket = None;
                return ReviewPermit { scheduler, ticket };
            }
            let (grant, granted) = oneshot::channel();
            let ticket = Some(state.queue.push(source, grant));
            (granted, ReviewPermit { scheduler, ticket })
        };
        // The sender is never dropped unsent: only its grant, or the drop of this permit, removes it from the queue.
        let _ = granted.await;
        permit
    }

    fn state(&self) -> MutexGuard<'_, SchedulerState> {
        // The state cannot panic halfway through a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl ReviewPermit ===

impl ReviewPermit<'_> {
    /// Releases the permit after a review that took this long. If that ends a time slice, other tasks run before the
    /// next review.
    pub(super) async fn finish(self, took: Duration) {
        if self.scheduler.state().charge(took) {
            yield_now().await;
        }
    }
}

impl Drop for ReviewPermit<'_> {
    fn drop(&mut self) {
        let mut state = self.scheduler.state();
        let was_queued = self.ticket.is_some_and(|it| state.queue.remove(it));
        if !was_queued {
            state.grant_next();
        }
    }
}

// === impl SchedulerState ===

impl SchedulerState {
    /// Adds to the time slice, and returns true if that ends it.
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
            // A permit whose future is dropped meanwhile grants the next one itself.
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
    fn free_permit_neither_waits_nor_yields() {
        let scheduler = Scheduler::default();
        for _ in 0..40 {
            let permit = scheduler.acquire(address(1)).now_or_never().unwrap();
            let finished = permit.finish(Duration::from_micros(20)).now_or_never();
            assert!(finished.is_some());
        }
        let permit = scheduler.acquire(address(1)).now_or_never().unwrap();
        assert!(permit.finish(LONG).now_or_never().is_none());
    }

    #[tokio::test]
    async fn crowd_of_one_address_delays_another_by_one_review() {
        let scheduler = Scheduler::default();
        let order = RefCell::new(Vec::new());
        let review = async |host| {
            let permit = scheduler.acquire(address(host)).await;
            order.borrow_mut().push(host);
            permit.finish(LONG).await;
        };
        let hosts = [1, 1, 1, 1, 1, 1, 2, 2];
        join_all(hosts.map(review)).await;
        assert_eq!(*order.borrow(), [1, 1, 2, 1, 2, 1, 1, 1]);
    }

    #[tokio::test]
    async fn other_tasks_run_between_long_reviews() {
        let scheduler = Scheduler::default();
        let ran = RefCell::new(String::new());
        let review = async || {
            for _ in 0..3 {
                let permit = scheduler.acquire(address(1)).await;
                ran.borrow_mut().push('r');
                permit.finish(LONG).await;
            }
        };
        let other_task = async {
            for _ in 0..3 {
                ran.borrow_mut().push('o');
                yield_now().await;
            }
        };
        tokio::join!(review(), review(), other_task);
        let ran = ran.take();
        let interleaved = ran.trim_end_matches('r');
        assert!(ran.starts_with('r') && !interleaved.contains("rr"), "{ran}");
    }

    #[tokio::test(start_paused = true)]
    async fn permit_is_passed_on_by_dropped_waiters() {
        let scheduler = Scheduler::default();
        let permit = scheduler.acquire(address(1)).await;
        let mut waiting: Vec<_> = (0..4)
            .map(|_| Box::pin(scheduler.acquire(address(2))))
            .collect();
        for waiter in &mut waiting {
            assert!(waiter.as_mut().now_or_never().is_none());
        }
        // One is dropped while it is queued, one after its grant but before it is polled.
        drop(waiting.remove(1));
        drop(permit);
        drop(waiting.remove(0));
        for waiter in waiting {
            let granted = timeout(LONG, waiter).await;
            drop(granted.expect("the permit is passed on"));
        }
        assert!(scheduler.acquire(address(3)).now_or_never().is_some());
    }
}
