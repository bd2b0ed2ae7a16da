//! The images that run in the cluster.

use std::env;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use tokio::process::Command;

/// The sidecar's.
pub(crate) const DRAINER: &str = concat!("localhost/drainer:", env!("CARGO_PKG_VERSION"));

/// The same sidecar by another name, as a later version would have one.
pub(crate) const NEXT_DRAINER: &str = concat!("localhost/next-drainer:", env!("CARGO_PKG_VERSION"));

/// The load's.
pub(crate) const LOAD: &str = concat!("localhost/envoy-drainer-load:", env!("CARGO_PKG_VERSION"));

/// The newest Envoy: the last image that `E2E_ENVOY_IMAGE` names.
///
/// # Errors
/// When it is not set.
pub(crate) fn envoy() -> Result<String> {
    envoys()?.pop().context("E2E_ENVOY_IMAGE names none")
}

/// The oldest Envoy: the first image that `E2E_ENVOY_IMAGE` names, which may be the only one.
///
/// # Errors
/// When it is not set.
pub(crate) fn oldest_envoy() -> Result<String> {
    Ok(envoys()?.swap_remove(0))
}

fn envoys() -> Result<Vec<String>> {
    let images = variable(
        "E2E_ENVOY_IMAGE",
        "images of Envoy that the cluster has or can pull, the oldest first",
    )?;
    Ok(images.split_whitespace().map(str::to_owned).collect())
}

/// An image of fortio, as `E2E_BACKEND_IMAGE` names it.
///
/// # Errors
/// When it is not set.
pub(crate) fn backend() -> Result<String> {
    variable("E2E_BACKEND_IMAGE", "an image of fortio, the echo server")
}

/// Puts the images that `make e2e` has packed into the cluster, by the command
/// that `E2E_LOAD` holds.
///
/// # Errors
/// When it is not set, or fails for one of them.
pub(crate) async fn load() -> Result<()> {
    let command = variable(
        "E2E_LOAD",
        "a command that loads an image archive, such as `kind load image-archive`",
    )?;
    let archives = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/images");
    for name in [
        "envoy-drainer",
        "drainer",
        "next-drainer",
        "envoy-drainer-load",
    ] {
        let archive = archives.join(name).with_extension("tar");
        ensure!(archive.is_file(), "{} is not there", archive.display());
        let status = Command::new("sh")
            .args(["-c", &format!("{command} \"$1\""), "sh"])
            .arg(&archive)
            .status()
            .await?;
        ensure!(status.success(), "`{command} {}` failed", archive.display());
    }
    Ok(())
}

fn variable(name: &str, what: &str) -> Result<String> {
    let value = env::var(name).ok().filter(|value| !value.trim().is_empty());
    value.with_context(|| format!("{name} is not set: {what}"))
}
