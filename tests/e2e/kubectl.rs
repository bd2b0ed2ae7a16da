//! kubectl, as a person would call it: KUBECONFIG says where.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::time::timeout;

/// More than any call takes here; those that wait for something are told how long by `--timeout`.
const LIMIT: Duration = Duration::from_secs(300);

/// Runs `kubectl` with these words, and returns what it prints.
///
/// # Errors
/// When it fails, with what it says.
pub(crate) async fn kubectl(args: &[&str]) -> Result<String> {
    call(args, None).await
}

/// Creates this object, or changes it into this.
///
/// # Errors
/// When the API server refuses it, with what it says.
pub(crate) async fn apply(object: &Value) -> Result<String> {
    call(&["apply", "--filename", "-"], Some(object)).await
}

/// Posts this object to a path of the API.
///
/// # Errors
/// When the API server refuses it, with what it says.
pub(crate) async fn post(path: &str, object: &Value) -> Result<String> {
    call(&["create", "--raw", path, "--filename", "-"], Some(object)).await
}

/// Runs `kubectl` with these words and reads the JSON that it prints.
///
/// # Errors
/// When it fails, with what it says.
pub(crate) async fn json(args: &[&str]) -> Result<Value> {
    let args = [args, &["--output", "json"]].concat();
    Ok(serde_json::from_str(&call(&args, None).await?)?)
}

async fn call(args: &[&str], stdin: Option<&Value>) -> Result<String> {
    let what = || format!("kubectl {}", args.join(" "));
    let mut child = Command::new("kubectl")
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("starting kubectl")?;
    let mut pipe = child.stdin.take().context("it was piped above")?;
    if let Some(object) = stdin {
        pipe.write_all(object.to_string().as_bytes()).await?;
    }
    drop(pipe);
    let output = timeout(LIMIT, child.wait_with_output()).await;
    let output = output.with_context(what)?.with_context(what)?;
    ensure!(
        output.status.success(),
        "{}: {}",
        what(),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(String::from_utf8(output.stdout)?)
}
