//! Which connections a port keeps, and which one goes when another wants its place.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use tokio::time::Instant;

use crate::report::connections::Eviction;

/// For so long after its last step, a connection without an answered review counts as in use: its
/// handshake, or its first request, is under way.
const FIRST_STEPS: Duration = Duration::from_secs(1);

/// Of connections in use, an address loses first where it holds so many times what another holds. Less
/// says nothing: an API server with forty calls in flight holds more than each address of a large crowd.
const FAR_MORE: usize = 8;

/// How far a connection has come. It never goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Standing {
    /// Its TLS handshake is not over.
    Handshaking,
    /// It is open, and no AdmissionReview was answered on it yet.
    Unanswered,
    /// An AdmissionReview was answered on it, as on each that an API server uses.
    Answered,
}

/// The connections of one port, at most so many, each with what ends it when it is dropped.
#[derive(Debug)]
pub(super) struct Places<T> {
    limit: usize,
    taken: HashMap<Id, Taken<T>>,
    /// How many each address holds; none holds zero.
    held: HashMap<IpAddr, usize>,
    next: Id,
}

/// A place, for as long as its connection has it.
pub(super) type Id = u64;

#[derive(Debug)]
struct Taken<T> {
    source: IpAddr,
    standing: Standing,
    /// When it last came further, or a request of it came.
    active: Instant,
    /// A request is in flight.
    in_flight: bool,
    /// Dropped with the place, it ends the connection.
    _keep: T,
}

// === impl Places ===

