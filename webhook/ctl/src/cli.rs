//! The command line: one file for each subcommand, and the flags they share.

pub mod args;
pub mod check;
pub mod drains;
#[cfg(feature = "drill")]
pub mod drill;
pub mod explain;
pub mod inject;
pub mod installation;
#[cfg(feature = "drill")]
pub mod load;
pub mod serve;
mod terminal;

use std::process::ExitCode;

use anyhow::Context;
use clap::{Parser, Subcommand};
use tokio::runtime;

use self::args::with_variable;
use self::terminal::report_error;

/// Drains any Envoy before its pod terminates.
#[derive(Debug, Parser)]
#[command(name = "envoy-drainer", version, mut_subcommands(|command| command.mut_args(with_variable)))]
pub struct Cli {
    /// The subcommand.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serves the admission webhook.
    Serve(Box<serve::Args>),
    /// Injects drainers into the pods of manifests, offline.
    Inject(Box<inject::Args>),
    /// Explains what the webhook would do with pods of manifests, or of a cluster, and why.
    Explain(Box<explain::Args>),
    /// Checks whether an installation works, with a remedy for each problem.
    Check(Box<check::Args>),
    /// Shows the drains of pods, with their outcomes and what they cut.
    Drains(Box<drains::Args>),
    /// Disrupts pods under load, and reports what was lost.
    #[cfg(feature = "drill")]
    Drill(Box<drill::Args>),
    /// Sends the requests of `drill`, in the pod of its Job.
    #[cfg(feature = "drill")]
    #[command(hide = true)]
    Load(Box<load::Args>),
}

// === impl Command ===

impl Command {
    /// Runs the subcommand, reports its error, and returns its exit code. The caller implements `serve`.
    pub fn run(self, serve: impl AsyncFnOnce(serve::Args) -> anyhow::Result<()>) -> ExitCode {
        // What `serve` quotes is its own: flags, and a kubeconfig with the lines around a mistake.
        let keeps_lines = matches!(self, Self::Serve(_));
        let result = match self {
            // One thread for admissions: each takes microseconds, and one core answers about ten thousand per second,
            // more than API servers send. More threads would cost memory on nodes of any size.
            Self::Serve(args) => block_on(serve(*args)).map(|()| ExitCode::SUCCESS),
            Self::Inject(args) => inject::run(*args),
            Self::Explain(args) => explain::run(*args),
            Self::Check(args) => check::run(*args),
            Self::Drains(args) => block_on(drains::run(*args)),
            #[cfg(feature = "drill")]
            Self::Drill(args) => block_on(drill::run(*args)),
            #[cfg(feature = "drill")]
            Self::Load(args) => block_on(load::run(*args)),
        };
        report_error(result, keeps_lines)
    }
}

/// Runs the calls of a command to a cluster, on this thread.
fn block_on<T>(calls: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start the runtime")?.block_on(calls)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn every_flag_has_a_variable_and_a_help() {
        let mut command = Cli::command();
        command.build();
        for subcommand in command.get_subcommands() {
            for flag in subcommand
                .get_arguments()
                .filter(|arg| !arg.is_positional())
            {
                let Some(name) = flag.get_long().filter(|name| *name != "help") else {
                    continue;
                };
                let variable = format!("ENVOY_DRAINER_{}", name.replace('-', "_").to_uppercase());
                assert_eq!(flag.get_env(), Some(variable.as_ref()), "--{name}");
                assert!(flag.get_help().is_some(), "--{name}");
            }
        }
    }
}
