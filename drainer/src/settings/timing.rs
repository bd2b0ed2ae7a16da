//! The durations of a drain.

use std::time::Duration;

use super::duration::format;
use super::health_failure_delay::HealthFailureDelay;
use super::value::SettingConflict;

/// The durations of a drain. Those of a parsed configuration have no [`Timing::errors`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// How long Envoy keeps serving, as a healthy endpoint, before the drain starts.
    pub drain_delay: Duration,
    /// The longest time after that in which Envoy keeps serving, as a healthy endpoint, until the pod has a replacement.
    pub wait_for_replacement: Duration,
    /// Minimum duration of the drain.
    pub min_drain_duration: Duration,
    /// Maximum duration of the drain, without the drain delay and the wait for a replacement.
    pub drain_timeout: Duration,
    /// The drain ends once only idle HTTP connections have been left for this long; with `None`, it waits for idle
    /// ones too.
    pub idle_exit: Option<Duration>,
    /// The drain ends only after this long without a new connection.
    pub quiet_period: Duration,
    /// The interval between polls of Envoy's statistics.
    pub poll_interval: Duration,
}

/// Maximum wait, after the minimum, for new connections to stop: an endpoint still in use by then does
/// not become quiet.
pub const MAX_QUIET_WAIT: Duration = Duration::from_secs(20);

/// Marks a value that equals the built-in default, so that it may not have been set.
const BUILT_IN: &str = " (built-in default)";

/// The name of a setting without effect, and why it has none.
type WithoutEffect = (&'static str, String);

// === impl Timing ===

impl Timing {
    /// Returns the settings that have no effect, since each drain ends sooner: their names, and why.
    pub fn settings_without_effect(&self, delay: HealthFailureDelay) -> Vec<WithoutEffect> {
        let (idle, timeout) = (self.idle_exit.unwrap_or_default(), self.drain_timeout);
        let serving = self.drain_delay + self.wait_for_replacement;
        let quiet_wait = timeout.min(self.min_drain_duration + MAX_QUIET_WAIT);
        let all = [
            ("health-failure-delay", delay.duration(), timeout),
            ("idle-exit", idle, serving + timeout),
            ("quiet-period", self.quiet_period, serving + quiet_wait),
        ];
        let beyond = |(_, value, limit): &(_, Duration, _)| !value.is_zero() && value >= limit;
        let describe = |(name, value, limit)| {
            let (value, limit) = (format(value), format(limit));
            let reason = "has no effect: a drain waits no longer than";
            (name, format!("{value} {reason} {limit} for that"))
        };
        all.into_iter().filter(beyond).map(describe).collect()
    }

    /// The contradiction that settings of a pod can have.
    pub fn conflict(&self) -> Option<SettingConflict> {
        (self.drain_timeout < self.min_drain_duration).then_some(SettingConflict {
            names: ["drain-timeout", "min-drain-duration"],
            relation: "less than",
            remedy: "raise the one or lower the other",
        })
    }

    /// All reasons why the durations are not valid together: `min-drain-duration` ≤ `drain-timeout`, and `poll-interval` > 0.
    pub fn errors(&self) -> Vec<String> {
        // Perhaps only one of the two was set: says which value equals the built-in default.
        let describe = |name| {
            let value = |all: &Self| match name {
                "drain-timeout" => all.drain_timeout,
                _ => all.min_drain_duration,
            };
            let (value, default) = (value(self), value(&Self::default()));
            let note = if value == default { BUILT_IN } else { "" };
            format!("{}{note}", format(value))
        };
        let conflict = self.conflict().map(|it| it.describe(describe));
        // Polls without a pause would keep Envoy's main thread busy.
        let no_pause = self.poll_interval.is_zero();
        let no_pause = no_pause.then(|| "poll-interval 0s: must be more than 0s".to_owned());
        conflict.into_iter().chain(no_pause).collect()
    }

    /// The longest time from the proof that the pod ends to the return of its hooks.
    pub fn time_limit(&self) -> Duration {
        self.drain_delay + self.wait_for_replacement + self.drain_timeout
    }
}

impl Default for Timing {
    /// The built-in defaults.
    fn default() -> Self {
        Self {
            drain_delay: Duration::ZERO,
            wait_for_replacement: Duration::ZERO,
            min_drain_duration: Duration::from_secs(10),
            drain_timeout: Duration::from_secs(60),
            // By then Envoy itself has closed the connections of clients that ignored `connection: close`: HCM's
            // drain_timeout (5 s) and delayed_close_timeout (1 s).
            idle_exit: Some(Duration::from_secs(7)),
            quiet_period: Duration::from_secs(3),
            poll_interval: Duration::from_millis(250),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_durations_are_valid() {
        assert_eq!(Timing::default().errors(), [""; 0]);
    }

    #[test]
    fn settings_without_effect_are_found() {
        use HealthFailureDelay::{After, Auto};
        let second = Duration::from_secs;
        let with = |change: fn(&mut Timing), delay| {
            let mut timing = Timing::default();
            change(&mut timing);
            let found = timing.settings_without_effect(delay);
            Vec::from_iter(found.iter().map(|(name, _)| *name)).join(" ")
        };
        assert_eq!(with(|_| (), Auto), "");
        assert_eq!(with(|_| (), After(second(59))), "");
        assert_eq!(with(|_| (), After(second(60))), "health-failure-delay");
        assert_eq!(
            with(|t| t.idle_exit = Some(Duration::from_secs(60)), Auto),
            "idle-exit"
        );
        assert_eq!(with(|t| t.idle_exit = None, Auto), "");
        // Quiet is waited for until 20 s past the minimum of 10 s.
        assert_eq!(with(|t| t.quiet_period = Duration::from_secs(29), Auto), "");
        assert_eq!(
            with(|t| t.quiet_period = Duration::from_secs(30), Auto),
            "quiet-period"
        );
        let short = |t: &mut Timing| {
            t.drain_timeout = Duration::from_secs(15);
            t.quiet_period = Duration::from_secs(15);
            t.idle_exit = Some(Duration::from_secs(15));
        };
        assert_eq!(with(short, Auto), "idle-exit quiet-period");
        // They count from the proof that the pod ends.
        let delayed = |t: &mut Timing| {
            (t.drain_delay, t.drain_timeout) = (Duration::from_secs(5), Duration::from_secs(15));
            t.quiet_period = Duration::from_secs(15);
            t.idle_exit = Some(Duration::from_secs(15));
        };
        assert_eq!(with(delayed, Auto), "");
        let none = |t: &mut Timing| {
            (t.min_drain_duration, t.drain_timeout) = (Duration::ZERO, Duration::ZERO);
            (t.quiet_period, t.idle_exit) = (Duration::ZERO, None);
        };
        assert_eq!(with(none, Auto), "");
    }

    #[test]
    fn all_errors_are_reported_at_once() {
        let timing = Timing {
            drain_timeout: Duration::from_secs(5),
            poll_interval: Duration::ZERO,
            ..Timing::default()
        };
        assert_eq!(
            timing.errors(),
            [
                "drain-timeout 5s is less than min-drain-duration 10s (built-in default): raise the one or lower the other",
                "poll-interval 0s: must be more than 0s",
            ]
        );
    }
}
