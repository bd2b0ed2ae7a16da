//! Runs command-line programs.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tempfile::NamedTempFile;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// More than any call takes: those that wait for something have a shorter `--timeout`.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(20 * 60);

/// The result of a program.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    /// Its exit status.
    pub(crate) status: ExitStatus,
    /// Its stdout.
    pub(crate) stdout: String,
    /// Its stderr, which has the API server's warnings if it is kubectl.
    pub(crate) stderr: String,
}

/// The JSON documents that a program prints until this is dropped.
#[derive(Debug)]
pub(crate) struct JsonStream {
    output: NamedTempFile,
    _program: Child,
}

/// Runs a program until it exits, with a JSON document on stdin if there is one.
///
/// # Errors
/// If it cannot be started, exceeds [`COMMAND_TIMEOUT`], or fails: with its stderr.
pub(crate) async fn run(
    program: &OsStr,
    args: &[&str],
    stdin: Option<&Value>,
) -> Result<CommandOutput> {
    let output = run_unchecked(program, args, stdin).await?;
    if !output.status.success() {
        bail!("{}: {}", command_line(program, args), output.stderr.trim());
    }
    Ok(output)
}

/// Runs a program until it exits, with whatever status.
///
/// # Errors
/// If it cannot be started or exceeds [`COMMAND_TIMEOUT`].
pub(crate) async fn run_unchecked(
    program: &OsStr,
    args: &[&str],
    stdin: Option<&Value>,
) -> Result<CommandOutput> {
    let context = || command_line(program, args);
    let mut command = command(program, args);
    command.stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(context)?;
    let mut pipe = child.stdin.take().context("stdin is piped")?;
    if let Some(document) = stdin {
        pipe.write_all(document.to_string().as_bytes()).await?;
    }
    drop(pipe);
    let output = timeout(COMMAND_TIMEOUT, child.wait_with_output()).await;
    let output = output.with_context(context)?.with_context(context)?;
    Ok(CommandOutput {
        status: output.status,
        stdout: String::from_utf8(output.stdout)?,
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

fn command_line(program: &OsStr, args: &[&str]) -> String {
    format!("{} {}", program.display(), args.join(" "))
}

/// Starts a program that runs until the result is dropped, and writes to `stdout`.
pub(crate) fn start(program: &OsStr, args: &[&str], stdout: Stdio) -> Result<Child> {
    let mut command = command(program, args);
    command.stdin(Stdio::null()).stdout(stdout);
    let child = command.spawn();
    child.with_context(|| format!("starting {}", program.display()))
}

/// Creates a command that is killed when its handle is dropped.
///
/// It has its own process group, so that Ctrl-C in a terminal interrupts only this process, which needs
/// such programs for the clean-up.
fn command(program: &OsStr, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args).process_group(0).kill_on_drop(true);
    command
}

// === impl JsonStream ===

impl JsonStream {
    /// Starts the program.
    pub(crate) fn start(program: &OsStr, args: &[&str]) -> Result<Self> {
        let output = NamedTempFile::new()?;
        let stdout = File::create(output.path())?.into();
        Ok(Self {
            output,
            _program: start(program, args, stdout)?,
        })
    }

    /// Returns the documents so far.
    pub(crate) fn documents(&self) -> Result<Vec<Value>> {
        let text = fs::read_to_string(self.output.path())?;
        // The last one may be incomplete.
        let documents = serde_json::Deserializer::from_str(&text).into_iter();
        Ok(documents.map_while(Result::ok).collect())
    }
}
