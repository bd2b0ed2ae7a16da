//! The drainer's configuration: the arguments that the webhook writes and `drainer serve` parses.

use std::ffi::OsString;
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use lexopt::Parser;
use tracing::Level;

use super::admin_address::{AdminAddress, EnvoyFlags};
use super::listener_selector::ListenerSelector;
use super::readiness_probe::ReadinessProbe;
use super::token::Token;
use super::value::InvalidValue;
use super::{
    ArgCondition, DEFAULT_PORT, DrainSettings, SettingDefinition, drain_setting_definitions,
};
use crate::settings_table;
use crate::shutdown_manager::ShutdownManager;

/// The folder in which the drainer's token for the webhook is mounted, as the file `token`.
pub const WEBHOOK_TOKEN_DIR: &str = "/var/run/secrets/envoy-drainer.dev";

/// As the ports of a server: all on which it listens beyond loopback.
pub const ALL_PORTS: &str = "all";

/// The default path of a container's termination message.
/// <https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/>
const TERMINATION_LOG: &str = "/dev/termination-log";

/// The configuration of `drainer serve`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The address of Envoy's admin interface; `None` if it is searched for.
    pub admin_address: Option<AdminAddress>,
    /// Where the search starts: addresses at which the pod's manifest places the admin interface, the most certain first.
    pub admin_hints: Vec<AdminAddress>,
    /// The ports of a server that has no admin interface, or [`ALL_PORTS`]; none for an Envoy.
    pub server_ports: Vec<ListenerSelector>,
    /// Those on which no connection rests that has carried a byte: it may have a silent stream of HTTP/2.
    pub never_idle_ports: Vec<ListenerSelector>,
    /// On a node's network, the flags of the pod's Envoy, by which it is told from other pods'.
    pub envoy_flags: EnvoyFlags,
    /// The settings that a pod's annotations can set, and the poll interval.
    pub settings: DrainSettings,
    /// Whether the pod uses the node's network; the drainer then listens on 127.0.0.1 only.
    pub host_network: bool,
    /// The secret in the path of Envoy's hook.
    pub token: Token,
    /// The pod's readiness probes, which keep connecting during the drain and do not count as clients.
    pub readiness_probes: Vec<ReadinessProbe>,
    /// The pod's grace period; zero if unknown.
    pub grace_period: Duration,
    /// How the drainer calls the webhook.
    pub webhook: WebhookAccess,
    /// The file of the termination message.
    pub termination_log: PathBuf,
    /// The most verbose level that is logged.
    pub log_level: Level,
    /// The shutdown manager in whose place it runs. Hooks have no token then, and only hints are asked for the admin interface,
    /// since the pod may use the node's network.
    pub manager: Option<&'static ShutdownManager>,
}

/// How the drainer calls the webhook, which it does only in a pod with a feature that needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookAccess {
    /// `HOST:PORT`; the webhook's certificate is valid for HOST. Empty if the drainer does not call the webhook.
    pub address: String,
    /// An address that needs no DNS. It is tried first.
    pub ip: Option<IpAddr>,
    /// The CAs of the webhook's certificate: DER in base64, comma-separated.
    pub ca: String,
    /// The file of the service account token.
    pub token: PathBuf,
    /// Whether the webhook takes reports.
    pub reports: bool,
}

type Flag = SettingDefinition<Config>;

