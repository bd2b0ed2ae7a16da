//! Connections that are kept for later requests.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A fixed number of places for connections, used in turn, so that none is left idle.
#[derive(Debug)]
pub(super) struct ConnectionPool<C> {
    slots: Vec<Mutex<Option<C>>>,
    next_slot: AtomicUsize,
}

// === impl Slots ===

impl<C> ConnectionPool<C> {
    pub(super) fn new(count: usize) -> Self {
        Self {
            slots: (0..count).map(|_| Mutex::new(None)).collect(),
            next_slot: AtomicUsize::new(0),
        }
    }

    /// Whose turn it is.
    pub(super) fn next_slot(&self) -> usize {
        self.next_slot.fetch_add(1, Ordering::Relaxed) % self.slots.len()
    }

    /// Takes the connection out, if there is one and nobody is using it.
    pub(super) fn take(&self, turn: usize) -> Option<C> {
        self.lock(turn).take()
    }

    /// Puts a connection in the place of the one there.
    pub(super) fn put(&self, turn: usize, connection: Option<C>) {
        *self.lock(turn) = connection;
    }

    fn lock(&self, turn: usize) -> MutexGuard<'_, Option<C>> {
        let slot = &self.slots[turn];
        slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C: Clone> ConnectionPool<C> {
    /// Shares the connection, if there is one.
    pub(super) fn get(&self, turn: usize) -> Option<C> {
        self.lock(turn).clone()
    }
}
