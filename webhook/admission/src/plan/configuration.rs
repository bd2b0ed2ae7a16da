//! What is known of Envoy's configuration. Admission knows nothing of it: `inject` and `explain` read it.

use std::collections::BTreeMap;

use drainer::AdminAddress;

use super::admin::{AdminAddressSource, AdminEndpoint};
use crate::diagnostics::{Code, Diagnostic, Diagnostics};
use crate::settings::{SettingSource, Settings, Switch};

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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bootstrap {
    /// The address of the admin interface, `None` without one; or why it cannot be read.
    pub admin: Result<Option<AdminAddress>, String>,
    /// The TCP ports of static listeners.
    pub ports: Vec<u16>,
}

/// The name of the abstract Unix socket of an admin interface that is added.
pub(super) const ADDED_ADMIN: &str = "envoy-admin";

// === impl EnvoyConfiguration ===

impl EnvoyConfiguration {
    /// Warns of an admin's address that cannot be read, unless one is annotated.
    pub(super) fn warn_of_unread(&self, settings: &Settings, diagnostics: &mut Diagnostics) {
        if settings.source("admin-address") == SettingSource::Annotation {
            return;
        }
        let of_file = self.file.iter();
        let of_file = of_file.map(|(name, file)| (format!("the ConfigMap `{name}`"), file));
        let of_arguments = [("--config-yaml".to_owned(), &self.arguments)];
        for (source, bootstrap) in of_arguments.into_iter().chain(of_file) {
            let reason = bootstrap.admin.as_ref().err();
            diagnostics.warnings.extend(reason.map(|reason| {
                let detail = format!(
                    "the admin address in {source} cannot be read: {reason}; the drainer searches for it"
                );
                Code::AdminNotRead.diagnostic(detail)
            }));
        }
    }

    /// The admin interface that is added, or else that of `--config-yaml`, or else that of the file: Envoy merges them, and the
    /// first replaces the others.
    pub(super) fn admin(&self, settings: &Settings) -> Option<AdminEndpoint> {
        let is_added = settings.add_admin == Switch::True;
        let added = is_added.then(|| AdminAddress::Abstract(ADDED_ADMIN.to_owned()));
        let of = |bootstrap: &Bootstrap| bootstrap.admin.clone().ok().flatten();
        let in_file = self.file.as_ref().and_then(|(_, file)| of(file));
        let admins = [
            (added, AdminAddressSource::Added),
            (of(&self.arguments), AdminAddressSource::ConfigYaml),
            (in_file, AdminAddressSource::ConfigMap),
        ];
        let mut admins = admins.into_iter();
        admins.find_map(|(address, source)| {
            Some(AdminEndpoint {
                address: address?,
                source,
            })
        })
    }

    /// Returns a warning if the file is known and has no admin interface.
    pub(super) fn lack_of_admin(&self) -> Option<Diagnostic> {
        let (name, file) = self.file.as_ref()?;
        let is_known = self.arguments.admin.is_ok();
        (is_known && file.admin == Ok(None)).then(|| {
            let detail = format!("Envoy's configuration in the ConfigMap `{name}` has no admin interface: nothing can be drained");
            Code::NoAdmin.diagnostic(detail)
        })
    }

    /// The TCP ports of its listeners.
    pub(super) fn ports(&self) -> impl Iterator<Item = u16> {
        let in_file = self.file.iter().flat_map(|(_, file)| &file.ports);
        self.arguments.ports.iter().chain(in_file).copied()
    }
}

// === impl Bootstrap ===

impl Default for Bootstrap {
    fn default() -> Self {
        Self {
            admin: Ok(None),
            ports: Vec::new(),
        }
    }
}
