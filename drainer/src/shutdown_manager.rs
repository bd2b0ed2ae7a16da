//! The shutdown managers of Envoy Gateway, Contour and MARIN3R, whose place the drainer's image can take: their command
//! lines, the paths that hooks and probes call, and what their flags mean for a drain.
//!
//! Their hooks have no token. So Envoy's hook alone, which any client in the pod's network can call, never drains.

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

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    /// What a command line is: the port of the manager, and the role with the flags.
    fn recognized(line: &str) -> Option<(&'static str, String)> {
        let (program, args) = line.split_once(' ').unwrap_or((line, ""));
        let args = words(args);
        let (manager, role, flags) = match ManagerCommand::recognize(program, &args)? {
            ManagerCommand::Serve(manager, flags) => (manager, "serve", flags),
            ManagerCommand::Shutdown(manager, flags) => (manager, "shutdown", flags),
        };
        let (_, port) = manager.settings[0];
        Some((port, format!("{role} {}", flags.join(" "))))
    }

    #[test]
    fn command_lines_are_recognized_by_arguments_and_by_program() {
        let table = [
            (
                "envoy-gateway envoy shutdown-manager",
                Some(("19002", "serve ")),
            ),
            (
                "/usr/local/bin/envoy-gateway envoy shutdown --drain-timeout=90s",
                Some(("19002", "shutdown --drain-timeout=90s")),
            ),
            (
                "/bin/contour envoy shutdown-manager --serve-port 1",
                Some(("8090", "serve --serve-port 1")),
            ),
            ("contour envoy shutdown", Some(("8090", "shutdown "))),
            ("/drainer envoy shutdown-manager", Some(("19002", "serve "))),
            (
                "/drainer shutdown-manager --port 8091",
                Some(("8090", "serve --port 8091")),
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
}
