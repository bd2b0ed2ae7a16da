//! The certificate that the server shows: where it comes from, and how it changes while it serves.

pub mod anchors;
pub mod authority;
mod backoff;
pub mod bundle;
pub mod ca;
pub mod cluster;
pub mod files;
pub mod given;
pub mod identity;
pub mod keyring;
pub mod leaf;
pub mod lifetimes;
pub mod live;
pub mod readiness;
pub mod rotation;
pub mod self_made;
pub mod serving;
pub mod showing;
pub mod source;
pub mod trust;
pub mod x509;

#[cfg(test)]
mod cast;

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
