//! The command line: one file for each subcommand, and the flags they share.

pub mod args;
pub mod check;
pub mod completions;
pub mod drains;
#[cfg(feature = "drill")]
pub mod drill;
pub mod explain;
pub mod inject;
pub mod installation;
pub mod lint;
#[cfg(feature = "drill")]
pub mod load;
pub mod serve;
mod terminal;

use std::env;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use tokio::runtime;

use self::args::with_variable;
use self::terminal::report_error;

/// The name of the program.
const NAME: &str = "envoy-drainer";

/// The name with which kubectl finds the program as its plugin.
/// <https://kubernetes.io/docs/tasks/extend-kubectl/kubectl-plugins/>
const PLUGIN: &str = "kubectl-envoy_drainer";

/// The text below the subcommands in `--help`.
const HELP: &str = "\
Each flag can be set by an environment variable too: --drain-timeout by ENVOY_DRAINER_DRAIN_TIMEOUT.

If it is in the PATH as kubectl-envoy_drainer, kubectl runs it as `kubectl envoy-drainer`.";

/// Drain any Envoy before its pod terminates.
#[derive(Debug, Parser)]
#[command(name = NAME, version, after_help = HELP)]
#[command(mut_subcommands(|command| command.mut_args(with_variable)))]
pub struct Cli {
    /// The subcommand.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve the admission webhook.
    Serve(Box<serve::Args>),
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
    /// Disrupt pods under load, and report what was lost.
    #[cfg(feature = "drill")]
    Drill(Box<drill::Args>),
    /// Send the requests of `drill`, in the pod of its Job.
    #[cfg(feature = "drill")]
    #[command(hide = true)]
    Load(Box<load::Args>),
    /// Print a script that completes commands and flags in a shell.
    Completions(completions::CompletionsArgs),
    /// Write manual pages into a folder.
    Man(completions::ManArgs),
}

// === impl Cli ===

impl Cli {
    /// Parses the arguments of the process, and exits if they are invalid or ask for help.
    pub fn parse_args() -> Self {
        let mut args = env::args_os().peekable();
        let program = args.peek().map(Path::new).and_then(Path::file_stem);
        let is_plugin = program.is_some_and(|name| name == PLUGIN);
        let command = if is_plugin {
            let usage = format!("kubectl {NAME}");
            // clap would use the name of the file.
            Self::command().no_binary_name(true).bin_name(usage)
        } else {
            Self::command()
        };
        let matches = command.get_matches_from(args.skip(usize::from(is_plugin)));
        Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
    }
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
            Self::Lint(args) => lint::run(*args),
            #[cfg(feature = "drill")]
            Self::Drill(args) => block_on(drill::run(*args)),
            #[cfg(feature = "drill")]
            Self::Load(args) => block_on(load::run(*args)),
            Self::Completions(args) => completions::run(&args),
            Self::Man(args) => completions::write_man_pages(&args),
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
