//! A port of the server: its places, and what metrics show of them.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use super::connection_slots::{ConnectionStage, SlotId, SlotTable};
use super::metrics::PortMetrics;

/// How often the port is looked at for its metrics, and says that it accepts connections.
pub(super) const TICK_INTERVAL: Duration = Duration::from_secs(1);

/// What all connections of a port share.
#[derive(Debug)]
pub(super) struct ConnectionLimiter {
    /// Each place has what, dropped, ends its connection.
    slots: Mutex<SlotTable<oneshot::Sender<Infallible>>>,
    /// Where a connection starts.
    initial_stage: ConnectionStage,
    metrics: PortMetrics,
    last_accepting: watch::Sender<Instant>,
    last_ran: watch::Sender<Instant>,
}

/// The place of one connection, which is free again when this is dropped.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    limiter: Arc<ConnectionLimiter>,
    id: SlotId,
    source: IpAddr,
}

/// A request of a connection that is in flight until this is dropped.
#[derive(Debug)]
pub(super) struct InFlightRequest<'a>(&'a ConnectionSlot);

/// Resolves when a connection has lost its place to another.
#[derive(Debug)]
pub(super) struct EvictionSignal(oneshot::Receiver<Infallible>);

// === impl ConnectionLimiter ===

impl ConnectionLimiter {
    /// A port with so many places, whose connections start at `standing`.
    pub(super) fn new(limit: usize, standing: ConnectionStage, metrics: PortMetrics) -> Arc<Self> {
        metrics.set_limit(limit);
        Arc::new(Self {
            slots: Mutex::new(SlotTable::new(limit)),
            initial_stage: standing,
            metrics,
            last_accepting: watch::Sender::new(Instant::now()),
            last_ran: watch::Sender::new(Instant::now()),
        })
    }

    /// Gives a new connection its place. There always is one: where all are taken, another connection
    /// loses its own.
    pub(super) fn acquire(self: &Arc<Self>, peer: SocketAddr) -> (ConnectionSlot, EvictionSignal) {
        let (keep, evicted) = oneshot::channel();
        let now = Instant::now();
        let mut places = self.slots();
        let (id, eviction) = places.acquire(peer.ip(), self.initial_stage, now, keep);
        self.metrics.set_open(places.len());
        drop(places);
        if let Some(eviction) = eviction {
            self.metrics.count_eviction(eviction);
        }
        let port = Arc::clone(self);
        let source = peer.ip();
        (
            ConnectionSlot {
                limiter: port,
                id,
                source,
            },
            EvictionSignal(evicted),
        )
    }

    /// Notes, each [`TICK`], that its thread runs and whether the port accepts connections, and counts
    /// the time for which it is full.
    pub(super) fn tick(&self, accepts: bool) {
        let now = Instant::now();
        self.last_ran.send_replace(now);
        if accepts {
            self.last_accepting.send_replace(now);
            if self.slots().is_full() {
                self.metrics.add_full_time(TICK_INTERVAL);
            }
        }
    }

    /// When the thread that serves the port last ran its tasks, to the [`TICK`].
    pub(super) fn last_ran(&self) -> watch::Receiver<Instant> {
        self.last_ran.subscribe()
    }

    /// When the port last was able to accept a connection, to the [`TICK`].
    pub(super) fn last_accepting(&self) -> watch::Receiver<Instant> {
        self.last_accepting.subscribe()
    }

    fn slots(&self) -> MutexGuard<'_, SlotTable<oneshot::Sender<Infallible>>> {
        // Nothing in there can panic halfway through a change.
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl ConnectionSlot ===

impl ConnectionSlot {
    /// Notes how far the connection has come, or that it is in use.
    pub(super) fn advance(&self, standing: ConnectionStage) {
        self.limiter
            .slots()
            .advance(self.id, standing, Instant::now());
    }

    /// The address that the connection comes from.
    pub(super) fn source(&self) -> IpAddr {
        self.source
    }

    /// Keeps the connection among those in use until the result is dropped.
    pub(super) fn in_flight(&self) -> InFlightRequest<'_> {
        self.limiter.slots().set_in_flight(self.id, true);
        InFlightRequest(self)
    }
}

impl Drop for InFlightRequest<'_> {
    fn drop(&mut self) {
        let ConnectionSlot {
            limiter: port, id, ..
        } = self.0;
        port.slots().set_in_flight(*id, false);
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut places = self.limiter.slots();
        places.release(self.id);
        self.limiter.metrics.set_open(places.len());
    }
}

// === impl EvictionSignal ===

impl EvictionSignal {
    pub(super) async fn wait(self) {
        // There is nothing to receive: the other end is dropped.
        let _ = self.0.await;
    }
}
