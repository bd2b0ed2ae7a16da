//! Schedules the CPU time of the admission thread: reviews and TLS handshakes, fairly among clients by what they use.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::yield_now;
use tokio::time::Instant;

/// How long reviews are processed before the runtime runs other tasks: connections, handshakes, bodies. An ordinary
/// review takes 11 to 25 µs, so some fifty share one slice; after a longer one, the runtime polls all sockets.
const TIME_SLICE: Duration = Duration::from_millis(1);

/// What a TLS handshake takes, about.
const HANDSHAKE_COST: Duration = Duration::from_micros(300);

/// What a byte of the dearest reviews takes, about: those with a bootstrap of many short keys.
const MAX_COST_PER_BYTE: Duration = Duration::from_nanos(256);

/// How long the cost of a client's review is expected of its next ones.
const COST_MEMORY: Duration = Duration::from_mins(1);

/// Maximum number of clients that are remembered although none of their tasks waits.
const MAX_CLIENTS: usize = 4096;

/// What waits for the CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Task {
    /// The computation of a TLS handshake.
    Handshake,
    /// A review whose body has this length in bytes.
    Review { length: usize },
}

/// Permits one task at a time, by the CPU time that its client has used.
///
/// That is worst-case fair weighted fair queueing (<https://doi.org/10.1109/90.649568>), with equal weights. Virtual
/// time advances by each client's share of the CPU time: while ten clients wait, by a tenth of it. A task starts when its
/// client's last one ended, or now if that is later, and ends its cost later. Of the tasks that have started, the one that
/// is expected to end first is next. So clients that wait have equal shares of the thread at any time, however many tasks
/// they have and however dear these are; and a client that uses less than its share waits for the task that runs alone.
#[derive(Debug, Default)]
pub(super) struct Scheduler(Mutex<Queue>);

#[derive(Debug, Default)]
struct Queue {
    /// Whether a task runs.
    is_busy: bool,
    /// The virtual time.
    now: Duration,
    clients: HashMap<IpAddr, Client>,
    /// The next tasks of clients which have used less than their share, by their expected ends.
    started: BTreeMap<(Duration, u64), WaitingTask>,
    /// Those of clients which have used their share, by their starts.
    later: BTreeMap<(Duration, u64), WaitingTask>,
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
    /// What a byte took of its dearest review, and when that was processed.
    cost_per_byte: Option<(Duration, Instant)>,
}

#[derive(Debug)]
struct WaitingTask {
    client: IpAddr,
    task: Task,
    /// In virtual time.
    start: Duration,
    expected_end: Duration,
    grant: oneshot::Sender<CpuPermit>,
}

/// The permit to run one task. Its drop grants the next one.
#[derive(Debug)]
pub(super) struct CpuPermit {
    scheduler: Arc<Scheduler>,
    client: IpAddr,
    task: Task,
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
    /// Waits for a permit to run a task of `source`.
    pub(super) async fn acquire(self: &Arc<Self>, source: IpAddr, task: Task) -> CpuPermit {
        let client = client_prefix(source);
        loop {
            let next = self.0.lock().next_of(client);
            // A semaphore that is never closed always grants.
            let turn = next.acquire_owned().await.ok();
            let granted = self.enqueue(client, task);
            // Never an error, since the queue drops no sender before it has sent.
            if let Ok(mut permit) = granted.await {
                permit.turn = turn;
                return permit;
            }
        }
    }

    fn enqueue(self: &Arc<Self>, client: IpAddr, task: Task) -> oneshot::Receiver<CpuPermit> {
        let (grant, granted) = oneshot::channel();
        let mut queue = self.0.lock();
        queue.enqueue(client, task, grant);
        self.grant_next(queue);
        granted
    }

    /// Permits the next task that still waits, unless one runs.
    fn grant_next(self: &Arc<Self>, mut queue: MutexGuard<'_, Queue>) {
        if queue.is_busy {
            return;
        }
        let Some(next) = queue.pop() else {
            return;
        };
        queue.is_busy = true;
        // If its receiver is dropped now, the permit is too, which locks the queue.
        drop(queue);
        drop(next.grant.send(CpuPermit {
            scheduler: Arc::clone(self),
            client: next.client,
            task: next.task,
            start: next.start,
            took: Duration::ZERO,
            turn: None,
        }));
    }
}

// === impl Queue ===

impl Queue {
    /// The semaphore of a client. At the limit, clients without a task are forgotten here; those that have used more than
    /// their share only if the others are too few.
    fn next_of(&mut self, client: IpAddr) -> Arc<Semaphore> {
        if self.clients.len() >= MAX_CLIENTS {
            let now = self.now;
            self.clients
                .retain(|_, client| client.has_task() || client.last_end > now);
        }
        if self.clients.len() >= MAX_CLIENTS {
            self.clients.retain(|_, client| client.has_task());
        }
        let client = self.clients.entry(client).or_insert_with(|| Client {
            next: Arc::new(Semaphore::new(1)),
            last_end: Duration::ZERO,
            cost_per_byte: None,
        });
        Arc::clone(&client.next)
    }

