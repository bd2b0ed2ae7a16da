//! Output of the command line: the only place that writes to stdout and stderr.

use std::io::{self, ErrorKind, Write};
use std::ops::ControlFlow;
use std::process::ExitCode;

use anyhow::Context;
use flags::pod_defaults::InvalidDefaults;
use kubernetes::ReadError;

use crate::text::PrintableText;

/// clap's exit code for invalid flags.
const USAGE_ERROR: u8 = 2;

/// The exit code where something is unknown, or cannot be read.
pub const UNKNOWN: u8 = 3;

/// An error of the flags that clap does not find: flags that need each other.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);

/// Returns 1 if a command found what it looks for, or has failed, or else 3 if something is unknown, or else 0.
pub fn exit_status(has_finding: bool, is_complete: bool) -> ExitCode {
    let of_rest = if is_complete { 0 } else { UNKNOWN };
    ExitCode::from(if has_finding { 1 } else { of_rest })
}

/// Reports an error after which a command goes on.
pub fn warn(error: &ReadError) {
    report(format_args!("warning: {error}"));
}

/// Reports the error of a command, which may quote a cluster or a file, and returns its exit code. The lines of an
/// error stay only where it quotes nothing foreign, since a foreign one could look like another error.
pub fn report_error(result: anyhow::Result<ExitCode>, keeps_lines: bool) -> ExitCode {
    result.unwrap_or_else(|error| {
        let text = format!("error: {error:#}");
        if keeps_lines {
            text.lines().for_each(report);
        } else {
            report(text);
        }
        if error.is::<InvalidDefaults>() || error.is::<UsageError>() {
            ExitCode::from(USAGE_ERROR)
        } else if keeps_lines {
            // Of `serve`, which has nothing to find.
            ExitCode::FAILURE
        } else {
            ExitCode::from(UNKNOWN)
        }
    })
}

/// Writes a line to stderr. If that is closed, the command goes on: `drill` has changes to take back.
pub fn report(line: impl Into<PrintableText>) {
    let _ = writeln!(io::stderr(), "{}", &*line.into());
}

/// Writes a question to stderr, whose answer follows on its line.
pub fn ask(question: &str) {
    let _ = write!(io::stderr(), "{question}");
}

/// Writes to stdout. Breaks if the pipe is closed, which is no error, so that no one reads what follows.
pub fn print(text: &PrintableText) -> anyhow::Result<ControlFlow<()>> {
    print_documents(text.as_bytes())
}

/// Writes documents for programs to stdout, as they are.
pub fn print_documents(bytes: &[u8]) -> anyhow::Result<ControlFlow<()>> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(ControlFlow::Continue(())),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(ControlFlow::Break(())),
        Err(error) => Err(error).context("cannot write to stdout"),
    }
}
