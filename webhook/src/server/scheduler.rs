//! Schedules the admission thread: reviews and TLS handshakes, one at a time, in equal shares for the clients that
//! wait.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::task::yield_now;

/// What a TLS handshake takes, about, as the size of a review that takes as long.
pub(super) const HANDSHAKE_SIZE: u64 = 8 << 10;

/// How long tasks run before the runtime polls all sockets, for new connections, handshakes and bodies. An ordinary
/// review takes 11 to 25 µs, so some ten share one slice; a handshake takes about 300 µs.
const TIME_SLICE: Duration = Duration::from_micros(250);

/// Permits one task at a time: a review, or the computation of a TLS handshake.
///
/// It is self-clocked fair queueing (<https://doi.org/10.1109/INFCOM.1994.337677>) by the sizes of reviews, which bound
/// the time that they take. Each task has a tag: the tag of its client's previous task plus its own size. For a client
/// that has had no task for a while, it is the tag of the running task plus a part of its size. The task with the
/// lowest tag is next. So while a client's task waits, no other client gets more than about as many bytes, however many
/// tasks it has: a small review waits for a few of the largest ones.
#[derive(Debug, Default)]
pub(super) struct Scheduler(Mutex<Queue>);

#[derive(Debug, Default)]
struct Queue {
    /// Whether a task runs.
    is_busy: bool,
    /// The tag of the task that runs, or of the last one: the clock of the queue.
    now: u64,
    /// The tag of the last task of each client, unless it is below `now`.
    last_tags: HashMap<IpAddr, u64>,
    /// The number of clients in `last_tags` at which those below `now` are removed.
    prune_at: usize,
    /// The tasks that wait, by their tags and the order of their arrival.
    waiting: BTreeMap<(u64, u64), oneshot::Sender<CpuPermit>>,
    arrivals: u64,
    /// How long tasks took in this time slice.
    slice_used: Duration,
}

/// The permit to run one task. Its drop grants the next one.
#[derive(Debug)]
pub(super) struct CpuPermit(Arc<Scheduler>);

/// Returns the prefix that identifies a client: its IPv4 address, or the /64 of its IPv6 address, since a host can
/// usually take any address of a /64. Several clients may share an address, as behind a node that masquerades or
/// konnectivity's agent.
pub(super) fn client_prefix(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => {
            Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into()
        }
    }
}

// === impl Scheduler ===

impl Scheduler {
    /// Waits for a permit to run a task of `source`: a review of `size` bytes, or a handshake of [`HANDSHAKE_SIZE`].
    pub(super) async fn acquire(self: &Arc<Self>, source: IpAddr, size: u64) -> CpuPermit {
        let turn = self.0.lock().enter(client_prefix(source), size.max(1));
        match turn {
            Some(turn) => turn.await.expect("the queue grants what waits"),
            None => CpuPermit(Arc::clone(self)),
        }
    }
}

// === impl Queue ===

impl Queue {
    /// Adds a task, and returns the receiver of its permit, or `None` if it may run now.
    fn enter(&mut self, client: IpAddr, size: u64) -> Option<oneshot::Receiver<CpuPermit>> {
        self.arrivals += 1;
        let last = self.last_tags.get(&client).filter(|tag| **tag >= self.now);
        let tag = match last {
            Some(last) => last + size,
            None => self.now + spread(size, self.arrivals),
        };
        self.remember(client, tag);
        if !self.is_busy {
            (self.is_busy, self.now) = (true, tag);
            return None;
        }
        let (grant, turn) = oneshot::channel();
        self.waiting.insert((tag, self.arrivals), grant);
        Some(turn)
    }

    fn remember(&mut self, client: IpAddr, tag: u64) {
        if self.last_tags.len() >= self.prune_at {
            let now = self.now;
            self.last_tags.retain(|_, tag| *tag >= now);
            self.prune_at = (2 * self.last_tags.len()).max(64);
        }
        self.last_tags.insert(client, tag);
    }

    /// Adds to the time slice, and returns true if that ends it.
    fn use_slice(&mut self, took: Duration) -> bool {
        self.slice_used += took;
        let is_over = self.slice_used >= TIME_SLICE;
        if is_over {
            self.slice_used = Duration::ZERO;
        }
        is_over
    }

    /// Returns the next task that still waits.
    fn next_task(&mut self) -> Option<oneshot::Sender<CpuPermit>> {
        while let Some(((tag, _), grant)) = self.waiting.pop_first() {
            if !grant.is_closed() {
                self.now = tag;
                return Some(grant);
            }
        }
        self.is_busy = false;
        None
    }
}

/// A number from 1 to `size` that differs from arrival to arrival. Otherwise clients whose first reviews arrive
/// together would have the same tags from then on, and a small review would wait for one of each.
fn spread(size: u64, arrival: u64) -> u64 {
    // Multiples of the golden ratio are spread evenly.
    let fraction = arrival.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    (size.saturating_mul(fraction) >> 32).max(1)
}

// === impl CpuPermit ===

impl CpuPermit {
    /// Releases the permit after a task that took this long. If that ends a time slice, the runtime polls others before
    /// the next task.
    pub(super) async fn finish(self, took: Duration) {
        if self.0.0.lock().use_slice(took) {
            yield_now().await;
        }
    }
}

