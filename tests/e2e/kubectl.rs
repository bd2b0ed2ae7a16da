//! kubectl, as a person would call it: KUBECONFIG says where.

use std::ffi::OsStr;
use std::process::Stdio;

use anyhow::Result;
use serde_json::Value;
use tokio::process::Child;

use crate::command::{self, CommandOutput};

const KUBECTL: &str = "kubectl";

/// Runs `kubectl` with these words, and returns what it prints.
///
/// # Errors
/// When it fails, with what it says.
pub(crate) async fn kubectl(args: &[&str]) -> Result<String> {
    Ok(run_kubectl(args, None).await?.stdout)
}

/// Creates this object, or changes it into this.
///
/// # Errors
/// When the API server refuses it, with what it says.
pub(crate) async fn apply(object: &Value) -> Result<CommandOutput> {
    run_kubectl(&["apply", "--filename", "-"], Some(object)).await
}

/// Creates this object. Unlike `apply`, it copies nothing of it into an annotation, which may hold 256 KiB.
///
/// # Errors
/// When the API server refuses it, with what it says.
pub(crate) async fn create(object: &Value) -> Result<CommandOutput> {
    run_kubectl(
        &["create", "--validate=false", "--filename=-"],
        Some(object),
    )
    .await
}

/// Does so by server-side apply, acting as the account of this flag.
///
/// # Errors
/// When the API server refuses it, with what it says.
pub(crate) async fn apply_as(object: &Value, account: &str) -> Result<CommandOutput> {
    // An account without further rights cannot read the schemas.
    let how = ["--server-side", "--validate=false", account];
    let apply = [&["apply", "--filename", "-"][..], &how].concat();
    run_kubectl(&apply, Some(object)).await
}

/// Has the API server admit an object that it does not keep, and returns what it would be, as JSON.
///
/// # Errors
/// When the API server refuses it, with what it says.
pub(crate) async fn dry_run(object: &Value) -> Result<CommandOutput> {
    let create = [
        "create",
        "--dry-run=server",
        "--output=json",
        "--filename=-",
    ];
    run_kubectl(&create, Some(object)).await
}

/// Posts this object to a path of the API.
///
/// # Errors
/// When the API server refuses it, with what it says.
pub(crate) async fn post(path: &str, object: &Value) -> Result<CommandOutput> {
    run_kubectl(&["create", "--raw", path, "--filename", "-"], Some(object)).await
}

/// Runs `kubectl` with these words and reads the JSON that it prints.
///
/// # Errors
/// When it fails, with what it says.
pub(crate) async fn json(args: &[&str]) -> Result<Value> {
    let args = [args, &["--output", "json"]].concat();
    Ok(serde_json::from_str(&kubectl(&args).await?)?)
}

/// Starts a `kubectl` that goes on until it is dropped.
///
/// # Errors
/// When it cannot be started.
pub(crate) fn start(args: &[&str], stdout: Stdio) -> Result<Child> {
    command::start(OsStr::new(KUBECTL), args, stdout)
}

async fn run_kubectl(args: &[&str], stdin: Option<&Value>) -> Result<CommandOutput> {
    command::run(OsStr::new(KUBECTL), args, stdin).await
}
