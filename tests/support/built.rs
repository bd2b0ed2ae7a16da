//! The two programs of this project, as they are in the tree now.

use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::Value;

static DRAINER: OnceLock<Result<PathBuf, String>> = OnceLock::new();
static WEBHOOK: OnceLock<Result<PathBuf, String>> = OnceLock::new();
static RELEASE: OnceLock<Result<PathBuf, String>> = OnceLock::new();

/// The sidecar: the binary that `DRAINER` names, else one built now, so that no test runs
/// yesterday's.
///
/// # Errors
/// When it does not build.
pub fn drainer() -> Result<PathBuf> {
    program(&DRAINER, "DRAINER", "drainer", "dev")
}

/// The webhook and its command line: the binary that `ENVOY_DRAINER` names, else one built now.
///
/// # Errors
/// When it does not build.
pub fn envoy_drainer() -> Result<PathBuf> {
    program(&WEBHOOK, "ENVOY_DRAINER", "envoy-drainer", "dev")
}

/// The webhook as it is shipped, for tests that promise a time or a size: the binary that
/// `ENVOY_DRAINER` names, else one built now in the release profile.
///
/// # Errors
/// When it does not build.
pub fn envoy_drainer_release() -> Result<PathBuf> {
    program(&RELEASE, "ENVOY_DRAINER", "envoy-drainer", "release")
}

fn program(
    once: &OnceLock<Result<PathBuf, String>>,
    variable: &str,
    binary: &str,
    profile: &str,
) -> Result<PathBuf> {
    once.get_or_init(|| match env::var_os(variable) {
        Some(path) if !path.is_empty() => Ok(path.into()),
        _ => build(binary, profile).map_err(|error| format!("{error:#}")),
    })
    .clone()
    .map_err(|error| anyhow!(error))
}

fn build(binary: &str, profile: &str) -> Result<PathBuf> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    // What the cargo above this process says of the package under test, which would make a build
    // script that reads it run anew.
    let above = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(above) {
            command.env_remove(name);
        }
    }
    let output = command
        // Where it builds for the whole workspace, as `make` does: what is built already is used.
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .args(["build", "--locked", "--quiet", "--message-format=json"])
        .args(["--bin", binary, "--profile", profile])
        .stderr(Stdio::inherit())
        .output()
        .context("starting cargo")?;
    ensure!(output.status.success(), "{binary} does not build");
    output
        .stdout
        .split(|byte| *byte == b'\n')
        .filter_map(|line| serde_json::from_slice::<Value>(line).ok())
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .with_context(|| format!("cargo built no {binary}"))
}
