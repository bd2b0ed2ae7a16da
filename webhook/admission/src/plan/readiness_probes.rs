//! Readiness probes of the pod that connect to a port: the drainer does not count them as clients.

use std::num::NonZeroU16;
use std::time::Duration;

use drainer::ReadinessProbe;

use crate::pod::{Container, PodView, Probe};

/// Kubernetes' default of `periodSeconds`.
/// <https://kubernetes.io/docs/concepts/configuration/liveness-readiness-startup-probes/>
const DEFAULT_PERIOD: u32 = 10;

/// Lists the readiness probes of long-running containers that connect to a port; equal ones are listed each. The
/// drainer finds out which ports are listeners'.
pub(crate) fn readiness_probes(pod: &PodView<'_>) -> Vec<ReadinessProbe> {
    let mut probes = Vec::new();
    for (_, container) in pod.long_running_containers() {
        let probe = container.readiness_probe.as_ref();
        probes.extend(probe.and_then(|probe| tcp_or_http(probe, container)));
    }
    probes
}

fn tcp_or_http(probe: &Probe<'_>, container: &Container<'_>) -> Option<ReadinessProbe> {
    let port = probe.port()?.text();
    let named = || container.port_named(&port).and_then(NonZeroU16::new);
    let period = probe.period_seconds.filter(|period| *period > 0);
    Some(ReadinessProbe {
        port: port.parse().ok().or_else(named)?,
        period: Duration::from_secs(period.unwrap_or(DEFAULT_PERIOD).into()),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn formatted_probes(spec: &Value) -> Vec<String> {
        let pod = json!({ "spec": spec }).to_string();
        let probes = readiness_probes(&PodView::decode(&pod).unwrap());
        probes.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn port_is_resolved_by_number_or_name() {
        let table = [
            (
                json!({"httpGet": {"port": 8080, "path": "/"}, "periodSeconds": 2}),
                vec!["8080/2s"],
            ),
            (
                json!({"tcpSocket": {"port": "web"}, "periodSeconds": 90}),
                vec!["80/90s"],
            ),
            (
                json!({"grpc": {"port": 9000, "service": "s"}}),
                vec!["9000/10s"],
            ),
            (
                json!({"httpGet": {"port": "81"}, "periodSeconds": 0}),
                vec!["81/10s"],
            ),
            (json!({"httpGet": {"port": "other"}}), vec![]),
            (json!({"httpGet": {"port": "none"}}), vec![]),
            (json!({"httpGet": {"port": 0}}), vec![]),
            (json!({"httpGet": {"port": null}}), vec![]),
            (json!({"exec": {"command": ["/ready"]}}), vec![]),
            (json!({}), vec![]),
            (Value::Null, vec![]),
        ];
        for (probe, want) in table {
            let ports = json!([{"name": "web", "containerPort": 80}, {"name": "none"}]);
            let containers = json!([
                {"name": "a", "readinessProbe": probe, "ports": ports},
                {"name": "b", "ports": [{"name": "other", "containerPort": 1}]},
            ]);
            assert_eq!(
                formatted_probes(&json!({ "containers": containers })),
                want,
                "{probe}"
            );
        }
    }

    #[test]
    fn only_probes_of_long_running_containers_are_listed() {
        let probed = |port: u16, policy: Value| json!({"readinessProbe": {"tcpSocket": {"port": port}}, "restartPolicy": policy});
        let probes = formatted_probes(&json!({
            "containers": [probed(1, Value::Null), probed(2, Value::Null)],
            "initContainers": [probed(3, json!("Always")), probed(4, Value::Null)],
        }));
        assert_eq!(probes, ["1/10s", "2/10s", "3/10s"]);
    }
}
