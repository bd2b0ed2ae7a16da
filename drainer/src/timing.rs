//! The timings of a drain, valid together.

use std::ops::Deref;
use std::time::Duration;

use crate::duration::{self, format};
use crate::value::InvalidValue;

/// The timings of a drain as somebody wrote them; [`Timing`] are those that fit together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Durations {
    /// How long Envoy serves on, as a healthy endpoint, before the drain starts.
    pub drain_delay: Duration,
    /// The drain never ends sooner than this after its start.
    pub min_drain_duration: Duration,
    /// The drain ends by then, whatever is left; the drain delay is not part of it.
    pub drain_timeout: Duration,
    /// How long nothing but idle HTTP connections must be left; `None` waits for these too.
    pub idle_exit: Option<Duration>,
    /// How long no new connection must have come; zero leaves at once.
    pub quiet_period: Duration,
    /// The pause between two looks at Envoy's connections.
    pub poll_interval: Duration,
}

/// Timings that fit together: none longer than a day, `min-drain-duration` ≤ `drain-timeout`, and
/// `poll-interval` > 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Timing(Durations);

/// Reads `idle-exit`: a duration, or `off`.
///
/// # Errors
/// For anything else.
pub fn parse_idle_exit(text: &str) -> Result<Option<Duration>, InvalidValue> {
    match text {
        "off" => Ok(None),
        text => duration::parse(text).map(Some).map_err(|_| {
            InvalidValue::new("duration", text, "write it like 7s, 1m30s or 400ms, or off")
        }),
    }
}

/// Why durations do not fit together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTiming {
    /// A drain cannot end before the least it must last.
    #[error(
        "drain-timeout {} is less than min-drain-duration {}: raise the one or lower the other",
        with_default_note(*.drain_timeout, |product| product.drain_timeout),
        with_default_note(*.min_drain_duration, |product| product.min_drain_duration)
    )]
    TimeoutBelowMinimum {
        /// The timeout given.
        drain_timeout: Duration,
        /// The minimum given, or its default.
        min_drain_duration: Duration,
    },
    /// Kubernetes counts a grace period in nanoseconds of 63 bits; a day is more than anyone waits.
    #[error("{setting} {}: give 24h at most", format(*.value))]
    TooLong {
        /// Which.
        setting: &'static str,
        /// The value given.
        value: Duration,
    },
    /// A poll without a pause would keep Envoy's main thread busy.
    #[error("poll-interval 0s: give at least 1ms")]
    ZeroPollInterval,
}

/// A duration, and whether it is the product's own: who did not give it may not know of it.
fn with_default_note(duration: Duration, product: impl FnOnce(Durations) -> Duration) -> String {
    match product(Durations::default()) == duration {
        true => format!("{} (default)", format(duration)),
        false => format(duration).to_string(),
    }
}

/// The longest that any of the durations may be.
pub const MAX_DURATION: Duration = Duration::from_secs(24 * 3600);

// === impl Durations ===

impl Default for Durations {
    /// The product's defaults.
    fn default() -> Self {
        Self {
            drain_delay: Duration::ZERO,
            min_drain_duration: Duration::from_secs(10),
            drain_timeout: Duration::from_secs(60),
            // Envoy itself closes by then whoever ignored `connection: close`: HCM's drain_timeout
            // (5 s) and delayed_close_timeout (1 s).
            idle_exit: Some(Duration::from_secs(7)),
            quiet_period: Duration::from_secs(3),
            poll_interval: Duration::from_millis(250),
        }
    }
}

// === impl Timing ===

impl Timing {
    /// Takes durations that fit together.
    ///
    /// # Errors
    /// All reasons why they do not.
    pub fn try_new(durations: Durations) -> Result<Self, Vec<InvalidTiming>> {
        let Durations {
            drain_delay,
            min_drain_duration,
            drain_timeout,
            idle_exit,
            quiet_period,
            poll_interval,
        } = durations;
        let all = [
            ("drain-delay", drain_delay),
            ("min-drain-duration", min_drain_duration),
            ("drain-timeout", drain_timeout),
            ("idle-exit", idle_exit.unwrap_or_default()),
            ("quiet-period", quiet_period),
            ("poll-interval", poll_interval),
        ];
        let too_long = all.into_iter().filter(|(_, value)| *value > MAX_DURATION);
        let mut errors: Vec<_> = too_long
            .map(|(setting, value)| InvalidTiming::TooLong { setting, value })
            .collect();
        if drain_timeout < min_drain_duration {
            errors.push(InvalidTiming::TimeoutBelowMinimum {
                drain_timeout,
                min_drain_duration,
            });
        }
        if poll_interval.is_zero() {
            errors.push(InvalidTiming::ZeroPollInterval);
        }
        if errors.is_empty() {
            Ok(Self(durations))
        } else {
            Err(errors)
        }
    }

    /// The longest a pod's end may take, from its first hook to the hooks' return.
    #[must_use]
    pub fn deadline(&self) -> Duration {
        self.drain_delay.saturating_add(self.drain_timeout)
    }
}

impl Deref for Timing {
    type Target = Durations;

    fn deref(&self) -> &Durations {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_fit_together() {
        assert_eq!(Timing::try_new(Durations::default()), Ok(Timing::default()));
    }

    #[test]
    fn all_misfits_are_told_at_once() {
        let durations = Durations {
            drain_timeout: Duration::from_secs(5),
            poll_interval: Duration::ZERO,
            drain_delay: Duration::from_secs(86401),
            ..Durations::default()
        };
        let errors = Timing::try_new(durations).unwrap_err();
        let told: Vec<_> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "drain-delay 86401s: give 24h at most",
                "drain-timeout 5s is less than min-drain-duration 10s (default): raise the one or lower the other",
                "poll-interval 0s: give at least 1ms",
            ]
        );
    }
}
