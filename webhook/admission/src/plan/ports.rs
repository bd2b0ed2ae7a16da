//! The TCP ports that are in use in a pod, as far as its manifest shows, and the one that the drainer gets.

use std::collections::BTreeMap;
use std::num::NonZeroU16;

use super::admin_endpoint::{AdminCandidates, EnvoyConfiguration, tcp_port};
use crate::diagnostics::{Code, Diagnostic, Diagnostics};
use crate::names::SCRAPED_PORT;
use crate::pod::PodView;
use crate::settings::{SettingSource, Settings};

/// The ports in use, and what shows it: a noun, and the name of a container.
#[derive(Debug, Default)]
pub(super) struct PortsInUse<'p>(BTreeMap<u16, (&'static str, &'p str)>);

/// Number of ports after the default that are tried. No genuine pod uses all of them.
const MAX_PORTS_TRIED: usize = 100;

// === impl PortsInUse ===

impl<'p> PortsInUse<'p> {
    /// The ports of a pod's long-running containers, of their probes and hooks, and of metrics.
    pub(super) fn of_pod(pod: &'p PodView<'_>) -> Self {
        let mut ports = Self::default();
        for (_, container) in pod.long_running_containers() {
            ports.add(container.tcp_ports(), "container", container.name());
        }
        for (_, container) in pod.long_running_containers() {
            let shown_by = "a probe or hook of container";
            ports.add(container.called_ports(), shown_by, container.name());
        }
        let scraped = pod.annotation(SCRAPED_PORT);
        let scraped = scraped.and_then(|port| port.parse().ok());
        ports.add(scraped, "the annotation", SCRAPED_PORT);
        ports
    }

    /// Adds those of Envoy's admin interface and listeners.
    pub(super) fn add_envoys(
        &mut self,
        admin: &AdminCandidates,
        configuration: Option<&EnvoyConfiguration>,
    ) {
        let tcp = admin.iter().filter_map(|it| tcp_port(&it.address));
        self.add(tcp, "Envoy's", "admin");
        let listeners = configuration.into_iter();
        let listeners = listeners.flat_map(EnvoyConfiguration::ports);
        self.add(listeners, "Envoy's", "listeners");
    }

    fn add(&mut self, ports: impl IntoIterator<Item = u16>, noun: &'static str, name: &'p str) {
        for port in ports {
            self.0.entry(port).or_insert((noun, name));
        }
    }

    /// Chooses the drainer's port: the annotated one, which must be free, or else the default or the next free one,
    /// with a warning. Any will do, since hook and drainer get it from the same plan.
    ///
    /// # Errors
    /// If the annotated port is in use, or none is free.
    pub(super) fn choose_free(
        &self,
        settings: &Settings,
        diagnostics: &mut Diagnostics,
    ) -> Result<NonZeroU16, Diagnostic> {
        let port = settings.values().drain.port;
        let Some(taken) = self.conflict(port) else {
            return Ok(port);
        };
        if settings.source("port") == SettingSource::Annotation {
            return Err(taken.for_annotations(["port"]));
        }
        let others = (port.get()..=u16::MAX).skip(1).take(MAX_PORTS_TRIED);
        let mut others = others.filter_map(NonZeroU16::new);
        let Some(free) = others.find(|port| !self.0.contains_key(&port.get())) else {
            return Err(taken);
        };
        let detail = format!("{}, so {free} is used", taken.detail);
        diagnostics.warn(Code::OtherPort.diagnostic(detail));
        Ok(free)
    }

