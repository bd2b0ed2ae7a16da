//! What a replica's fate is told by.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use tokio::task::spawn_local;
use tokio::time::sleep;

use crate::cluster::Way;
use crate::faults::Jump;
use crate::replica::{Release, Replica};

/// The place of one replica, which lives there again and again.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) way: Rc<Cell<Way>>,
    pub(crate) skew: Rc<Cell<i64>>,
    /// What it runs.
    pub(crate) release: Rc<Cell<Release>>,
    /// What it starts as the next time.
    pub(crate) next_release: Rc<Cell<Release>>,
    pub(crate) killed: Rc<Cell<bool>>,
    pub(crate) alive: Rc<Cell<bool>>,
    /// The jump that its clock is in.
    pub(crate) jump: Rc<Cell<Option<Jump>>>,
}

// === impl Slot ===

impl Slot {
    pub(crate) fn of(replica: &Replica) -> Self {
        Self {
            way: Rc::clone(&replica.api.way),
            skew: Rc::clone(&replica.skew),
            release: Rc::clone(&replica.release),
            next_release: Rc::clone(&replica.next_release),
            killed: Rc::clone(&replica.killed),
            alive: Rc::clone(&replica.alive),
            jump: Rc::default(),
        }
    }

    /// Returns true if it does what the product claims: it lives, and reaches the API.
    pub(crate) fn is_well(&self) -> bool {
        self.alive.get() && !self.killed.get() && self.way.get() == Way::Open
    }

    /// Restarts it. Who starts while its clock is far off knows no better, which is not claimed.
    pub(crate) fn restart(&self) {
        if self.jump.get().is_none() {
            self.killed.set(true);
        }
    }

    /// Cuts it off or suspends it, for so long.
    pub(crate) fn cut_for(&self, way: Way, lasts: Duration) {
        self.way.set(way);
        let way = Rc::clone(&self.way);
        spawn_local(async move {
            sleep(lasts).await;
            way.set(Way::Open);
        });
    }

    /// Sets its clock off.
    pub(crate) fn jump(&self, jump: Jump) {
        self.jump.set(Some(jump));
        self.skew.set(jump.seconds);
        let (jumped, skew) = (Rc::clone(&self.jump), Rc::clone(&self.skew));
        spawn_local(async move {
            sleep(jump.lasts).await;
            jumped.set(None);
            skew.set(jump.after);
        });
    }
}
