//! The shutdown managers of Envoy Gateway, Contour and MARIN3R, whose place the drainer's image can take: their command
//! lines, the paths that hooks and probes call, and what their flags mean for a drain.
//!
//! Their hooks have no token. So Envoy's hook alone, which any client in the pod's network can call, never drains.

use std::time::Duration;

use tracing::warn;

use crate::settings::config::Config;
use crate::settings::token::Token;
use crate::settings::value::InvalidValue;

/// The shutdown manager of a product.
#[derive(Debug, PartialEq, Eq)]
pub struct ShutdownManager {
    /// The path of Envoy's preStop hook.
    pub hook_path: &'static str,
    /// Its flags and those of its hook, each with the setting that it is; empty for one that has no effect on a drain.
    pub flags: &'static [(&'static str, &'static str)],
    /// What it does without any flag, as flags of a drainer in its place. The listeners that are not counted are those of
    /// metrics and readiness probes.
    pub settings: &'static [(&'static str, &'static str)],
}

/// What the command line of a shutdown manager asks for.
pub enum ManagerCommand<'a> {
    /// To run as the manager, with these flags.
    Serve(&'static ShutdownManager, &'a [String]),
    /// To run as its preStop hook, with these flags.
    Shutdown(&'static ShutdownManager, &'a [String]),
}

/// Envoy Gateway's, which KubeLB runs too, without a hook of its own.
/// <https://github.com/envoyproxy/gateway/blob/v1.9.0/internal/cmd/envoy.go>
/// <https://github.com/envoyproxy/gateway/blob/v1.9.0/internal/cmd/envoy/shutdown_manager.go>
/// <https://github.com/kubermatic/kubelb/blob/80d164b8da0214a3e66eadad2244c1f6bca265be/internal/envoy/bootstrap.go>
pub static ENVOY_GATEWAY: ShutdownManager = ShutdownManager {
    hook_path: "/shutdown/ready",
    flags: &[
        ("--ready-timeout", "ready-timeout"),
        ("--drain-timeout", "drain-timeout"),
        ("--min-drain-duration", "min-drain-duration"),
        ("--exit-at-connections", "exit-at-connections"),
        // Since 1.9.
        ("--health-check-failure-delay", "health-failure-delay"),
    ],
    settings: &[
        ("port", "19002"),
        ("drain-timeout", "60s"),
        ("ignore-listeners", "19001,19003"),
        ("admin-hints", "127.0.0.1:19000,[::1]:19000,127.0.0.1:9001"),
    ],
};

/// Contour's, which drains until the grace period ends. That is 300 s.
/// <https://github.com/projectcontour/contour/blob/v1.33.6/cmd/contour/shutdownmanager.go>
pub static CONTOUR: ShutdownManager = ShutdownManager {
    hook_path: "/shutdown",
    flags: &[
        ("--serve-port", "port"),
        ("--drain-delay", "drain-delay"),
        ("--check-delay", "min-drain-duration"),
        ("--min-open-connections", "exit-at-connections"),
        ("--admin-address", "admin-address"),
        ("--admin-port", ""),
        ("--check-interval", ""),
        ("--ready-file", ""),
    ],
    settings: &[
        ("port", "8090"),
        ("drain-timeout", "285s"),
        // https://github.com/projectcontour/contour/blob/v1.33.6/internal/envoy/v3/stats.go
        (
            "ignore-listeners",
            "envoy-admin,health,health-om-enforced,stats,stats-health",
        ),
        ("admin-hints", "unix:/admin/admin.sock"),
    ],
};

/// MARIN3R's, which drains until the grace period ends. That is 300 s by default.
/// <https://github.com/3scale-sre/marin3r/blob/5a04aefabebcb63869d7cf981f776fb666f7bcd2/internal/pkg/envoy/container/generator.go>
pub static MARIN3R: ShutdownManager = ShutdownManager {
    hook_path: "/shutdown",
    flags: &[("--port", "port")],
    settings: &[
        ("port", "8090"),
        ("drain-timeout", "285s"),
        ("admin-hints", "127.0.0.1:9901"),
    ],
};

