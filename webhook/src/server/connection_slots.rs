//! Which connections a port keeps, and which one goes when another wants its place.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use tokio::time::Instant;

/// For so long after its last step, a connection without an answered review counts as in use: its
/// handshake, or its first request, is under way.
const SETUP_GRACE: Duration = Duration::from_secs(1);

/// Of connections in use, an address loses first where it holds so many times what another holds. Less
/// says nothing: an API server with forty calls in flight holds more than each address of a large crowd.
const DOMINANCE_FACTOR: usize = 8;

/// How far a connection has come. It never goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ConnectionStage {
    /// Its TLS handshake is not over.
    Handshaking,
    /// It is open, and no AdmissionReview was answered on it yet.
    Unanswered,
    /// An AdmissionReview was answered on it, as on each that an API server uses.
    Answered,
}

/// Why a connection was evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EvictionReason {
    /// Its TLS handshake had not completed.
    Handshaking,
    /// No AdmissionReview had been answered on it.
    Unanswered,
    /// It was idle for longest.
    Idle,
    /// Its own address, which held its share of the slots, opened another connection.
    Address,
}

/// The connections of one port, at most so many, each with what ends it when it is dropped.
#[derive(Debug)]
pub(super) struct SlotTable<T> {
    limit: usize,
    slots: HashMap<SlotId, Slot<T>>,
    /// How many each address holds; none holds zero.
    per_address: HashMap<IpAddr, usize>,
    next_id: SlotId,
}

/// A place, for as long as its connection has it.
pub(super) type SlotId = u64;

#[derive(Debug)]
struct Slot<T> {
    source: IpAddr,
    stage: ConnectionStage,
    /// When it last came further, or a request of it came.
    last_active: Instant,
    /// A request is in flight.
    in_flight: bool,
    /// Dropped with the place, it ends the connection.
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

    /// Gives a place to a new connection from `source`. Where all were taken, another connection loses
    /// its own, which is dropped here.
    ///
    /// `source` is one pod, or what a network makes of many: a node that masquerades, konnectivity's
    /// agent. One IPv6 address counts like one IPv4 address, since a /64 is often a whole node's.
    pub(super) fn acquire(
        &mut self,
        source: IpAddr,
        standing: ConnectionStage,
        now: Instant,
        keep: T,
    ) -> (SlotId, Option<EvictionReason>) {
        let source = source.to_canonical();
        let evicted = self.is_full().then(|| self.evict(source, now)).flatten();
        let id = self.next_id;
        self.next_id += 1;
        *self.per_address.entry(source).or_default() += 1;
        let taken = Slot {
            source,
            stage: standing,
            last_active: now,
            in_flight: false,
            _guard: keep,
        };
        self.slots.insert(id, taken);
        (id, evicted)
    }

    /// Notes that a connection has come so far, or that a request of it came. One that was evicted
    /// meanwhile is of no matter.
    pub(super) fn advance(&mut self, id: SlotId, standing: ConnectionStage, now: Instant) {
        if let Some(taken) = self.slots.get_mut(&id) {
            taken.stage = taken.stage.max(standing);
            taken.last_active = now;
        }
    }

    /// Notes that a request is in flight, or that it no longer is.
    pub(super) fn set_in_flight(&mut self, id: SlotId, in_flight: bool) {
        if let Some(taken) = self.slots.get_mut(&id) {
            taken.in_flight = in_flight;
        }
    }

