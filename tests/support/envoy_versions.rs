//! The Envoy versions that tests run against, as `make envoy` installs them.

use std::path::{Path, PathBuf};
use std::{env, fmt};

use anyhow::{Context, Result, ensure};

/// The versions without `ENVOY_VERSIONS`.
const DEFAULT_VERSIONS: &str = include_str!("../envoy-versions");

/// An installed Envoy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvoyBinary {
    /// A version such as `1.40.0`, or the path of the binary that `ENVOY` names.
    pub version: String,
    /// The path of the binary.
    pub path: PathBuf,
}

/// Lists the Envoys to run against, oldest first: the binary that `ENVOY` names, or else the versions of
/// `ENVOY_VERSIONS`, or else those of `tests/envoy-versions`.
///
/// # Errors
/// When one is not installed, with the command that installs it.
pub fn all() -> Result<Vec<EnvoyBinary>> {
    if let Some(path) = env_var("ENVOY") {
        let path = PathBuf::from(path);
        ensure!(path.is_file(), "ENVOY={} is not a file", path.display());
        let version = path.display().to_string();
        return Ok(vec![EnvoyBinary { version, path }]);
    }
    let requested = env_var("ENVOY_VERSIONS");
    let versions = requested.as_deref().unwrap_or(DEFAULT_VERSIONS);
    let mut versions: Vec<_> = versions.split_whitespace().collect();
    ensure!(!versions.is_empty(), "ENVOY_VERSIONS names no version");
    versions.sort_by_key(|version| version_numbers(version));
    versions.into_iter().map(find).collect()
}

/// Returns the newest of [`all`].
///
/// # Errors
/// As [`all`].
pub fn newest() -> Result<EnvoyBinary> {
    all()?.pop().context("`all` is never empty")
}

fn find(version: &str) -> Result<EnvoyBinary> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let path = root.join(".envoy").join(version).join("envoy");
    ensure!(
        path.is_file(),
        "Envoy {version} is not installed: run `make envoy ENVOY_VERSIONS={version}`"
    );
    Ok(EnvoyBinary {
        version: version.to_owned(),
        path,
    })
}

/// An environment variable that is not empty: `make` exports unset variables as empty ones.
fn env_var(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.trim().is_empty())
}

fn version_numbers(version: &str) -> Vec<u32> {
    version.split('.').map_while(|n| n.parse().ok()).collect()
}

// === impl EnvoyBinary ===

impl fmt::Display for EnvoyBinary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Envoy {}", self.version)
    }
}
