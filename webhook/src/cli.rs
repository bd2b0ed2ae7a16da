//! The command line: `serve`, and the subcommands of the other crates.

mod completions;
#[cfg(not(feature = "drill"))]
mod drill_stub;

use std::env;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Arg, CommandFactory, FromArgMatches, Parser, Subcommand};
use ctl::cli::terminal::report_error;
use ctl::runtime::block_on;
use ctl::signals::Signals;
#[cfg(feature = "drill")]
use drill::cli as drill_cli;
use flags::serve::Args;

#[cfg(not(feature = "drill"))]
use self::drill_stub as drill_cli;
use crate::serve;

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
    Serve(Box<Args>),
    #[command(flatten)]
    Ctl(ctl::cli::Command),
    #[command(flatten)]
    Drill(drill_cli::Command),
    /// Print a script that completes commands and flags in a shell.
    Completions(completions::CompletionsArgs),
    /// Write manual pages into a folder.
    Man(completions::ManArgs),
}

/// Gives a flag its environment variable: `ENVOY_DRAINER_DRAIN_DELAY` for `--drain-delay`.
fn with_variable(arg: Arg) -> Arg {
    let Some(name) = arg.get_long() else {
        return arg;
    };
    let variable = format!(
        "ENVOY_DRAINER_{}",
        name.replace('-', "_").to_ascii_uppercase()
    );
    arg.env(variable).hide_env(true)
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
    /// Runs the subcommand, reports its error, and returns its exit code.
    pub fn run(self) -> ExitCode {
        // What `serve` quotes is its own: flags, and a kubeconfig with the lines around a mistake.
        let keeps_lines = matches!(self, Self::Serve(_));
        let result = match self {
            // One thread for admissions: each takes microseconds, and one core answers about ten thousand per second,
            // more than API servers send. More threads would cost memory on nodes of any size.
            Self::Serve(args) => block_on(run_server(*args)),
            Self::Ctl(command) => command.run(),
            Self::Drill(command) => command.run(),
            Self::Completions(args) => completions::run(&args, Cli::command()),
            Self::Man(args) => completions::write_man_pages(&args, Cli::command()),
        };
        report_error(result, keeps_lines)
    }
}

/// Serves the webhook until it gets a signal.
async fn run_server(args: Args) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::install().context("cannot handle signals")?;
    serve::run(args, async || signals.next().await).await?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
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
