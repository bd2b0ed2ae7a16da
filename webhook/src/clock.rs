//! The wall clock.

use std::time::SystemTime;

/// Reads the wall clock, which certificates are valid by, and Events are dated by.
#[must_use]
pub fn wall_clock() -> SystemTime {
    #[expect(
        clippy::disallowed_methods,
        reason = "certificates are valid by the wall clock, and Events are dated by it"
    )]
    SystemTime::now()
}
