//! The connections of a port, and which one is evicted when a new one arrives at the limit.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use super::metrics::{EvictionReason, PortMetrics};
use crate::server::scheduler::client_prefix;

/// Maximum number of evicted connections that still answer a request, besides those within the limit. One more closes
/// the one that was evicted first.
const MAX_ANSWERING: usize = 64;

/// Maximum number of evicted connections that wait for their TLS handshake or their first request, besides those within
/// the limit. One more closes the one that was evicted first. In a flood from many clients, handshakes take longer than
/// a connection keeps its slot.
const MAX_WAITING: usize = 128;

/// The slots of one port's connections, and their metrics.
#[derive(Debug)]
pub(super) struct ConnectionSlots {
    table: Mutex<SlotTable>,
    metrics: PortMetrics,
}

/// The slot of one connection, released on drop.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    slots: Arc<ConnectionSlots>,
    /// The number of the connection, in the order in which the port accepted them.
    pub(super) id: SlotId,
    /// The client's address.
    pub(super) source: IpAddr,
    pub(super) state: watch::Receiver<SlotState>,
}

/// The state of a connection's slot, which the connection's task watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SlotState {
    /// The connection counts against the limit.
    Held,
    /// It is to close after the response to its request.
    Evicted,
    /// It is to close at once.
    Closed,
}

#[derive(Debug)]
struct SlotTable {
    limit: usize,
    slots: HashMap<SlotId, Slot>,
    /// The number of connections of each client that hold a slot; never zero.
    shares: HashMap<IpAddr, usize>,
    /// The evicted connections that are not closed yet, in the order of their eviction.
    closing: Vec<SlotId>,
    next_id: SlotId,
}

/// Identifies a slot; never reused.
pub(super) type SlotId = u64;

#[derive(Debug)]
struct Slot {
    client: IpAddr,
    /// When it was accepted, or a request began or ended.
    last_used: Instant,
    /// Whether a request is in flight.
    in_flight: bool,
    state: watch::Sender<SlotState>,
}

/// The order in which connections are evicted, least first:
///
/// | | |
/// | --- | --- |
/// | `share` | the client with the most connections loses one, the new one included; clients with few are equal |
/// | `last_used` | of its connections, or of those of all such clients, the one that was used longest ago |
///
/// So a flood from few clients costs others nothing, whatever its connections are used for. In a flood from many
/// clients, the connections of an API server are used more recently than those of the flood, whose requests wait for
/// their turn.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct EvictionRank {
    share: Reverse<usize>,
    last_used: Instant,
    id: SlotId,
}

/// The part of all connections up to which a client has few: eight of 320, as an API server uses at a time.
const FEW_DIVISOR: usize = 40;

// === impl ConnectionSlots ===

impl ConnectionSlots {
    /// Creates the slots of up to `limit` connections.
    pub(super) fn new(limit: usize, metrics: PortMetrics) -> Arc<Self> {
        metrics.limit.set(limit as i64);
        let table = Mutex::new(SlotTable::new(limit));
        Arc::new(Self { table, metrics })
    }

    /// Takes a slot for a new connection. It never fails: at the limit, another connection is evicted.
    pub(super) fn acquire(self: &Arc<Self>, source: IpAddr) -> ConnectionSlot {
        let (sender, state) = watch::channel(SlotState::Held);
        let mut table = self.table.lock();
        let (id, evicted) = table.acquire(source, Instant::now(), sender);
        self.metrics.open.set(table.len() as i64);
        drop(table);
        if let Some(reason) = evicted {
            self.metrics.evicted[reason as usize].inc();
        }
        let slots = Arc::clone(self);
        ConnectionSlot {
            slots,
            id,
            source,
            state,
        }
    }

    /// Counts this time as time at the limit, if all slots are taken.
    pub(super) fn count_full_time(&self, time: Duration) {
        if self.table.lock().is_full() {
            self.metrics.full_seconds.inc_by(time.as_secs());
        }
    }
}

// === impl ConnectionSlot ===

impl ConnectionSlot {
    /// Records whether a request is in flight.
    pub(super) fn set_in_flight(&self, in_flight: bool) {
        let mut table = self.slots.table.lock();
        table.set_in_flight(self.id, in_flight, Instant::now());
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut table = self.slots.table.lock();
        table.release(self.id);
        self.slots.metrics.open.set(table.len() as i64);
    }
}

// === impl SlotTable ===

