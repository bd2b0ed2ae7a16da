//! Assertions about durations on a machine that may be busy, and the phases at which durations are measured.

use std::time::Duration;

/// One second.
pub const SECOND: Duration = Duration::from_secs(1);

/// How much longer than expected something may take: programs start, wake up and write logs, and ten tests share two
/// processors.
const TOLERANCE: Duration = Duration::from_secs(3);

/// A timeout for waits whose duration is not tested, longer than any of them takes.
pub const TIMEOUT: Duration = Duration::from_secs(20);

/// Spreads so many runs evenly over a period, such as that of a poll, so that they sample each of its phases.
pub fn phase_offset(run: u32, runs: u32, period: Duration) -> Duration {
    period * run / runs
}

/// Asserts that something that has just finished took at least `expected`, and little more.
///
/// # Panics
/// When it took less or much more.
#[track_caller]
pub fn assert_took(elapsed: Duration, expected: Duration) {
    assert_took_between(elapsed, expected, expected);
}

/// Asserts that something that has just finished took at most little more than `at_most`.
///
/// # Panics
/// When it took much more.
#[track_caller]
pub fn assert_took_at_most(elapsed: Duration, at_most: Duration) {
    assert_took_between(elapsed, Duration::ZERO, at_most);
}

/// Asserts that something that has just finished took at least `at_least`, and at most little more than `at_most`.
///
/// # Panics
/// When it took less or much more.
#[track_caller]
pub fn assert_took_between(elapsed: Duration, at_least: Duration, at_most: Duration) {
    assert!(
        elapsed >= at_least && elapsed < at_most + TOLERANCE,
        "took {elapsed:?} instead of {at_least:?} to {at_most:?}"
    );
}
