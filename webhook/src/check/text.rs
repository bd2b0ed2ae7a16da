//! How counts, lists and spans are said.

use std::time::{Duration, SystemTime};

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Says how many there are: `1 pod`, `2 pods`.
pub(super) fn plural(many: usize, one: &str) -> String {
    match many {
        1 => format!("1 {one}"),
        many => format!("{many} {one}s"),
    }
}

/// The verb for so many.
pub(super) fn has_or_have(many: usize) -> &'static str {
    match many {
        1 => "has",
        _ => "have",
    }
}

/// Lists names, but no more than a few of them.
pub(super) fn join<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    const FEW: usize = 5;
    let names: Vec<_> = names.into_iter().collect();
    let shown: Vec<_> = names
        .iter()
        .take(FEW)
        .map(|name| format!("`{name}`"))
        .collect();
    match names.len().saturating_sub(FEW) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// Says how long it is from `now` to `end`, rounded down: `6 days`. `None` if that is over.
pub(super) fn remaining(now: SystemTime, end: SystemTime) -> Option<String> {
    let left = end
        .duration_since(now)
        .ok()
        .filter(|left| !left.is_zero())?;
    Some(format_duration(left))
}

/// Says how long something takes, in its largest unit of which there are two, rounded down.
pub(super) fn format_duration(span: Duration) -> String {
    let seconds = span.as_secs();
    let (unit, name) = match seconds {
        0..=119 => (1, "second"),
        120..=7_199 => (MINUTE, "minute"),
        7_200..=172_799 => (HOUR, "hour"),
        _ => (DAY, "day"),
    };
    let many = seconds / unit;
    match many {
        1 => format!("1 {name}"),
        many => format!("{many} {name}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_said_in_the_largest_unit_that_tells_enough() {
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
    fn what_is_over_has_nothing_left() {
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
        assert_eq!(join(["a", "b"]), "`a`, `b`");
        assert_eq!(
            join(["a", "b", "c", "d", "e", "f", "g"]),
            "`a`, `b`, `c`, `d`, `e` and 2 more"
        );
    }
}
