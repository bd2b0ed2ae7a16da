//! Runs kubectl, with the cluster of `KUBECONFIG`.

use std::ffi::OsStr;
use std::process::Stdio;

use anyhow::Result;
use serde_json::Value;
use tokio::process::Child;

use crate::command::{self, CommandOutput};

/// The program.
pub(crate) const KUBECTL: &str = "kubectl";

/// Runs `kubectl` with arguments, and returns its stdout.
///
/// # Errors
/// If it fails, with its stderr.
pub(crate) async fn kubectl(args: &[&str]) -> Result<String> {
    Ok(run_kubectl(args, None).await?.stdout)
}

/// Applies an object: creates or updates it.
///
/// # Errors
/// If the API server rejects it, with its message.
pub(crate) async fn apply(object: &Value) -> Result<CommandOutput> {
    run_kubectl(&["apply", "--filename", "-"], Some(object)).await
}

/// Applies an object with server-side apply, as the account of the flag `account`.
///
/// # Errors
/// If the API server rejects it, with its message.
pub(crate) async fn apply_as(object: &Value, account: &str) -> Result<CommandOutput> {
    // An account without other permissions cannot read the schemas for the validation.
    let flags = ["--server-side", "--validate=false", account];
    let apply = [&["apply", "--filename", "-"][..], &flags].concat();
    run_kubectl(&apply, Some(object)).await
}

/// Creates an object as a server-side dry run, and returns the admitted object as JSON.
///
/// # Errors
/// If the API server rejects it, with its message.
pub(crate) async fn dry_run(object: &Value) -> Result<CommandOutput> {
    let create = [
        "create",
        "--dry-run=server",
        "--output=json",
        "--filename=-",
    ];
    run_kubectl(&create, Some(object)).await
}

/// Posts an object to a path of the API.
///
/// # Errors
/// If the API server rejects it, with its message.
pub(crate) async fn post(path: &str, object: &Value) -> Result<CommandOutput> {
    run_kubectl(&["create", "--raw", path, "--filename", "-"], Some(object)).await
}

/// Runs `kubectl` with arguments, and parses its JSON output.
///
/// # Errors
/// If it fails, with its stderr.
pub(crate) async fn json(args: &[&str]) -> Result<Value> {
    let args = [args, &["--output", "json"]].concat();
    Ok(serde_json::from_str(&kubectl(&args).await?)?)
}

/// Starts a `kubectl` that runs until the result is dropped.
pub(crate) fn start(args: &[&str], stdout: Stdio) -> Result<Child> {
    command::start(OsStr::new(KUBECTL), args, stdout)
}

async fn run_kubectl(args: &[&str], stdin: Option<&Value>) -> Result<CommandOutput> {
    command::run(OsStr::new(KUBECTL), args, stdin).await
}
