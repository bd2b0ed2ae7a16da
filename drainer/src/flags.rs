//! The flags of `drainer serve`: what there are, and reading them with all errors at once.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;

/// Everything that is wrong with a command line, a line each.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub struct InvalidArgs(Vec<String>);

/// One flag of `drainer serve`. Its variable is `DRAINER_` and the name in capitals.
struct Flag {
    name: &'static str,
    value: &'static str,
    help: &'static str,
}

pub(crate) const HOST_NETWORK: &str = "host-network";

const FLAGS: [Flag; 16] = [
    flag(
        "admin-address",
        "ADDRESS",
        "Envoy's admin interface: 127.0.0.1:9901, [::1]:9901, unix:/path, unix:@name",
    ),
    flag(
        "token",
        "HEX",
        "the secret in the path of the hooks, 16 hexadecimal digits",
    ),
    flag("port", "PORT", "where to listen for Envoy's hook [9902]"),
    flag(HOST_NETWORK, "", "listen on 127.0.0.1 only"),
    flag(
        "drain-delay",
        "DURATION",
        "serve on, healthy, before the drain starts [0s]",
    ),
    flag(
        "min-drain-duration",
        "DURATION",
        "the drain never ends sooner [10s]",
    ),
    flag(
        "drain-timeout",
        "DURATION",
        "the drain ends by then, whatever is left [1m0s]",
    ),
    flag(
        "idle-exit",
        "DURATION",
        "end when only idle HTTP connections were left for so long; off waits for them [7s]",
    ),
    flag(
        "quiet-period",
        "DURATION",
        "end only when no new connection came for so long [3s]",
    ),
    flag(
        "exit-at-connections",
        "N",
        "so many connections may remain [0]",
    ),
    flag(
        "ignore-listeners",
        "LIST",
        "names or ports of listeners not to count, by commas",
    ),
    flag(
        "readiness-probes",
        "LIST",
        "port/period of the pod's readiness probes, by commas, like 8080/2s",
    ),
    flag(
        "poll-interval",
        "DURATION",
        "the pause between two looks at Envoy [250ms]",
    ),
    flag(
        "run-dir",
        "DIR",
        "the directory of the socket and the marker [/run/envoy-drainer]",
    ),
    flag(
        "termination-log",
        "FILE",
        "the file for the last words [/dev/termination-log]",
    ),
    flag(
        "log-level",
        "LEVEL",
        "error, warn, info, debug or trace [info]",
    ),
];

const fn flag(name: &'static str, value: &'static str, help: &'static str) -> Flag {
    Flag { name, value, help }
}

/// Describes the flags of `drainer serve`, a line each.
#[must_use]
pub fn flags_help() -> String {
    let line = |f: &Flag| format!("  --{:<32}{}\n", format!("{} {}", f.name, f.value), f.help);
    FLAGS.iter().map(line).collect()
}

/// The values given for flags, and what was found wrong so far.
pub(crate) struct Given {
    values: BTreeMap<&'static str, String>,
    pub(crate) errors: Vec<String>,
}

// === impl Given ===

impl Given {
    /// Reads the flags, and from `env` what they leave out.
    pub(crate) fn read(
        args: impl IntoIterator<Item = OsString>,
        env: impl Fn(&str) -> Option<OsString>,
    ) -> Self {
        let mut given = Self {
            values: BTreeMap::new(),
            errors: Vec::new(),
        };
        for flag in &FLAGS {
            if let Some(value) = env(&variable(flag.name)) {
                given.insert(flag.name, value);
            }
        }
        let mut parser = lexopt::Parser::from_args(args);
        loop {
            let step = match parser.next() {
                Ok(None) => return given,
                Ok(Some(lexopt::Arg::Long(name))) => {
                    match FLAGS.iter().find(|flag| flag.name == name) {
                        Some(flag) if flag.value.is_empty() => {
                            let value = parser.optional_value().unwrap_or_else(|| "true".into());
                            Ok((flag.name, value))
                        }
                        Some(flag) => parser.value().map(|value| (flag.name, value)),
                        None => Err(format!("unknown flag `--{name}`").into()),
                    }
                }
                Ok(Some(other)) => Err(other.unexpected()),
                Err(error) => Err(error),
            };
            match step {
                Ok((name, value)) => given.insert(name, value),
                Err(error) => {
                    given.errors.push(error.to_string());
                    // Else its value would be taken for an argument of its own.
                    let _ = parser.optional_value();
                }
            }
        }
    }

    fn insert(&mut self, name: &'static str, value: OsString) {
        match value.into_string() {
            Ok(value) => drop(self.values.insert(name, value)),
            Err(value) => self.errors.push(format!("--{name} {value:?} is not UTF-8")),
        }
    }

    /// Parses the value given for a flag, if there is one.
    pub(crate) fn set<T, E: fmt::Display>(
        &mut self,
        name: &str,
        parse: impl FnOnce(&str) -> Result<T, E>,
        into: &mut T,
    ) {
        let Some(value) = self.values.get(name) else {
            return;
        };
        match parse(value) {
            Ok(value) => *into = value,
            Err(error) => self.errors.push(format!("--{name} `{value}`: {error}")),
        }
    }

    /// Parses the value of a flag that must be given.
    pub(crate) fn required<T, E: fmt::Display>(
        &mut self,
        name: &str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        if !self.values.contains_key(name) {
            self.errors.push(format!("--{name} is missing"));
        }
        let mut value = None;
        self.set(name, |text| parse(text).map(Some), &mut value);
        value
    }

    /// Returns `config` if nothing was wrong.
    pub(crate) fn finish<T>(self, config: T) -> Result<T, InvalidArgs> {
        if self.errors.is_empty() {
            Ok(config)
        } else {
            Err(InvalidArgs(self.errors))
        }
    }
}

/// The environment variable of a flag.
fn variable(flag: &str) -> String {
    format!("DRAINER_{}", flag.replace('-', "_").to_ascii_uppercase())
}
