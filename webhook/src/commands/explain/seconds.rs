//! Durations in one unit, so that a column of them can be compared at a glance.

use std::time::Duration;

/// A duration in seconds, as an annotation may write it: `90s`, `0.4s`.
pub(super) fn seconds(duration: Duration) -> String {
    format!("{}s", duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_duration_is_in_seconds_and_reads_back() {
        let table = [
            (0, "0s"),
            (400, "0.4s"),
            (7_000, "7s"),
            (90_000, "90s"),
            (7_200_001, "7200.001s"),
        ];
        for (millis, text) in table {
            let duration = Duration::from_millis(millis);
            assert_eq!(seconds(duration), text);
            assert_eq!(drainer::duration::parse(text), Ok(duration));
        }
    }
}
