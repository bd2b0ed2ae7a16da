//! What the pod's manifest shows of Envoy's configuration: `--config-yaml` among its arguments, the file of `-c` from a
//! ConfigMap, and the admin interface that the annotation `add-admin` adds.

use std::collections::BTreeMap;
use std::path::Path;

use drainer::AdminAddress;

use super::admin::{AdminAddressSource, AdminEndpoint};
use super::bootstrap::Bootstrap;
use crate::diagnostics::{Code, Diagnostic, Diagnostics};
use crate::pod::{Container, PodView};
use crate::settings::{SettingSource, Settings, Switch};

/// The data of the ConfigMaps of a pod's namespace that are known: texts by name and key.
pub type ConfigMaps = BTreeMap<String, BTreeMap<String, String>>;

/// Envoy's configuration, as far as it is known.
#[derive(Debug, Default)]
pub(super) struct Configuration {
    /// `--config-yaml`, which Envoy merges into the file.
    arguments: Bootstrap,
    /// The ConfigMap with the file, and the file.
    file: Option<(String, Bootstrap)>,
}

/// The name of the abstract Unix socket of an admin interface that is added.
pub(super) const ADDED_ADMIN: &str = "envoy-admin";

/// The file that Envoy's image runs it with.
/// <https://github.com/envoyproxy/envoy/blob/main/distribution/docker/Dockerfile-envoy>
const DEFAULT_FILE: &str = "/etc/envoy/envoy.yaml";

// === impl Configuration ===

impl Configuration {
    /// Reads what is known of it. An admin's address that cannot be read is a warning unless one is annotated.
    pub(super) fn read(
        envoy: &Container<'_>,
        pod: &PodView<'_>,
        settings: &Settings,
        config_maps: Option<&ConfigMaps>,
        diagnostics: &mut Diagnostics,
    ) -> Self {
        let arguments = envoy.flag("--config-yaml").map(Bootstrap::parse);
        let arguments = arguments.unwrap_or_default();
        let file = config_maps.and_then(|config_maps| file_of(envoy, pod, config_maps));
        let file = file.map(|(name, text)| (name.to_owned(), Bootstrap::parse(text)));
        let of_file = file
            .iter()
            .map(|(name, file)| (format!("the ConfigMap `{name}`"), file));
        let of_arguments = [("--config-yaml".to_owned(), &arguments)];
        if settings.source("admin-address") != SettingSource::Annotation {
            for (source, bootstrap) in of_arguments.into_iter().chain(of_file) {
                let reason = bootstrap.admin.as_ref().err();
                diagnostics.warnings.extend(reason.map(|reason| {
                    let detail = format!("the admin address in {source} cannot be read: {reason}; the drainer searches for it");
                    Code::AdminNotRead.diagnostic(detail)
                }));
            }
        }
        Self { arguments, file }
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

/// Returns the file that Envoy is started with, and the name of its ConfigMap, if that is known.
fn file_of<'c>(
    envoy: &Container<'_>,
    pod: &PodView<'_>,
    config_maps: &'c ConfigMaps,
) -> Option<(&'c str, &'c str)> {
    let path = envoy.flag("-c").or_else(|| envoy.flag("--config-path"));
    let is_default = envoy.command_line().next().is_none();
    let path = Path::new(path.or(is_default.then_some(DEFAULT_FILE))?);
    let mounts = envoy.volume_mounts.iter().flatten();
    let covering = mounts.filter_map(|mount| Some((mount, path.strip_prefix(mount.path()?).ok()?)));
    // The longest mount path leaves the shortest rest.
    let (mount, rest) = covering.min_by_key(|(_, rest)| rest.as_os_str().len())?;
    let in_volume = Path::new(mount.sub_path.as_deref().unwrap_or_default()).join(rest);
    let in_volume = in_volume.to_str()?.trim_end_matches('/');
    let config_map = pod.volume(mount.name.as_deref()?)?.config_map.as_ref()?;
    let (name, data) = config_maps.get_key_value(config_map.name.as_deref()?)?;
    let mut items = config_map.items.iter().flatten();
    let is_file = |path: &Option<_>| path.as_deref() == Some(in_volume);
    let item = items.find(|item| is_file(&item.path));
    let key = item
        .and_then(|item| item.key.as_deref())
        .unwrap_or(in_volume);
    Some((name, data.get(key)?))
}
