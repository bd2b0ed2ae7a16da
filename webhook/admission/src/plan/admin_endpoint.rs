//! Where Envoy's admin interface may be: the addresses that the pod's manifest, and what is known of Envoy's
//! configuration, suggest. Admission knows nothing of the configuration: `inject` and `explain` read it.

use std::collections::BTreeMap;

use drainer::AdminAddress;
use serde::Serialize;
use strum::Display;

use crate::diagnostics::{Code, Diagnostic, Diagnostics};
use crate::pod::{Container, DRAIN_PATHS, Hook, PodView};
use crate::settings::{SettingSource, Settings, Switch};

/// The addresses at which Envoy's admin interface may be. That of the annotation is the only one; otherwise the drainer
/// searches, and asks these first, in this order. A server that is no Envoy has none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AdminCandidates(Vec<AdminEndpoint>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminEndpoint {
    pub address: AdminAddress,
    pub source: AdminAddressSource,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Display)]
#[serde(rename_all = "kebab-case")]
pub enum AdminAddressSource {
    #[strum(to_string = "the annotation `admin-address`")]
    Annotation,
    #[strum(to_string = "the annotation `add-admin`")]
    Added,
    /// Among Envoy's arguments.
    #[strum(to_string = "`--config-yaml`")]
    ConfigYaml,
    #[strum(to_string = "Envoy's configuration in a ConfigMap")]
    ConfigMap,
    /// Which the injected hook replaces.
    #[strum(to_string = "the preStop hook that is replaced")]
    ReplacedHook,
    /// Which the drainer takes the place of.
    #[strum(to_string = "the shutdown manager")]
    ShutdownManager,
    #[strum(to_string = "the container port named `{0}`")]
    ContainerPort(#[serde(skip)] &'static str),
    #[strum(to_string = "the default")]
    Default,
}

/// What is known of the configuration of each container that may be Envoy, by the container's name.
pub type EnvoyConfigurations = BTreeMap<String, EnvoyConfiguration>;

/// The configuration of an Envoy, as far as it is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EnvoyConfiguration {
    /// `--config-yaml`, which Envoy merges into the file.
    pub arguments: Bootstrap,
    /// The ConfigMap with the file, and the file.
    pub file: Option<(String, Bootstrap)>,
}

/// A bootstrap configuration, as far as it is read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bootstrap {
    /// The address of the admin interface, or why it cannot be read; `None` without one.
    pub admin: Option<Result<AdminAddress, String>>,
    /// The TCP ports of static listeners.
    pub ports: Vec<u16>,
    /// Whether a health check filter takes each request for a health check.
    pub checks_all: bool,
}

/// The name of the abstract Unix socket of an admin interface that is added.
pub(super) const ADDED_ADMIN: &str = "envoy-admin";

/// Usual names of the admin's container port.
const PORT_NAMES: [&str; 2] = ["admin", "envoy-admin"];

