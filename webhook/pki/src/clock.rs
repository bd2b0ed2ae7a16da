//! The wall clock.

use std::time::SystemTime;

/// The current time, for the validity of certificates and tokens, and the timestamps of Events.
pub fn wall_clock() -> SystemTime {
    #[expect(
        clippy::disallowed_methods,
        reason = "certificates, tokens and Events have wall-clock times"
    )]
    SystemTime::now()
}
