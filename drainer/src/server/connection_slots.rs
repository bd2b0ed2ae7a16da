//! The slots that limit the port's connections: waiting hooks, and connections whose request is not
//! read yet, of which the oldest is evicted when no slot is left.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::timeout;

/// Timeout for a connection's request. Hooks send it at once.
const HEAD_TIMEOUT: Duration = Duration::from_secs(2);

/// The timeout while more than [`CONTENTION_THRESHOLD`] requests are pending.
const CONTENDED_HEAD_TIMEOUT: Duration = Duration::from_millis(200);

/// More connections than a pod has hooks.
const CONTENTION_THRESHOLD: usize = 100;

/// The slots of one port.
pub(crate) struct HookSlots {
    permits: Arc<Semaphore>,
    pending: Arc<PendingConnections>,
    /// The id of the next connection.
    next_id: u64,
}

/// The slot of one connection, released when dropped.
pub(crate) struct HookSlot {
    _permit: OwnedSemaphorePermit,
    id: u64,
    pending: Arc<PendingConnections>,
    head_timeout: Duration,
    evicted: oneshot::Receiver<()>,
}

/// Connections without a request yet by id, so the oldest first. Dropping the sender evicts.
type PendingConnections = Mutex<BTreeMap<u64, oneshot::Sender<()>>>;

// === impl HookSlots ===

impl HookSlots {
    /// Creates `count` slots.
    pub(crate) fn new(count: usize) -> Self {
        Self {
            permits: Arc::new(Semaphore::new(count)),
            pending: Arc::default(),
            next_id: 0,
        }
    }

    /// Waits for a free slot and reserves it.
    pub(crate) async fn acquire(&self) -> OwnedSemaphorePermit {
        let permit = self.permits.clone().acquire_owned().await;
        permit.expect("never closed")
    }

    /// Occupies a reserved slot with an accepted connection. If it was the last one, evicts the oldest
    /// connection whose request is pending.
    pub(crate) fn occupy(&mut self, permit: OwnedSemaphorePermit) -> HookSlot {
        let (evict, evicted) = oneshot::channel();
        let id = self.next_id;
        self.next_id += 1;
        let mut pending = lock(&self.pending);
        if self.permits.available_permits() == 0 {
            drop(pending.pop_first());
        }
        pending.insert(id, evict);
        let head_timeout = match pending.len() {
            ..=CONTENTION_THRESHOLD => HEAD_TIMEOUT,
            _ => CONTENDED_HEAD_TIMEOUT,
        };
        HookSlot {
            _permit: permit,
            id,
            pending: self.pending.clone(),
            head_timeout,
            evicted,
        }
    }
}

// === impl HookSlot ===

impl HookSlot {
    /// Waits until the connection is evicted or its request times out.
    pub(crate) async fn until_expired(&mut self) {
        let _ = timeout(self.head_timeout, &mut self.evicted).await;
    }

    /// Exempts the connection from eviction, since its request was read.
    pub(crate) fn dequeue(&self) {
        lock(&self.pending).remove(&self.id);
    }
}

impl Drop for HookSlot {
    fn drop(&mut self) {
        self.dequeue();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    async fn occupy(slots: &mut HookSlots) -> HookSlot {
        let permit = slots.acquire().await;
        slots.occupy(permit)
    }

    async fn time_to_expiry(slot: &mut HookSlot) -> Duration {
        let start = Instant::now();
        slot.until_expired().await;
        start.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn last_slot_evicts_the_oldest_pending_connection() {
        let mut slots = HookSlots::new(3);
        let waiting = occupy(&mut slots).await;
        waiting.dequeue();
        let mut oldest = occupy(&mut slots).await;
        let mut newest = occupy(&mut slots).await;
        assert_eq!(time_to_expiry(&mut oldest).await, Duration::ZERO);
        assert_eq!(time_to_expiry(&mut newest).await, HEAD_TIMEOUT);
        // No slot is free until the evicted connection is closed.
        assert_eq!(slots.permits.available_permits(), 0);
        drop(oldest);
        // The last one is not evicted if all others are waiting hooks.
        newest.dequeue();
        let mut last = occupy(&mut slots).await;
        assert_eq!(slots.permits.available_permits(), 0);
        assert_eq!(time_to_expiry(&mut last).await, HEAD_TIMEOUT);
    }

    #[tokio::test(start_paused = true)]
    async fn contention_shortens_the_timeout() {
        let mut slots = HookSlots::new(CONTENTION_THRESHOLD + 2);
        let mut all = Vec::new();
        for _ in 0..=CONTENTION_THRESHOLD {
            all.push(occupy(&mut slots).await);
        }
        let newest = &mut all[CONTENTION_THRESHOLD];
        assert_eq!(time_to_expiry(newest).await, CONTENDED_HEAD_TIMEOUT);
        assert_eq!(time_to_expiry(&mut all[0]).await, HEAD_TIMEOUT);
        all.truncate(CONTENTION_THRESHOLD - 1);
        let mut last = occupy(&mut slots).await;
        assert_eq!(time_to_expiry(&mut last).await, HEAD_TIMEOUT);
    }
}
