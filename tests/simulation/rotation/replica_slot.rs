//! The handle by which a simulation injects faults into a replica.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use tokio::task::spawn_local;
use tokio::time::sleep;

use crate::rotation::faults::ClockJump;
use crate::rotation::network::Connectivity;
use crate::rotation::release::Release;

/// The control of one replica over all its restarts.
#[derive(Debug)]
pub(crate) struct ReplicaSlot {
    pub(crate) connectivity: Rc<Cell<Connectivity>>,
    /// The offset of its clock, in seconds.
    pub(crate) clock_skew: Cell<i64>,
    /// The release that it runs.
    pub(crate) release: Cell<Release>,
    /// The release that it runs after the next start.
    pub(crate) next_release: Cell<Release>,
    pub(crate) restart_requested: Cell<bool>,
    pub(crate) is_running: Cell<bool>,
    /// The current jump of its clock.
    pub(crate) clock_jump: Cell<Option<ClockJump>>,
}

// === impl ReplicaSlot ===

impl ReplicaSlot {
    pub(crate) fn new(connectivity: Rc<Cell<Connectivity>>, clock_skew: i64) -> Self {
        Self {
            connectivity,
            clock_skew: clock_skew.into(),
            release: Cell::default(),
            next_release: Cell::default(),
            restart_requested: Cell::default(),
            is_running: Cell::default(),
            clock_jump: Cell::default(),
        }
    }

    /// Returns true if it runs and reaches the API server.
    pub(crate) fn is_healthy(&self) -> bool {
        self.is_running.get()
            && !self.restart_requested.get()
            && self.connectivity.get() == Connectivity::Connected
    }

    /// Restarts it, unless its clock is in a jump: nothing is promised for a replica that starts with a wrong clock.
    pub(crate) fn restart(&self) {
        if self.clock_jump.get().is_none() {
            self.restart_requested.set(true);
        }
    }

    /// Disconnects or suspends it for this long.
    pub(crate) fn disconnect_for(&self, connectivity: Connectivity, duration: Duration) {
        self.connectivity.set(connectivity);
        let connectivity = Rc::clone(&self.connectivity);
        spawn_local(async move {
            sleep(duration).await;
            connectivity.set(Connectivity::Connected);
        });
    }

    /// Starts a jump of its clock.
    pub(crate) fn jump_clock(self: &Rc<Self>, jump: ClockJump) {
        self.clock_jump.set(Some(jump));
        self.clock_skew.set(jump.seconds);
        let slot = Rc::clone(self);
        spawn_local(async move {
            sleep(jump.duration).await;
            slot.clock_jump.set(None);
            slot.clock_skew.set(jump.seconds_after);
        });
    }
}
