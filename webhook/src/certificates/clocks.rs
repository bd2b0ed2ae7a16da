//! The two clocks by which certificates are renewed.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

/// One instant by both clocks of this process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clocks {
    /// The wall clock, which may jump.
    pub(crate) wall: SystemTime,
    /// The monotonic clock, which stands still while the machine is suspended.
    pub(crate) monotonic: Instant,
}

// === impl Clocks ===

impl Clocks {
    /// The time since `earlier`, by the clock that measured more: the other was set back, or stood still.
    pub(super) fn elapsed_since(self, earlier: Self) -> Duration {
        let by_wall = self.wall.duration_since(earlier.wall).unwrap_or_default();
        by_wall.max(self.monotonic.duration_since(earlier.monotonic))
    }
}
