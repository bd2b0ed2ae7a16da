//! Places for the port's connections: for hooks that wait, and for connections whose request is not
//! read yet. Where all are taken, the oldest of the unread ones goes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::timeout;

/// A hook's request comes with its connection. Who does not send one is to make room.
const HEAD_TIMEOUT: Duration = Duration::from_secs(2);

/// The same where more than [`CROWD`] connections are unread.
const CONTENDED_HEAD_TIMEOUT: Duration = Duration::from_millis(200);

/// More than all containers of a pod have hooks.
const CONTENTION_THRESHOLD: usize = 100;

/// Places for connections.
pub(crate) struct HookSlots {
    permits: Arc<Semaphore>,
    queue: Arc<SharedPendingQueue>,
}

/// A place that is free, for the next connection.
pub(crate) struct FreeSlot(OwnedSemaphorePermit);

/// A connection's place. Dropped, it is free.
pub(crate) struct HookSlot {
    _permit: OwnedSemaphorePermit,
    id: u64,
    queue: Arc<SharedPendingQueue>,
    head_timeout: Duration,
    evicted: oneshot::Receiver<()>,
}

#[derive(Default)]
struct SharedPendingQueue(Mutex<PendingQueue>);

#[derive(Default)]
struct PendingQueue {
    /// The number of the next connection.
    next_id: u64,
    /// By number, so the oldest first.
    pending: BTreeMap<u64, oneshot::Sender<()>>,
}

// === impl HookSlots ===

impl HookSlots {
    /// So many places.
    pub(crate) fn new(count: usize) -> Self {
        Self {
            permits: Arc::new(Semaphore::new(count)),
            queue: Arc::default(),
        }
    }

    /// Returns a free place, if there is one at once.
    pub(crate) fn try_acquire(&self) -> Option<FreeSlot> {
        self.permits.clone().try_acquire_owned().ok().map(FreeSlot)
    }

    /// Waits for a free place.
    pub(crate) async fn acquire(&self) -> FreeSlot {
        let permit = self.permits.clone().acquire_owned().await;
        FreeSlot(permit.expect("never closed"))
    }

    /// Takes a place for a connection that has come. Was it the last one, the oldest of the other
    /// unread connections is to go.
    pub(crate) fn occupy(&self, FreeSlot(taken): FreeSlot) -> HookSlot {
        let (tell, evicted) = oneshot::channel();
        let mut queue = self.queue.lock();
        let number = queue.next_id;
        queue.next_id += 1;
        if self.permits.available_permits() == 0 {
            // Dropped, it tells.
            drop(queue.pending.pop_first());
        }
        queue.pending.insert(number, tell);
        let head_timeout = match queue.pending.len() > CONTENTION_THRESHOLD {
            true => CONTENDED_HEAD_TIMEOUT,
            false => HEAD_TIMEOUT,
        };
        drop(queue);
        HookSlot {
            _permit: taken,
            id: number,
            queue: self.queue.clone(),
            head_timeout,
            evicted,
        }
    }
}

// === impl HookSlot ===

impl HookSlot {
    /// Waits until the connection has had its time to send a request, or is to go for another one.
    /// Returns true if it had less time for a crowd.
    pub(crate) async fn until_expired(&mut self) -> bool {
        match timeout(self.head_timeout, &mut self.evicted).await {
            Ok(_) => true,
            Err(_) => self.head_timeout == CONTENDED_HEAD_TIMEOUT,
        }
    }

    /// Keeps the place, whoever comes: the connection's request was read.
    pub(crate) fn dequeue(&self) {
        self.queue.lock().pending.remove(&self.id);
    }
}

impl Drop for HookSlot {
    fn drop(&mut self) {
        self.dequeue();
    }
}

// === impl SharedPendingQueue ===

impl SharedPendingQueue {
    fn lock(&self) -> MutexGuard<'_, PendingQueue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    async fn time_to_expiry(place: &mut HookSlot) -> (Duration, bool) {
        let began = Instant::now();
        let is_crowded = place.until_expired().await;
        (began.elapsed(), is_crowded)
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_place_evicts_the_oldest_unread_connection() {
        let places = HookSlots::new(3);
        let take = || places.occupy(places.try_acquire().unwrap());
        let waits = take();
        waits.dequeue();
        let mut oldest = take();
        let mut newest = take();
        assert_eq!(time_to_expiry(&mut oldest).await, (Duration::ZERO, true));
        assert_eq!(time_to_expiry(&mut newest).await, (HEAD_TIMEOUT, false));
        // Until that one has gone, there is no place.
        assert!(places.try_acquire().is_none());
        drop(oldest);
        // Beside hooks that wait, the last one stays.
        newest.dequeue();
        let mut last = take();
        assert!(places.try_acquire().is_none());
        assert_eq!(time_to_expiry(&mut last).await, (HEAD_TIMEOUT, false));
    }

    #[tokio::test(start_paused = true)]
    async fn a_crowd_has_less_time() {
        let places = HookSlots::new(CONTENTION_THRESHOLD + 2);
        let take = || places.occupy(places.try_acquire().unwrap());
        let mut all: Vec<_> = (0..=CONTENTION_THRESHOLD).map(|_| take()).collect();
        assert_eq!(
            time_to_expiry(&mut all[CONTENTION_THRESHOLD]).await,
            (CONTENDED_HEAD_TIMEOUT, true)
        );
        assert_eq!(time_to_expiry(&mut all[0]).await, (HEAD_TIMEOUT, false));
        all.truncate(CONTENTION_THRESHOLD);
        drop(all.pop());
        assert_eq!(time_to_expiry(&mut take()).await, (HEAD_TIMEOUT, false));
    }
}