/// How much longer Envoy Gateway's manager holds Envoy's hook, by its flag `--ready-timeout`, than a drain takes.
/// <https://github.com/envoyproxy/gateway/blob/v1.9.0/internal/infrastructure/kubernetes/proxy/resource.go>
const READY_MARGIN: Duration = Duration::from_secs(10);

// === impl ManagerCommand ===

impl<'a> ManagerCommand<'a> {
    /// Recognizes the command line of a shutdown manager, by its arguments, and by its program where these are the same.
    pub fn recognize(program: &str, args: &'a [String]) -> Option<Self> {
        let is_contour = program.rsplit('/').next() == Some("contour");
        let manager = if is_contour { &CONTOUR } else { &ENVOY_GATEWAY };
        let words: Vec<_> = args.iter().map(String::as_str).collect();
        Some(match words[..] {
            ["envoy", "shutdown-manager", ..] => Self::Serve(manager, &args[2..]),
            ["envoy", "shutdown", ..] => Self::Shutdown(manager, &args[2..]),
            ["shutdown-manager", ..] => Self::Serve(&MARIN3R, &args[1..]),
            _ => return None,
        })
    }
}

// === impl ShutdownManager ===

impl ShutdownManager {
    /// The configuration of a drainer in its place, with these flags of the manager. Logs those that it ignores.
    pub fn config(&'static self, flags: &[String]) -> Config {
        let mut config = Config::new(Token(0));
        config.manager = Some(self);
        for (name, value) in self.settings {
            drop(config.set(name, value));
        }
        self.apply(flags, &mut config);
        config
    }

