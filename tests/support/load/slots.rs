//! Connections that are kept for later requests.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A fixed number of places for connections, used in turn, so that none is left idle.
#[derive(Debug)]
pub(super) struct Slots<C> {
    slots: Vec<Mutex<Option<C>>>,
    turn: AtomicUsize,
}

// === impl Slots ===

impl<C> Slots<C> {
    pub(super) fn new(count: usize) -> Self {
        Self {
            slots: (0..count).map(|_| Mutex::new(None)).collect(),
            turn: AtomicUsize::new(0),
        }
    }

    /// Whose turn it is.
    pub(super) fn turn(&self) -> usize {
        self.turn.fetch_add(1, Ordering::Relaxed) % self.slots.len()
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

impl<C: Clone> Slots<C> {
    /// Shares the connection, if there is one.
    pub(super) fn share(&self, turn: usize) -> Option<C> {
        self.lock(turn).clone()
    }
}
