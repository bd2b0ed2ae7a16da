//! When a drain fails Envoy's health: at its start, or later, so that HTTP/3 clients keep their way to the pod, that the
//! connections of the app's own calls stay open, or that a pod without a replacement stays in service.
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
    /// When no client connects any more, at the latest at this time. From then, the exit rules count anew.
    Quiet(Instant),
    /// Not before the end of the drain.
    AtEnd,
}

// === impl FailHealthWhen ===

impl FailHealthWhen {
    /// Decides when a drain that starts at `start` fails Envoy's health. Where Envoy makes HTTP/3 clients reconnect without
    /// that, it waits until none is connected `no_http3_for` so long: as with the exit rules, less does not prove that
    /// clients are gone. Where the app's own calls can be spared, they are until `spared_until` at the latest.
    pub(crate) fn decide(
        delay: HealthFailureDelay,
        start: Instant,
        no_http3_for: Option<Duration>,
        spared_until: Option<Instant>,
    ) -> Self {
        match (delay, no_http3_for) {
            (HealthFailureDelay::End, _) => Self::AtEnd,
            (HealthFailureDelay::After(Duration::ZERO), _) => Self::AtOnce,
            (HealthFailureDelay::After(delay), _) => Self::At(start + delay),
            (HealthFailureDelay::Auto, Some(period)) => Self::WithoutHttp3For(period),
            (HealthFailureDelay::Auto, None) => spared_until.map_or(Self::AtOnce, Self::Quiet),
        }
    }

    /// Returns true if health is to be failed at `now`, when no poll has shown an open HTTP/3 connection since the time
    /// `no_http3`. `is_quiet` says whether no client has connected for the quiet period of this drain.
    pub(crate) fn is_due(self, now: Instant, no_http3: Option<Instant>, is_quiet: bool) -> bool {
        match self {
            Self::AtOnce => true,
            Self::At(at) => now >= at,
            Self::WithoutHttp3For(period) => no_http3.is_some_and(|at| now >= at + period),
            Self::Quiet(latest) => is_quiet || now >= latest,
            Self::AtEnd => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn health_is_failed_at_once_unless_http3_clients_or_a_duration_delay_it() {
        use HealthFailureDelay::{After, Auto, End};
        let start = Instant::now();
        let second = |n: u32| start + SECOND * n;
        let spared = Some(second(30));
        let table = [
            // (setting, whether Envoy drains HTTP/3 clients, none of them since, until when the app's own calls are spared,
            // from when on it is quiet, due at second)
            (Auto, false, None, None, None, Some(0)),
            (Auto, true, None, None, None, None),
            (Auto, true, Some(0), None, None, Some(3)),
            (Auto, true, Some(20), None, None, Some(23)),
            (Auto, false, None, spared, Some(4), Some(4)),
            (Auto, false, None, spared, None, Some(30)),
            (Auto, true, None, spared, Some(4), None),
            (After(Duration::ZERO), true, None, spared, None, Some(0)),
            (After(7 * SECOND), false, Some(0), None, None, Some(7)),
            (After(7 * SECOND), true, None, spared, Some(4), Some(7)),
            (End, true, Some(0), spared, Some(0), None),
        ];
        for (delay, drains_http3, no_http3_since, spared, quiet_at, want) in table {
            let no_http3_for = drains_http3.then_some(3 * SECOND);
            let failure = FailHealthWhen::decide(delay, start, no_http3_for, spared);
            let since = |now| no_http3_since.map(second).filter(|since| *since <= now);
            let is_quiet = |n: &u32| quiet_at.is_some_and(|at| *n >= at);
            let is_due = |n: &u32| failure.is_due(second(*n), since(second(*n)), is_quiet(n));
            let due = (0..60).find(is_due);
            let case =
                format!("{delay}, {drains_http3}, {no_http3_since:?}, {spared:?}, {quiet_at:?}");
            assert_eq!(due, want, "{case}");
        }
    }
}