    /// Frees the place of a connection that has ended, evicted or not.
    pub(super) fn release(&mut self, id: SlotId) {
        let Some(Slot { source, .. }) = self.slots.remove(&id) else {
            return;
        };
        if let Some(held) = self.per_address.get_mut(&source) {
            *held -= 1;
            if *held == 0 {
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

    /// Makes room for a newcomer from `source`.
    ///
    /// An address that holds a quarter of the places makes room itself, so that no crowd from one pod
    /// costs another client anything. Up to then, and wherever no other client wants the places, it may
    /// hold as many as it needs: an API server opens a connection for each call in flight, some
    /// hundred in a burst.
    ///
    /// Of equals, idle connections go before those in use: only the latter cost a client a call.
    fn evict(&mut self, source: IpAddr, now: Instant) -> Option<EvictionReason> {
        let quarter = self.limit / 4;
        let held = self.address_count(source);
        let own = held > 0 && held >= quarter;
        let candidates = |taken: &&Slot<T>| !own || taken.source == source;
        let count = |standing| {
            let taken = self.slots.values().filter(candidates);
            taken.filter(|taken| taken.stage == standing).count()
        };
        let few = [ConnectionStage::Handshaking, ConnectionStage::Unanswered]
            .map(|standing| count(standing) <= quarter);
        // Those that were not answered yet go first. But a few are spared while they are in use, or where
        // the newcomer's address has as many places as theirs: else a call would have no longer than it
        // takes the next of a crowd to arrive, which has its reviews answered and so is no worse than other
        // clients.
        let rank = |taken: &Slot<T>, in_use| {
            let spares = in_use || self.address_count(taken.source) <= held;
            match taken.stage {
                ConnectionStage::Handshaking if !(few[0] && spares) => 0,
                ConnectionStage::Unanswered if !(few[1] && spares) => 1,
                ConnectionStage::Answered if !in_use => 2,
                _ => 3,
            }
        };
        let weight = |taken: &Slot<T>, in_use| match (self.address_count(taken.source), in_use) {
            (held, true) => held
                .checked_ilog(DOMINANCE_FACTOR)
                .map_or(0, |log| log as usize),
            (held, false) => held,
        };
        let (&id, taken) = self
            .slots
            .iter()
            .filter(|(_, taken)| candidates(taken))
            .min_by_key(|(id, taken)| {
                let in_use = taken.is_in_use(now);
                let weight = Reverse(weight(taken, in_use));
                (rank(taken, in_use), in_use, weight, taken.last_active, **id)
            })?;
        let eviction = match taken.stage {
            _ if own => EvictionReason::Address,
            ConnectionStage::Handshaking => EvictionReason::Handshaking,
            ConnectionStage::Unanswered => EvictionReason::Unanswered,
            ConnectionStage::Answered => EvictionReason::Idle,
        };
        self.release(id);
        Some(eviction)
    }
}

// === impl EvictionReason ===

impl EvictionReason {
    /// In the order of the declaration.
    pub(super) const ALL: [Self; 4] = [
        Self::Handshaking,
        Self::Unanswered,
        Self::Idle,
        Self::Address,
    ];

    /// The value of the metrics' label `reason`.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Handshaking => "handshaking",
            Self::Unanswered => "unanswered",
            Self::Idle => "idle",
            Self::Address => "address",
        }
    }
}

// === impl Slot ===

impl<T> Slot<T> {
    fn is_in_use(&self, now: Instant) -> bool {
        let first_steps =
            self.stage < ConnectionStage::Answered && now - self.last_active < SETUP_GRACE;
        self.in_flight || first_steps
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::ConnectionStage::{Answered, Handshaking, Unanswered};
    use super::*;

    /// Places, and a clock that ticks with each newcomer.
    struct TableFixture {
        table: SlotTable<()>,
        now: Instant,
    }

    impl TableFixture {
        fn new(limit: usize) -> Self {
            let now = Instant::now();
            let places = SlotTable::new(limit);
            Self { table: places, now }
        }

        fn acquire(
            &mut self,
            host: u8,
            standing: ConnectionStage,
        ) -> (SlotId, Option<EvictionReason>) {
            self.now += Duration::from_millis(1);
            let source = Ipv4Addr::new(10, 0, 0, host).into();
            self.table.acquire(source, standing, self.now, ())
        }

        fn acquire_many(&mut self, many: u8, standing: ConnectionStage) -> Vec<SlotId> {
            (0..many)
                .map(|host| self.acquire(host, standing).0)
                .collect()
        }

        /// Passes time, after which none of the connections is in use.
        fn idle(&mut self) {
            self.now += SETUP_GRACE;
        }

        fn has(&self, id: SlotId) -> bool {
            self.table.slots.contains_key(&id)
        }
    }

    #[test]
    fn the_least_advanced_goes_first() {
        let mut port = TableFixture::new(8);
        let answered = port.acquire_many(2, Answered);
        let unanswered = port.acquire_many(3, Unanswered);
        let handshaking = port.acquire_many(3, Handshaking);
        port.idle();
        let evicted: Vec<_> = (100..106)
            .map(|host| port.acquire(host, Answered).1)
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
        for gone in handshaking.into_iter().chain(unanswered) {
            assert!(!port.has(gone));
        }
        assert!(answered.into_iter().all(|id| port.has(id)));
        assert_eq!(port.acquire(106, Answered).1, Some(EvictionReason::Idle));
        assert_eq!(port.table.len(), 8);
    }

    #[test]
    fn the_longest_idle_goes_first_of_equals() {
        let mut port = TableFixture::new(4);
        let ids = port.acquire_many(4, Answered);
        let later = port.now + Duration::from_secs(1);
        port.table.advance(ids[0], Unanswered, later);
        port.acquire(100, Handshaking);
        assert!(port.has(ids[0]) && !port.has(ids[1]));
    }

    #[test]
    fn an_address_with_a_quarter_makes_room_itself() {
        let mut port = TableFixture::new(8);
        let api_server = port.acquire(1, Handshaking).0;
        let first = port.acquire(2, Answered).0;
        for _ in 2..8 {
            assert_eq!(port.acquire(2, Answered).1, None, "there is room");
        }
        assert_eq!(
            port.acquire(2, Handshaking).1,
            Some(EvictionReason::Address)
        );
        assert!(!port.has(first) && port.has(api_server));
        // Whatever it sends, and however fast.
        for _ in 0..100 {
            assert_eq!(
                port.acquire(2, Handshaking).1,
                Some(EvictionReason::Address)
            );
        }
        assert!(port.has(api_server));
        // It also is the first to make room for others.
        port.idle();
        assert_eq!(
            port.acquire(3, Handshaking).1,
            Some(EvictionReason::Handshaking)
        );
        assert!(port.has(api_server));
    }

    #[test]
    fn a_crowd_does_not_interrupt_a_call() {
        for standing in [Handshaking, Unanswered] {
            let mut port = TableFixture::new(16);
            let api_server = port.acquire(1, standing).0;
            for host in (2..7).cycle().take(15) {
                port.acquire(host, Answered);
            }
            for host in (2..7).cycle().take(100) {
                assert_eq!(port.acquire(host, Answered).1, Some(EvictionReason::Idle));
                assert!(port.has(api_server));
            }
            // But for one that has fewer places, it goes first once it is idle.
            port.idle();
            assert!(port.acquire(8, Handshaking).1.is_some());
            assert!(!port.has(api_server));
        }
    }

    #[test]
    fn the_address_that_holds_most_loses_first_of_equals() {
        let mut port = TableFixture::new(8);
        let api_server = port.acquire(1, Answered).0;
        let crowd: Vec<_> = (0..7).map(|_| port.acquire(2, Answered).0).collect();
        port.idle();
        assert_eq!(port.acquire(3, Handshaking).1, Some(EvictionReason::Idle));
        assert!(port.has(api_server) && !port.has(crowd[0]));
    }

    #[test]
    fn calls_in_flight_outlive_idle_connections() {
        // Forty calls from one address, and a crowd of thirty addresses with eleven places each.
        for standing in [Handshaking, Unanswered, Answered] {
            let mut port = TableFixture::new(384);
            let calls: Vec<_> = (0..40).map(|_| port.acquire(1, standing).0).collect();
            for host in (2..32).cycle().take(344) {
                port.acquire(host, Answered);
            }
            port.idle();
            for &id in &calls {
                port.table.advance(id, standing, port.now);
                port.table.set_in_flight(id, standing == Answered);
            }
            for host in (2..32).cycle().take(300) {
                port.acquire(host, Answered);
            }
            assert!(calls.iter().all(|&id| port.has(id)), "{standing:?}");
        }
    }

    #[test]
    fn a_request_that_ended_protects_no_longer() {
        let mut port = TableFixture::new(8);
        let ids = port.acquire_many(8, Answered);
        port.idle();
        for &id in &ids {
            port.table.set_in_flight(id, true);
        }
        port.table.set_in_flight(ids[5], false);
        port.acquire(100, Handshaking);
        assert!(!port.has(ids[5]));
        assert_eq!(port.table.len(), 8);
    }

    #[test]
    fn of_connections_in_use_the_oldest_goes() {
        // A crowd of more addresses than there are places, and a probe whose address has two.
        let mut port = TableFixture::new(128);
        port.acquire_many(128, Unanswered);
        let probes = [0, 1].map(|_| port.acquire(200, Unanswered).0);
        port.acquire_many(126, Unanswered);
        assert!(probes.iter().all(|&id| port.has(id)));
        // But an address that has far more goes first.
        let many: Vec<_> = (0..16).map(|_| port.acquire(201, Unanswered).0).collect();
        port.acquire(202, Unanswered);
        assert!(!port.has(many[0]));
    }

    #[test]
    fn an_address_is_one_in_either_notation() {
        let mut places = SlotTable::new(1);
        let now = Instant::now();
        places.acquire("::ffff:10.0.0.1".parse().unwrap(), Answered, now, ());
        let (_, evicted) = places.acquire("10.0.0.1".parse().unwrap(), Answered, now, ());
        assert_eq!(evicted, Some(EvictionReason::Address));
        assert_eq!(places.per_address.len(), 1);
    }

    #[test]
    fn a_place_is_freed_once() {
        let mut port = TableFixture::new(2);
        let (id, _) = port.acquire(1, Answered);
        port.table.release(id);
        port.table.release(id);
        port.table.advance(id, Answered, port.now);
        assert_eq!(port.table.len(), 0);
        assert!(port.table.per_address.is_empty());
    }
}
