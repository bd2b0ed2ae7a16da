//! Conflicts of the drainer with ports, containers and volumes that the pod declares.

use std::num::NonZeroU16;

use drainer::AdminAddress;

use crate::diagnostics::{Code, Diagnostic, Diagnostics};
use crate::names::CONTAINER_NAME;
use crate::pod::PodView;
use crate::settings::{SettingSource, Settings};

/// Number of ports after the default that are tried. No genuine pod declares all of them.
const MAX_PORTS_TRIED: usize = 100;

/// Chooses the drainer's port: the annotated one, which must be free, or else the default or the next free one,
/// with a warning. Any will do, since hook and drainer get it from the same plan.
///
/// # Errors
/// If the annotated port is in use, or none is free.
pub(crate) fn free_port(
    pod: &PodView<'_>,
    settings: &Settings,
    admin: Option<&AdminAddress>,
    diagnostics: &mut Diagnostics,
) -> Result<NonZeroU16, Diagnostic> {
    let port = settings.drain.port;
    let Some(taken) = port_conflict(pod, port, admin) else {
        return Ok(port);
    };
    if settings.source("port") == SettingSource::Annotation {
        return Err(taken.for_annotations(["port"]));
    }
    let others = (port.get()..=u16::MAX).skip(1).take(MAX_PORTS_TRIED);
    let mut others = others.filter_map(NonZeroU16::new);
    let Some(free) = others.find(|port| port_conflict(pod, *port, admin).is_none()) else {
        return Err(taken);
    };
    let detail = format!("{}, so {free} is used", taken.detail);
    diagnostics.warn(Code::OtherPort.diagnostic(detail));
    Ok(free)
}

/// Returns a conflict with a port that a long-running container of the pod declares, or with Envoy's admin.
fn port_conflict(
    pod: &PodView<'_>,
    port: NonZeroU16,
    admin: Option<&AdminAddress>,
) -> Option<Diagnostic> {
    let mut containers = pod.long_running_containers();
    let declaring = containers.find(|(_, container)| container.declares_tcp_port(port.get()));
    let owner = match (declaring, admin) {
        (Some((_, container)), _) => format!("container `{}`", container.name()),
        (None, Some(AdminAddress::Tcp(address))) if address.port() == port.get() => {
            "Envoy's admin".to_owned()
        }
        _ => return None,
    };
    let detail = format!("the drainer's port {port} belongs to {owner}");
    Some(Code::PortTaken.diagnostic(detail))
}

/// Returns a conflict for each container and volume of the pod that has the drainer's name; a volume may have it where
/// none is added.
pub(crate) fn check_names(pod: &PodView<'_>) -> impl Iterator<Item = Diagnostic> {
    let container = pod.has_container(CONTAINER_NAME);
    let volume = pod.spec.automounts_token() && pod.has_volume(CONTAINER_NAME);
    let used = [("container", container), ("volume", volume)]
        .into_iter()
        .filter(|(_, is_used)| *is_used);
    used.map(|(kind, _)| {
        let detail = format!("the pod has a {kind} `{CONTAINER_NAME}` of its own");
        Code::NameTaken.diagnostic(detail)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::settings::ParsedSettings;
    use crate::settings::defaults::Defaults;

    const PORT: NonZeroU16 = NonZeroU16::new(9902).unwrap();

    #[test]
    fn port_of_a_long_running_container_is_taken() {
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
            let conflict = port_conflict(&pod, PORT, None);
            assert_eq!(conflict.map(|failure| failure.detail), want, "{spec}");
        }
    }

    #[test]
    fn port_of_envoys_admin_is_taken() {
        for (admin, is_taken) in [
            ("[::1]:9902", true),
            ("127.0.0.1:9901", false),
            ("unix:@a", false),
        ] {
            let conflict = port_conflict(&PodView::default(), PORT, Some(&admin.parse().unwrap()));
            let detail = conflict.map(|failure| failure.detail);
            let want = is_taken.then_some("the drainer's port 9902 belongs to Envoy's admin");
            assert_eq!(detail.as_deref(), want, "{admin}");
        }
    }

    #[test]
    fn only_the_annotated_port_must_be_free() {
        let choose = |ports: &[u16], admin: &str, annotations: &Value| {
            let ports: Vec<_> = ports
                .iter()
                .map(|port| json!({"containerPort": port}))
                .collect();
            let pod = json!({
                "metadata": {"annotations": annotations},
                "spec": {"containers": [{"name": "web", "ports": ports}]},
            });
            let pod = pod.to_string();
            let mut diagnostics = Diagnostics::default();
            let admin = admin.parse().unwrap();
            let pod = PodView::decode(&pod).unwrap();
            let mut settings =
                ParsedSettings::parse(&pod, false, &Defaults::new("", ""), &[]).settings;
            let port = free_port(&pod, &settings, Some(&admin), &mut diagnostics);
            let warnings = diagnostics.warnings.into_iter();
            let details: Vec<_> = warnings.map(|warning| warning.detail).collect();
            let port = port.ok().map(|port| {
                settings.use_free_port(port);
                (settings.drain.port.get(), settings.source("port"))
            });
            (port, details)
        };
        let other = |owner: &str, port: u16| {
            let detail = format!("the drainer's port 9902 belongs to {owner}, so {port} is used");
            (Some((port, SettingSource::NextFree)), vec![detail])
        };
        let annotation = json!({"envoy-drainer.dev/port": "9902"});
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
            let got = choose(ports, admin, &Value::Null);
            assert_eq!(got, want, "{ports:?} {admin}");
            let free = want.0.filter(|(port, _)| *port == 9902);
            let annotated = choose(ports, admin, &annotation);
            let want = free.map(|(port, _)| (port, SettingSource::Annotation));
            assert_eq!(annotated, (want, vec![]), "{ports:?}");
        }
    }

    #[test]
    fn drainers_name_must_be_free() {
        let table = [
            (json!({}), vec![]),
            (
                json!({"containers": [{"name": "a"}], "volumes": [{"name": "a"}]}),
                vec![],
            ),
            (
                json!({"volumes": [{"name": "a"}, {"name": CONTAINER_NAME}]}),
                vec!["the pod has a volume `envoy-drainer` of its own"],
            ),
            (
                json!({"volumes": [{"name": CONTAINER_NAME}], "automountServiceAccountToken": false}),
                vec![],
            ),
            (
                json!({"initContainers": [{"name": CONTAINER_NAME}], "volumes": [{"name": CONTAINER_NAME}]}),
                vec![
                    "the pod has a container `envoy-drainer` of its own",
                    "the pod has a volume `envoy-drainer` of its own",
                ],
            ),
        ];
        for (spec, want) in table {
            let pod = json!({ "spec": spec }).to_string();
            let pod = PodView::decode(&pod).unwrap();
            let details: Vec<_> = check_names(&pod).map(|failure| failure.detail).collect();
            assert_eq!(details, want, "{spec}");
        }
    }
}
