//! When something is due, on a machine that may be busy.

use std::time::Duration;

use crate::cpu_pressure::stall_time;

/// What tests count time in.
pub const SECOND: Duration = Duration::from_secs(1);

/// How much later than due something may come beside what the machine held up: programs start, wake
/// up and write their logs.
const TOLERANCE: Duration = Duration::from_millis(1500);

/// More than anything takes that a test waits for where nothing is claimed of how long that is.
pub const TIMEOUT: Duration = Duration::from_secs(20);

/// Asserts that something which is just over took as long as was due: not a moment less, and little
/// more.
///
/// # Panics
/// When it did not.
#[track_caller]
pub fn assert_took(took: Duration, due: Duration) {
    assert_took_between(took, due, due);
}

/// Asserts that something which is just over took little more than this, if as much.
///
/// # Panics
/// When it took longer.
#[track_caller]
pub fn assert_took_at_most(took: Duration, at_most: Duration) {
    assert_took_between(took, Duration::ZERO, at_most);
}

/// Asserts that something which is just over took as long as this, and little more than that.
///
/// # Panics
/// When it did not.
#[track_caller]
pub fn assert_took_between(took: Duration, at_least: Duration, at_most: Duration) {
    let held_up = stall_time(took);
    assert!(
        took >= at_least && took < at_most + TOLERANCE + held_up,
        "{took:?}, of which the machine held up {held_up:?}, rather than {at_least:?} to {at_most:?}"
    );
}
