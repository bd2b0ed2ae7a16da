//! The shape that each product gives its shutdown manager, and what the manager's flags mean.

use std::fmt;
use std::iter;
use std::slice;

use serde::{Deserialize, Serialize};
use strum::Display;

use self::FlagMeaning::{AdminSocket, Nothing, Port, Setting};
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
    /// The manager's command line.
    pub serve: CommandLine,
    /// The manager's preStop hook.
    pub shutdown: CommandLine,
    /// The path and the port of Envoy's preStop hook.
    pub path: &'static str,
    pub port: u16,
    /// What the manager does without any flag, as values of settings.
    pub settings: &'static [(&'static str, &'static str)],
}

/// The words that start a program, and the flags that may follow.
#[derive(Debug)]
pub(super) struct CommandLine {
    /// The names of the program.
    pub programs: &'static [&'static str],
    pub words: &'static [&'static str],
    pub flags: &'static [(&'static str, FlagMeaning)],
}

/// What a flag of the manager means for the drainer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FlagMeaning {
    /// The value is the default of this setting.
    Setting(&'static str),
    /// The path of the admin's Unix socket.
    AdminSocket,
    /// The port on which the manager listens.
    Port,
    /// It concerns the manager alone.
    Nothing,
}

/// A flag in a command line.
#[derive(Debug)]
pub(super) struct Flag<'t> {
    name: &'static str,
    pub meaning: FlagMeaning,
    pub value: &'t str,
}

/// Maximum length of a word in a message, in bytes.
const MAX_WORD_LEN: usize = 64;

// === impl Shape ===

impl Shape {
    /// Returns true if the container is started by the manager's program.
    pub(super) fn starts(&self, container: &Container<'_>) -> bool {
        let program = container.command_line().next();
        program.is_some_and(|program| self.serve.programs.contains(&program))
    }

    /// The values that the manager has without any flag.
    pub(super) fn defaults(&self) -> impl Iterator<Item = ManagerDefault> {
        let settings = self.settings.iter();
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
}

// === impl CommandLine ===

impl CommandLine {
    /// Returns the flags in the words of a command line.
    ///
    /// # Errors
    /// With the first word that is not expected.
    pub(super) fn parse<'t>(
        &self,
        words: impl IntoIterator<Item = &'t str>,
    ) -> Result<Vec<Flag<'t>>, String> {
        let mut words = words.into_iter();
        let unexpected = |word: &str| {
            let word = excerpt(word, MAX_WORD_LEN);
            format!("`{word}` is not expected in `{self}` of its manager")
        };
        let expected = iter::once(self.programs).chain(self.words.iter().map(slice::from_ref));
        for expected in expected {
            match words.next() {
                Some(word) if expected.contains(&word) => {}
                Some(word) => return Err(unexpected(word)),
                None => {
                    let word = expected[0];
                    return Err(format!("`{word}` is missing in `{self}` of its manager"));
                }
            }
        }
        let mut flags = Vec::new();
        while let Some(word) = words.next() {
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (word, words.next()),
            };
            let mut known = self.flags.iter();
            let Some((name, meaning)) = known.find(|(known, _)| *known == name) else {
                return Err(unexpected(word));
            };
            let Some(value) = value else {
                return Err(format!("`{name}` has no value in `{self}` of its manager"));
            };
            flags.push(Flag {
                name,
                meaning: *meaning,
                value,
            });
        }
        Ok(flags)
    }
}

/// Formats the words without flags.
impl fmt::Display for CommandLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.programs[0], self.words.join(" "))
    }
}

// === impl Flag ===

impl Flag<'_> {
    /// The default that it is; `None` if it changes nothing.
    pub(super) fn default(&self) -> Option<ManagerDefault> {
        let value = self.value.to_owned();
        let (setting, value) = match self.meaning {
            Setting(setting) => (setting, value),
            AdminSocket => ("admin-address", format!("unix:{value}")),
            Port | Nothing => return None,
        };
        Some(ManagerDefault {
            setting,
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
    serve: CommandLine {
        programs: &["envoy-gateway"],
        words: &["envoy", "shutdown-manager"],
        flags: &[("--ready-timeout", Nothing)],
    },
    // https://github.com/envoyproxy/gateway/blob/v1.9.0/internal/cmd/envoy.go
    shutdown: CommandLine {
        programs: &["envoy-gateway"],
        words: &["envoy", "shutdown"],
        flags: &[
            ("--drain-timeout", Setting("drain-timeout")),
            ("--min-drain-duration", Setting("min-drain-duration")),
            ("--exit-at-connections", Setting("exit-at-connections")),
            // Since 1.9.
            (
                "--health-check-failure-delay",
                Setting("health-failure-delay"),
            ),
        ],
    },
    path: "/shutdown/ready",
    port: 19002,
    // It does not count the connections of its metrics and its readiness probes.
    // https://github.com/envoyproxy/gateway/blob/v1.9.0/internal/cmd/envoy/shutdown_manager.go
    settings: &[
        ("admin-address", "127.0.0.1:19000"),
        ("drain-timeout", "60s"),
        ("ignore-listeners", "19001,19003"),
    ],
};

/// Contour's, in its own manifests and in its Helm chart.
const CONTOUR_PROGRAMS: &[&str] = &["/bin/contour", "contour"];

/// That of Contour, as its example manifests, its provisioner and its Helm chart run it. Envoy's readiness probe calls
/// a listener of Envoy's own, port 8002.
/// <https://github.com/projectcontour/contour/blob/v1.33.6/examples/contour/03-envoy.yaml>
/// <https://github.com/projectcontour/contour/blob/v1.33.6/internal/provisioner/objects/dataplane/dataplane.go>
/// <https://github.com/projectcontour/helm-charts/blob/main/charts/contour/templates/envoy/daemonset.yaml>
pub(super) const CONTOUR: Shape = Shape {
    product: ManagerProduct::Contour,
    versions: "1.24 to 1.33",
    images: &["contour"],
    // https://github.com/projectcontour/contour/blob/v1.33.6/cmd/contour/shutdownmanager.go
    serve: CommandLine {
        programs: CONTOUR_PROGRAMS,
        words: &["envoy", "shutdown-manager"],
        flags: &[("--serve-port", Port), ("--ready-file", Nothing)],
    },
    shutdown: CommandLine {
        programs: CONTOUR_PROGRAMS,
        words: &["envoy", "shutdown"],
        flags: &[
            ("--drain-delay", Setting("drain-delay")),
            ("--check-delay", Setting("min-drain-duration")),
            ("--min-open-connections", Setting("exit-at-connections")),
            ("--admin-address", AdminSocket),
            ("--admin-port", Nothing),
            ("--check-interval", Nothing),
            ("--ready-file", Nothing),
        ],
    },
    path: "/shutdown",
    port: 8090,
    // It drains until the grace period ends. It does not count the connections of the listeners with the stat prefix
    // `stats` or `envoy-admin`.
    // https://github.com/projectcontour/contour/blob/v1.33.6/internal/envoy/v3/stats.go
    settings: &[
        ("admin-address", "unix:/admin/admin.sock"),
        (
            "ignore-listeners",
            "envoy-admin,health,health-om-enforced,stats,stats-health",
        ),
    ],
};
