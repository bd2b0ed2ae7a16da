//! Schedules reviews on the admission thread, fairly among client addresses.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex as FairMutex, MutexGuard as FairMutexGuard};
use tokio::task::yield_now;

/// How long reviews are processed before the runtime runs other tasks: connections, handshakes, bodies. An ordinary
/// review takes 11 to 25 µs, so some fifty share one slice; after a longer one, the runtime polls all sockets.
const TIME_SLICE: Duration = Duration::from_millis(1);

/// Permits one review at a time, and the waiting addresses in turn. So a client that sends reviews without a pause,
/// on however many connections, delays a review of another address by one of its own.
///
/// A [`FairMutex`] is granted in the order of the requests for it.
#[derive(Debug, Default)]
pub(super) struct Scheduler {
    /// Held by the review that is processed: how long reviews took since other tasks last ran.
    slice_used: FairMutex<Duration>,
    /// Held by the review that is the next one of its address, until it is processed. The others of the address wait
    /// for this one, so that each address has one place in the queue for `slice_used`.
    next_of_address: Mutex<HashMap<IpAddr, Arc<FairMutex<()>>>>,
}

/// The permit to process one review. Its drop grants the next one.
#[derive(Debug)]
pub(super) struct ReviewPermit<'a> {
    slice_used: FairMutexGuard<'a, Duration>,
}

// === impl Scheduler ===

impl Scheduler {
    /// Waits for a permit.
    pub(super) async fn acquire(&self, source: IpAddr) -> ReviewPermit<'_> {
        let next = self.next_of_address(source);
        let _next = next.lock().await;
        ReviewPermit {
            slice_used: self.slice_used.lock().await,
        }
    }

    /// The mutex of this address. Those for which no review waits are dropped here.
    fn next_of_address(&self, source: IpAddr) -> Arc<FairMutex<()>> {
        let mutexes = self.next_of_address.lock();
        let mut mutexes = mutexes.unwrap_or_else(PoisonError::into_inner);
        mutexes.retain(|_, mutex| Arc::strong_count(mutex) > 1);
        Arc::clone(mutexes.entry(source.to_canonical()).or_default())
    }
}

// === impl ReviewPermit ===

impl ReviewPermit<'_> {
    /// Releases the permit after a review that took this long. If that ends a time slice, other tasks run before the
    /// next review.
    pub(super) async fn finish(mut self, took: Duration) {
        *self.slice_used += took;
        if *self.slice_used >= TIME_SLICE {
            *self.slice_used = Duration::ZERO;
            yield_now().await;
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
