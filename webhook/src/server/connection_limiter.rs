//! Limits the connections of one port: one more than the limit evicts another.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::connection_slots::{SlotId, SlotTable};
use super::metrics::PortMetrics;

/// Interval at which the accept loop reports that it runs, and at which time at the limit is counted.
pub(super) const TICK_INTERVAL: Duration = Duration::from_secs(1);

/// The slots of a port's connections, their metrics, and the liveness of its accept loop.
#[derive(Debug)]
pub(super) struct ConnectionLimiter {
    slots: Mutex<SlotTable>,
    metrics: PortMetrics,
    last_accepting: watch::Sender<Instant>,
    last_ran: watch::Sender<Instant>,
}

/// The slot of one connection, released on drop.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    limiter: Arc<ConnectionLimiter>,
    /// Counts the connections of the port.
    pub(super) id: SlotId,
    /// The client's address.
    pub(super) source: IpAddr,
    /// Changes when the connection is evicted. The sender is dropped when it must close at once.
    pub(super) eviction: watch::Receiver<()>,
}

// === impl ConnectionLimiter ===

impl ConnectionLimiter {
    /// Creates a limiter for up to `limit` connections.
    pub(super) fn new(limit: usize, metrics: PortMetrics) -> Arc<Self> {
        metrics.set_limit(limit);
        Arc::new(Self {
            slots: Mutex::new(SlotTable::new(limit)),
            metrics,
            last_accepting: watch::Sender::new(Instant::now()),
            last_ran: watch::Sender::new(Instant::now()),
        })
    }

    /// Takes a slot for a new connection. It never fails: at the limit, another connection is evicted.
    pub(super) fn acquire(self: &Arc<Self>, peer: SocketAddr) -> ConnectionSlot {
        let (evict, eviction) = watch::channel(());
        let mut slots = self.slots();
        let (id, evicted) = slots.acquire(peer.ip(), Instant::now(), evict);
        self.metrics.set_open(slots.len());
        drop(slots);
        if let Some(reason) = evicted {
            self.metrics.count_eviction(reason);
        }
        ConnectionSlot {
            limiter: Arc::clone(self),
            id,
            source: peer.ip(),
            eviction,
        }
    }

    /// Records, every [`TICK_INTERVAL`], that the thread runs and whether accepting works, and counts the time at
    /// the limit.
    pub(super) fn tick(&self, is_accepting: bool) {
        let now = Instant::now();
        self.last_ran.send_replace(now);
        if is_accepting {
            self.last_accepting.send_replace(now);
            if self.slots().is_full() {
                self.metrics.add_full_time(TICK_INTERVAL);
            }
        }
    }

    /// When the thread of the accept loop last ran its tasks, to [`TICK_INTERVAL`].
    pub(super) fn last_ran(&self) -> watch::Receiver<Instant> {
        self.last_ran.subscribe()
    }

    /// When the port was last able to accept a connection, to [`TICK_INTERVAL`].
    pub(super) fn last_accepting(&self) -> watch::Receiver<Instant> {
        self.last_accepting.subscribe()
    }

    fn slots(&self) -> MutexGuard<'_, SlotTable> {
        // The table cannot panic halfway through a change.
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl ConnectionSlot ===

impl ConnectionSlot {
    /// Records whether a request is in flight.
    pub(super) fn set_in_flight(&self, in_flight: bool) {
        let now = Instant::now();
        self.limiter.slots().set_in_flight(self.id, in_flight, now);
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut slots = self.limiter.slots();
        slots.release(self.id);
        self.limiter.metrics.set_open(slots.len());
    }
}
