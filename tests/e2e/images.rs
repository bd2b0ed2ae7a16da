//! The images that run in the cluster.

use std::env;
use std::ffi::OsStr;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::command;

/// The sidecar by another name, as a later version would have one, and the load's program beside it.
pub(crate) const NEXT_DRAINER_IMAGE: &str =
    concat!("localhost/next-drainer:", env!("CARGO_PKG_VERSION"));

/// The load's.
pub(crate) const LOAD_IMAGE: &str =
    concat!("localhost/envoy-drainer-load:", env!("CARGO_PKG_VERSION"));

/// The newest Envoy: the last image that `E2E_ENVOY_IMAGE` names.
///
/// # Errors
/// When it is not set.
pub(crate) fn newest_envoy() -> Result<String> {
    envoys()?.pop().context("E2E_ENVOY_IMAGE names none")
}

/// The oldest Envoy: the first image that `E2E_ENVOY_IMAGE` names, which may be the only one.
///
/// # Errors
/// When it is not set.
pub(crate) fn oldest_envoy() -> Result<String> {
    Ok(envoys()?.swap_remove(0))
}

/// All of them.
///
/// # Errors
/// When none is named.
pub(crate) fn envoys() -> Result<Vec<String>> {
    let what = "images of Envoy that the cluster has or can pull, the oldest first";
    let images = env_var("E2E_ENVOY_IMAGE", what)?;
    Ok(images.split_whitespace().map(str::to_owned).collect())
}

/// An image of fortio, as `E2E_BACKEND_IMAGE` names it.
///
/// # Errors
/// When it is not set.
pub(crate) fn backend() -> Result<String> {
    env_var("E2E_BACKEND_IMAGE", "an image of fortio, the echo server")
}

/// The command that puts an image archive into the cluster, as `E2E_LOAD` holds it.
///
/// # Errors
/// When it is not set.
pub(crate) fn load_command() -> Result<String> {
    let what = "a command that loads an image archive, such as `kind load image-archive`";
    env_var("E2E_LOAD", what)
}

/// Puts the images that `make e2e` has packed into the cluster.
///
/// # Errors
/// When one is not there, or cannot be loaded.
pub(crate) async fn load_images() -> Result<()> {
    let script = format!("{} \"$1\"", load_command()?);
    let archives = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/images");
    for name in [
        "envoy-drainer",
        "drainer",
        "next-drainer",
        "envoy-drainer-load",
    ] {
        let archive = archives.join(name).with_extension("tar");
        ensure!(archive.is_file(), "{} is not there", archive.display());
        let archive = archive.to_str().context("the archive's path is text")?;
        command::run(OsStr::new("sh"), &["-c", &script, "sh", archive], None).await?;
    }
    Ok(())
}

fn env_var(name: &str, what: &str) -> Result<String> {
    let value = env::var(name).ok().filter(|value| !value.trim().is_empty());
    value.with_context(|| format!("{name} is not set: {what}"))
}
