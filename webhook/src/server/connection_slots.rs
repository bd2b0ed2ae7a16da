//! The connections of a port, and which one is evicted when a new one arrives at the limit.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use tokio::time::Instant;

/// How long after its last activity a connection that is not [`ConnectionStage::Answered`] counts as in use: its
/// handshake, or its first request, is under way.
const SETUP_GRACE: Duration = Duration::from_secs(1);

/// Of connections in use, those of an address are evicted first if it holds this many times as many as another.
/// A smaller factor means nothing: an API server with forty calls in flight holds more than each address of a
/// large crowd.
const DOMINANCE_FACTOR: usize = 8;

/// The progress of a connection, which only ever advances.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ConnectionStage {
    /// Its TLS handshake has not completed.
    Handshaking,
    /// No request of a known client has been answered on it.
    Unanswered,
    /// A request of a known client has been answered on it: an AdmissionReview, as on every connection that an API server
    /// uses, or on the channel's port a request with the token of a pod.
    Answered,
}

/// Why a connection was evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EvictionReason {
    /// Its TLS handshake had not completed.
    Handshaking,
    /// No request of a known client had been answered on it.
    Unanswered,
    /// It was idle for longest.
    Idle,
    /// Its own address, which held its share of the slots, opened another connection.
    Address,
}

/// The slots of one port's connections. Each holds a guard whose drop closes its connection.
#[derive(Debug)]
pub(super) struct SlotTable<T> {
    limit: usize,
    slots: HashMap<SlotId, Slot<T>>,
    /// Number of slots of each address; never zero.
    per_address: HashMap<IpAddr, usize>,
    next_id: SlotId,
}

/// Identifies a slot; never reused.
pub(super) type SlotId = u64;

#[derive(Debug)]
struct Slot<T> {
    source: IpAddr,
    stage: ConnectionStage,
    /// When its stage last advanced, or a request arrived.
    last_active: Instant,
    /// Whether a request is in flight.
    in_flight: bool,
    /// Dropped with the slot, it closes the connection.
    _guard: T,
}

// === impl SlotTable ===

