//! The subcommands, one a file.

pub mod check;
pub mod explain;
pub mod inject;
pub mod serve;
mod sheet;

use std::io::{self, ErrorKind, Write};

use anyhow::Context;

/// Writes to stdout. A reader that has seen enough is no error.
fn print(bytes: &[u8]) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write to stdout"),
    }
}
