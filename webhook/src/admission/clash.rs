//! What the drainer needs and the pod has given away.

use std::num::NonZeroU16;

use drainer::AdminAddress;

use super::codes::{Code, Notice};
use super::container::NAME;
use super::view::PodView;

/// Refuses a port that a container of the pod declares.
pub(super) fn declared_port(pod: &PodView<'_>, port: NonZeroU16) -> Option<Notice> {
    let (_, owner) = pod
        .staying()
        .find(|(_, container)| container.declares_tcp(port.get()))?;
    Some(taken(port, &format!("container `{}`", owner.name())))
}

/// Refuses a port that Envoy's admin has.
pub(super) fn admin_port(port: NonZeroU16, admin: &AdminAddress) -> Option<Notice> {
    match admin {
        AdminAddress::Tcp(address) if address.port() == port.get() => {
            Some(taken(port, "Envoy's admin"))
        }
        _ => None,
    }
}

fn taken(port: NonZeroU16, owner: &str) -> Notice {
    Code::PortTaken.about(format!("the drainer's port {port} belongs to {owner}"))
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

    const PORT: NonZeroU16 = NonZeroU16::new(9902).unwrap();

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
            let pod = json!({ "spec": spec }).to_string();
            let pod = PodView::decode(&pod).unwrap();
            let told = declared_port(&pod, PORT).map(|notice| notice.detail);
            assert_eq!(told, want, "{spec}");
        }
    }

    #[test]
    fn a_port_is_taken_by_envoys_admin() {
        for (admin, is_taken) in [
            ("[::1]:9902", true),
            ("127.0.0.1:9901", false),
            ("unix:@a", false),
        ] {
            let told = admin_port(PORT, &admin.parse().unwrap()).map(|notice| notice.detail);
            let want = is_taken.then_some("the drainer's port 9902 belongs to Envoy's admin");
            assert_eq!(told.as_deref(), want, "{admin}");
        }
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