impl<T> SlotTable<T> {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            slots: HashMap::new(),
            per_address: HashMap::new(),
            next_id: 0,
        }
    }

    /// Takes a slot for a new connection from `source`. At the limit, another connection is evicted, and its guard
    /// dropped here.
    ///
    /// `source` is one pod, or many behind one address: a node that masquerades, konnectivity's agent. One IPv6
    /// address counts like one IPv4 address, since a /64 is often a whole node's.
    pub(super) fn acquire(
        &mut self,
        source: IpAddr,
        stage: ConnectionStage,
        now: Instant,
        guard: T,
    ) -> (SlotId, Option<EvictionReason>) {
        let source = source.to_canonical();
        let evicted = self.is_full().then(|| self.evict(source, now)).flatten();
        let id = self.next_id;
        self.next_id += 1;
        *self.per_address.entry(source).or_default() += 1;
        let slot = Slot {
            source,
            stage,
            last_active: now,
            in_flight: false,
            _guard: guard,
        };
        self.slots.insert(id, slot);
        (id, evicted)
    }

    /// Records that a connection has reached `stage`, or that a request arrived. Ignored if it has been evicted.
    pub(super) fn advance(&mut self, id: SlotId, stage: ConnectionStage, now: Instant) {
        if let Some(slot) = self.slots.get_mut(&id) {
            slot.stage = slot.stage.max(stage);
            slot.last_active = now;
        }
    }

    /// Records whether a request is in flight. Ignored if the connection has been evicted.
    pub(super) fn set_in_flight(&mut self, id: SlotId, in_flight: bool) {
        if let Some(slot) = self.slots.get_mut(&id) {
            slot.in_flight = in_flight;
        }
    }

    /// Frees the slot of a closed connection; without effect if it has been evicted.
    pub(super) fn release(&mut self, id: SlotId) {
        let Some(Slot { source, .. }) = self.slots.remove(&id) else {
            return;
        };
        if let Some(count) = self.per_address.get_mut(&source) {
            *count -= 1;
            if *count == 0 {
                self.per_address.remove(&source);
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.slots.len() >= self.limit
    }

    fn address_count(&self, source: IpAddr) -> usize {
        self.per_address.get(&source).copied().unwrap_or_default()
    }

    /// Evicts a connection for a new one from `source`.
    ///
    /// An address that holds a quarter of the slots loses one of its own, so that a crowd from one pod costs other
    /// clients nothing. Below that, and as long as no other client needs the slots, it may hold as many as it
    /// needs: an API server opens a connection for each call in flight, some hundred in a burst, and many pods that wait
    /// may be behind the address of one node.
    ///
    /// Of equal rank, idle connections are evicted before those in use: only the latter cost a client a call.
    fn evict(&mut self, source: IpAddr, now: Instant) -> Option<EvictionReason> {
        let quarter = self.limit / 4;
        let source_count = self.address_count(source);
        let own = source_count > 0 && source_count >= quarter;
        let is_candidate = |slot: &&Slot<T>| !own || slot.source == source;
        let count = |stage| {
            let candidates = self.slots.values().filter(is_candidate);
            candidates.filter(|slot| slot.stage == stage).count()
        };
        let few = [ConnectionStage::Handshaking, ConnectionStage::Unanswered]
            .map(|stage| count(stage) <= quarter);
        // Connections on which no known client was answered are evicted first. But while they are few, one is spared
        // if it is in use, or if the new connection's address holds at least as many slots as its own. Otherwise a
        // call would have only until the next connection of a crowd arrives, whose requests are answered, so that it
        // ranks like other clients.
        let rank = |slot: &Slot<T>, in_use| {
            let is_spared = in_use || self.address_count(slot.source) <= source_count;
            match slot.stage {
                ConnectionStage::Handshaking if !(few[0] && is_spared) => 0,
                ConnectionStage::Unanswered if !(few[1] && is_spared) => 1,
                ConnectionStage::Answered if !in_use => 2,
                _ => 3,
            }
        };
        let weight = |slot: &Slot<T>, in_use| match (self.address_count(slot.source), in_use) {
            (count, true) => count
                .checked_ilog(DOMINANCE_FACTOR)
                .map_or(0, |log| log as usize),
            (count, false) => count,
        };
        let (&id, slot) = self
            .slots
            .iter()
            .filter(|(_, slot)| is_candidate(slot))
            .min_by_key(|(id, slot)| {
                let in_use = slot.is_in_use(now);
                let weight = Reverse(weight(slot, in_use));
                (rank(slot, in_use), in_use, weight, slot.last_active, **id)
            })?;
        let reason = match slot.stage {
            _ if own => EvictionReason::Address,
            ConnectionStage::Handshaking => EvictionReason::Handshaking,
            ConnectionStage::Unanswered => EvictionReason::Unanswered,
            ConnectionStage::Answered => EvictionReason::Idle,
        };
        self.release(id);
        Some(reason)
    }
}

// === impl EvictionReason ===

impl EvictionReason {
    /// The values of the metrics' label `reason`, in the order of the declaration.
    pub(super) const LABELS: [&str; 4] = ["handshaking", "unanswered", "idle", "address"];
}

// === impl Slot ===

impl<T> Slot<T> {
    fn is_in_use(&self, now: Instant) -> bool {
        let in_setup =
            self.stage < ConnectionStage::Answered && now - self.last_active < SETUP_GRACE;
        self.in_flight || in_setup
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::ConnectionStage::{Answered, Handshaking, Unanswered};
    use super::*;

    /// A table, and a clock that advances with each new connection.
    struct TableFixture {
        table: SlotTable<()>,
        now: Instant,
    }

    impl TableFixture {
        fn new(limit: usize) -> Self {
            let now = Instant::now();
            let table = SlotTable::new(limit);
            Self { table, now }
        }

        fn acquire(
            &mut self,
            host: u8,
            stage: ConnectionStage,
        ) -> (SlotId, Option<EvictionReason>) {
            self.now += Duration::from_millis(1);
            let source = Ipv4Addr::new(10, 0, 0, host).into();
            self.table.acquire(source, stage, self.now, ())
        }

        fn acquire_many(&mut self, count: u8, stage: ConnectionStage) -> Vec<SlotId> {
            (0..count).map(|host| self.acquire(host, stage).0).collect()
        }

        /// Advances the clock until no connection is in use.
        fn idle(&mut self) {
            self.now += SETUP_GRACE;
        }

        fn has(&self, id: SlotId) -> bool {
            self.table.slots.contains_key(&id)
        }
    }

    #[test]
    fn least_advanced_connection_is_evicted_first() {
        let mut fixture = TableFixture::new(8);
        let answered = fixture.acquire_many(2, Answered);
        let unanswered = fixture.acquire_many(3, Unanswered);
        let handshaking = fixture.acquire_many(3, Handshaking);
        fixture.idle();
        let evicted: Vec<_> = (100..106)
            .map(|host| fixture.acquire(host, Answered).1)
            .collect();
        let wanted = [
            EvictionReason::Handshaking,
            EvictionReason::Handshaking,
            EvictionReason::Handshaking,
            EvictionReason::Unanswered,
            EvictionReason::Unanswered,
            EvictionReason::Unanswered,
        ];
        assert_eq!(evicted, wanted.map(Some));
        for evicted in handshaking.into_iter().chain(unanswered) {
            assert!(!fixture.has(evicted));
        }
        assert!(answered.into_iter().all(|id| fixture.has(id)));
        assert_eq!(fixture.acquire(106, Answered).1, Some(EvictionReason::Idle));
        assert_eq!(fixture.table.len(), 8);
    }

    #[test]
    fn longest_idle_connection_is_evicted_first_of_equals() {
        let mut fixture = TableFixture::new(4);
        let ids = fixture.acquire_many(4, Answered);
        let later = fixture.now + Duration::from_secs(1);
        fixture.table.advance(ids[0], Unanswered, later);
        fixture.acquire(100, Handshaking);
        assert!(fixture.has(ids[0]) && !fixture.has(ids[1]));
    }

    #[test]
    fn address_with_a_quarter_loses_its_own() {
        let mut fixture = TableFixture::new(8);
        let api_server = fixture.acquire(1, Handshaking).0;
        let first = fixture.acquire(2, Answered).0;
        for _ in 2..8 {
            assert_eq!(fixture.acquire(2, Answered).1, None, "below the limit");
        }
        assert_eq!(
            fixture.acquire(2, Handshaking).1,
            Some(EvictionReason::Address)
        );
        assert!(!fixture.has(first) && fixture.has(api_server));
        // However fast it connects.
        for _ in 0..100 {
            assert_eq!(
                fixture.acquire(2, Handshaking).1,
                Some(EvictionReason::Address)
            );
        }
        assert!(fixture.has(api_server));
        // It is also the first to lose a slot to others.
        fixture.idle();
        assert_eq!(
            fixture.acquire(3, Handshaking).1,
            Some(EvictionReason::Handshaking)
        );
        assert!(fixture.has(api_server));
    }

    #[test]
    fn crowd_does_not_interrupt_a_call() {
        for stage in [Handshaking, Unanswered] {
            let mut fixture = TableFixture::new(16);
            let api_server = fixture.acquire(1, stage).0;
            for host in (2..7).cycle().take(15) {
                fixture.acquire(host, Answered);
            }
            for host in (2..7).cycle().take(100) {
                assert_eq!(
                    fixture.acquire(host, Answered).1,
                    Some(EvictionReason::Idle)
                );
                assert!(fixture.has(api_server));
            }
            // But idle, it is evicted first for an address with fewer slots.
            fixture.idle();
            assert!(fixture.acquire(8, Handshaking).1.is_some());
            assert!(!fixture.has(api_server));
        }
    }

    #[test]
    fn address_with_most_slots_loses_first_of_equals() {
        let mut fixture = TableFixture::new(8);
        let api_server = fixture.acquire(1, Answered).0;
        let crowd: Vec<_> = (0..7).map(|_| fixture.acquire(2, Answered).0).collect();
        fixture.idle();
        assert_eq!(
            fixture.acquire(3, Handshaking).1,
            Some(EvictionReason::Idle)
        );
        assert!(fixture.has(api_server) && !fixture.has(crowd[0]));
    }

    #[test]
    fn calls_in_flight_outlive_idle_connections() {
        // Forty calls from one address, and a crowd of thirty addresses with eleven slots each.
        for stage in [Handshaking, Unanswered, Answered] {
            let mut fixture = TableFixture::new(384);
            let calls: Vec<_> = (0..40).map(|_| fixture.acquire(1, stage).0).collect();
            for host in (2..32).cycle().take(344) {
                fixture.acquire(host, Answered);
            }
            fixture.idle();
            for &id in &calls {
                fixture.table.advance(id, stage, fixture.now);
                fixture.table.set_in_flight(id, stage == Answered);
            }
            for host in (2..32).cycle().take(300) {
                fixture.acquire(host, Answered);
            }
            assert!(calls.iter().all(|&id| fixture.has(id)), "{stage:?}");
        }
    }

    #[test]
    fn completed_request_no_longer_protects() {
        let mut fixture = TableFixture::new(8);
        let ids = fixture.acquire_many(8, Answered);
        fixture.idle();
        for &id in &ids {
            fixture.table.set_in_flight(id, true);
        }
        fixture.table.set_in_flight(ids[5], false);
        fixture.acquire(100, Handshaking);
        assert!(!fixture.has(ids[5]));
        assert_eq!(fixture.table.len(), 8);
    }

    #[test]
    fn oldest_connection_in_use_is_evicted_first() {
        // A crowd of more addresses than slots, and a probe whose address has two.
        let mut fixture = TableFixture::new(128);
        fixture.acquire_many(128, Unanswered);
        let probes = [0, 1].map(|_| fixture.acquire(200, Unanswered).0);
        fixture.acquire_many(126, Unanswered);
        assert!(probes.iter().all(|&id| fixture.has(id)));
        // But an address with far more loses first.
        let many: Vec<_> = (0..16)
            .map(|_| fixture.acquire(201, Unanswered).0)
            .collect();
        fixture.acquire(202, Unanswered);
        assert!(!fixture.has(many[0]));
    }

    #[test]
    fn mapped_ipv4_address_equals_its_ipv4_address() {
        let mut table = SlotTable::new(1);
        let now = Instant::now();
        table.acquire("::ffff:10.0.0.1".parse().unwrap(), Answered, now, ());
        let (_, evicted) = table.acquire("10.0.0.1".parse().unwrap(), Answered, now, ());
        assert_eq!(evicted, Some(EvictionReason::Address));
        assert_eq!(table.per_address.len(), 1);
    }

    #[test]
    fn slot_is_released_once() {
        let mut fixture = TableFixture::new(2);
        let (id, _) = fixture.acquire(1, Answered);
        fixture.table.release(id);
        fixture.table.release(id);
        fixture.table.advance(id, Answered, fixture.now);
        assert_eq!(fixture.table.len(), 0);
        assert!(fixture.table.per_address.is_empty());
    }
}
