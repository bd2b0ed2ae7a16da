//! Schedules reviews on the admission thread, fairly among client addresses.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::yield_now;

/// How long reviews are processed before the runtime runs other tasks: connections, handshakes, bodies. An ordinary
/// review takes 11 to 25 µs, so some fifty share one slice; after a longer one, the runtime polls all sockets.
const TIME_SLICE: Duration = Duration::from_millis(1);

/// Permits one review at a time, and the waiting addresses in turn. So a client that sends reviews without a pause,
/// on however many connections, delays a review of another address by one of its own.
///
/// A [`Semaphore`] grants its permits in the order of the requests for them; each of these has one.
#[derive(Debug)]
pub(super) struct Scheduler {
    /// For the review that is processed.
    thread: Semaphore,
    /// For the next review of each address, until it is processed. The others of the address wait for this one, so
    /// that each address has one place in the queue for the thread.
    next_of_address: Mutex<HashMap<IpAddr, Arc<Semaphore>>>,
    /// How long reviews took since other tasks last ran.
    slice_used: Mutex<Duration>,
}

/// The permit to process one review. Its drop grants the next one.
#[derive(Debug)]
pub(super) struct ReviewPermit<'a> {
    slice_used: &'a Mutex<Duration>,
    _thread: Option<SemaphorePermit<'a>>,
}

// === impl Scheduler ===

impl Scheduler {
    /// Waits for a permit.
    pub(super) async fn acquire(&self, source: IpAddr) -> ReviewPermit<'_> {
        let next_of_address = self.next_of_address(source);
        // A semaphore that is never closed always grants.
        let _next = next_of_address.acquire().await.ok();
        ReviewPermit {
            slice_used: &self.slice_used,
            _thread: self.thread.acquire().await.ok(),
        }
    }

    /// The semaphore of this address. Those for which no review waits are dropped here.
    fn next_of_address(&self, source: IpAddr) -> Arc<Semaphore> {
        let semaphores = self.next_of_address.lock();
        let mut semaphores = semaphores.unwrap_or_else(PoisonError::into_inner);
        semaphores.retain(|_, semaphore| Arc::strong_count(semaphore) > 1);
        let semaphore = semaphores.entry(source.to_canonical());
        Arc::clone(semaphore.or_insert_with(|| Arc::new(Semaphore::new(1))))
    }
}

impl Default for Scheduler {
    fn default() -> Self {
        Self {
            thread: Semaphore::new(1),
            next_of_address: Mutex::default(),
            slice_used: Mutex::default(),
        }
    }
}

// === impl ReviewPermit ===

impl ReviewPermit<'_> {
    /// Releases the permit after a review that took this long. If that ends a time slice, other tasks run before the
    /// next review.
    pub(super) async fn finish(self, took: Duration) {
        if self.charge(took) {
            yield_now().await;
        }
    }

    /// Adds to the time slice, and returns true if that ends it.
    fn charge(&self, took: Duration) -> bool {
        let slice_used = self.slice_used.lock();
        let mut slice_used = slice_used.unwrap_or_else(PoisonError::into_inner);
        *slice_used += took;
        let is_over = *slice_used >= TIME_SLICE;
        if is_over {
            *slice_used = Duration::ZERO;
        }
        is_over
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

    /// Returns the order in which reviews of these addresses, which arrive at once, are processed.
    async fn processing_order<const N: usize>(sources: [IpAddr; N]) -> Vec<usize> {
        let scheduler = Scheduler::default();
        let order = RefCell::new(Vec::new());
        let mut number = 0;
        let reviews = sources.map(|source| {
            let (scheduler, order, review) = (&scheduler, &order, number);
            number += 1;
            async move {
                let permit = scheduler.acquire(source).await;
                order.borrow_mut().push(review);
                permit.finish(LONG).await;
            }
        });
        join_all(reviews).await;
        order.into_inner()
    }

    #[tokio::test]
    async fn crowd_of_one_address_delays_another_by_one_review() {
        let sources = [1, 1, 1, 1, 1, 1, 2, 2].map(address);
        assert_eq!(processing_order(sources).await, [0, 1, 6, 2, 7, 3, 4, 5]);
    }

    #[tokio::test]
    async fn addresses_take_turns() {
        let sources = [1, 1, 1, 2, 1, 3, 2].map(address);
        assert_eq!(processing_order(sources).await, [0, 1, 3, 5, 2, 6, 4]);
    }

    #[tokio::test]
    async fn mapped_ipv4_address_equals_its_ipv4_address() {
        let mapped = Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped().into();
        let sources = [address(1), mapped, mapped, address(2)];
        assert_eq!(processing_order(sources).await, [0, 1, 3, 2]);
    }

    #[test]
    fn addresses_without_waiting_reviews_are_forgotten() {
        let scheduler = Scheduler::default();
        for host in 0..40 {
            let permit = scheduler.acquire(address(host)).now_or_never();
            assert!(permit.is_some());
        }
        assert_eq!(scheduler.next_of_address.lock().unwrap().len(), 1);
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
