//! The command line: one file for each subcommand, and the flags they share.

pub mod args;
pub mod check;
pub mod drains;
pub mod explain;
pub mod inject;
pub mod installation;
pub mod lint;
pub mod object_arg;
pub mod terminal;
pub mod version;

use std::process::ExitCode;

use clap::Subcommand;

use crate::runtime::block_on;

/// The subcommands but for those of the program's other crates.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Inject drainers into the pods of manifests, offline.
    Inject(Box<inject::Args>),
    /// Explain what the webhook would do with pods of manifests, or of a cluster, and why.
    Explain(Box<explain::Args>),
    /// Check whether an installation works, with a remedy for each problem.
    Check(Box<check::Args>),
    /// Show the drains of pods, with their outcomes and what they cut.
    Drains(Box<drains::Args>),
    /// Find preStop hooks that do not drain Envoy as they seem to.
    Lint(Box<lint::Args>),
    /// Show the versions of this program and of the installation.
    Version(Box<version::Args>),
}

// === impl Command ===

impl Command {
    /// Runs the subcommand, and returns its exit code.
    ///
    /// # Errors
    /// What the caller reports.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Inject(args) => inject::run(*args),
            Self::Explain(args) => explain::run(*args),
            Self::Check(args) => block_on(check::run(&args)),
            Self::Drains(args) => block_on(drains::run(*args)),
            Self::Lint(args) => lint::run(*args),
            Self::Version(args) => block_on(version::run(*args)),
        }
    }
}
