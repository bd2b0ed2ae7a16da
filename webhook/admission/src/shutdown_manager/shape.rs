//! The shape that each product gives its shutdown manager, and what the manager's flags mean.

use std::fmt;
use std::iter;
use std::slice;

use drainer::shutdown_manager::{self, ShutdownManager as Manager};
use serde::{Deserialize, Serialize};
use strum::Display;

use crate::excerpt::excerpt;
use crate::pod::Container;

/// A product that runs a shutdown manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Display)]
#[serde(rename_all = "kebab-case")]
pub enum ManagerProduct {
    /// <https://gateway.envoyproxy.io>
    #[strum(to_string = "Envoy Gateway")]
    EnvoyGateway,
    /// <https://projectcontour.io>
    Contour,
}

/// A value of a shutdown manager that is the default of a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ManagerDefault {
    pub setting: &'static str,
    /// The value in the notation of the setting.
    pub value: String,
    /// Where the pod has it: `--drain-timeout=90s`.
    pub origin: String,
}

/// How a product runs its shutdown manager.
#[derive(Debug)]
pub(super) struct Shape {
    pub product: ManagerProduct,
    /// The versions whose pods are known to have this shape. A pod of another version may have it too.
    pub versions: &'static str,
    /// The last segments of the names of the manager's images.
    pub images: &'static [&'static str],
    /// The names of its program.
    pub programs: &'static [&'static str],
    /// What it serves, and what its flags mean.
    pub manager: &'static Manager,
    /// What it does without any flag, as values of settings, besides the listeners that it does not count.
    pub settings: &'static [(&'static str, &'static str)],
}

/// A command of a shutdown manager: the words after the name of the program.
#[derive(Debug, Clone, Copy, Display)]
pub(super) enum Command {
    #[strum(to_string = "envoy shutdown-manager")]
    Serve,
    /// Its preStop hook.
    #[strum(to_string = "envoy shutdown")]
    Shutdown,
}

/// A flag in a command line.
#[derive(Debug)]
pub(super) struct Flag<'t> {
    name: &'static str,
    /// The setting that it is; empty if it has no effect on a drain.
    pub setting: &'static str,
    pub value: &'t str,
}

/// Maximum length of a word in a message, in bytes.
const MAX_WORD_LEN: usize = 64;

// === impl Shape ===

impl Shape {
    /// Returns true if the container is started by the manager's program.
    pub(super) fn starts(&self, container: &Container<'_>) -> bool {
        let program = container.command_line().next();
        program.is_some_and(|program| self.programs.contains(&program))
    }

    /// The values that the manager has without any flag.
    pub(super) fn defaults(&self) -> impl Iterator<Item = ManagerDefault> {
        let all = self.manager.settings.iter();
        let ignored = all.filter(|(setting, _)| *setting == "ignore-listeners");
        let settings = self.settings.iter().chain(ignored);
        settings.map(|(setting, value)| ManagerDefault {
            setting,
            value: (*value).to_owned(),
            origin: (*setting).to_owned(),
        })
    }

    /// Returns what differs from the name of the manager's image.
    pub(super) fn check_image(&self, manager: &Container<'_>) -> Result<(), String> {
        let (name, _) = manager.image_name();
        if self.images.contains(&name) {
            return Ok(());
        }
        let wanted = self.images.join("`, `");
        let name = excerpt(name, MAX_WORD_LEN);
        Err(match &*name {
            "" => format!("its manager has no image: expected `{wanted}`"),
            _ => format!("the image of its manager is called `{name}`: expected `{wanted}`"),
        })
    }

    /// Returns the flags in the words of a command line.
    ///
    /// # Errors
    /// With the first word that is not expected.
    pub(super) fn parse<'t>(
        &self,
        command: Command,
        words: impl IntoIterator<Item = &'t str>,
    ) -> Result<Vec<Flag<'t>>, String> {
        let mut words = words.into_iter();
        let command = command.to_string();
        let line = format!("`{} {command}` of its manager", self.programs[0]);
        let unexpected = |word: &str| {
            let word = excerpt(word, MAX_WORD_LEN);
            format!("`{word}` is not expected in {line}")
        };
        let arguments: Vec<_> = command.split(' ').collect();
        let arguments = arguments.iter().map(slice::from_ref);
        for expected in iter::once(self.programs).chain(arguments) {
            match words.next() {
                Some(word) if expected.contains(&word) => {}
                Some(word) => return Err(unexpected(word)),
                None => return Err(format!("`{}` is missing in {line}", expected[0])),
            }
        }
        let mut flags = Vec::new();
        while let Some(word) = words.next() {
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (word, words.next()),
            };
            let mut known = self.manager.flags.iter();
            let Some((name, setting)) = known.find(|(known, _)| *known == name) else {
                return Err(unexpected(word));
            };
            let Some(value) = value else {
                return Err(format!("`{name}` has no value in {line}"));
            };
            flags.push(Flag {
                name,
                setting,
                value,
            });
        }
        Ok(flags)
    }
}

// === impl Flag ===

impl Flag<'_> {
    /// The default that it is; `None` if it changes nothing.
    pub(super) fn default(&self) -> Option<ManagerDefault> {
        let value = match self.setting {
            // The drainer has a port of its own, and the manager's hook has the timeout too.
            "" | "port" | "ready-timeout" => return None,
            "admin-address" => format!("unix:{}", self.value),
            _ => self.value.to_owned(),
        };
        Some(ManagerDefault {
            setting: self.setting,
            value,
            origin: excerpt(&self.to_string(), MAX_WORD_LEN),
        })
    }
}

impl fmt::Display for Flag<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.value)
    }
}

/// That of Envoy Gateway, as `internal/infrastructure/kubernetes/proxy/resource.go` of its versions runs it. Envoy's
/// probes call a listener of Envoy's own, port 19003.
/// <https://github.com/envoyproxy/gateway/blob/v1.9.0/internal/infrastructure/kubernetes/proxy/resource.go>
pub(super) const ENVOY_GATEWAY: Shape = Shape {
    product: ManagerProduct::EnvoyGateway,
    versions: "1.4 to 1.9",
    images: &["gateway", "gateway-dev", "envoy-gateway"],
    programs: &["envoy-gateway"],
    manager: &shutdown_manager::ENVOY_GATEWAY,
    settings: &[
        ("admin-address", "127.0.0.1:19000"),
        ("drain-timeout", "60s"),
    ],
};

/// That of Contour, as its example manifests, its provisioner and its Helm chart run it. Envoy's readiness probe calls
/// a listener of Envoy's own, port 8002. It drains until the grace period ends.
/// <https://github.com/projectcontour/contour/blob/v1.33.6/examples/contour/03-envoy.yaml>
/// <https://github.com/projectcontour/contour/blob/v1.33.6/internal/provisioner/objects/dataplane/dataplane.go>
/// <https://github.com/projectcontour/helm-charts/blob/main/charts/contour/templates/envoy/daemonset.yaml>
pub(super) const CONTOUR: Shape = Shape {
    product: ManagerProduct::Contour,
    versions: "1.24 to 1.33",
    images: &["contour"],
    // In its own manifests and in its Helm chart.
    programs: &["/bin/contour", "contour"],
    manager: &shutdown_manager::CONTOUR,
    settings: &[("admin-address", "unix:/admin/admin.sock")],
};
