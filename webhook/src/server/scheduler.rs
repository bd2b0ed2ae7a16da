//! Schedules the CPU time of the admission thread: reviews and TLS handshakes, fairly among clients by what they use.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::yield_now;

/// How long reviews are processed before the runtime runs other tasks: connections, handshakes, bodies. An ordinary
/// review takes 11 to 25 µs, so some fifty share one slice; after a longer one, the runtime polls all sockets.
const TIME_SLICE: Duration = Duration::from_millis(1);

/// Starts that differ by less count as equal: a little more than the dearest review takes.
const START_PRECISION: Duration = Duration::from_millis(16);

/// Maximum number of clients that are remembered although none of their reviews waits.
const MAX_CLIENTS: usize = 4096;

/// Permits one task at a time, by the CPU time that its client has used. A task is a review, or the computation of a TLS
/// handshake.
///
/// That is start-time fair queueing (<https://doi.org/10.1109/90.649569>): in virtual time, a task starts when its
/// client's last one ended, or when the one that runs started, if that is later; it ends the CPU time that it takes
/// later. The task with the earliest start is next, and of equal ones the smallest. So clients that wait have equal
/// shares of the thread, however many tasks they have and however dear these are; and a client that uses less than its
/// share waits for the task that runs alone.
#[derive(Debug, Default)]
pub(super) struct Scheduler(Mutex<Queue>);

#[derive(Debug, Default)]
struct Queue {
    /// Whether a task runs.
    is_busy: bool,
    /// When the last task that was permitted started, in virtual time.
    now: Duration,
    clients: HashMap<IpAddr, Client>,
    /// The next task of each client.
    waiting: BTreeMap<Rank, (IpAddr, oneshot::Sender<CpuPermit>)>,
    next_number: u64,
    /// How long tasks took since the runtime last polled others.
    slice_used: Duration,
}

#[derive(Debug)]
struct Client {
    /// Held by its task that waits or runs. Its others wait for that one, whose time they start behind.
    next: Arc<Semaphore>,
    /// When its last task ended, in virtual time.
    last_end: Duration,
}

/// The order in which tasks run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// In virtual time, in units of [`START_PRECISION`].
    start: u128,
    size: usize,
    number: u64,
}

/// The permit to run one task. Its drop grants the next one.
#[derive(Debug)]
pub(super) struct CpuPermit {
    scheduler: Arc<Scheduler>,
    client: IpAddr,
    start: Duration,
    took: Duration,
    /// Of the client's tasks. It is released after this one is charged, so that the client is remembered until then.
    turn: Option<OwnedSemaphorePermit>,
}

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
    /// Waits for a permit to run a task of `source`. `size` is that of a review's body, in bytes, or one that costs as much.
    pub(super) async fn acquire(self: &Arc<Self>, source: IpAddr, size: usize) -> CpuPermit {
        let client = client_prefix(source);
        loop {
            let next = self.0.lock().next_of(client);
            // A semaphore that is never closed always grants.
            let turn = next.acquire_owned().await.ok();
            let granted = self.enqueue(client, size);
            // Never an error, since the queue drops no sender before it has sent.
            if let Ok(mut permit) = granted.await {
                permit.turn = turn;
                return permit;
            }
        }
    }

    fn enqueue(self: &Arc<Self>, client: IpAddr, size: usize) -> oneshot::Receiver<CpuPermit> {
        let (grant, granted) = oneshot::channel();
        let mut queue = self.0.lock();
        let rank = Rank {
            start: queue.start_of(client).as_nanos() / START_PRECISION.as_nanos(),
            size,
            number: queue.next_number,
        };
        queue.next_number += 1;
        queue.waiting.insert(rank, (client, grant));
        self.grant_next(queue);
        granted
    }

    /// Permits the first task that still waits, unless one runs.
    fn grant_next(self: &Arc<Self>, mut queue: MutexGuard<'_, Queue>) {
        if queue.is_busy {
            return;
        }
        while let Some((_, (client, grant))) = queue.waiting.pop_first() {
            if grant.is_closed() {
                continue;
            }
            let start = queue.start_of(client);
            (queue.is_busy, queue.now) = (true, start);
            // If its receiver is dropped now, the permit is too, which locks the queue.
            drop(queue);
            let took = Duration::ZERO;
            let scheduler = Arc::clone(self);
            drop(grant.send(CpuPermit {
                scheduler,
                client,
                start,
                took,
                turn: None,
            }));
            return;
        }
    }
}

// === impl Queue ===

impl Queue {
    /// The semaphore of a client. Clients without a task are forgotten here once the others have caught up.
    fn next_of(&mut self, client: IpAddr) -> Arc<Semaphore> {
        let (now, are_many) = (self.now, self.clients.len() >= MAX_CLIENTS);
        let is_remembered = |client: &mut Client| {
            Arc::strong_count(&client.next) > 1 || client.last_end > now && !are_many
        };
        self.clients.retain(|_, client| is_remembered(client));
        let client = self.clients.entry(client).or_insert_with(|| Client {
            next: Arc::new(Semaphore::new(1)),
            last_end: Duration::ZERO,
        });
        Arc::clone(&client.next)
    }

    /// Adds to the time slice, and returns true if that ends it.
    fn charge(&mut self, took: Duration) -> bool {
        self.slice_used += took;
        let is_over = self.slice_used >= TIME_SLICE;
        if is_over {
            self.slice_used = Duration::ZERO;
        }
        is_over
    }

    /// When a task of a client starts that is enqueued now, in virtual time.
    fn start_of(&self, client: IpAddr) -> Duration {
        let last_end = self.clients.get(&client).map(|client| client.last_end);
        last_end.unwrap_or_default().max(self.now)
    }
}

