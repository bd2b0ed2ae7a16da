//! The command line: a subcommand a file in `commands`, and the groups of flags they share.

pub mod color;
pub mod defaults;
pub mod files;
pub mod logs;
pub mod tls;
pub(crate) mod written;

use clap::{Parser, Subcommand};

use crate::commands::{explain, inject, serve};

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
    /// Gives the pods in manifests their drainers, offline.
    Inject(Box<inject::Args>),
    /// Tells what would become of the pods in manifests, and why.
    Explain(Box<explain::Args>),
}
