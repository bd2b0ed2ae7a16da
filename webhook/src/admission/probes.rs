//! The readiness probes that reach the pod to its end, which are not clients.

use std::num::NonZeroU16;
use std::time::Duration;

use drainer::ReadinessProbe;

use super::view::{Container, PodView, Probe};

/// Kubernetes' default of `periodSeconds`.
/// <https://kubernetes.io/docs/concepts/configuration/liveness-readiness-startup-probes/>
const DEFAULT_PERIOD: u32 = 10;

/// Lists the readiness probes that connect to a port. Whether it is a listener's the drainer sees.
pub(super) fn readiness(pod: &PodView<'_>) -> Vec<ReadinessProbe> {
    let probe = |c: &Container<'_>| connecting(c.readiness_probe.as_ref()?, c);
    let mut probes: Vec<_> = pod.staying().filter_map(|(_, c)| probe(c)).collect();
    probes.dedup();
    probes
}

fn connecting(probe: &Probe<'_>, container: &Container<'_>) -> Option<ReadinessProbe> {
    let action = [&probe.http_get, &probe.tcp_socket, &probe.grpc]
        .into_iter()
        .flatten()
        .next()?;
    let port = action.port?.text();
    let number = match port.parse::<NonZeroU16>() {
        Ok(number) => number,
        Err(_) => NonZeroU16::new(container.port_named(&port)?)?,
    };
    let period = probe
        .period_seconds
        .filter(|period| *period > 0)
        .unwrap_or(DEFAULT_PERIOD);
    Some(ReadinessProbe {
        port: number,
        period: Duration::from_secs(period.into()),
    })
}
