//! Other programs, run as a person would run them.

use std::ffi::OsStr;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// More than any call takes here; those that wait for something are told how long by a flag.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(300);

/// What came of a program.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    /// How it ended.
    pub(crate) status: ExitStatus,
    /// On stdout.
    pub(crate) stdout: String,
    /// On stderr, where kubectl writes what the API server warns of.
    pub(crate) stderr: String,
}

/// Runs a program to its end, with a document on its stdin if there is one.
///
/// # Errors
/// When it cannot be started, fails, or does not end; with what it says.
pub(crate) async fn run(
    program: &OsStr,
    args: &[&str],
    stdin: Option<&Value>,
) -> Result<CommandOutput> {
    let told = run_unchecked(program, args, stdin).await?;
    if !told.status.success() {
        bail!("{}: {}", command_line(program, args), told.stderr.trim());
    }
    Ok(told)
}

/// The same, however it ends.
///
/// # Errors
/// When it cannot be started, or does not end.
pub(crate) async fn run_unchecked(
    program: &OsStr,
    args: &[&str],
    stdin: Option<&Value>,
) -> Result<CommandOutput> {
    let what = || command_line(program, args);
    let mut command = command(program, args);
    command.stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(what)?;
    let mut pipe = child.stdin.take().context("it was piped")?;
    if let Some(document) = stdin {
        pipe.write_all(document.to_string().as_bytes()).await?;
    }
    drop(pipe);
    let output = timeout(COMMAND_TIMEOUT, child.wait_with_output()).await;
    let output = output.with_context(what)?.with_context(what)?;
    let warnings = String::from_utf8_lossy(&output.stderr).into_owned();
    Ok(CommandOutput {
        status: output.status,
        stdout: String::from_utf8(output.stdout)?,
        stderr: warnings,
    })
}

fn command_line(program: &OsStr, args: &[&str]) -> String {
    format!("{} {}", program.display(), args.join(" "))
}

/// Starts a program that goes on until the result is dropped; its stdout goes there.
///
/// # Errors
/// When it cannot be started.
pub(crate) fn start(program: &OsStr, args: &[&str], stdout: Stdio) -> Result<Child> {
    let mut command = command(program, args);
    command.stdin(Stdio::null()).stdout(stdout);
    let child = command.spawn();
    child.with_context(|| format!("starting {}", program.display()))
}

/// A program that does not outlive its handle.
///
/// It is in a process group of its own: an interrupt from the terminal is this process's alone, which
/// then needs such programs to clean up.
fn command(program: &OsStr, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args).process_group(0).kill_on_drop(true);
    command
}