impl Drop for CpuPermit {
    fn drop(&mut self) {
        let next = self.0.0.lock().next_task();
        if let Some(next) = next {
            // If its receiver is dropped just now, the permit is too, and grants the next one.
            drop(next.send(Self(Arc::clone(&self.0))));
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

    /// The size of an ordinary review.
    const SIZE: u64 = 8_000;

    #[test]
    fn a_prefix_is_an_ipv4_address_or_64_bits_of_ipv6() {
        for (address, prefix) in [
            ("10.0.0.1", "10.0.0.1"),
            ("::ffff:10.0.0.1", "10.0.0.1"),
            ("fd00:1:2:3:4:5:6:7", "fd00:1:2:3::"),
            ("::1", "::"),
        ] {
            let address: IpAddr = address.parse().unwrap();
            assert_eq!(client_prefix(address).to_string(), prefix);
        }
    }

    fn address(host: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, host).into()
    }

    #[test]
    fn free_permit_neither_waits_nor_yields() {
        let scheduler = Arc::<Scheduler>::default();
        for _ in 0..12 {
            let permit = scheduler.acquire(address(1), SIZE).now_or_never().unwrap();
            let finished = permit.finish(Duration::from_micros(20)).now_or_never();
            assert!(finished.is_some());
        }
        let permit = scheduler.acquire(address(1), SIZE).now_or_never().unwrap();
        assert!(permit.finish(LONG).now_or_never().is_none());
    }

    /// Returns the order in which reviews of these addresses and sizes, which arrive at once, are processed.
    async fn processing_order(reviews: impl IntoIterator<Item = (IpAddr, u64)>) -> Vec<usize> {
        let scheduler = Arc::<Scheduler>::default();
        let order = RefCell::new(Vec::new());
        let reviews = reviews.into_iter().enumerate();
        let reviews = reviews.map(async |(review, (source, size))| {
            let permit = scheduler.acquire(source, size).await;
            order.borrow_mut().push(review);
            permit.finish(LONG).await;
        });
        join_all(reviews).await;
        order.into_inner()
    }

    fn of_one_size(host: u8) -> (IpAddr, u64) {
        (address(host), SIZE)
    }

    #[tokio::test]
    async fn flood_from_one_address_delays_another_by_one_review() {
        let reviews = [1, 1, 1, 1, 1, 1, 2, 2].map(of_one_size);
        assert_eq!(processing_order(reviews).await, [0, 6, 1, 7, 2, 3, 4, 5]);
    }

    #[tokio::test]
    async fn addresses_take_turns() {
        let reviews = [1, 1, 1, 2, 1, 3, 2].map(of_one_size);
        assert_eq!(processing_order(reviews).await, [0, 3, 5, 1, 6, 2, 4]);
    }

    #[tokio::test]
    async fn mapped_ipv4_address_equals_its_ipv4_address() {
        let mapped = Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped().into();
        let sources = [address(1), mapped, mapped, address(2)];
        let order = processing_order(sources.map(|source| (source, SIZE))).await;
        assert_eq!(order, [0, 3, 1, 2]);
    }

    /// Returns how many of ten reviews of `size` from each of 200 addresses are processed before each of three ordinary
    /// ones from another address, which arrive last.
    async fn positions_behind_flood(size: u64) -> Vec<usize> {
        let flood = (1..=200).cycle().take(2_000);
        let mut reviews: Vec<_> = flood.map(|host| (address(host), size)).collect();
        reviews.extend([of_one_size(0); 3]);
        let order = processing_order(reviews).await;
        let position = |review| order.iter().position(|it| *it == review).unwrap();
        (2_000..2_003).map(position).collect()
    }

    #[tokio::test]
    async fn review_waits_for_one_of_the_same_size_from_each_address() {
        let positions = positions_behind_flood(SIZE).await;
        for (position, limit) in positions.iter().zip([200, 401, 602]) {
            assert!((limit - 200..=limit).contains(position), "{positions:?}");
        }
    }

    #[tokio::test]
    async fn ordinary_review_waits_for_few_large_ones() {
        // About 20 large ones, a tenth of the addresses, for each ordinary one.
        let positions = positions_behind_flood(10 * SIZE).await;
        for (position, limit) in positions.iter().zip([30, 50, 70]) {
            assert!(*position <= limit, "{positions:?}");
        }
    }

    #[tokio::test]
    async fn clients_without_a_task_are_forgotten() {
        let scheduler = Arc::<Scheduler>::default();
        for number in 0..10_000_u32 {
            let source = Ipv4Addr::from_bits(number).into();
            drop(scheduler.acquire(source, SIZE).await);
        }
        let permit = scheduler.acquire(address(0), SIZE).await;
        for host in 1..200 {
            assert!(
                scheduler
                    .acquire(address(host), SIZE)
                    .now_or_never()
                    .is_none()
            );
        }
        drop(permit);
        let queue = scheduler.0.lock();
        assert!(queue.waiting.is_empty() && queue.last_tags.len() <= 512);
    }

    #[tokio::test]
    async fn other_tasks_run_between_long_reviews() {
        let scheduler = Arc::<Scheduler>::default();
        let ran = RefCell::new(String::new());
        let review = async || {
            for _ in 0..3 {
                let permit = scheduler.acquire(address(1), SIZE).await;
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
        let scheduler = Arc::<Scheduler>::default();
        let permit = scheduler.acquire(address(1), SIZE).await;
        let mut waiting: Vec<_> = (0..4)
            .map(|_| Box::pin(scheduler.acquire(address(2), SIZE)))
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
        assert!(scheduler.acquire(address(3), SIZE).now_or_never().is_some());
    }
}
