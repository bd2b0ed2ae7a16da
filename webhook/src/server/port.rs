//! A port of the server: its places, and what metrics show of them.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use super::places::{Id, Places, Standing};
use crate::report::connections::PortMetrics;

/// How often the port is looked at for its metrics, and says that it accepts connections.
pub(super) const TICK: Duration = Duration::from_secs(1);

/// What all connections of a port share.
#[derive(Debug)]
pub(super) struct Port {
    /// Each place has what, dropped, ends its connection.
    places: Mutex<Places<oneshot::Sender<Infallible>>>,
    /// Where a connection starts.
    standing: Standing,
    metrics: PortMetrics,
    accepting: watch::Sender<Instant>,
    running: watch::Sender<Instant>,
}

/// The place of one connection, which is free again when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    port: Arc<Port>,
    id: Id,
    source: IpAddr,
}

/// A request of a connection that is in flight until this is dropped.
#[derive(Debug)]
pub(super) struct InFlight<'a>(&'a Place);

/// Resolves when a connection has lost its place to another.
#[derive(Debug)]
pub(super) struct Evicted(oneshot::Receiver<Infallible>);

// === impl Port ===

impl Port {
    /// A port with so many places, whose connections start at `standing`.
    pub(super) fn new(limit: usize, standing: Standing, metrics: PortMetrics) -> Arc<Self> {
        metrics.has_places(limit);
        Arc::new(Self {
            places: Mutex::new(Places::new(limit)),
            standing,
            metrics,
            accepting: watch::Sender::new(Instant::now()),
            running: watch::Sender::new(Instant::now()),
        })
    }

    /// Gives a new connection its place. There always is one: where all are taken, another connection
    /// loses its own.
    pub(super) fn take(self: &Arc<Self>, peer: SocketAddr) -> (Place, Evicted) {
        let (keep, evicted) = oneshot::channel();
        let now = Instant::now();
        let mut places = self.places();
        let (id, eviction) = places.take(peer.ip(), self.standing, now, keep);
        self.metrics.taken(places.len());
        drop(places);
        if let Some(eviction) = eviction {
            self.metrics.evicted(eviction);
        }
        let port = Arc::clone(self);
        let source = peer.ip();
        (Place { port, id, source }, Evicted(evicted))
    }

    /// Notes, each [`TICK`], that its thread runs and whether the port accepts connections, and counts
    /// the time for which it is full.
    pub(super) fn tick(&self, accepts: bool) {
        let now = Instant::now();
        self.running.send_replace(now);
        if accepts {
            self.accepting.send_replace(now);
            if self.places().is_full() {
                self.metrics.was_full(TICK);
            }
        }
    }

    /// When the thread that serves the port last ran its tasks, to the [`TICK`].
    pub(super) fn running(&self) -> watch::Receiver<Instant> {
        self.running.subscribe()
    }

    /// When the port last was able to accept a connection, to the [`TICK`].
    pub(super) fn accepting(&self) -> watch::Receiver<Instant> {
        self.accepting.subscribe()
    }

    fn places(&self) -> MutexGuard<'_, Places<oneshot::Sender<Infallible>>> {
        // Nothing in there can panic halfway through a change.
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Place ===

impl Place {
    /// Notes how far the connection has come, or that it is in use.
    pub(super) fn advance(&self, standing: Standing) {
        self.port
            .places()
            .advance(self.id, standing, Instant::now());
    }

    /// The address that the connection comes from.
    pub(super) fn source(&self) -> IpAddr {
        self.source
    }

    /// Keeps the connection among those in use until the result is dropped.
    pub(super) fn in_flight(&self) -> InFlight<'_> {
        self.port.places().set_in_flight(self.id, true);
        InFlight(self)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let Place { port, id, .. } = self.0;
        port.places().set_in_flight(*id, false);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut places = self.port.places();
        places.free(self.id);
        self.port.metrics.taken(places.len());
    }
}

// === impl Evicted ===

impl Evicted {
    pub(super) async fn wait(self) {
        // There is nothing to receive: the other end is dropped.
        let _ = self.0.await;
    }
}
