//! The subcommands.

use std::process::ExitCode;

use clap::Subcommand;
use ctl::runtime::block_on;

use crate::{drill_command, load_command};

/// The subcommands of this crate.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Disrupt pods under load, and report what was lost.
    Drill(Box<drill_command::Args>),
    /// Send the requests of `drill`, in the pod of its Job.
    #[command(hide = true)]
    Load(Box<load_command::Args>),
}

// === impl Command ===

impl Command {
    /// Runs the subcommand, and returns its exit code.
    ///
    /// # Errors
    /// What the caller reports.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        block_on(async {
            match self {
                Self::Drill(args) => drill_command::run(*args).await,
                Self::Load(args) => load_command::run(*args).await,
            }
        })
    }
}