/// Finds where Envoy's admin interface may be: the annotation's address alone, or else those of Envoy's
/// `configuration`, which is `None` where none is read, of a hook that is replaced, of a shutdown manager and of named
/// ports, and the installation's default. That is not asked on a node's network, where it may be another pod's Envoy: if
/// nothing else is known there, that is a failure. What else keeps the drainer from finding it is a warning.
pub(super) fn find_admin(
    envoy: &Container<'_>,
    pod: &PodView<'_>,
    settings: &Settings,
    configuration: Option<&EnvoyConfiguration>,
    diagnostics: &mut Diagnostics,
) -> AdminCandidates {
    let address = settings.values().admin_address.clone();
    let source = match settings.source("admin-address") {
        SettingSource::Annotation => AdminAddressSource::Annotation,
        SettingSource::ShutdownManager => AdminAddressSource::ShutdownManager,
        _ => AdminAddressSource::Default,
    };
    let default = AdminEndpoint { address, source };
    let unread = EnvoyConfiguration::default();
    let known = configuration.unwrap_or(&unread);
    diagnostics.warnings.extend(known.health_check_of_all());
    if source == AdminAddressSource::Annotation {
        let is_known = known.arguments.admin.is_none();
        diagnostics
            .warnings
            .extend(known.lack_of_admin().filter(|_| is_known));
        return AdminCandidates::of(vec![default]);
    }
    diagnostics.warnings.extend(known.unreadable_admins());
    let by_manager = (source == AdminAddressSource::ShutdownManager).then(|| default.clone());
    let mut found = shown_addresses(envoy, settings, known, by_manager);
    if found.is_empty() {
        diagnostics.warnings.extend(known.lack_of_admin());
    }
    diagnostics.warnings.extend(contradiction(&found));
    if !pod.uses_host_network() {
        found.push(default);
    } else if found.is_empty() {
        let detail = "nothing in the pod names the address of Envoy's admin interface, and on a node's network the \
            drainer does not search for it";
        let failure = Code::AdminNotNamed.diagnostic(detail);
        diagnostics.failures.push(failure);
        found.push(default);
    }
    AdminCandidates::of(found)
}

/// Returns the addresses that the pod and its configuration show, the most certain first.
fn shown_addresses(
    envoy: &Container<'_>,
    settings: &Settings,
    configuration: &EnvoyConfiguration,
    by_manager: Option<AdminEndpoint>,
) -> Vec<AdminEndpoint> {
    let admin = |address, source| AdminEndpoint { address, source };
    let by_hook = address_in_hook(envoy);
    let by_hook = by_hook.map(|address| admin(address, AdminAddressSource::ReplacedHook));
    let by_port = PORT_NAMES.into_iter().filter_map(|name| {
        let number = envoy.port_named(name).filter(|number| *number != 0)?;
        let address = AdminAddress::Tcp(([127, 0, 0, 1], number).into());
        Some(admin(address, AdminAddressSource::ContainerPort(name)))
    });
    let configured = configuration.admin(settings).into_iter();
    let shown = configured.chain(by_hook).chain(by_manager);
    shown.chain(by_port).collect()
}

/// Returns the port of a TCP address.
pub(super) fn tcp_port(address: &AdminAddress) -> Option<u16> {
    match address {
        AdminAddress::Tcp(address) => Some(address.port()),
        AdminAddress::Path(_) | AdminAddress::Abstract(_) => None,
    }
}

/// Returns a warning if the first address is contradicted by another.
fn contradiction(found: &[AdminEndpoint]) -> Option<Diagnostic> {
    let first = found.first()?;
    // The same port at another address may be the same socket.
    let port = tcp_port(&first.address);
    let is_same = |it: &AdminEndpoint| {
        it.address == first.address || port.is_some() && tcp_port(&it.address) == port
    };
    let other = found.iter().find(|it| !is_same(it))?;
    let detail = format!(
        "Envoy's admin interface is at {} according to {}, but at {} according to {}: the drainer tries them in this \
         order",
        first.address, first.source, other.address, other.source
    );
    Some(Code::AdminContradiction.diagnostic(detail))
}

/// Finds the address at which Envoy's hook calls its admin interface: `http://localhost:9901/healthcheck/fail`.
fn address_in_hook(envoy: &Container<'_>) -> Option<AdminAddress> {
    let command = match envoy.short_hook()? {
        Hook::HttpGet(request) => {
            request.drain_path()?;
            let port = request.port.text();
            let port = port.parse().ok().or_else(|| envoy.port_named(&port))?;
            return Some(AdminAddress::Tcp(([127, 0, 0, 1], port).into()));
        }
        Hook::Exec { command } => command.join(" "),
        Hook::Sleep { .. } => return None,
    };
    let at = DRAIN_PATHS.iter().find_map(|path| command.find(path))?;
    let is_outside = |c: char| !c.is_ascii_alphanumeric() && !".:[]-".contains(c);
    let authority = command[..at].rsplit(is_outside).next()?;
    let authority = authority.replace("localhost:", "127.0.0.1:");
    authority.parse().ok()
}