impl SlotTable {
    fn new(limit: usize) -> Self {
        Self {
            limit,
            slots: HashMap::new(),
            shares: HashMap::new(),
            closing: Vec::new(),
            next_id: 0,
        }
    }

    /// Takes a slot for a new connection from `source`. At the limit, another connection is evicted.
    fn acquire(
        &mut self,
        source: IpAddr,
        now: Instant,
        state: watch::Sender<SlotState>,
    ) -> (SlotId, Option<EvictionReason>) {
        let client = client_prefix(source);
        let is_full = self.is_full();
        *self.shares.entry(client).or_default() += 1;
        let evicted = is_full.then(|| self.evict()).flatten();
        let id = self.next_id;
        self.next_id += 1;
        let slot = Slot {
            client,
            last_used: now,
            in_flight: false,
            state,
        };
        self.slots.insert(id, slot);
        (id, evicted)
    }

    /// Records that a request begins or ends. Ignored if the connection is closed.
    fn set_in_flight(&mut self, id: SlotId, in_flight: bool, now: Instant) {
        if let Some(slot) = self.slots.get_mut(&id) {
            (slot.in_flight, slot.last_used) = (in_flight, now);
        }
    }

    /// Frees the slot of a closed connection; without effect if it is free.
    fn release(&mut self, id: SlotId) {
        match self.slots.remove(&id) {
            Some(slot) if slot.is_held() => self.decrement_share(slot.client),
            Some(_) => self.closing.retain(|closing| *closing != id),
            None => {}
        }
    }

    /// The number of connections, evicted ones that are not closed yet included.
    fn len(&self) -> usize {
        self.slots.len()
    }

    fn is_full(&self) -> bool {
        self.slots.len() - self.closing.len() >= self.limit
    }

    fn evict(&mut self) -> Option<EvictionReason> {
        let held = self.slots.iter().filter(|(_, slot)| slot.is_held());
        let few = self.limit / FEW_DIVISOR;
        let share = |client: &IpAddr| self.shares.get(client).copied().unwrap_or_default();
        let rank = |(&id, slot): (&SlotId, &Slot)| EvictionRank {
            share: Reverse(share(&slot.client).max(few)),
            last_used: slot.last_used,
            id,
        };
        let first = held.map(rank).min()?.id;
        let slot = self.slots.get_mut(&first)?;
        slot.state.send_replace(SlotState::Evicted);
        let (client, in_flight) = (slot.client, slot.in_flight);
        self.decrement_share(client);
        self.closing.push(first);
        self.close_surplus(true, MAX_ANSWERING);
        self.close_surplus(false, MAX_WAITING);
        Some(if in_flight {
            EvictionReason::InFlight
        } else {
            EvictionReason::Idle
        })
    }

    /// Closes the connections that were evicted first, until at most `max` are left of those with a request in flight,
    /// or of those without.
    fn close_surplus(&mut self, in_flight: bool, max: usize) {
        let slot = |id: &SlotId| self.slots.get(id);
        let is_counted = |id: &SlotId| slot(id).is_some_and(|slot| slot.in_flight == in_flight);
        let newest_first = self.closing.iter().rev().copied();
        let surplus: Vec<_> = newest_first.filter(is_counted).skip(max).collect();
        for id in surplus {
            if let Some(slot) = self.slots.get(&id) {
                slot.state.send_replace(SlotState::Closed);
            }
            self.release(id);
        }
    }

    fn decrement_share(&mut self, client: IpAddr) {
        if let Some(share) = self.shares.get_mut(&client) {
            *share -= 1;
            if *share == 0 {
                self.shares.remove(&client);
            }
        }
    }
}

// === impl Slot ===