/// The flags of `drainer serve` with the texts of their defaults, in the order of its arguments and of its help.
static FLAGS: LazyLock<Vec<(Flag, String)>> = LazyLock::new(|| {
    let admin: Vec<Flag> = settings_table! {
        "admin-address" "ADDRESS" NonDefault |s| s.admin_address,
            "Address of Envoy's admin interface, such as 127.0.0.1:9901, unix:/path or unix:@name. By default, the drainer searches for it.";
        "admin-hints" "LIST" NonDefault |s| s.admin_hints,
            "Addresses at which the search for Envoy's admin interface starts, comma-separated.";
        "envoy-flags" "JSON" NonDefault |s| s.envoy_flags,
            "With host-network, the command_line_options of an Envoy that is called, as far as they are known.";
        "server-ports" "LIST|all" NonDefault |s| s.server_ports,
            "Ports of a server that is no Envoy, comma-separated, or all that it listens on beyond loopback.";
        "never-idle-ports" "LIST" NonDefault |s| s.never_idle_ports,
            "Those to which idle-exit does not apply, comma-separated: a drain waits for the end of their connections.";
    };
    let own: Vec<Flag> = settings_table! {
        "token" "HEX" Required |s| s.token, "Secret in the path of Envoy's hook, 16 hexadecimal digits.";
        "poll-interval" "DURATION" Always |s| s.settings.timing.poll_interval,
            "How often the drainer polls Envoy's statistics.";
        "readiness-probes" "LIST" NonDefault |s| s.readiness_probes,
            "Ports and periods of the pod's readiness probes, comma-separated: 8080/2s.";
        "grace-period" "DURATION" NonDefault |s| s.grace_period,
            "The pod's terminationGracePeriodSeconds, at most 24h.";
        "webhook-address" "HOST:PORT" NonDefault |s| s.webhook.address,
            "Address of the webhook. Without it, the drainer does not call the webhook.";
        "webhook-ip" "IP" NonDefault |s| s.webhook.ip,
            "IP address of the webhook, tried before its host name is resolved.";
        "webhook-ca" "LIST" NonDefault |s| s.webhook.ca,
            "CAs of the webhook's certificate: DER in base64, comma-separated.";
        "webhook-token" "FILE" NonDefault |s| s.webhook.token, "File of the service account token for the webhook.";
        "webhook-reports" "" NonDefault |s| s.webhook.reports,
            "Report each drain and the setup warnings to the webhook.";
        "termination-log" "FILE" NonDefault |s| s.termination_log, "File of the termination message.";
        "log-level" "LEVEL" NonDefault |s| s.log_level, "Log level: error, warn, info, debug or trace.";
        "host-network" "" NonDefault |s| s.host_network, "For a pod with hostNetwork: listen on 127.0.0.1 only.";
    };
    let shared = drain_setting_definitions();
    let mut flags: Vec<_> = admin.into_iter().chain(shared).chain(own).collect();
    flags.sort_by_key(|flag| flag.in_args);
    // The token has no default.
    let mut config = Config::new(Token(0));
    let default = |flag: &Flag| (flag.value)(&mut config).format();
    let defaults: Vec<_> = flags.iter().map(default).collect();
    flags.into_iter().zip(defaults).collect()
});

/// What `drainer --help` prints: the commands, and the flags of `serve` with their defaults, a line each.
pub fn help() -> String {
    let line = |(flag, default): &(Flag, String)| {
        let name = format!("{} {}", flag.name, flag.value_name);
        let has_default = flag.in_args != ArgCondition::Required && !default.is_empty();
        let default = has_default.then(|| format!(" [{default}]"));
        let default = default.unwrap_or_default();
        format!("  --{name:<38} {}{default}\n", flag.help)
    };
    let flags: String = FLAGS.iter().map(line).collect();
    format!(
        "Drains Envoy before Kubernetes terminates it.\n\n\
         drainer serve FLAGS                       run as the sidecar; exits after SIGTERM, when no drain is running\n\
         drainer drain [--port PORT]               the sidecar's preStop hook; returns when the container may stop\n\
         drainer status [--port PORT] [-o json]    print the status of the drain\n\n\
         PORT is that of the sidecar [{DEFAULT_PORT}].\n\n\
         As a shutdown manager: envoy shutdown-manager|shutdown of Envoy Gateway and of Contour, by the name of\n\
         the program, and shutdown-manager of MARIN3R.\n\n\
         Flags of serve:\n{flags}"
    )
}

// === impl Config ===

impl Config {
    /// The built-in defaults with this token.
    pub fn new(token: Token) -> Self {
        Self {
            admin_address: None,
            admin_hints: Vec::new(),
            server_ports: Vec::new(),
            never_idle_ports: Vec::new(),
            envoy_flags: EnvoyFlags::new(),
            settings: DrainSettings::default(),
            host_network: false,
            token,
            readiness_probes: Vec::new(),
            grace_period: Duration::ZERO,
            webhook: WebhookAccess::default(),
            termination_log: TERMINATION_LOG.into(),
            log_level: Level::INFO,
            manager: None,
        }
    }

    /// Sets the flag with this name.
    pub(crate) fn set(&mut self, name: &str, text: &str) -> Result<(), InvalidValue> {
        let flag = FLAGS.iter().find(|(flag, _)| flag.name == name);
        flag.map_or(Ok(()), |(flag, _)| (flag.value)(self).set(text))
    }

    /// The arguments that [`Config::parse`] parses to this configuration: the required ones, the port and all
    /// durations, since `kubectl describe` shows them, and of the rest those that are not the default.
    pub fn args(&self) -> Vec<String> {
        let mut config = self.clone();
        let arg = |(flag, default): &(Flag, String)| {
            let (name, value) = (flag.name, (flag.value)(&mut config).format());
            // glibc's memcmp takes 80 ns for two empty texts, whose pointers lead to no page: 7 % of an admission in all.
            let is_default = value.is_empty() && default.is_empty() || value == *default;
            match flag.in_args {
                ArgCondition::Never => None,
                ArgCondition::NonDefault if is_default => None,
                _ if flag.value_name.is_empty() => Some(format!("--{name}")),
                _ => Some(format!("--{name}={value}")),
            }
        };
        FLAGS.iter().filter_map(arg).collect()
    }