// === impl AdminCandidates ===

impl AdminCandidates {
    /// Each of these addresses once.
    pub(super) fn of(found: Vec<AdminEndpoint>) -> Self {
        let mut all: Vec<AdminEndpoint> = Vec::new();
        for candidate in found {
            if all.iter().all(|other| other.address != candidate.address) {
                all.push(candidate);
            }
        }
        Self(all)
    }

    /// The annotation's address.
    pub fn annotated(&self) -> Option<&AdminAddress> {
        let first = self.first()?;
        (first.source == AdminAddressSource::Annotation).then_some(&first.address)
    }

    /// The addresses that are asked before the drainer searches; none if one is annotated.
    pub fn hints(&self) -> impl Iterator<Item = &AdminAddress> {
        let is_searched = self.annotated().is_none();
        // A list in an argument is separated by commas.
        let can_be_listed = |address: &&AdminAddress| !address.to_string().contains(',');
        let listed = self.iter().map(|it| &it.address).filter(can_be_listed);
        listed.filter(move |_| is_searched)
    }

    /// All of them, in the order in which they are asked.
    pub fn iter(&self) -> impl Iterator<Item = &AdminEndpoint> {
        self.0.iter()
    }

    /// The most certain one.
    pub fn first(&self) -> Option<&AdminEndpoint> {
        self.0.first()
    }
}

// === impl EnvoyConfiguration ===

impl EnvoyConfiguration {
    /// The address of the admin interface, as far as it is known: of two, Envoy takes that of its arguments.
    pub fn admin_address(&self) -> Option<&AdminAddress> {
        let in_file = || self.file.as_ref()?.1.admin.as_ref();
        let admin = self.arguments.admin.as_ref().or_else(in_file);
        admin?.as_ref().ok()
    }

    /// Returns a warning for each admin's address that cannot be read.
    fn unreadable_admins(&self) -> impl Iterator<Item = Diagnostic> {
        let of_file = self.file.iter();
        let of_file = of_file.map(|(name, file)| (format!("the ConfigMap `{name}`"), file));
        let of_arguments = [("--config-yaml".to_owned(), &self.arguments)].into_iter();
        of_arguments.chain(of_file).filter_map(|(source, bootstrap)| {
            let reason = bootstrap.admin.as_ref()?.as_ref().err()?;
            let detail = format!(
                "the admin address in {source} cannot be read: {reason}; the drainer searches for it"
            );
            Some(Code::AdminNotRead.diagnostic(detail))
        })
    }

    /// The admin interface that is added, or else that of `--config-yaml`, or else that of the file: Envoy merges them,
    /// and the first replaces the others.
    fn admin(&self, settings: &Settings) -> Option<AdminEndpoint> {
        let is_added = settings.values().add_admin == Switch::True;
        let added = is_added.then(|| AdminEndpoint {
            address: AdminAddress::Abstract(ADDED_ADMIN.to_owned()),
            source: AdminAddressSource::Added,
        });
        let of = |bootstrap: &Bootstrap, source| {
            let address = bootstrap.admin.clone()?.ok()?;
            Some(AdminEndpoint { address, source })
        };
        let in_file = || of(&self.file.as_ref()?.1, AdminAddressSource::ConfigMap);
        let in_arguments = || of(&self.arguments, AdminAddressSource::ConfigYaml);
        added.or_else(in_arguments).or_else(in_file)
    }

    /// Returns a warning if the file is known and has no admin interface.
    fn lack_of_admin(&self) -> Option<Diagnostic> {
        let (name, file) = self.file.as_ref()?;
        let is_known = !matches!(self.arguments.admin, Some(Err(_)));
        (is_known && file.admin.is_none()).then(|| {
            let detail = format!("Envoy's configuration in the ConfigMap `{name}` has no admin interface: nothing can \
                be drained");
            Code::NoAdmin.diagnostic(detail)
        })
    }

