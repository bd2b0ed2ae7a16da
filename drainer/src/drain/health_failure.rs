//! When a drain fails Envoy's health: at its start, or later, so that HTTP/3 clients keep their way to the pod.
//!
//! kube-proxy deletes the flows of a UDP endpoint that is no longer *serving*, as a pod is not once its readiness
//! fails. HTTP/3 requests in flight are lost with them. Connections over TCP are not affected.
//! <https://github.com/kubernetes/kubernetes/blob/v1.34.4/pkg/proxy/conntrack/cleanup.go>

use std::time::Duration;

use tokio::time::Instant;

use crate::settings::health_failure_delay::HealthFailureDelay;

/// When one drain fails Envoy's health. The end of the drain and a rejected `/drain_listeners` are also such times,
/// since nothing else is left to make clients reconnect.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum FailHealthWhen {
    /// At the start of the drain.
    #[default]
    AtOnce,
    /// At this time.
    At(Instant),
    /// When no HTTP/3 connection has been open for so long.
    WithoutHttp3For(Duration),
}

// === impl FailHealthWhen ===

impl FailHealthWhen {
    /// Decides when a drain that starts at `start` fails Envoy's health. `drains_http3` says whether Envoy makes HTTP/3
    /// clients reconnect without that. As with the exit rules, no connection for less than `quiet_period` does not prove
    /// that clients are gone.
    pub(crate) fn decide(
        delay: HealthFailureDelay,
        start: Instant,
        drains_http3: bool,
        quiet_period: Duration,
    ) -> Self {
        match delay {
            HealthFailureDelay::After(Duration::ZERO) => Self::AtOnce,
            HealthFailureDelay::After(delay) => Self::At(start + delay),
            HealthFailureDelay::Auto if drains_http3 => Self::WithoutHttp3For(quiet_period),
            HealthFailureDelay::Auto => Self::AtOnce,
        }
    }

    /// Returns true if health is to be failed at `now`, when no poll has shown an open HTTP/3 connection since
    /// `no_http3_since`.
    pub(crate) fn is_due(self, now: Instant, no_http3_since: Option<Instant>) -> bool {
        match self {
            Self::AtOnce => true,
            Self::At(at) => now >= at,
            Self::WithoutHttp3For(period) => no_http3_since.is_some_and(|at| now >= at + period),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn health_is_failed_at_once_unless_http3_clients_or_a_duration_delay_it() {
        use HealthFailureDelay::{After, Auto};
        let start = Instant::now();
        let second = |n: u32| start + SECOND * n;
        let table = [
            // (setting, whether Envoy drains HTTP/3 clients, none of them since, due at second)
            (Auto, false, None, Some(0)),
            (Auto, true, None, None),
            (Auto, true, Some(0), Some(3)),
            (Auto, true, Some(20), Some(23)),
            (After(Duration::ZERO), true, None, Some(0)),
            (After(7 * SECOND), false, Some(0), Some(7)),
            (After(7 * SECOND), true, None, Some(7)),
        ];
        for (delay, drains_http3, no_http3_since, want) in table {
            let failure = FailHealthWhen::decide(delay, start, drains_http3, 3 * SECOND);
            let since = |now| no_http3_since.map(second).filter(|since| *since <= now);
            let due = (0..60).find(|n| failure.is_due(second(*n), since(second(*n))));
            assert_eq!(due, want, "{delay}, {drains_http3}, {no_http3_since:?}");
        }
    }
}