    /// Parses the arguments of `drainer serve`. The last value of a flag counts.
    ///
    /// # Errors
    /// Everything that is wrong.
    pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Self, Vec<String>> {
        let (mut config, mut errors) = (Self::new(Token(0)), Vec::new());
        let is_required = |(flag, _): &&(Flag, _)| flag.in_args == ArgCondition::Required;
        let required = FLAGS.iter().filter(is_required);
        let mut missing: Vec<_> = required.map(|(flag, _)| flag.name).collect();
        let mut parser = Parser::from_args(args);
        while let Some(parsed) = parse_flag(&mut parser).transpose() {
            let set = parsed.and_then(|(flag, text)| {
                missing.retain(|name| *name != flag.name);
                let set = (flag.value)(&mut config).set(&text);
                set.map_err(|error| format!("--{} `{text}`: {error}", flag.name).into())
            });
            errors.extend(set.err().map(|error| error.to_string()));
            // Otherwise the value of `--unknown=value` would be reported as well.
            let _ = parser.optional_value();
        }
        errors.extend(missing.iter().map(|name| format!("--{name} is missing")));
        errors.extend(config.settings.timing.errors());
        errors.is_empty().then_some(config).ok_or(errors)
    }

    /// Returns true if the pod has a server in place of an Envoy: the kernel alone tells what is in flight, and nothing tells
    /// its clients to leave.
    pub fn is_of_server(&self) -> bool {
        !self.server_ports.is_empty()
    }

    /// Returns true if the port is one of a server, which `is_public` if it is not on loopback. Where an Envoy has no admin
    /// interface, all those count.
    pub(crate) fn serves(&self, port: NonZeroU16, is_public: bool) -> bool {
        let settings = &self.settings;
        if port == settings.port
            || settings
                .ignore_listeners
                .contains(&ListenerSelector::Port(port))
        {
            return false;
        }
        let is_port = |it: &ListenerSelector| *it == ListenerSelector::Port(port);
        let is_name = |it: &ListenerSelector| matches!(it, ListenerSelector::Name(_));
        let ports = &self.server_ports;
        ports.iter().any(is_port) || is_public && ports.iter().all(is_name)
    }

    /// The path of Envoy's hook.
    pub fn hook_path(&self) -> String {
        format!("/drained/{}", self.token)
    }

    /// The path of the hook of another container, whose name is a DNS label.
    pub fn container_hook_path(&self, container: &str) -> String {
        format!("{}/{container}", self.hook_path())
    }
}

/// Parses the next flag and its value; `None` at the end.
fn parse_flag(parser: &mut Parser) -> Result<Option<(&'static Flag, String)>, lexopt::Error> {
    let flag = match parser.next()? {
        None => return Ok(None),
        Some(lexopt::Arg::Long(name)) => {
            let found = FLAGS.iter().find(|(flag, _)| flag.name == name);
            &found.ok_or_else(|| format!("unknown flag `--{name}`"))?.0
        }
        Some(other) => return Err(other.unexpected()),
    };
    let value = match parser.optional_value() {
        Some(value) => value,
        None if flag.value_name.is_empty() => "true".into(),
        None => parser.value()?,
    };
    let text = value.into_string();
    let text = text.map_err(|value| format!("--{} {value:?} is not UTF-8", flag.name))?;
    Ok(Some((flag, text)))
}

// === impl WebhookAccess ===

impl WebhookAccess {
    /// Returns true if the drainer may call the webhook.
    pub fn is_enabled(&self) -> bool {
        !self.address.is_empty()
    }
}

impl Default for WebhookAccess {
    /// No access, with the paths in the drainer's container.
    fn default() -> Self {
        Self {
            address: String::new(),
            ip: None,
            ca: String::new(),
            token: Path::new(WEBHOOK_TOKEN_DIR).join("token"),
            reports: false,
        }
    }
}