    /// Returns a warning if all requests fail from the start of a drain on.
    fn health_check_of_all(&self) -> Option<Diagnostic> {
        let in_file = || self.file.iter().any(|(_, file)| file.checks_all);
        (self.arguments.checks_all || in_file()).then(|| {
            let detail = "Envoy's health check filter has `pass_through_mode` and no `headers`: each request is one, and \
                fails once Envoy drains";
            Code::HealthCheckOfAll.diagnostic(detail)
        })
    }

    /// The TCP ports of its listeners.
    pub(super) fn ports(&self) -> impl Iterator<Item = u16> {
        let in_file = self.file.iter().flat_map(|(_, file)| &file.ports);
        self.arguments.ports.iter().chain(in_file).copied()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::diagnostics::Diagnostic;
    use crate::pod::PodView;
    use crate::settings::Defaults;
    use crate::settings::parse::ParsedSettings;
    use crate::shutdown_manager::ManagerDefault;

    fn find_over(
        envoy: &serde_json::Value,
        annotated: Option<&str>,
        manager_defaults: &[ManagerDefault],
        configuration: &EnvoyConfiguration,
    ) -> (AdminCandidates, Vec<Diagnostic>) {
        let envoy = envoy.to_string();
        let envoy = serde_json::from_str(&envoy).unwrap();
        let annotations = match annotated {
            Some(address) => json!({"envoy-drainer.dev/admin-address": address}),
            None => json!({}),
        };
        let pod = json!({"metadata": {"annotations": annotations}}).to_string();
        let pod = PodView::decode(&pod).unwrap();
        let defaults = Defaults::new("", "");
        let parsed = ParsedSettings::parse(&pod, false, &defaults, manager_defaults);
        let mut diagnostics = Diagnostics::default();
        let settings = &parsed.settings;
        let configuration = Some(configuration);
        let found = find_admin(&envoy, &pod, settings, configuration, &mut diagnostics);
        (found, diagnostics.warnings)
    }

    fn with_admin(address: &str) -> EnvoyConfiguration {
        EnvoyConfiguration {
            arguments: Bootstrap {
                admin: Some(Ok(address.parse().unwrap())),
                ports: Vec::new(),
                checks_all: false,
            },
            file: None,
        }
    }

    #[test]
    fn annotation_is_the_only_address_and_hints_are_in_order() {
        let hook = json!({"preStop": {"exec": {"command": ["curl", "-X", "POST", "http://localhost:8001/healthcheck/fail"]}}});
        let envoy = json!({
            "ports": [{"name": "envoy-admin", "containerPort": 19001}, {"name": "admin", "containerPort": 19000}],
            "lifecycle": hook,
        });
        let manager = [ManagerDefault {
            setting: "admin-address",
            value: "unix:/admin/admin.sock".to_owned(),
            origin: String::new(),
        }];
        let known = with_admin("unix:@a");
        let unknown = EnvoyConfiguration::default();
        for (removed, configuration, manager, hints) in [
            (
                &[][..],
                &known,
                &[][..],
                "unix:@a 127.0.0.1:8001 127.0.0.1:19000 127.0.0.1:19001 127.0.0.1:9901",
            ),
            (
                &[],
                &known,
                &manager,
                "unix:@a 127.0.0.1:8001 unix:/admin/admin.sock 127.0.0.1:19000 127.0.0.1:19001",
            ),
            (
                &[],
                &unknown,
                &[],
                "127.0.0.1:8001 127.0.0.1:19000 127.0.0.1:19001 127.0.0.1:9901",
            ),
            (
                &["lifecycle"],
                &unknown,
                &manager,
                "unix:/admin/admin.sock 127.0.0.1:19000 127.0.0.1:19001",
            ),
            (&["lifecycle", "ports"], &unknown, &[], "127.0.0.1:9901"),
        ] {
            let mut envoy = envoy.clone();
            for key in removed {
                envoy[key] = json!(null);
            }
            let found = find_over(&envoy, None, manager, configuration).0;
            let found: Vec<_> = found.hints().map(ToString::to_string).collect();
            assert_eq!(found.join(" "), hints);
            let annotated = find_over(&envoy, Some("unix:@b"), manager, configuration).0;
            assert_eq!(annotated.annotated(), Some(&"unix:@b".parse().unwrap()));
            assert_eq!(
                (annotated.hints().count(), annotated.iter().count()),
                (0, 1)
            );
        }
        // In a list of arguments it would be two.
        let hints = find_over(&json!({}), None, &[], &with_admin("unix:@a,b")).0;
        assert_eq!(hints.hints().count(), 1);
    }

    #[test]
    fn address_is_read_in_a_replaced_hook() {
        let exec = |command: &str| json!({"exec": {"command": ["sh", "-c", command]}});
        for (hook, address) in [
            (
                exec("curl -sX POST http://127.0.0.1:8001/healthcheck/fail; sleep 15"),
                Some("127.0.0.1:8001"),
            ),
            (
                exec(
                    "wget -qO- --post-data= 'localhost:15000/drain_listeners?graceful' && sleep 5",
                ),
                Some("127.0.0.1:15000"),
            ),
            (
                exec("curl -XPOST \"http://[::1]:9901/quitquitquit\""),
                Some("[::1]:9901"),
            ),
            (
                exec("curl -XPOST http://0.0.0.0:1/healthcheck/fail"),
                Some("127.0.0.1:1"),
            ),
            (
                exec("curl -XPOST http://$POD_IP:9901/healthcheck/fail"),
                None,
            ),
            (exec("curl -XPOST http://127.0.0.1/healthcheck/fail"), None),
            (exec("curl http://127.0.0.1:8001/ready"), None),
            (exec("sleep 15"), None),
            (
                json!({"httpGet": {"path": "/healthcheck/fail", "port": 8001}}),
                Some("127.0.0.1:8001"),
            ),
            (
                json!({"httpGet": {"path": "/drain_listeners?graceful", "port": "adm"}}),
                Some("127.0.0.1:7"),
            ),
            (
                json!({"httpGet": {"path": "/shutdown", "port": 19002}}),
                None,
            ),
            (json!({"httpGet": {"port": "none"}}), None),
            (json!({"sleep": {"seconds": 5}}), None),
            (json!([]), None),
        ] {
            let envoy = json!({
                "ports": [{"name": "adm", "containerPort": 7}],
                "lifecycle": {"preStop": hook},
            });
            let unknown = EnvoyConfiguration::default();
            let (found, _) = find_over(&envoy, None, &[], &unknown);
            let first = found.first().cloned().unwrap();
            let by_hook =
                (first.source == AdminAddressSource::ReplacedHook).then_some(first.address);
            assert_eq!(
                by_hook.map(|it| it.to_string()).as_deref(),
                address,
                "{hook}"
            );
        }
    }

    #[test]
    fn unreadable_admin_is_a_warning() {
        let unreadable = Bootstrap {
            admin: Some(Err("it contains a variable".to_owned())),
            ports: Vec::new(),
            checks_all: false,
        };
        let configuration = EnvoyConfiguration {
            arguments: unreadable.clone(),
            file: Some(("c".to_owned(), unreadable)),
        };
        let (found, warnings) = find_over(&json!({}), None, &[], &configuration);
        assert_eq!(found.first().unwrap().source, AdminAddressSource::Default);
        let details = warnings.iter().map(|warning| &*warning.detail);
        let want = ["--config-yaml", "the ConfigMap `c`"].map(|source| {
            format!("the admin address in {source} cannot be read: it contains a variable; the drainer searches for it")
        });
        assert!(details.eq(want.iter()), "{warnings:?}");
        let annotated = find_over(&json!({}), Some("unix:@b"), &[], &configuration);
        assert_eq!(annotated.1, []);
    }
}
