//! The flags of `drainer serve`: what there are, what they tell, and what they are by default.

use std::fmt;

use crate::admin_address::AdminAddress;
use crate::config::Config;
use crate::duration::format_go;
use crate::token::Token;
use Emit::{Always, NonDefault, Required};

/// One flag of `drainer serve`. Its variable is `DRAINER_` and the name in capitals.
pub(crate) struct Flag {
    pub(crate) name: &'static str,
    /// What its value is called; empty for a switch.
    value_name: &'static str,
    help: &'static str,
    /// Its value in a configuration, as the flag takes it; empty where it takes none.
    format_value: fn(&Config) -> String,
    emit: Emit,
}

/// When a flag is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Emit {
    /// Always: it has no default.
    Required,
    /// Always, since `kubectl describe` shows it.
    Always,
    /// Where its value is not the default.
    NonDefault,
}

/// In the order in which they are told and written.
pub(crate) static FLAGS: [Flag; 16] = [
    flag(
        Required,
        "admin-address",
        "ADDRESS",
        "Envoy's admin interface: 127.0.0.1:9901, [::1]:9901, unix:/path, unix:@name",
        |config| config.admin_address.to_string(),
    ),
    flag(
        Required,
        "token",
        "HEX",
        "the secret in the path of the hooks, 16 hexadecimal digits",
        |config| config.token.to_string(),
    ),
    flag(
        Always,
        "port",
        "PORT",
        "where to listen for Envoy's hook",
        |config| config.port.to_string(),
    ),
    flag(
        Always,
        "drain-delay",
        "DURATION",
        "serve on, healthy, before the drain starts",
        |config| format_go(config.timing.drain_delay).to_string(),
    ),
    flag(
        Always,
        "min-drain-duration",
        "DURATION",
        "the drain never ends sooner",
        |config| format_go(config.timing.min_drain_duration).to_string(),
    ),
    flag(
        Always,
        "drain-timeout",
        "DURATION",
        "the drain ends by then, whatever is left",
        |config| format_go(config.timing.drain_timeout).to_string(),
    ),
    flag(
        Always,
        "idle-exit",
        "DURATION",
        "end when only idle HTTP connections were left for so long; off waits for them",
        |config| match config.timing.idle_exit {
            Some(idle_exit) => format_go(idle_exit).to_string(),
            None => "off".to_owned(),
        },
    ),
    flag(
        Always,
        "quiet-period",
        "DURATION",
        "end only when no new connection came for so long",
        |config| format_go(config.timing.quiet_period).to_string(),
    ),
    flag(
        Always,
        "poll-interval",
        "DURATION",
        "the pause between two looks at Envoy",
        |config| format_go(config.timing.poll_interval).to_string(),
    ),
    flag(
        NonDefault,
        "exit-at-connections",
        "N",
        "so many connections may remain",
        |config| config.exit_at_connections.to_string(),
    ),
    flag(
        NonDefault,
        "ignore-listeners",
        "LIST",
        "names or ports of listeners not to count, by commas",
        |config| join(&config.ignore_listeners),
    ),
    flag(
        NonDefault,
        "readiness-probes",
        "LIST",
        "port/period of the pod's readiness probes, by commas, like 8080/2s",
        |config| join(&config.readiness_probes),
    ),
    flag(
        NonDefault,
        "run-dir",
        "DIR",
        "the directory of the socket and the marker",
        |config| config.run_dir.display().to_string(),
    ),
    flag(
        NonDefault,
        "termination-log",
        "FILE",
        "the file for the last words",
        |config| config.termination_log.display().to_string(),
    ),
    flag(
        NonDefault,
        "log-level",
        "LEVEL",
        "error, warn, info, debug or trace",
        |config| config.log_level.as_str().to_ascii_lowercase(),
    ),
    flag(
        NonDefault,
        "host-network",
        "",
        "listen on 127.0.0.1 only",
        |config| match config.host_network {
            true => "true".to_owned(),
            false => String::new(),
        },
    ),
];

const fn flag(
    emit: Emit,
    name: &'static str,
    value_name: &'static str,
    help: &'static str,
    format_value: fn(&Config) -> String,
) -> Flag {
    Flag {
        emit,
        name,
        value_name,
        help,
        format_value,
    }
}

/// Describes the flags of `drainer serve`, a line each, with their defaults.
#[must_use]
pub fn flags_help() -> String {
    let standard = defaults();
    let line = |flag: &Flag| {
        let name = format!("{} {}", flag.name, flag.value_name);
        let default = match (flag.format_value)(&standard) {
            default if flag.emit == Required || default.is_empty() => String::new(),
            default => format!(" [{default}]"),
        };
        format!("  --{name:<32}{}{default}\n", flag.help)
    };
    FLAGS.iter().map(line).collect()
}

/// The flags of `config`, for [`Config::parse`] to read back.
pub(crate) fn args(config: &Config) -> Vec<String> {
    let standard = defaults();
    let arg = |flag: &Flag| {
        let Flag {
            name,
            format_value: of,
            ..
        } = flag;
        match of(config) {
            value if flag.emit == NonDefault && value == of(&standard) => None,
            _ if flag.is_switch() => Some(format!("--{name}")),
            value => Some(format!("--{name}={value}")),
        }
    };
    FLAGS.iter().filter_map(arg).collect()
}

/// The flag of this name.
pub(crate) fn find_flag(name: &str) -> Option<&'static Flag> {
    FLAGS.iter().find(|flag| flag.name == name)
}

/// The defaults, with stand-ins for what has none.
fn defaults() -> Config {
    Config::new(AdminAddress::Abstract(String::new()), Token::new(0))
}

fn join(items: &[impl fmt::Display]) -> String {
    let shown: Vec<_> = items.iter().map(ToString::to_string).collect();
    shown.join(",")
}

// === impl Flag ===

impl Flag {
    /// Returns true if it takes no value.
    pub(crate) fn is_switch(&self) -> bool {
        self.value_name.is_empty()
    }

    /// Its environment variable.
    pub(crate) fn env_var(&self) -> String {
        format!(
            "DRAINER_{}",
            self.name.replace('-', "_").to_ascii_uppercase()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_that_are_told_are_those_that_hold() {
        let parse = |args: &[String]| Config::parse(args.iter().map(Into::into), |_| None).unwrap();
        let required = ["--admin-address=unix:@x", "--token=0000000000000000"].map(str::to_owned);
        let help = flags_help();
        for flag in &FLAGS[2..] {
            let line = help
                .lines()
                .find(|line| line.contains(&format!("--{} ", flag.name)));
            let told = line
                .unwrap()
                .rsplit_once(" [")
                .map(|(_, told)| told.trim_end_matches(']'));
            let Some(told) = told else {
                assert_eq!((flag.format_value)(&defaults()), "", "{}", flag.name);
                continue;
            };
            let given = [&required[..], &[format!("--{}={told}", flag.name)]].concat();
            assert_eq!(parse(&given), parse(&required), "{line:?}");
        }
    }
}
