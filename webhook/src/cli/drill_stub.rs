//! `envoy-drainer drill` in a build without the feature `drill`.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Subcommand;
use ctl::cli::terminal::UsageError;

/// The subcommands in place of those of the crate `drill`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Disrupt pods under load, and report what was lost. Not in this build.
    #[command(disable_help_flag = true)]
    Drill {
        #[arg(hide = true, allow_hyphen_values = true, trailing_var_arg = true)]
        args: Vec<OsString>,
    },
}

// === impl Command ===

impl Command {
    /// Says how to get the subcommand.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let text = "this build has no `drill`: build the program with `cargo build --release --package webhook`";
        Err(UsageError(text.to_owned()).into())
    }
}
