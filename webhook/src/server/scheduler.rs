//! Schedules the admission thread: reviews and TLS handshakes, one at a time, in turn for each client that waits.

use std::collections::VecDeque;
use std::iter;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::task::yield_now;

/// How long tasks run before the next client's turn, and before the runtime polls all sockets: connections, handshakes,
/// bodies. An ordinary review takes 11 to 25 µs, so some ten share one slice; a handshake takes about 300 µs.
const TIME_SLICE: Duration = Duration::from_micros(250);

/// Permits one task at a time: a review, or the computation of a TLS handshake.
///
/// That is a round robin: clients that wait take turns, however many tasks they have. A turn has one task, or as many
/// as wait, one after the other, in a time slice. So the reviews of an API server need no turn each.
#[derive(Debug, Default)]
pub(super) struct Scheduler(Mutex<Ring>);

#[derive(Debug, Default)]
struct Ring {
    /// The clients with a task that runs or waits, in the order of their turns: the task of the first one runs.
    clients: VecDeque<Client>,
    /// How long tasks took in this time slice.
    slice_used: Duration,
}

#[derive(Debug)]
struct Client {
    prefix: IpAddr,
    /// Its tasks that wait, in the order of their arrival.
    waiting: VecDeque<oneshot::Sender<CpuPermit>>,
}

/// The permit to run one task. Its drop grants the next one.
#[derive(Debug)]
pub(super) struct CpuPermit(Arc<Scheduler>);

/// The IPv4 address, or the /64 of an IPv6 address, of which a host can usually take any address.
/// It is one pod, or many behind one address: a node that masquerades, konnectivity's agent.
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
    /// Waits for a permit to run a task of `source`.
    pub(super) async fn acquire(self: &Arc<Self>, source: IpAddr) -> CpuPermit {
        let turn = self.0.lock().enter(client_prefix(source));
        match turn {
            Some(turn) => turn.await.expect("the ring grants what waits"),
            None => CpuPermit(Arc::clone(self)),
        }
    }
}

// === impl Ring ===

impl Ring {
    /// Adds a task, and returns its turn, or `None` if it may run now.
    fn enter(&mut self, prefix: IpAddr) -> Option<oneshot::Receiver<CpuPermit>> {
        if self.clients.is_empty() {
            let waiting = VecDeque::new();
            self.clients.push_back(Client { prefix, waiting });
            return None;
        }
        let (grant, turn) = oneshot::channel();
        let mut clients = self.clients.iter_mut();
        match clients.find(|client| client.prefix == prefix) {
            Some(client) => client.waiting.push_back(grant),
            None => self.clients.push_back(Client {
                prefix,
                waiting: [grant].into(),
            }),
        }
        Some(turn)
    }

    /// Adds to the time slice, and returns true if that ends it.
    fn use_slice(&mut self, took: Duration) -> bool {
        self.slice_used += took;
        self.slice_used >= TIME_SLICE
    }

    /// Returns the next task that still waits. Without one, the ring is empty.
    fn next_task(&mut self) -> Option<oneshot::Sender<CpuPermit>> {
        if self.slice_used >= TIME_SLICE {
            self.slice_used = Duration::ZERO;
            self.clients.rotate_left(1);
        }
        while let Some(client) = self.clients.front_mut() {
            let mut waiting = iter::from_fn(|| client.waiting.pop_front());
            let next = waiting.find(|grant| !grant.is_closed());
            if next.is_some() {
                return next;
            }
            self.clients.pop_front();
        }
        None
    }
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
            let permit = scheduler.acquire(address(1)).now_or_never().unwrap();
            let finished = permit.finish(Duration::from_micros(20)).now_or_never();
            assert!(finished.is_some());
        }
        let permit = scheduler.acquire(address(1)).now_or_never().unwrap();
        assert!(permit.finish(LONG).now_or_never().is_none());
    }

    /// Returns the order in which long reviews of these addresses, which arrive at once, are processed.
    async fn processing_order(sources: impl IntoIterator<Item = IpAddr>) -> Vec<usize> {
        processing_order_of(LONG, sources).await
    }

    /// The same for reviews that take so long.
    async fn processing_order_of(
        took: Duration,
        sources: impl IntoIterator<Item = IpAddr>,
    ) -> Vec<usize> {
        let scheduler = Arc::<Scheduler>::default();
        let order = RefCell::new(Vec::new());
        let reviews = sources
            .into_iter()
            .enumerate()
            .map(async |(review, source)| {
                let permit = scheduler.acquire(source).await;
                order.borrow_mut().push(review);
                permit.finish(took).await;
            });
        join_all(reviews).await;
        order.into_inner()
    }

    #[tokio::test]
    async fn flood_from_one_address_delays_another_by_one_review() {
        let sources = [1, 1, 1, 1, 1, 1, 2, 2].map(address);
        assert_eq!(processing_order(sources).await, [0, 6, 1, 7, 2, 3, 4, 5]);
    }

    #[tokio::test]
    async fn addresses_take_turns() {
        let sources = [1, 1, 1, 2, 1, 3, 2].map(address);
        assert_eq!(processing_order(sources).await, [0, 3, 5, 1, 6, 2, 4]);
    }

    #[tokio::test]
    async fn short_reviews_of_an_address_share_a_turn() {
        let sources = [1, 1, 1, 1, 1, 2, 2].map(address);
        let third = TIME_SLICE / 3 + Duration::from_nanos(1);
        let order = processing_order_of(third, sources).await;
        assert_eq!(order, [0, 1, 2, 5, 6, 3, 4]);
    }

    #[tokio::test]
    async fn mapped_ipv4_address_equals_its_ipv4_address() {
        let mapped = Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped().into();
        let sources = [address(1), mapped, mapped, address(2)];
        assert_eq!(processing_order(sources).await, [0, 3, 1, 2]);
    }

    #[tokio::test]
    async fn client_waits_for_one_round_of_any_flood() {
        let flood = (1..=200).cycle().take(2_000).map(address);
        let mut sources: Vec<_> = flood.collect();
        sources.extend([address(0); 3]);
        let order = processing_order(sources).await;
        let turns = (2_000..2_003).map(|review| order.iter().position(|it| *it == review));
        // Each behind one review of each other client.
        let want = [200, 401, 602].map(Some);
        assert_eq!(turns.collect::<Vec<_>>(), want);
    }

    #[tokio::test]
    async fn clients_without_a_task_are_forgotten() {
        let scheduler = Arc::<Scheduler>::default();
        let permit = scheduler.acquire(address(0)).await;
        for host in 1..200 {
            assert!(scheduler.acquire(address(host)).now_or_never().is_none());
        }
        drop(permit);
        assert!(scheduler.0.lock().clients.is_empty());
    }

    #[tokio::test]
    async fn other_tasks_run_between_long_reviews() {
        let scheduler = Arc::<Scheduler>::default();
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
        let scheduler = Arc::<Scheduler>::default();
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
