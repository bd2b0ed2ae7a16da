//! Pools of HTTP connections that are kept for later requests.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::task::JoinSet;

use crate::failure::{Failure, SendError};
use crate::request::RequestTemplate;
use crate::target::{ConnectionGuard, Connector};

/// A client's connection.
pub(super) trait HttpConnection: Sized + Send {
    /// The protocol that is offered in TLS.
    const ALPN: &'static [u8];

    /// How many connections share the requests.
    const CONNECTIONS: usize;

    fn open(connector: &Connector) -> impl Future<Output = Result<Self, Failure>> + Send;

    /// The same connection for a concurrent request; `None` if it carries one request at a time.
    fn share(&self) -> Option<Self>;

    /// Sends a request and verifies its response. Returns the connection if it is to be put back into its pool.
    fn send(
        self,
        template: &RequestTemplate,
    ) -> impl Future<Output = Result<Option<Self>, SendError>> + Send;
}

/// A fixed number of slots for connections, used in turn, so that no connection stays idle.
pub(super) struct ConnectionPool<C> {
    slots: Vec<Mutex<Option<C>>>,
    connector: Connector,
    template: RequestTemplate,
    next_slot: AtomicUsize,
}

/// Drives a connection until the task set is dropped. It counts as open until its end.
pub(super) fn spawn_driver(
    driver: impl Future + Send + 'static,
    guard: ConnectionGuard,
) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        // Requests on the connection get its error.
        let _ = driver.await;
        drop(guard);
    });
    tasks
}

// === impl ConnectionPool ===

impl<C: HttpConnection> ConnectionPool<C> {
    pub(super) fn new(connector: Connector, template: RequestTemplate) -> Self {
        Self {
            connector,
            template,
            slots: (0..C::CONNECTIONS).map(|_| Mutex::new(None)).collect(),
            next_slot: AtomicUsize::new(0),
        }
    }

    /// Sends a request on the connection of the next slot, or on a new one if the server has closed that connection or
    /// accepts no more requests on it (GOAWAY). Other requests on it are not affected.
    pub(super) async fn send(self: Arc<Self>) -> Result<(), Failure> {
        let slot = self.next_slot.fetch_add(1, Ordering::Relaxed) % self.slots.len();
        let reused = self.take(slot);
        let result = match reused {
            Some(connection) => connection.send(&self.template).await,
            None => Err(SendError::NotSent("no connection in the slot".into())),
        };
        let reusable = match result {
            Ok(reusable) => reusable,
            Err(SendError::Failed(failure)) => return Err(failure),
            Err(SendError::NotSent(_)) => {
                let connection = C::open(&self.connector).await?;
                if let Some(shared) = connection.share() {
                    self.put(slot, shared);
                }
                connection.send(&self.template).await?
            }
        };
        if let Some(connection) = reusable {
            self.put(slot, connection);
        }
        Ok(())
    }

    /// Takes the connection out of a slot, or shares it.
    fn take(&self, slot: usize) -> Option<C> {
        let mut slot = self.lock(slot);
        let connection = slot.take()?;
        *slot = connection.share();
        Some(connection)
    }

    fn put(&self, slot: usize, connection: C) {
        *self.lock(slot) = Some(connection);
    }

    fn lock(&self, slot: usize) -> MutexGuard<'_, Option<C>> {
        let slot = &self.slots[slot];
        slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