// === impl CpuPermit ===

impl CpuPermit {
    /// Releases the permit after a task that took this long. If that ends a time slice, the runtime polls others before
    /// the next task.
    pub(super) async fn finish(mut self, took: Duration) {
        self.took = took;
        if self.scheduler.0.lock().charge(took) {
            yield_now().await;
        }
    }
}

impl Drop for CpuPermit {
    fn drop(&mut self) {
        let mut queue = self.scheduler.0.lock();
        queue.is_busy = false;
        if let Some(client) = queue.clients.get_mut(&self.client) {
            client.last_end = self.start + self.took;
        }
        self.scheduler.grant_next(queue);
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
        for _ in 0..40 {
            let permit = scheduler.acquire(address(1), 0).now_or_never().unwrap();
            let finished = permit.finish(Duration::from_micros(20)).now_or_never();
            assert!(finished.is_some());
        }
        let permit = scheduler.acquire(address(1), 0).now_or_never().unwrap();
        assert!(permit.finish(LONG).now_or_never().is_none());
    }

    /// Returns the order in which reviews of these addresses, which arrive at once, are processed.
    async fn processing_order<const N: usize>(sources: [IpAddr; N]) -> Vec<usize> {
        let scheduler = Arc::<Scheduler>::default();
        let order = RefCell::new(Vec::new());
        let mut number = 0;
        let reviews = sources.map(|source| {
            let (scheduler, order, review) = (&scheduler, &order, number);
            number += 1;
            async move {
                let permit = scheduler.acquire(source, 0).await;
                order.borrow_mut().push(review);
                permit.finish(LONG).await;
            }
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
    async fn mapped_ipv4_address_equals_its_ipv4_address() {
        let mapped = Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped().into();
        let sources = [address(1), mapped, mapped, address(2)];
        assert_eq!(processing_order(sources).await, [0, 3, 1, 2]);
    }

    #[test]
    fn addresses_without_waiting_reviews_are_forgotten() {
        let scheduler = Arc::<Scheduler>::default();
        for host in 0..40 {
            let permit = scheduler.acquire(address(host), 0).now_or_never();
            assert!(permit.is_some());
        }
        assert_eq!(scheduler.0.lock().clients.len(), 1);
    }

    #[tokio::test]
    async fn client_waits_for_one_of_any_number_of_dear_reviews() {
        let scheduler = Arc::<Scheduler>::default();
        let dear = Duration::from_millis(40);
        // Each client of a flood sends one dear review after the other.
        let flood: Vec<_> = (1..=200)
            .map(|host| {
                let scheduler = Arc::clone(&scheduler);
                tokio::spawn(async move {
                    for _ in 0..5 {
                        let permit = scheduler.acquire(address(host), 60_000).await;
                        permit.finish(dear).await;
                    }
                })
            })
            .collect();
        let now = || scheduler.0.lock().now;
        for _ in 0..20 {
            // Until some more of the flood's reviews are processed.
            for _ in 0..40 {
                yield_now().await;
            }
            let before = scheduler.0.lock().next_number;
            let permit = scheduler.acquire(address(0), 8_000).await;
            let waited_for = scheduler.0.lock().next_number - before;
            assert!(waited_for <= 3, "{waited_for} reviews, {:?}", now());
            permit.finish(Duration::from_micros(25)).await;
        }
        assert!(flood.iter().any(|client| !client.is_finished()));
    }

    #[test]
    fn running_task_is_charged_though_others_arrive() {
        let scheduler = Arc::<Scheduler>::default();
        let permit = scheduler.acquire(address(1), 0).now_or_never().unwrap();
        // It ends a time slice, so that others arrive before it releases the permit.
        let mut finished = Box::pin(permit.finish(LONG));
        assert!(finished.as_mut().now_or_never().is_none());
        let mut other = Box::pin(scheduler.acquire(address(2), 0));
        assert!(other.as_mut().now_or_never().is_none());
        let mut second = Box::pin(scheduler.acquire(address(1), 0));
        assert!(second.as_mut().now_or_never().is_none());
        finished.now_or_never().unwrap();
        let last_end = |host| scheduler.0.lock().clients[&address(host)].last_end;
        assert_eq!(last_end(1), LONG);
        drop(other.now_or_never().unwrap());
        drop(second.now_or_never().unwrap());
    }

    #[tokio::test]
    async fn smallest_is_first_of_equals() {
        let scheduler = Arc::<Scheduler>::default();
        let permit = scheduler.acquire(address(1), 0).await;
        let order = RefCell::new(Vec::new());
        let review = async |host, size| {
            let permit = scheduler.acquire(address(host), size).await;
            order.borrow_mut().push(host);
            permit.finish(LONG).await;
        };
        let released = async { permit.finish(LONG).await };
        tokio::join!(review(2, 30), review(3, 10), review(4, 20), released);
        assert_eq!(order.take(), [3, 4, 2]);
    }

    #[tokio::test]
    async fn other_tasks_run_between_long_reviews() {
        let scheduler = Arc::<Scheduler>::default();
        let ran = RefCell::new(String::new());
        let review = async || {
            for _ in 0..3 {
                let permit = scheduler.acquire(address(1), 0).await;
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
        let permit = scheduler.acquire(address(1), 0).await;
        let mut waiting: Vec<_> = (0..4)
            .map(|_| Box::pin(scheduler.acquire(address(2), 0)))
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
        assert!(scheduler.acquire(address(3), 0).now_or_never().is_some());
    }
}
