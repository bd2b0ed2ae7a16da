//! What a replica's fate is told by.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use tokio::task::spawn_local;
use tokio::time::sleep;

use crate::rotation::cluster::Connectivity;
use crate::rotation::faults::ClockJump;
use crate::rotation::replica::{Release, Replica};

/// The place of one replica, which lives there again and again.
#[derive(Debug)]
pub(crate) struct ReplicaSlot {
    pub(crate) connectivity: Rc<Cell<Connectivity>>,
    pub(crate) clock_skew: Rc<Cell<i64>>,
    /// What it runs.
    pub(crate) release: Rc<Cell<Release>>,
    /// What it starts as the next time.
    pub(crate) next_release: Rc<Cell<Release>>,
    pub(crate) restart_requested: Rc<Cell<bool>>,
    pub(crate) is_running: Rc<Cell<bool>>,
    /// The jump that its clock is in.
    pub(crate) clock_jump: Rc<Cell<Option<ClockJump>>>,
}

// === impl Slot ===

impl ReplicaSlot {
    pub(crate) fn new(replica: &Replica) -> Self {
        Self {
            connectivity: Rc::clone(&replica.api.connectivity),
            clock_skew: Rc::clone(&replica.clock_skew),
            release: Rc::clone(&replica.release),
            next_release: Rc::clone(&replica.next_release),
            restart_requested: Rc::clone(&replica.restart_requested),
            is_running: Rc::clone(&replica.is_running),
            clock_jump: Rc::default(),
        }
    }

    /// Returns true if it does what the product claims: it lives, and reaches the API.
    pub(crate) fn is_healthy(&self) -> bool {
        self.is_running.get()
            && !self.restart_requested.get()
            && self.connectivity.get() == Connectivity::Connected
    }

    /// Restarts it. Who starts while its clock is far off knows no better, which is not claimed.
    pub(crate) fn restart(&self) {
        if self.clock_jump.get().is_none() {
            self.restart_requested.set(true);
        }
    }

    /// Cuts it off or suspends it, for so long.
    pub(crate) fn disconnect_for(&self, way: Connectivity, lasts: Duration) {
        self.connectivity.set(way);
        let way = Rc::clone(&self.connectivity);
        spawn_local(async move {
            sleep(lasts).await;
            way.set(Connectivity::Connected);
        });
    }

    /// Sets its clock off.
    pub(crate) fn jump_clock(&self, jump: ClockJump) {
        self.clock_jump.set(Some(jump));
        self.clock_skew.set(jump.seconds);
        let (jumped, skew) = (Rc::clone(&self.clock_jump), Rc::clone(&self.clock_skew));
        spawn_local(async move {
            sleep(jump.duration).await;
            jumped.set(None);
            skew.set(jump.seconds_after);
        });
    }
}