    /// Sets what the `flags` say. Logs those that are unknown or invalid, which change nothing.
    pub(crate) fn apply(&self, flags: &[String], config: &mut Config) {
        let mut words = flags.iter();
        while let Some(word) = words.next() {
            let (name, value) = match word.split_once('=') {
                Some(pair) => pair,
                None => (&**word, words.next().map_or("", String::as_str)),
            };
            let set = match self.flags.iter().find(|(flag, _)| *flag == name) {
                None => Err(InvalidValue::new("flag", name, "unknown")),
                Some((_, "ready-timeout")) => config.set("drain-timeout", value),
                // The address is known from the start on.
                Some((_, "" | "admin-address")) => Ok(()),
                Some((_, setting)) => config.set(setting, value),
            };
            let timing = &mut config.settings.timing;
            if name == "--ready-timeout" && set.is_ok() {
                timing.drain_timeout = timing.drain_timeout.saturating_sub(READY_MARGIN);
            }
            timing.min_drain_duration = timing.min_drain_duration.min(timing.drain_timeout);
            if let Err(error) = set {
                warn!(flag = name, %error, "A flag of the shutdown manager is ignored");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    /// What a command line is: the port of the manager, and the role with the flags.
    fn recognized(line: &str) -> Option<(u16, String)> {
        let (program, args) = line.split_once(' ').unwrap_or((line, ""));
        let args = words(args);
        let (manager, role, flags) = match ManagerCommand::recognize(program, &args)? {
            ManagerCommand::Serve(manager, flags) => (manager, "serve", flags),
            ManagerCommand::Shutdown(manager, flags) => (manager, "shutdown", flags),
        };
        let port = manager.config(&[]).settings.port.get();
        Some((port, format!("{role} {}", flags.join(" "))))
    }

    #[test]
    fn command_lines_are_recognized_by_arguments_and_by_program() {
        let table = [
            (
                "envoy-gateway envoy shutdown-manager",
                Some((19002, "serve ")),
            ),
            (
                "/usr/local/bin/envoy-gateway envoy shutdown --drain-timeout=90s",
                Some((19002, "shutdown --drain-timeout=90s")),
            ),
            (
                "/bin/contour envoy shutdown-manager --serve-port 1",
                Some((8090, "serve --serve-port 1")),
            ),
            ("contour envoy shutdown", Some((8090, "shutdown "))),
            ("/drainer envoy shutdown-manager", Some((19002, "serve "))),
            (
                "/drainer shutdown-manager --port 8091",
                Some((8090, "serve --port 8091")),
            ),
            ("contour bootstrap /config/envoy.json", None),
            ("envoy-gateway envoy", None),
            ("/drainer serve --token=1", None),
            ("/drainer", None),
        ];
        for (line, want) in table {
            let want = want.map(|(port, rest)| (port, rest.to_owned()));
            assert_eq!(recognized(line), want, "{line}");
        }
    }

    /// The values that differ from those without flags.
    fn changed(manager: &'static ShutdownManager, flags: &str) -> Vec<String> {
        let (with, without) = (manager.config(&words(flags)), manager.config(&[]));
        let without = without.args();
        let mut args = with.args();
        args.retain(|arg| !without.contains(arg));
        args
    }

    #[test]
    fn flags_become_settings_and_unknown_or_invalid_ones_change_nothing() {
        let table: [(&'static ShutdownManager, &str, &[&str]); 12] = [
            (&ENVOY_GATEWAY, "--ready-timeout=70s", &[]),
            (
                &ENVOY_GATEWAY,
                "--ready-timeout=610s",
                &["--drain-timeout=600s"],
            ),
            (
                &ENVOY_GATEWAY,
                "--drain-timeout=90s --min-drain-duration 400ms --exit-at-connections=2 --health-check-failure-delay=1m0s",
                &[
                    "--min-drain-duration=400ms",
                    "--drain-timeout=90s",
                    "--health-failure-delay=60s",
                    "--exit-at-connections=2",
                ],
            ),
            // It ends at its time-out all the same.
            (
                &ENVOY_GATEWAY,
                "--drain-timeout=5s",
                &["--min-drain-duration=5s", "--drain-timeout=5s"],
            ),
            (
                &ENVOY_GATEWAY,
                "--new-flag=1 --drain-timeout=90s",
                &["--drain-timeout=90s"],
            ),
            (&ENVOY_GATEWAY, "--drain-timeout=soon --new-flag", &[]),
            (
                &CONTOUR,
                "--serve-port=8091 --ready-file=/x --check-interval 9s --admin-address=/admin/admin.sock",
                &["--port=8091"],
            ),
            (
                &CONTOUR,
                "--drain-delay=3s --check-delay=0s --min-open-connections=1",
                &[
                    "--drain-delay=3s",
                    "--min-drain-duration=0s",
                    "--exit-at-connections=1",
                ],
            ),
            // The drainer has asked for the other all the time.
            (&CONTOUR, "--admin-address=/other.sock", &[]),
            (&MARIN3R, "--port 8091", &["--port=8091"]),
            (&MARIN3R, "--check-drain-delay=15", &[]),
            (&MARIN3R, "", &[]),
        ];
        for (manager, flags, want) in table {
            assert_eq!(changed(manager, flags), want, "{flags}");
        }
    }

    #[test]
    fn drainer_has_the_defaults_of_the_manager() {
        let table = [
            (
                &ENVOY_GATEWAY,
                "--port=19002 --drain-timeout=60s --admin-hints=127.0.0.1:19000,[::1]:19000,127.0.0.1:9001 \
                 --ignore-listeners=19001,19003",
            ),
            (
                &CONTOUR,
                "--port=8090 --drain-timeout=285s --admin-hints=unix:/admin/admin.sock \
                 --ignore-listeners=envoy-admin,health,health-om-enforced,stats,stats-health",
            ),
            (
                &MARIN3R,
                "--port=8090 --drain-timeout=285s --admin-hints=127.0.0.1:9901",
            ),
        ];
        for (manager, want) in table {
            let args = manager.config(&[]).args();
            for arg in words(want) {
                assert!(args.contains(&arg), "{arg} is not in {args:?}");
            }
        }
    }
}