impl<T> Places<T> {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            taken: HashMap::new(),
            held: HashMap::new(),
            next: 0,
        }
    }

    /// Gives a place to a new connection from `source`. Where all were taken, another connection loses
    /// its own, which is dropped here.
    ///
    /// `source` is one pod, or what a network makes of many: a node that masquerades, konnectivity's
    /// agent. One IPv6 address counts like one IPv4 address, since a /64 is often a whole node's.
    pub(super) fn take(
        &mut self,
        source: IpAddr,
        standing: Standing,
        now: Instant,
        keep: T,
    ) -> (Id, Option<Eviction>) {
        let source = source.to_canonical();
        let evicted = self.is_full().then(|| self.evict(source, now)).flatten();
        let id = self.next;
        self.next += 1;
        *self.held.entry(source).or_default() += 1;
        let taken = Taken {
            source,
            standing,
            active: now,
            in_flight: false,
            _keep: keep,
        };
        self.taken.insert(id, taken);
        (id, evicted)
    }

    /// Notes that a connection has come so far, or that a request of it came. One that was evicted
    /// meanwhile is of no matter.
    pub(super) fn advance(&mut self, id: Id, standing: Standing, now: Instant) {
        if let Some(taken) = self.taken.get_mut(&id) {
            taken.standing = taken.standing.max(standing);
            taken.active = now;
        }
    }

    /// Notes that a request is in flight, or that it no longer is.
    pub(super) fn set_in_flight(&mut self, id: Id, in_flight: bool) {
        if let Some(taken) = self.taken.get_mut(&id) {
            taken.in_flight = in_flight;
        }
    }

    /// Frees the place of a connection that has ended, evicted or not.
    pub(super) fn free(&mut self, id: Id) {
        let Some(Taken { source, .. }) = self.taken.remove(&id) else {
            return;
        };
        if let Some(held) = self.held.get_mut(&source) {
            *held -= 1;
            if *held == 0 {
                self.held.remove(&source);
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.taken.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.taken.len() >= self.limit
    }

    fn held(&self, source: IpAddr) -> usize {
        self.held.get(&source).copied().unwrap_or_default()
    }

    /// Makes room for a newcomer from `source`.
    ///
    /// An address that holds a quarter of the places makes room itself, so that no crowd from one pod
    /// costs another client anything. Up to then, and wherever no other client wants the places, it may
    /// hold as many as it needs: an API server opens a connection for each call in flight, some
    /// hundred in a burst.
    ///
    /// Of equals, idle connections go before those in use: only the latter cost a client a call.
    fn evict(&mut self, source: IpAddr, now: Instant) -> Option<Eviction> {
        let quarter = self.limit / 4;
        let held = self.held(source);
        let own = held > 0 && held >= quarter;
        let candidates = |taken: &&Taken<T>| !own || taken.source == source;
        let count = |standing| {
            let taken = self.taken.values().filter(candidates);
            taken.filter(|taken| taken.standing == standing).count()
        };
        let few = [Standing::Handshaking, Standing::Unanswered]
            .map(|standing| count(standing) <= quarter);
        // Those that were not answered yet go first. But a few are spared while they are in use, or where
        // the newcomer's address has as many places as theirs: else a call would have no longer than it
        // takes the next of a crowd to arrive, which has its reviews answered and so is no worse than other
        // clients.
        let rank = |taken: &Taken<T>, in_use| {
            let spares = in_use || self.held(taken.source) <= held;
            match taken.standing {
                Standing::Handshaking if !(few[0] && spares) => 0,
                Standing::Unanswered if !(few[1] && spares) => 1,
                Standing::Answered if !in_use => 2,
                _ => 3,
            }
        };
        let weight = |taken: &Taken<T>, in_use| match (self.held(taken.source), in_use) {
            (held, true) => held.checked_ilog(FAR_MORE).map_or(0, |log| log as usize),
            (held, false) => held,
        };
        let (&id, taken) = self
            .taken
            .iter()
            .filter(|(_, taken)| candidates(taken))
            .min_by_key(|(id, taken)| {
                let in_use = taken.is_in_use(now);
                let weight = Reverse(weight(taken, in_use));
                (rank(taken, in_use), in_use, weight, taken.active, **id)
            })?;
        let eviction = match taken.standing {
            _ if own => Eviction::Address,
            Standing::Handshaking => Eviction::Handshaking,
            Standing::Unanswered => Eviction::Unanswered,
            Standing::Answered => Eviction::Idle,
        };
        self.free(id);
        Some(eviction)
    }
}

// === impl Taken ===

impl<T> Taken<T> {
    fn is_in_use(&self, now: Instant) -> bool {
        let first_steps = self.standing < Standing::Answered && now - self.active < FIRST_STEPS;
        self.in_flight || first_steps
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::Standing::{Answered, Handshaking, Unanswered};
    use super::*;

    /// Places, and a clock that ticks with each newcomer.
    struct Port {
        places: Places<()>,
        now: Instant,
    }

    impl Port {
        fn new(limit: usize) -> Self {
            let now = Instant::now();
            let places = Places::new(limit);
            Self { places, now }
        }

        fn take(&mut self, host: u8, standing: Standing) -> (Id, Option<Eviction>) {
            self.now += Duration::from_millis(1);
            let source = Ipv4Addr::new(10, 0, 0, host).into();
            self.places.take(source, standing, self.now, ())
        }

        fn take_many(&mut self, many: u8, standing: Standing) -> Vec<Id> {
            (0..many).map(|host| self.take(host, standing).0).collect()
        }

        /// Passes time, after which none of the connections is in use.
        fn idle(&mut self) {
            self.now += FIRST_STEPS;
        }

        fn has(&self, id: Id) -> bool {
            self.places.taken.contains_key(&id)
        }
    }

    #[test]
    fn the_least_advanced_goes_first() {
        let mut port = Port::new(8);
        let answered = port.take_many(2, Answered);
        let unanswered = port.take_many(3, Unanswered);
        let handshaking = port.take_many(3, Handshaking);
        port.idle();
        let evicted: Vec<_> = (100..106).map(|host| port.take(host, Answered).1).collect();
        let wanted = [
            Eviction::Handshaking,
            Eviction::Handshaking,
            Eviction::Handshaking,
            Eviction::Unanswered,
            Eviction::Unanswered,
            Eviction::Unanswered,
        ];
        assert_eq!(evicted, wanted.map(Some));
        for gone in handshaking.into_iter().chain(unanswered) {
            assert!(!port.has(gone));
        }
        assert!(answered.into_iter().all(|id| port.has(id)));
        assert_eq!(port.take(106, Answered).1, Some(Eviction::Idle));
        assert_eq!(port.places.len(), 8);
    }

    #[test]
    fn the_longest_idle_goes_first_of_equals() {
        let mut port = Port::new(4);
        let ids = port.take_many(4, Answered);
        let later = port.now + Duration::from_secs(1);
        port.places.advance(ids[0], Unanswered, later);
        port.take(100, Handshaking);
        assert!(port.has(ids[0]) && !port.has(ids[1]));
    }

    #[test]
    fn an_address_with_a_quarter_makes_room_itself() {
        let mut port = Port::new(8);
        let api_server = port.take(1, Handshaking).0;
        let first = port.take(2, Answered).0;
        for _ in 2..8 {
            assert_eq!(port.take(2, Answered).1, None, "there is room");
        }
        assert_eq!(port.take(2, Handshaking).1, Some(Eviction::Address));
        assert!(!port.has(first) && port.has(api_server));
        // Whatever it sends, and however fast.
        for _ in 0..100 {
            assert_eq!(port.take(2, Handshaking).1, Some(Eviction::Address));
        }
        assert!(port.has(api_server));
        // It also is the first to make room for others.
        port.idle();
        assert_eq!(port.take(3, Handshaking).1, Some(Eviction::Handshaking));
        assert!(port.has(api_server));
    }

    #[test]
    fn a_crowd_does_not_interrupt_a_call() {
        for standing in [Handshaking, Unanswered] {
            let mut port = Port::new(16);
            let api_server = port.take(1, standing).0;
            for host in (2..7).cycle().take(15) {
                port.take(host, Answered);
            }
            for host in (2..7).cycle().take(100) {
                assert_eq!(port.take(host, Answered).1, Some(Eviction::Idle));
                assert!(port.has(api_server));
            }
            // But for one that has fewer places, it goes first once it is idle.
            port.idle();
            assert!(port.take(8, Handshaking).1.is_some());
            assert!(!port.has(api_server));
        }
    }

    #[test]
    fn the_address_that_holds_most_loses_first_of_equals() {
        let mut port = Port::new(8);
        let api_server = port.take(1, Answered).0;
        let crowd: Vec<_> = (0..7).map(|_| port.take(2, Answered).0).collect();
        port.idle();
        assert_eq!(port.take(3, Handshaking).1, Some(Eviction::Idle));
        assert!(port.has(api_server) && !port.has(crowd[0]));
    }

    #[test]
    fn calls_in_flight_outlive_idle_connections() {
        // Forty calls from one address, and a crowd of thirty addresses with eleven places each.
        for standing in [Handshaking, Unanswered, Answered] {
            let mut port = Port::new(384);
            let calls: Vec<_> = (0..40).map(|_| port.take(1, standing).0).collect();
            for host in (2..32).cycle().take(344) {
                port.take(host, Answered);
            }
            port.idle();
            for &id in &calls {
                port.places.advance(id, standing, port.now);
                port.places.set_in_flight(id, standing == Answered);
            }
            for host in (2..32).cycle().take(300) {
                port.take(host, Answered);
            }
            assert!(calls.iter().all(|&id| port.has(id)), "{standing:?}");
        }
    }

    #[test]
    fn a_request_that_ended_protects_no_longer() {
        let mut port = Port::new(8);
        let ids = port.take_many(8, Answered);
        port.idle();
        for &id in &ids {
            port.places.set_in_flight(id, true);
        }
        port.places.set_in_flight(ids[5], false);
        port.take(100, Handshaking);
        assert!(!port.has(ids[5]));
        assert_eq!(port.places.len(), 8);
    }

    #[test]
    fn of_connections_in_use_the_oldest_goes() {
        // A crowd of more addresses than there are places, and a probe whose address has two.
        let mut port = Port::new(128);
        port.take_many(128, Unanswered);
        let probes = [0, 1].map(|_| port.take(200, Unanswered).0);
        port.take_many(126, Unanswered);
        assert!(probes.iter().all(|&id| port.has(id)));
        // But an address that has far more goes first.
        let many: Vec<_> = (0..16).map(|_| port.take(201, Unanswered).0).collect();
        port.take(202, Unanswered);
        assert!(!port.has(many[0]));
    }

    #[test]
    fn an_address_is_one_in_either_notation() {
        let mut places = Places::new(1);
        let now = Instant::now();
        places.take("::ffff:10.0.0.1".parse().unwrap(), Answered, now, ());
        let (_, evicted) = places.take("10.0.0.1".parse().unwrap(), Answered, now, ());
        assert_eq!(evicted, Some(Eviction::Address));
        assert_eq!(places.held.len(), 1);
    }

    #[test]
    fn a_place_is_freed_once() {
        let mut port = Port::new(2);
        let (id, _) = port.take(1, Answered);
        port.places.free(id);
        port.places.free(id);
        port.places.advance(id, Answered, port.now);
        assert_eq!(port.places.len(), 0);
        assert!(port.places.held.is_empty());
    }
}
