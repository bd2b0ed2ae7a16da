//! Counts, lists and durations as text.

use std::fmt::Display;
use std::time::{Duration, SystemTime};

pub(super) use crate::text::plural;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// The verb for a count.
pub(super) fn has_or_have(count: usize) -> &'static str {
    if count == 1 { "has" } else { "have" }
}

/// Lists names in backticks, at most five of them.
pub(super) fn list_names(names: impl IntoIterator<Item = impl Display>) -> String {
    list(names.into_iter().map(|name| format!("`{name}`")))
}

/// Lists texts, at most five of them.
pub(super) fn list(texts: impl IntoIterator<Item = String>) -> String {
    const MAX: usize = 5;
    let texts: Vec<_> = texts.into_iter().collect();
    let listed = texts[..texts.len().min(MAX)].join(", ");
    match texts.len().saturating_sub(MAX) {
        0 => listed,
        more => format!("{listed} and {more} more"),
    }
}

/// The time from `now` to `end`, rounded down: `6 days`. `None` if `end` has passed.
pub(super) fn remaining(now: SystemTime, end: SystemTime) -> Option<String> {
    let remaining = end.duration_since(now).ok()?;
    (!remaining.is_zero()).then(|| format_duration(remaining))
}

/// Formats a duration in the largest unit of which it has at least two, rounded down.
fn format_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let units = [(DAY, "day"), (HOUR, "hour"), (MINUTE, "minute")];
    let largest = units.into_iter().find(|(unit, _)| seconds >= 2 * unit);
    let (unit, name) = largest.unwrap_or((1, "second"));
    plural(seconds / unit, name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_formatted_in_largest_unit() {
        for (seconds, want) in [
            (1, "1 second"),
            (119, "119 seconds"),
            (120, "2 minutes"),
            (7_199, "119 minutes"),
            (47 * HOUR + 59 * MINUTE, "47 hours"),
            (2 * DAY, "2 days"),
            (3_650 * DAY, "3650 days"),
        ] {
            assert_eq!(format_duration(Duration::from_secs(seconds)), want);
        }
    }

    #[test]
    fn remaining_is_none_after_the_end() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(DAY);
        assert_eq!(remaining(now, now), None);
        assert_eq!(remaining(now, SystemTime::UNIX_EPOCH), None);
        assert_eq!(
            remaining(SystemTime::UNIX_EPOCH, now).as_deref(),
            Some("24 hours")
        );
    }

    #[test]
    fn long_lists_are_cut() {
        assert_eq!(list_names(["a", "b"]), "`a`, `b`");
        assert_eq!(
            list_names(["a", "b", "c", "d", "e", "f", "g"]),
            "`a`, `b`, `c`, `d`, `e` and 2 more"
        );
    }
}
