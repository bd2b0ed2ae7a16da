//! The container images of the tests.

use std::env;
use std::ffi::OsStr;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::command;

/// The drainer.
pub(crate) const DRAINER_IMAGE: &str = concat!("localhost/drainer:", env!("CARGO_PKG_VERSION"));

/// The drainer under another name, in place of its next version. It contains `pod-tools` too.
pub(crate) const NEXT_DRAINER_IMAGE: &str =
    concat!("localhost/next-drainer:", env!("CARGO_PKG_VERSION"));

/// Programs for the tests' pods, and the shutdown managers of Envoy Gateway and Contour.
pub(crate) const POD_TOOLS_IMAGE: &str = concat!("localhost/pod-tools:", env!("CARGO_PKG_VERSION"));

/// The webhook and its command line, with the load generator.
pub(crate) const WEBHOOK_IMAGE: &str =
    concat!("localhost/envoy-drainer:", env!("CARGO_PKG_VERSION"));

/// Returns the newest Envoy: the last image that `E2E_ENVOY_IMAGE` names.
pub(crate) fn newest_envoy() -> Result<String> {
    envoys()?.pop().context("E2E_ENVOY_IMAGE names no image")
}

/// Returns the oldest Envoy: the first image that `E2E_ENVOY_IMAGE` names, which may be the only one.
pub(crate) fn oldest_envoy() -> Result<String> {
    Ok(envoys()?.swap_remove(0))
}

/// Returns all images that `E2E_ENVOY_IMAGE` names.
pub(crate) fn envoys() -> Result<Vec<String>> {
    let description = "images of Envoy that the cluster has or can pull, the oldest first";
    let images = env_var("E2E_ENVOY_IMAGE", description)?;
    Ok(images.split_whitespace().map(str::to_owned).collect())
}

/// Returns the image of fortio that `E2E_BACKEND_IMAGE` names.
pub(crate) fn backend() -> Result<String> {
    env_var("E2E_BACKEND_IMAGE", "an image of fortio, the echo server")
}

/// Returns the command in `E2E_LOAD`, which loads an image archive into the cluster.
pub(crate) fn load_command() -> Result<String> {
    let description = "a command that loads an image archive, such as `kind load image-archive`";
    env_var("E2E_LOAD", description)
}

/// Loads the images that `make e2e` built into the cluster.
///
/// # Errors
/// If one is missing or cannot be loaded.
pub(crate) async fn load_images() -> Result<()> {
    let script = format!("{} \"$1\"", load_command()?);
    let archives = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/images");
    for name in ["envoy-drainer", "drainer", "next-drainer", "pod-tools"] {
        let archive = archives.join(name).with_extension("tar");
        ensure!(archive.is_file(), "{} does not exist", archive.display());
        let archive = archive
            .to_str()
            .context("the archive's path is not UTF-8")?;
        command::run(OsStr::new("sh"), &["-c", &script, "sh", archive], None).await?;
    }
    Ok(())
}

fn env_var(name: &str, description: &str) -> Result<String> {
    let value = env::var(name).ok().filter(|value| !value.trim().is_empty());
    value.with_context(|| format!("{name} is not set: {description}"))
}
