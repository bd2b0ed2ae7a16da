//! The program that runs in place of a container's image.

use std::path::PathBuf;

use anyhow::Result;

use super::mounts::TERMINATION_LOG;
use crate::binaries;
use crate::envoy_versions::EnvoyBinary;

/// A program of this machine in place of an image.
#[derive(Debug, Clone)]
pub struct Program {
    pub(super) path: PathBuf,
    /// Appended to the container's arguments. Paths inside the container become paths of this machine.
    pub(super) args: Vec<String>,
}

// === impl Program ===

impl Program {
    /// The program at `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            args: Vec::new(),
        }
    }

    /// An Envoy.
    pub fn envoy(envoy: &EnvoyBinary) -> Self {
        Self::new(&envoy.path)
    }

    /// The drainer. The path of its termination message, which is the default in a container, is passed as a flag.
    ///
    /// # Errors
    /// When it does not build.
    pub fn drainer() -> Result<Self> {
        let termination_log = format!("--termination-log={TERMINATION_LOG}");
        Ok(Self {
            args: vec![termination_log],
            ..Self::new(binaries::drainer()?)
        })
    }
}
