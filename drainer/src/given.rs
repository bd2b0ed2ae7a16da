//! Reading a command line: what was given, and all that is wrong with it at once.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;

use crate::flags::{FLAGS, find_flag};

/// Everything that is wrong with a command line, a line each.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub struct InvalidArgs(Vec<String>);

/// The values given for flags, and what was found wrong so far.
pub(crate) struct ArgParser {
    values: BTreeMap<&'static str, String>,
    pub(crate) errors: Vec<String>,
}

// === impl ArgParser ===

impl ArgParser {
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
            if let Some(value) = env(&flag.env_var()) {
                given.insert(flag.name, value);
            }
        }
        let mut parser = lexopt::Parser::from_args(args);
        loop {
            let step = match parser.next() {
                Ok(None) => return given,
                Ok(Some(lexopt::Arg::Long(name))) => match find_flag(name) {
                    Some(flag) if flag.is_switch() => {
                        let value = parser.optional_value().unwrap_or_else(|| "true".into());
                        Ok((flag.name, value))
                    }
                    Some(flag) => parser.value().map(|value| (flag.name, value)),
                    None => Err(format!("unknown flag `--{name}`").into()),
                },
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
