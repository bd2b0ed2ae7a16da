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
const CROWDED_HEAD_TIMEOUT: Duration = Duration::from_millis(200);

/// More than all containers of a pod have hooks.
const CROWD: usize = 100;

/// Places for connections.
pub(crate) struct Places {
    free: Arc<Semaphore>,
    unread: Arc<Unread>,
}

/// A place that is free, for the next connection.
pub(crate) struct FreePlace(OwnedSemaphorePermit);

/// A connection's place. Dropped, it is free.
pub(crate) struct Place {
    _taken: OwnedSemaphorePermit,
    number: u64,
    unread: Arc<Unread>,
    head_timeout: Duration,
    evicted: oneshot::Receiver<()>,
}

#[derive(Default)]
struct Unread(Mutex<Queue>);

#[derive(Default)]
struct Queue {
    /// The number of the next connection.
    next: u64,
    /// By number, so the oldest first.
    unread: BTreeMap<u64, oneshot::Sender<()>>,
}

// === impl Places ===

impl Places {
    /// So many places.
    pub(crate) fn new(count: usize) -> Self {
        Self {
            free: Arc::new(Semaphore::new(count)),
            unread: Arc::default(),
        }
    }

    /// Returns a free place, if there is one at once.
    pub(crate) fn try_free(&self) -> Option<FreePlace> {
        self.free.clone().try_acquire_owned().ok().map(FreePlace)
    }

    /// Waits for a free place.
    pub(crate) async fn free(&self) -> FreePlace {
        let permit = self.free.clone().acquire_owned().await;
        FreePlace(permit.expect("never closed"))
    }

    /// Takes a place for a connection that has come. Was it the last one, the oldest of the other
    /// unread connections is to go.
    pub(crate) fn take(&self, FreePlace(taken): FreePlace) -> Place {
        let (tell, evicted) = oneshot::channel();
        let mut queue = self.unread.lock();
        let number = queue.next;
        queue.next += 1;
        if self.free.available_permits() == 0 {
            // Dropped, it tells.
            drop(queue.unread.pop_first());
        }
        queue.unread.insert(number, tell);
        let head_timeout = match queue.unread.len() > CROWD {
            true => CROWDED_HEAD_TIMEOUT,
            false => HEAD_TIMEOUT,
        };
        drop(queue);
        Place {
            _taken: taken,
            number,
            unread: self.unread.clone(),
            head_timeout,
            evicted,
        }
    }
}

// === impl Place ===

impl Place {
    /// Waits until the connection has had its time to send a request, or is to go for another one.
    /// Returns true if it had less time for a crowd.
    pub(crate) async fn given_up(&mut self) -> bool {
        match timeout(self.head_timeout, &mut self.evicted).await {
            Ok(_) => true,
            Err(_) => self.head_timeout == CROWDED_HEAD_TIMEOUT,
        }
    }

    /// Keeps the place, whoever comes: the connection's request was read.
    pub(crate) fn keep(&self) {
        self.unread.lock().unread.remove(&self.number);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.keep();
    }
}

// === impl Unread ===

impl Unread {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    async fn lasts(place: &mut Place) -> (Duration, bool) {
        let began = Instant::now();
        let is_crowded = place.given_up().await;
        (began.elapsed(), is_crowded)
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_place_evicts_the_oldest_unread_connection() {
        let places = Places::new(3);
        let take = || places.take(places.try_free().unwrap());
        let waits = take();
        waits.keep();
        let mut oldest = take();
        let mut newest = take();
        assert_eq!(lasts(&mut oldest).await, (Duration::ZERO, true));
        assert_eq!(lasts(&mut newest).await, (HEAD_TIMEOUT, false));
        // Until that one has gone, there is no place.
        assert!(places.try_free().is_none());
        drop(oldest);
        // Beside hooks that wait, the last one stays.
        newest.keep();
        let mut last = take();
        assert!(places.try_free().is_none());
        assert_eq!(lasts(&mut last).await, (HEAD_TIMEOUT, false));
    }

    #[tokio::test(start_paused = true)]
    async fn a_crowd_has_less_time() {
        let places = Places::new(CROWD + 2);
        let take = || places.take(places.try_free().unwrap());
        let mut all: Vec<_> = (0..=CROWD).map(|_| take()).collect();
        assert_eq!(lasts(&mut all[CROWD]).await, (CROWDED_HEAD_TIMEOUT, true));
        assert_eq!(lasts(&mut all[0]).await, (HEAD_TIMEOUT, false));
        all.truncate(CROWD);
        drop(all.pop());
        assert_eq!(lasts(&mut take()).await, (HEAD_TIMEOUT, false));
    }
}