impl AsMut<DrainSettings> for Config {
    fn as_mut(&mut self) -> &mut DrainSettings {
        &mut self.settings
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use super::*;
    use crate::settings::health_failure_delay::HealthFailureDelay;
    use crate::settings::timing::Timing;
    use crate::settings::value::parse_list;

    fn parse(args: &[&str]) -> Result<Config, Vec<String>> {
        Config::parse(args.iter().map(OsString::from))
    }

    fn config() -> Config {
        Config::new(Token(0xc0ffee))
    }

    fn round_trip(config: &Config) {
        let args = config.args();
        let args: Vec<_> = args.iter().map(String::as_str).collect();
        assert_eq!(parse(&args).as_ref(), Ok(config), "{args:?}");
    }

    #[test]
    fn configs_survive_the_round_trip_through_arguments() {
        round_trip(&config());
        round_trip(&Config {
            server_ports: vec!["8080".parse().unwrap(), "9090".parse().unwrap()],
            never_idle_ports: vec!["9090".parse().unwrap()],
            admin_address: Some("unix:@admin".parse().unwrap()),
            admin_hints: parse_list("127.0.0.1:1,unix:/a").unwrap(),
            envoy_flags: [(
                "config_path".to_owned(),
                "/etc/envoy, or \"not\".yaml".into(),
            )]
            .into_iter()
            .collect(),
            settings: DrainSettings {
                port: NonZeroU16::MAX,
                timing: Timing {
                    drain_delay: Duration::from_millis(1500),
                    wait_for_replacement: Duration::from_secs(30),
                    min_drain_duration: Duration::ZERO,
                    drain_timeout: Duration::from_secs(3600),
                    idle_exit: None,
                    quiet_period: Duration::ZERO,
                    poll_interval: Duration::from_micros(1),
                },
                health_failure_delay: HealthFailureDelay::After(Duration::from_secs(20)),
                exit_at_connections: 7,
                ignore_kernel: true,
                ignore_listeners: parse_list("8001, probes,0.0.0.0_80").unwrap(),
                count_listeners: parse_list("out,81").unwrap(),
            },
            host_network: true,
            grace_period: Duration::from_secs(75),
            token: Token(u64::MAX),
            readiness_probes: vec!["8080/2s".parse().unwrap(), "9/1m0s".parse().unwrap()],
            webhook: WebhookAccess {
                address: "webhook.infra.svc:8443".to_owned(),
                ip: Some([10, 0, 0, 1].into()),
                ca: "AAAA,AAA=".to_owned(),
                token: "/tmp/token".into(),
                reports: true,
            },
            termination_log: "/tmp/a b".into(),
            log_level: Level::DEBUG,
            manager: None,
        });
    }

    #[test]
    fn the_last_value_of_a_flag_counts() {
        let flags = [
            "--token=0000000000000001",
            "--port=8",
            "--port",
            "7",
            "--idle-exit=off",
        ];
        let config = parse(&flags).unwrap();
        assert_eq!(config.settings.port.get(), 7);
        assert_eq!(config.settings.timing.idle_exit, None);
    }

    #[test]
    fn help_of_every_flag_begins_after_a_space() {
        for line in help().lines().filter(|line| line.starts_with("  --")) {
            let (flag, help) = line.split_at(42);
            assert!(flag.trim_end().len() <= 42, "{line}");
            assert!(help.starts_with(' ') && !help.starts_with("  "), "{line}");
        }
    }

    #[test]
    fn default_values_in_the_help_are_the_effective_ones() {
        let required = ["--token=0000000000000000"];
        let help = help();
        for (definition, value) in &*FLAGS {
            if definition.in_args == ArgCondition::Required {
                continue;
            }
            let start = format!("  --{} ", definition.name);
            let line = help.lines().find(|line| line.starts_with(&start));
            let line = line.unwrap();
            let Some((_, default)) = line.rsplit_once(" [") else {
                assert_eq!(value, "", "{}", definition.name);
                continue;
            };
            let arg = format!("--{}={}", definition.name, default.trim_end_matches(']'));
            assert_eq!(
                parse(&[&required[..], &[&arg]].concat()),
                parse(&required),
                "{line}"
            );
        }
    }

    #[test]
    fn all_errors_are_reported_at_once() {
        let flags = [
            "--token=xyz",
            "--bogus=3",
            "--drain-timeout=5s",
            "--ignore-listeners=web,0",
            "--readiness-probes=80/0s",
            "--webhook-ip=$(HOST)",
            "stray",
        ];
        assert_eq!(
            parse(&flags).unwrap_err(),
            [
                "--token `xyz`: invalid token `xyz`: must be 16 digits of 0-9 and a-f",
                "unknown flag `--bogus`",
                "--ignore-listeners `web,0`: invalid port `0`: must be a number from 1 to 65535",
                "--readiness-probes `80/0s`: invalid readiness probe `80/0s`: expected a port and a period such as 8080/2s",
                "--webhook-ip `$(HOST)`: invalid IP address `$(HOST)`: expected 10.0.0.1 or fd00::1",
                "unexpected argument \"stray\"",
                "drain-timeout 5s is less than min-drain-duration 10s (built-in default): raise the one or lower the other",
            ]
        );
    }
}