    fn conflict(&self, port: NonZeroU16) -> Option<Diagnostic> {
        let (noun, name) = self.0.get(&port.get())?;
        let detail = format!("the drainer's port {port} belongs to {noun} `{name}`");
        Some(Code::PortTaken.diagnostic(detail))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::plan::admin_endpoint::{AdminAddressSource, AdminEndpoint};
    use crate::settings::Defaults;
    use crate::settings::parse::ParsedSettings;

    const PORT: NonZeroU16 = NonZeroU16::new(15902).unwrap();

    #[test]
    fn port_of_a_long_running_container_is_taken() {
        let ports = |ports: Value| json!({"containers": [{"name": "app"}, {"name": "web", "ports": ports}]});
        let taken = Some("the drainer's port 15902 belongs to container `web`".to_owned());
        let table = [
            (
                ports(json!([{"containerPort": 1}, {"containerPort": 15902}])),
                taken.clone(),
            ),
            (
                ports(json!([{"containerPort": 15902, "protocol": "TCP"}])),
                taken,
            ),
            (
                ports(json!([{"containerPort": 15902, "protocol": "UDP"}])),
                None,
            ),
            (
                ports(json!([{"containerPort": 9901, "hostPort": 15902}])),
                None,
            ),
            (
                json!({"initContainers": [{"name": "i", "ports": [{"containerPort": 15902}]}]}),
                None,
            ),
            (
                json!({"initContainers": [{"name": "i", "restartPolicy": "Always", "ports": [{"containerPort": 15902}]}]}),
                Some("the drainer's port 15902 belongs to container `i`".to_owned()),
            ),
        ];
        for (spec, want) in table {
            let pod = json!({ "spec": spec }).to_string();
            let pod = PodView::decode(&pod).unwrap();
            let conflict = PortsInUse::of_pod(&pod).conflict(PORT);
            assert_eq!(conflict.map(|failure| failure.detail), want, "{spec}");
        }
    }

    fn candidates(admin: &str) -> AdminCandidates {
        AdminCandidates::of(vec![AdminEndpoint {
            address: admin.parse().unwrap(),
            source: AdminAddressSource::Default,
        }])
    }

    #[test]
    fn port_of_envoys_admin_is_taken() {
        for (admin, is_taken) in [
            ("[::1]:15902", true),
            ("127.0.0.1:9901", false),
            ("unix:@a", false),
        ] {
            let admin_at = candidates(admin);
            let mut ports = PortsInUse::default();
            ports.add_envoys(&admin_at, None);
            let conflict = ports.conflict(PORT);
            let detail = conflict.map(|failure| failure.detail);
            let want = is_taken.then_some("the drainer's port 15902 belongs to Envoy's `admin`");
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
            let admin = candidates(admin);
            let pod = PodView::decode(&pod).unwrap();
            let mut settings =
                ParsedSettings::parse(&pod, false, &Defaults::new("", ""), &[]).settings;
            let mut ports = PortsInUse::of_pod(&pod);
            ports.add_envoys(&admin, None);
            let port = ports.choose_free(&settings, &mut diagnostics);
            let warnings = diagnostics.warnings.into_iter();
            let details: Vec<_> = warnings.map(|warning| warning.detail).collect();
            let port = port.ok().map(|port| {
                settings.use_free_port(port);
                (settings.values().drain.port.get(), settings.source("port"))
            });
            (port, details)
        };
        let other = |owner: &str, port: u16| {
            let detail = format!("the drainer's port 15902 belongs to {owner}, so {port} is used");
            (Some((port, SettingSource::NextFree)), vec![detail])
        };
        let annotation = json!({"envoy-drainer.dev/port": "15902"});
        let many: Vec<_> = (15902..16_100).collect();
        let table = [
            (
                &[][..],
                "127.0.0.1:9901",
                (Some((15902, SettingSource::Default)), vec![]),
            ),
            (&[15902], "127.0.0.1:9901", other("container `web`", 15903)),
            (
                &[15904, 15902],
                "127.0.0.1:15903",
                other("container `web`", 15905),
            ),
            (&[], "127.0.0.1:15902", other("Envoy's `admin`", 15903)),
            (&many, "127.0.0.1:9901", (None, vec![])),
        ];
        for (ports, admin, want) in table {
            let got = choose(ports, admin, &Value::Null);
            assert_eq!(got, want, "{ports:?} {admin}");
            let free = want.0.filter(|(port, _)| *port == 15902);
            let annotated = choose(ports, admin, &annotation);
            let want = free.map(|(port, _)| (port, SettingSource::Annotation));
            assert_eq!(annotated, (want, vec![]), "{ports:?}");
        }
    }
}
