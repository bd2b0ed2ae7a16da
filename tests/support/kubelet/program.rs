//! What stands in for a container's image.

use std::path::PathBuf;

use anyhow::Result;
use drainer::RUN_DIR;

use super::mounts::{Mounts, TERMINATION_LOG};
use crate::binaries;
use crate::envoy_versions::EnvoyBinary;

/// What a container's image is on this machine: one program.
#[derive(Debug, Clone)]
pub struct Program {
    pub(super) path: PathBuf,
    /// Paths inside the container, and the variables that tell the program where they are here.
    pub(super) path_variables: Vec<(String, String)>,
    /// Flags that set where paths of the container are on this machine.
    pub(super) path_flags: Vec<PathFlag>,
}

/// A flag that is added to the arguments of `commands`, with where a path of the container is on this machine.
#[derive(Debug, Clone, Copy)]
pub(super) struct PathFlag {
    path: &'static str,
    flag: &'static str,
    commands: &'static [&'static str],
}

// === impl PathFlag ===

impl PathFlag {
    /// The flag, if the command in `args` has it.
    pub(super) fn arg(self, args: &[String], mounts: &Mounts) -> Option<String> {
        let has_flag = self.commands.contains(&args.first()?.as_str());
        has_flag.then(|| format!("{}={}", self.flag, mounts.translate_paths(self.path)))
    }
}

// === impl Program ===

impl Program {
    /// The program at `path`.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            path_variables: Vec::new(),
            path_flags: Vec::new(),
        }
    }

    /// An Envoy.
    #[must_use]
    pub fn envoy(envoy: &EnvoyBinary) -> Self {
        Self::new(&envoy.path)
    }

    /// The drainer, with flags for its two paths besides those that were injected.
    ///
    /// # Errors
    /// When it does not build.
    pub fn drainer() -> Result<Self> {
        let path_flags = vec![
            PathFlag {
                path: RUN_DIR,
                flag: "--run-dir",
                commands: &["serve", "drain"],
            },
            PathFlag {
                path: TERMINATION_LOG,
                flag: "--termination-log",
                commands: &["serve"],
            },
        ];
        Ok(Self {
            path_flags,
            ..Self::new(binaries::drainer()?)
        })
    }

    /// Tells the program by a variable where a path of its container is on this machine.
    #[must_use]
    pub fn path_variable(mut self, path: &str, variable: &str) -> Self {
        self.path_variables
            .push((path.to_owned(), variable.to_owned()));
        self
    }
}
