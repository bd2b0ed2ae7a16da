//! What ends: the pod, Envoy alone, or the drainer alone. Told by who came.
//!
//! Kubernetes runs a container's preStop hook when the pod ends, and also when it restarts this
//! container alone, after a failed liveness probe or for a new image. Envoy's hook proves that this
//! Envoy ends; the drainer's hook proves that the drainer ends. Only both together prove that the
//! pod does, since the kubelet starts all hooks of an ending pod at once.
//! <https://kubernetes.io/docs/concepts/containers/container-lifecycle-hooks/>

use std::time::Duration;

use tokio::time::Instant;

/// Who has come, and when. SIGTERM may stand for the drainer's hook, which can fail to start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Came {
    /// Envoy's hook.
    pub envoy_hook: Option<Instant>,
    /// The drainer's own hook.
    pub drainer_hook: Option<Instant>,
    /// SIGTERM to the drainer.
    pub sigterm: Option<Instant>,
}

/// What that means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Nothing ends.
    None,
    /// Envoy's hook is alone so far: wait for another until then.
    PerhapsEnvoy {
        /// When its hook came.
        since: Instant,
        /// When it is no longer just the other hook that is late.
        until: Instant,
    },
    /// The drainer's hook or SIGTERM is alone so far: wait for Envoy's hook until then.
    PerhapsDrainer {
        /// When it is no longer just Envoy's hook that is late.
        until: Instant,
    },
    /// Envoy is restarted alone.
    Envoy {
        /// When its hook came.
        since: Instant,
    },
    /// The drainer ends alone, or Envoy is not running.
    Drainer,
    /// The pod ends.
    Pod {
        /// When the first sign of it came.
        since: Instant,
    },
}

/// How much later than Envoy's hook the drainer's may come: an exec on a busy node takes a second.
pub const LONE_ENVOY: Duration = Duration::from_secs(3);

/// How much later than the drainer's hook Envoy's may come. Longer, since waiting costs nothing.
pub const LONE_DRAINER: Duration = Duration::from_secs(10);

// === impl Came ===

impl Came {
    /// Tells what ends, as far as it can be known at `now`.
    #[must_use]
    pub fn ending(&self, now: Instant) -> Ending {
        let drainer = [self.drainer_hook, self.sigterm]
            .into_iter()
            .flatten()
            .min();
        match (self.envoy_hook, drainer) {
            (None, None) => Ending::None,
            (Some(envoy), Some(drainer)) => Ending::Pod {
                since: envoy.min(drainer),
            },
            (Some(since), None) => match since + LONE_ENVOY {
                until if now < until => Ending::PerhapsEnvoy { since, until },
                _ => Ending::Envoy { since },
            },
            (None, Some(drainer)) => match drainer + LONE_DRAINER {
                until if now < until => Ending::PerhapsDrainer { until },
                _ => Ending::Drainer,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_row_of_who_came_tells_what_ends() {
        let t0 = Instant::now();
        let at = |seconds: f64| t0 + Duration::from_secs_f64(seconds);
        let pod = |seconds| Ending::Pod { since: at(seconds) };
        let envoy = |seconds| Ending::Envoy { since: at(seconds) };
        let perhaps_envoy = |since, until| Ending::PerhapsEnvoy {
            since: at(since),
            until: at(until),
        };
        let perhaps_drainer = |seconds| Ending::PerhapsDrainer { until: at(seconds) };
        // Envoy's hook, the drainer's hook, SIGTERM, now
        let table = [
            (None, None, None, 99.0, Ending::None),
            (Some(0.0), Some(0.0), None, 0.0, pod(0.0)),
            (Some(0.0), Some(2.0), None, 2.0, pod(0.0)),
            (Some(2.0), Some(0.0), None, 2.0, pod(0.0)),
            (Some(0.0), Some(8.0), None, 8.0, pod(0.0)),
            (Some(5.0), None, Some(4.0), 5.0, pod(4.0)),
            (Some(5.0), None, Some(5.5), 5.5, pod(5.0)),
            (Some(3.0), Some(2.0), Some(1.0), 3.0, pod(1.0)),
            (Some(1.0), None, None, 1.0, perhaps_envoy(1.0, 4.0)),
            (Some(1.0), None, None, 3.999, perhaps_envoy(1.0, 4.0)),
            (Some(1.0), None, None, 4.0, envoy(1.0)),
            (None, Some(1.0), None, 1.0, perhaps_drainer(11.0)),
            (None, Some(1.0), None, 11.0, Ending::Drainer),
            (None, None, Some(1.0), 10.9, perhaps_drainer(11.0)),
            (None, None, Some(1.0), 11.0, Ending::Drainer),
            (None, Some(1.0), Some(11.0), 11.0, Ending::Drainer),
        ];
        for (envoy_hook, drainer_hook, sigterm, now, want) in table {
            let came = Came {
                envoy_hook: envoy_hook.map(at),
                drainer_hook: drainer_hook.map(at),
                sigterm: sigterm.map(at),
            };
            assert_eq!(came.ending(at(now)), want, "{came:?} at {now}");
        }
    }
}