    fn enqueue(&mut self, client: IpAddr, task: Task, grant: oneshot::Sender<CpuPermit>) {
        let known = self.clients.get(&client);
        let last_end = known.map(|client| client.last_end).unwrap_or_default();
        let start = last_end.max(self.now);
        let expected_end = start + task.expected_cost(known);
        let waiting = WaitingTask {
            client,
            task,
            start,
            expected_end,
            grant,
        };
        self.later.insert((start, self.next_number), waiting);
        self.next_number += 1;
    }

    /// Removes the next task that still waits.
    fn pop(&mut self) -> Option<WaitingTask> {
        loop {
            if self.started.is_empty() {
                // All have used their share, so that none is owed time: the next one's start is now.
                let (&(start, _), _) = self.later.first_key_value()?;
                self.now = self.now.max(start);
            }
            while let Some(entry) = self.later.first_entry()
                && entry.key().0 <= self.now
            {
                let ((_, number), waiting) = entry.remove_entry();
                self.started.insert((waiting.expected_end, number), waiting);
            }
            let (_, next) = self.started.pop_first()?;
            if !next.grant.is_closed() {
                return Some(next);
            }
        }
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

    /// Charges a client for a task that started at `start` and took this long.
    fn charge(&mut self, client: IpAddr, task: Task, start: Duration, took: Duration) {
        if let Some(client) = self.clients.get_mut(&client) {
            client.last_end = start + took;
            if let Task::Review { length } = task {
                client.learn_cost(took / u32::try_from(length).unwrap_or(u32::MAX).max(1));
            }
        }
        let clients = self.started.len() + self.later.len() + 1;
        self.now += took / u32::try_from(clients).unwrap_or(u32::MAX);
    }
}

// === impl Client ===

impl Client {
    fn has_task(&self) -> bool {
        Arc::strong_count(&self.next) > 1
    }

    /// What a byte of its dearest review took lately.
    fn cost_per_byte(&self) -> Option<Duration> {
        let (cost, _) = self
            .cost_per_byte
            .filter(|(_, at)| at.elapsed() < COST_MEMORY)?;
        Some(cost)
    }

    fn learn_cost(&mut self, per_byte: Duration) {
        if self.cost_per_byte().unwrap_or_default() < per_byte {
            self.cost_per_byte = Some((per_byte, Instant::now()));
        }
    }
}

// === impl Task ===

impl Task {
    /// What a task is expected to take: a byte of a review as long as one of its client's dearest review in the last
    /// [`COST_MEMORY`], or if it had none, of the dearest there are.
    fn expected_cost(self, client: Option<&Client>) -> Duration {
        match self {
            Self::Handshake => HANDSHAKE_COST,
            Self::Review { length } => {
                let per_byte = client.and_then(Client::cost_per_byte);
                let length = u32::try_from(length).unwrap_or(u32::MAX);
                per_byte.unwrap_or(MAX_COST_PER_BYTE) * length
            }
        }
    }
}

// === impl CpuPermit ===

impl CpuPermit {
    /// Releases the permit after a task that took this long. If that ends a time slice, the runtime polls others before
    /// the next task.
    pub(super) async fn finish(mut self, took: Duration) {
        self.took = took;
        if self.scheduler.0.lock().use_slice(took) {
            yield_now().await;
        }
    }
}

impl Drop for CpuPermit {
    fn drop(&mut self) {
        let mut queue = self.scheduler.0.lock();
        queue.is_busy = false;
        queue.charge(self.client, self.task, self.start, self.took);
        self.scheduler.grant_next(queue);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::net::Ipv4Addr;
    use std::sync::atomic::{AtomicU64, Ordering};

    use futures_util::FutureExt;
    use futures_util::future::join_all;
    use tokio::task::JoinSet;
    use tokio::time::timeout;

    use super::*;

    const LONG: Duration = Duration::from_millis(2);

    const REVIEW: Task = Task::Review { length: 8 << 10 };

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
            let permit = scheduler
                .acquire(address(1), REVIEW)
                .now_or_never()
                .unwrap();
            let finished = permit.finish(Duration::from_micros(20)).now_or_never();
            assert!(finished.is_some());
        }
        let permit = scheduler
            .acquire(address(1), REVIEW)
            .now_or_never()
            .unwrap();
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
                let permit = scheduler.acquire(source, REVIEW).await;
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
    fn clients_without_a_task_are_forgotten_when_they_are_many() {
        let scheduler = Arc::<Scheduler>::default();
        let waiting = scheduler.acquire(address(1), REVIEW).now_or_never();
        for host in 0..2 * MAX_CLIENTS as u32 {
            let source = IpAddr::from(Ipv4Addr::from(host));
            assert!(scheduler.acquire(source, REVIEW).now_or_never().is_none());
            assert!(scheduler.0.lock().clients.len() <= MAX_CLIENTS);
        }
        assert!(scheduler.0.lock().clients.contains_key(&address(1)));
        drop(waiting);
    }

    /// Reviews that clients send one after the other.
    struct Load {
        clients: u32,
        length: usize,
        cost: Duration,
    }

