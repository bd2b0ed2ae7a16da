//! When something is due, on a machine that may be busy.

use std::time::Duration;

/// What tests count time in.
pub const SECOND: Duration = Duration::from_secs(1);

/// How much later than due something may come on a machine that compiles meanwhile.
pub const LATE: Duration = Duration::from_millis(1500);

/// More than anything takes that a test waits for where nothing is claimed of how long that is.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Asserts that something took as long as was due: not a moment less, and little more.
///
/// # Panics
/// When it did not.
#[track_caller]
pub fn assert_due(took: Duration, due: Duration) {
    assert!(
        took >= due && took < due + LATE,
        "{took:?} rather than {due:?}"
    );
}
