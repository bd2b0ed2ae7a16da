//! A network whose calls fail when a test says so, and which reports changes when a test says so.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::SystemTime;

use tokio::sync::Notify;
use tokio::time::Instant;
use webhook::certificates::testing_api::{StoreCall, StoreError};

use crate::memory_cluster::Network;

/// The network of one replica; clones share their state.
#[derive(Debug, Clone, Default)]
pub(crate) struct ScriptedNetwork {
    /// The calls that time out before they have an effect.
    pub(crate) failing_calls: Rc<RefCell<Vec<StoreCall>>>,
    /// The call that panics.
    pub(crate) panicking_call: Rc<Cell<Option<StoreCall>>>,
    /// Whether the webhook's Service refuses connections, since no replica is ready.
    pub(crate) refuses_connections: Rc<Cell<bool>>,
    /// Notifies the replica's watch.
    pub(crate) notifier: Rc<Notify>,
}

impl Network for ScriptedNetwork {
    async fn send(&self, call: StoreCall) -> Result<(), StoreError> {
        assert_ne!(self.panicking_call.get(), Some(call), "a bug, on purpose");
        if self.failing_calls.borrow().contains(&call) {
            return Err(StoreError::Timeout { call });
        }
        Ok(())
    }

    async fn receive(&self, _: StoreCall) -> Result<(), StoreError> {
        Ok(())
    }

    fn read_time(&self) -> Instant {
        Instant::now()
    }

    fn server_time(&self, _: Instant) -> Option<SystemTime> {
        None
    }

    fn has_endpoint(&self) -> bool {
        !self.refuses_connections.get()
    }

    fn notify(&self) {}

    async fn changed(&self) {
        self.notifier.notified().await;
    }
}