    /// Returns the longest time, of reviews processed, that five reviews at a time of one client wait beside `flood`.
    async fn longest_wait(flood: Load, length: usize, cost: Duration) -> Duration {
        let scheduler = Arc::<Scheduler>::default();
        let processed = Arc::<AtomicU64>::default();
        let process = move |host: u32, length, cost: Duration| {
            let (scheduler, processed) = (Arc::clone(&scheduler), Arc::clone(&processed));
            async move {
                let enqueued = processed.load(Ordering::Relaxed);
                let source = IpAddr::from(Ipv4Addr::from(host));
                let permit = scheduler.acquire(source, Task::Review { length }).await;
                let micros = cost.as_micros() as u64;
                let granted = processed.fetch_add(micros, Ordering::Relaxed);
                permit.finish(cost).await;
                Duration::from_micros(granted - enqueued)
            }
        };
        let mut tasks = JoinSet::new();
        for host in 1..=flood.clients {
            let process = process.clone();
            tasks.spawn(async move {
                loop {
                    process(host, flood.length, flood.cost).await;
                }
            });
        }
        yield_now().await;
        let client = async || {
            let mut longest = Duration::ZERO;
            for _ in 0..8 {
                longest = longest.max(process(0, length, cost).await);
            }
            longest
        };
        let (a, b, c, d, e) = tokio::join!(client(), client(), client(), client(), client());
        [a, b, c, d, e].into_iter().max().unwrap_or_default()
    }

    #[tokio::test]
    async fn client_waits_for_its_share_beside_any_flood() {
        let micros = Duration::from_micros;
        for (flood, length, cost, max_wait) in [
            // Dear reviews, and more ordinary ones than the client's share.
            ((320, 57 << 10, 15_000), 8 << 10, 25, 150_000),
            ((320, 7 << 10, 2_000), 8 << 10, 25, 150_000),
            // Ordinary reviews, and dear ones.
            ((320, 8 << 10, 25), 8 << 10, 25, 100_000),
            ((320, 8 << 10, 25), 212 << 10, 600, 1_000_000),
            ((8, 8 << 10, 25), 57 << 10, 15_000, 1_000_000),
        ] {
            let (clients, flood_length, flood_cost) = flood;
            let flood = Load {
                clients,
                length: flood_length,
                cost: micros(flood_cost),
            };
            let waited = longest_wait(flood, length, micros(cost)).await;
            assert!(
                waited <= micros(max_wait),
                "{clients} {flood_cost} {cost}: {waited:?}"
            );
        }
    }

    #[test]
    fn running_task_is_charged_though_others_arrive() {
        let scheduler = Arc::<Scheduler>::default();
        let permit = scheduler
            .acquire(address(1), REVIEW)
            .now_or_never()
            .unwrap();
        // It ends a time slice, so that others arrive before it releases the permit.
        let mut finished = Box::pin(permit.finish(LONG));
        assert!(finished.as_mut().now_or_never().is_none());
        let mut other = Box::pin(scheduler.acquire(address(2), REVIEW));
        assert!(other.as_mut().now_or_never().is_none());
        let mut second = Box::pin(scheduler.acquire(address(1), REVIEW));
        assert!(second.as_mut().now_or_never().is_none());
        finished.now_or_never().unwrap();
        let last_end = |host| scheduler.0.lock().clients[&address(host)].last_end;
        assert_eq!(last_end(1), LONG);
        drop(other.now_or_never().unwrap());
        drop(second.now_or_never().unwrap());
    }

    #[tokio::test]
    async fn task_that_is_expected_to_end_first_is_first() {
        let scheduler = Arc::<Scheduler>::default();
        let permit = scheduler.acquire(address(1), REVIEW).await;
        let order = RefCell::new(Vec::new());
        let review = async |host, length, took| {
            let permit = scheduler
                .acquire(address(host), Task::Review { length })
                .await;
            order.borrow_mut().push(host);
            permit.finish(took).await;
        };
        let released = async { permit.finish(LONG).await };
        // By their lengths, and then by what their first ones took.
        let reviews = async {
            tokio::join!(
                review(2, 3_000, LONG),
                review(3, 1_000, 3 * LONG),
                review(4, 2_000, 2 * LONG)
            );
            tokio::join!(
                review(1, 100_000, LONG),
                review(2, 2_000, LONG),
                review(3, 2_000, LONG),
                review(4, 2_000, LONG)
            );
        };
        tokio::join!(reviews, released);
        assert_eq!(order.take(), [3, 4, 2, 1, 2, 4, 3]);
    }

    #[tokio::test]
    async fn other_tasks_run_between_long_reviews() {
        let scheduler = Arc::<Scheduler>::default();
        let ran = RefCell::new(String::new());
        let review = async || {
            for _ in 0..3 {
                let permit = scheduler.acquire(address(1), REVIEW).await;
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
        let permit = scheduler.acquire(address(1), REVIEW).await;
        let mut waiting: Vec<_> = (0..4)
            .map(|_| Box::pin(scheduler.acquire(address(2), REVIEW)))
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
        assert!(
            scheduler
                .acquire(address(3), REVIEW)
                .now_or_never()
                .is_some()
        );
    }
}