impl Slot {
    fn is_held(&self) -> bool {
        *self.state.borrow() == SlotState::Held
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    /// A table, and a clock that advances with each step.
    struct TableFixture {
        table: SlotTable,
        now: Instant,
    }

    impl TableFixture {
        fn new(limit: usize) -> Self {
            let now = Instant::now();
            let table = SlotTable::new(limit);
            Self { table, now }
        }

        fn tick(&mut self) -> Instant {
            self.now += Duration::from_millis(1);
            self.now
        }

        fn acquire(&mut self, host: u16) -> (SlotId, Option<EvictionReason>) {
            let [high, low] = host.to_be_bytes();
            let (now, source) = (self.tick(), Ipv4Addr::new(10, 0, high, low).into());
            self.table
                .acquire(source, now, watch::Sender::new(SlotState::Held))
        }

        fn acquire_many(&mut self, hosts: impl IntoIterator<Item = u16>) -> Vec<SlotId> {
            hosts.into_iter().map(|host| self.acquire(host).0).collect()
        }

        fn set_in_flight(&mut self, id: SlotId, in_flight: bool) {
            let now = self.tick();
            self.table.set_in_flight(id, in_flight, now);
        }

        fn is_open(&self, id: SlotId) -> bool {
            let slot = self.table.slots.get(&id);
            slot.is_some_and(Slot::is_held)
        }

        fn open(&self) -> usize {
            self.table.slots.len() - self.table.closing.len()
        }
    }

    #[test]
    fn client_with_most_connections_loses_one() {
        let mut fixture = TableFixture::new(8);
        let other = fixture.acquire_many([1, 1]);
        let flood = fixture.acquire_many([2; 6]);
        // However fast it connects, and whatever its connections are used for.
        for id in flood {
            fixture.set_in_flight(id, true);
        }
        for _ in 0..100 {
            assert!(fixture.acquire(2).1.is_some());
        }
        // For another client too.
        fixture.acquire_many([3, 1]);
        assert!(other.iter().all(|&id| fixture.is_open(id)));
        assert_eq!(fixture.open(), 8);
    }

    #[test]
    fn connection_used_longest_ago_goes_first_of_equals() {
        let mut fixture = TableFixture::new(4);
        let ids = fixture.acquire_many(1..5);
        fixture.set_in_flight(ids[0], true);
        fixture.set_in_flight(ids[0], false);
        fixture.set_in_flight(ids[2], true);
        assert_eq!(fixture.acquire(9).1, Some(EvictionReason::Idle));
        assert!(fixture.is_open(ids[0]) && !fixture.is_open(ids[1]));
        fixture.acquire_many([10, 11]);
        assert_eq!(fixture.acquire(12).1, Some(EvictionReason::InFlight));
    }

    #[test]
    fn few_connections_in_use_are_kept_beside_any_flood() {
        for addresses in [4, 8, 100, 350] {
            let mut fixture = TableFixture::new(352);
            let kept = fixture.acquire_many([0; 6]);
            for (number, host) in (1..=addresses).cycle().take(5_000).enumerate() {
                let id = fixture.acquire(host).0;
                fixture.set_in_flight(id, true);
                if number % 50 == 0 {
                    for &id in &kept {
                        fixture.set_in_flight(id, number % 100 == 0);
                    }
                }
            }
            assert!(kept.iter().all(|&id| fixture.is_open(id)), "{addresses}");
        }
    }

    #[test]
    fn evicted_connections_close_in_turn_when_they_are_many() {
        for (in_flight, max) in [(true, MAX_ANSWERING), (false, MAX_WAITING)] {
            let mut fixture = TableFixture::new(1);
            let first = fixture.acquire(1).0;
            fixture.set_in_flight(first, in_flight);
            let state = fixture.table.slots[&first].state.subscribe();
            for _ in 0..max {
                let id = fixture.acquire(1).0;
                fixture.set_in_flight(id, in_flight);
                assert_eq!(*state.borrow(), SlotState::Evicted);
            }
            fixture.acquire(1);
            assert_eq!(*state.borrow(), SlotState::Closed, "{in_flight}");
            assert_eq!(fixture.table.len(), max + 1);
        }
    }

    #[test]
    fn evicted_connections_that_wait_are_kept_beside_those_that_answer() {
        let mut fixture = TableFixture::new(1);
        let waiting = fixture.acquire(1).0;
        for _ in 0..2 * MAX_ANSWERING {
            let id = fixture.acquire(1).0;
            fixture.set_in_flight(id, true);
        }
        assert!(fixture.table.slots.contains_key(&waiting));
        assert_eq!(fixture.table.len(), 2 + MAX_ANSWERING);
    }

    #[test]
    fn slot_is_released_once() {
        let mut fixture = TableFixture::new(1);
        let evicted = fixture.acquire(1).0;
        let open = fixture.acquire(1).0;
        for id in [evicted, open, evicted, open] {
            fixture.table.release(id);
            fixture.set_in_flight(id, true);
        }
        assert_eq!(fixture.table.len(), 0);
        assert!(fixture.table.shares.is_empty() && fixture.table.closing.is_empty());
    }
}
