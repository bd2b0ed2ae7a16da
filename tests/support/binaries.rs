//! The binaries of this project, built from the current tree.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::Value;
use tokio::sync::OnceCell;
use tokio::time::timeout;

static DRAINER: OnceLock<Result<PathBuf, String>> = OnceLock::new();
static OPTIMIZED_DRAINER: OnceLock<Result<PathBuf, String>> = OnceLock::new();
static POD_TOOLS: OnceLock<Result<PathBuf, String>> = OnceLock::new();
static WEBHOOK: OnceLock<Result<PathBuf, String>> = OnceLock::new();
static IMAGE_BINARY: OnceCell<PathBuf> = OnceCell::const_new();

/// The drainer: the binary that `DRAINER` names, or else one built now, so that no test runs an outdated one.
///
/// # Errors
/// When it does not build.
pub fn drainer() -> Result<PathBuf> {
    find_or_build(&DRAINER, "DRAINER", &["--bin", "drainer"])
}

/// The drainer with the profile of its image, for tests that measure it: the binary that `DRAINER` names, or else one
/// built now.
///
/// # Errors
/// When it does not build.
pub fn optimized_drainer() -> Result<PathBuf> {
    find_or_build(
        &OPTIMIZED_DRAINER,
        "DRAINER",
        &["--package", "drainer", "--profile", "small"],
    )
}

/// The drainer as in its image: the binary that `DRAINER` names, or else the one that `make drainer` has built for this
/// machine.
///
/// # Errors
/// When there is none.
pub fn drainer_of_image() -> Result<PathBuf> {
    let program = binary_from_env("DRAINER").unwrap_or_else(|| {
        let target = format!("../target/{}-unknown-linux-musl", env::consts::ARCH);
        let target = Path::new(env!("CARGO_MANIFEST_DIR")).join(target);
        target.join("small/drainer")
    });
    let found = program.canonicalize();
    found.with_context(|| format!("{}: run `make drainer`", program.display()))
}

/// The programs for the pods of the end-to-end tests: the binary that `POD_TOOLS` names, or else one built now.
///
/// # Errors
/// When it does not build.
pub fn pod_tools() -> Result<PathBuf> {
    find_or_build(&POD_TOOLS, "POD_TOOLS", &["--bin", "pod-tools"])
}

/// The webhook and its command line: the binary that `ENVOY_DRAINER` names, or else one built now.
///
/// # Errors
/// When it does not build.
pub fn envoy_drainer() -> Result<PathBuf> {
    find_or_build(&WEBHOOK, "ENVOY_DRAINER", &["--bin", "envoy-drainer"])
}

/// The webhook as in its image: the binary that `ENVOY_DRAINER` names, or else one built now with the profile and the
/// C library of the image.
///
/// # Errors
/// When it does not build, or not within half an hour.
pub async fn envoy_drainer_of_image() -> Result<PathBuf> {
    if let Some(path) = binary_from_env("ENVOY_DRAINER") {
        return Ok(path);
    }
    IMAGE_BINARY
        .get_or_try_init(build_image_binary)
        .await
        .cloned()
}

async fn build_image_binary() -> Result<PathBuf> {
    const BUILD: Duration = Duration::from_secs(30 * 60);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let target = format!("{}-unknown-linux-gnu", env::consts::ARCH);
    let mut build = tokio::process::Command::from(without_cargo_env("./.ci/static"));
    build
        .current_dir(&root)
        .args(["webhook", "release", &target])
        .kill_on_drop(true);
    let status = timeout(BUILD, build.status())
        .await
        .with_context(|| format!("building the webhook takes longer than {BUILD:?}"))?
        .context("starting .ci/static")?;
    ensure!(status.success(), "the webhook does not build");
    Ok(root.join(format!("target/{target}/release/envoy-drainer")))
}

fn find_or_build(
    once: &OnceLock<Result<PathBuf, String>>,
    variable: &str,
    target: &[&str],
) -> Result<PathBuf> {
    once.get_or_init(|| match binary_from_env(variable) {
        Some(path) => Ok(path),
        None => build(target).map_err(|error| format!("{error:#}")),
    })
    .clone()
    .map_err(|error| anyhow!(error))
}

/// The binary that an environment variable names.
fn binary_from_env(variable: &str) -> Option<PathBuf> {
    let path = env::var_os(variable).filter(|path| !path.is_empty());
    path.map(PathBuf::from)
}

/// A build command without the environment of the cargo that runs this process.
fn without_cargo_env(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    // These describe the package under test, and would make build scripts that read them run again.
    let is_cargos =
        |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(is_cargos) {
            command.env_remove(name);
        }
    }
    command
}

fn build(target: &[&str]) -> Result<PathBuf> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = without_cargo_env(cargo)
        // In the root of the workspace, as `make` builds, so that what is built already is used.
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .args(["build", "--locked", "--quiet", "--message-format=json"])
        .args(target)
        .stderr(Stdio::inherit())
        .output()
        .context("starting cargo")?;
    ensure!(output.status.success(), "{target:?} does not build");
    output
        .stdout
        .split(|byte| *byte == b'\n')
        .filter_map(|line| serde_json::from_slice::<Value>(line).ok())
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .with_context(|| format!("cargo reported no executable for {target:?}"))
}
