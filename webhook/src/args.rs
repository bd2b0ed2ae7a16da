//! The command line: a subcommand a file in `commands`, and the groups of flags they share.

pub mod defaults;
pub mod logs;
pub mod tls;
pub(crate) mod written;

use clap::{Parser, Subcommand};

use crate::commands::serve;

/// Gives any Envoy pod a graceful end.
#[derive(Debug, Parser)]
#[command(name = "envoy-drainer", version)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serves the admission webhook.
    Serve(Box<serve::Args>),
}
