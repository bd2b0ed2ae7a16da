//! What the drainer needs and the pod has given away.

use std::num::NonZeroU16;

use drainer::AdminAddress;

use super::sidecar_container::DRAINER_NAME;
use crate::admission::diagnostics::{Code, Diagnostic};
use crate::admission::pod::PodView;
use crate::admission::settings::{Setting, SettingSource};

/// So many ports after the default are looked at. No pod declares all of them but in bad faith.
const MAX_PORTS_TRIED: usize = 100;

/// Settles the drainer's port: the annotated one, which must be free, or else the default one or the
/// next that is free. Hook and drainer get it from the same plan, so that any will do.
///
/// # Errors
/// If the annotated port is taken.
pub(crate) fn free_port(
    pod: &PodView<'_>,
    asked: &Setting<NonZeroU16>,
    admin: Option<&AdminAddress>,
    warnings: &mut Vec<Diagnostic>,
) -> Result<Setting<NonZeroU16>, Diagnostic> {
    let clash =
        |port| declared_port_conflict(pod, port).or_else(|| admin_port_conflict(port, admin?));
    let Some(taken) = clash(asked.value) else {
        return Ok(*asked);
    };
    let mut others = (asked.value.get()..=u16::MAX)
        .skip(1)
        .take(MAX_PORTS_TRIED)
        .filter_map(NonZeroU16::new);
    match asked.source {
        SettingSource::Annotation => Err(taken.for_annotations(["port"])),
        _ => match others.find(|port| clash(*port).is_none()) {
            Some(free) => {
                let detail = format!("{}, so {free} is used", taken.detail);
                warnings.push(Code::OtherPort.diagnostic(detail));
                let source = SettingSource::NextFree;
                Ok(Setting {
                    value: free,
                    source,
                })
            }
            None => Err(taken),
        },
    }
}

/// Refuses a port that a container of the pod declares.
fn declared_port_conflict(pod: &PodView<'_>, port: NonZeroU16) -> Option<Diagnostic> {
    let (_, owner) = pod
        .long_running_containers()
        .find(|(_, container)| container.declares_tcp_port(port.get()))?;
    Some(port_taken(port, &format!("container `{}`", owner.name())))
}

/// Refuses a port that Envoy's admin has.
fn admin_port_conflict(port: NonZeroU16, admin: &AdminAddress) -> Option<Diagnostic> {
    match admin {
        AdminAddress::Tcp(address) if address.port() == port.get() => {
            Some(port_taken(port, "Envoy's admin"))
        }
        _ => None,
    }
}

fn port_taken(port: NonZeroU16, owner: &str) -> Diagnostic {
    Code::PortTaken.diagnostic(format!("the drainer's port {port} belongs to {owner}"))
}

/// Refuses the drainer's name for a container or a volume of another's.
pub(crate) fn check_names(pod: &PodView<'_>) -> impl Iterator<Item = Diagnostic> {
    let mut volumes = pod.spec.volumes.iter().flatten();
    let container = pod
        .all_containers()
        .any(|container| container.name() == DRAINER_NAME);
    let volume = volumes.any(|volume| volume.name.as_deref() == Some(DRAINER_NAME));
    [("container", container), ("volume", volume)]
        .into_iter()
        .filter(|(_, is_taken)| *is_taken)
        .map(|(what, _)| {
            Code::NameTaken.diagnostic(format!("the pod has a {what} `{DRAINER_NAME}` of its own"))
        })
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
            let told = declared_port_conflict(&pod, PORT).map(|notice| notice.detail);
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
            let told =
                admin_port_conflict(PORT, &admin.parse().unwrap()).map(|notice| notice.detail);
            let want = is_taken.then_some("the drainer's port 9902 belongs to Envoy's admin");
            assert_eq!(told.as_deref(), want, "{admin}");
        }
    }

    #[test]
    fn only_an_annotated_port_must_be_free() {
        let settled = |ports: &[u16], admin: &str, source| {
            let ports: Vec<_> = ports
                .iter()
                .map(|port| json!({"containerPort": port}))
                .collect();
            let pod = json!({"spec": {"containers": [{"name": "web", "ports": ports}]}});
            let pod = pod.to_string();
            let mut warnings = Vec::new();
            let asked = Setting {
                value: PORT,
                source,
            };
            let admin = admin.parse().unwrap();
            let pod = PodView::decode(&pod).unwrap();
            let settled = free_port(&pod, &asked, Some(&admin), &mut warnings);
            let told: Vec<_> = warnings.into_iter().map(|notice| notice.detail).collect();
            let port = settled.ok().map(|port| (port.value.get(), port.source));
            (port, told)
        };
        let other = |owner: &str, port: u16| {
            let told = format!("the drainer's port 9902 belongs to {owner}, so {port} is used");
            (Some((port, SettingSource::NextFree)), vec![told])
        };
        let many: Vec<_> = (9902..10_100).collect();
        let table = [
            (
                &[][..],
                "127.0.0.1:9901",
                (Some((9902, SettingSource::Default)), vec![]),
            ),
            (&[9902], "127.0.0.1:9901", other("container `web`", 9903)),
            (
                &[9904, 9902],
                "127.0.0.1:9903",
                other("container `web`", 9905),
            ),
            (&[], "127.0.0.1:9902", other("Envoy's admin", 9903)),
            (&many, "127.0.0.1:9901", (None, vec![])),
        ];
        for (ports, admin, want) in table {
            let got = settled(ports, admin, SettingSource::Default);
            assert_eq!(got, want, "{ports:?} {admin}");
            let free = want.0.filter(|(port, _)| *port == 9902);
            let annotated = settled(ports, admin, SettingSource::Annotation);
            let want = free.map(|(port, _)| (port, SettingSource::Annotation));
            assert_eq!(annotated, (want, vec![]), "{ports:?}");
        }
    }

    #[test]
    fn the_drainers_name_must_be_free() {
        let table = [
            (json!({}), vec![]),
            (
                json!({"containers": [{"name": "a"}], "volumes": [{"name": "a"}]}),
                vec![],
            ),
            (
                json!({"volumes": [{"name": "a"}, {"name": DRAINER_NAME}]}),
                vec!["the pod has a volume `envoy-drainer` of its own"],
            ),
            (
                json!({"initContainers": [{"name": DRAINER_NAME}], "volumes": [{"name": DRAINER_NAME}]}),
                vec![
                    "the pod has a container `envoy-drainer` of its own",
                    "the pod has a volume `envoy-drainer` of its own",
                ],
            ),
        ];
        for (spec, want) in table {
            let pod = json!({ "spec": spec }).to_string();
            let pod = PodView::decode(&pod).unwrap();
            let told: Vec<_> = check_names(&pod).map(|notice| notice.detail).collect();
            assert_eq!(told, want, "{spec}");
        }
    }
}
