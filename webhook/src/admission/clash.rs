//! What the drainer needs and the pod has given away.

use std::num::NonZeroU16;

use drainer::AdminAddress;

use super::codes::{Code, Notice};
use super::container::NAME;
use super::view::PodView;

/// Refuses a port that a container of the pod declares, or Envoy's admin has.
pub(super) fn port(pod: &PodView<'_>, port: NonZeroU16, admin: &AdminAddress) -> Option<Notice> {
    let declared = pod
        .staying()
        .find(|(_, container)| container.declares_tcp(port.get()));
    let owner = match (declared, admin) {
        (Some((_, container)), _) => format!("container `{}`", container.name()),
        (None, AdminAddress::Tcp(address)) if address.port() == port.get() => {
            "Envoy's admin".to_owned()
        }
        (None, _) => return None,
    };
    Some(Code::PortTaken.about(format!("the drainer's port {port} belongs to {owner}")))
}

/// Refuses a volume of the drainer's name. A container of its name is a drainer.
pub(super) fn volume(pod: &PodView<'_>) -> Option<Notice> {
    let mut volumes = pod.spec.volumes.iter().flatten();
    volumes
        .any(|volume| volume.name.as_deref() == Some(NAME))
        .then(|| Code::NameTaken.about(format!("the pod has a volume `{NAME}` of its own")))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn clash(spec: &Value, admin: &str) -> Option<String> {
        let pod = json!({ "spec": spec }).to_string();
        let pod = PodView::decode(&pod).unwrap();
        let port_9902 = NonZeroU16::new(9902).unwrap();
        port(&pod, port_9902, &admin.parse().unwrap()).map(|notice| notice.detail)
    }

    #[test]
    fn a_port_is_taken_by_whoever_listens_there_while_the_drainer_does() {
        let ports = |ports: Value| json!({"containers": [{"name": "app"}, {"name": "web", "ports": ports}]});
        let taken = Some("the drainer's port 9902 belongs to container `web`".to_owned());
        let table = [
            (
                ports(json!([{"containerPort": 1}, {"containerPort": 9902}])),
                taken.clone(),
            ),
            (
                ports(json!([{"containerPort": 9902, "protocol": "TCP"}])),
                taken,
            ),
            (
                ports(json!([{"containerPort": 9902, "protocol": "UDP"}])),
                None,
            ),
            (
                ports(json!([{"containerPort": 9901, "hostPort": 9902}])),
                None,
            ),
            (
                json!({"initContainers": [{"name": "i", "ports": [{"containerPort": 9902}]}]}),
                None,
            ),
            (
                json!({"initContainers": [{"name": "i", "restartPolicy": "Always", "ports": [{"containerPort": 9902}]}]}),
                Some("the drainer's port 9902 belongs to container `i`".to_owned()),
            ),
        ];
        for (spec, want) in table {
            assert_eq!(clash(&spec, "unix:@a"), want, "{spec}");
        }
        let admins = Some("the drainer's port 9902 belongs to Envoy's admin".to_owned());
        assert_eq!(clash(&json!({}), "[::1]:9902"), admins);
        assert_eq!(clash(&json!({}), "127.0.0.1:9901"), None);
    }

    #[test]
    fn a_volume_of_the_drainers_name_is_taken() {
        for (volumes, is_taken) in [
            (json!([{"name": "a"}, {"name": NAME}]), true),
            (json!([{"name": "a"}]), false),
            (Value::Null, false),
        ] {
            let pod = json!({"spec": {"volumes": volumes}}).to_string();
            assert_eq!(
                volume(&PodView::decode(&pod).unwrap()).is_some(),
                is_taken,
                "{volumes}"
            );
        }
    }
}
