//! The command line: one file for each subcommand, and the groups of flags they share.

pub mod args;
pub mod check;
pub mod explain;
pub mod inject;
pub mod serve;
mod terminal;

use clap::{Parser, Subcommand};

/// Gives any Envoy pod a graceful end.
#[derive(Debug, Parser)]
#[command(name = "envoy-drainer", version)]
pub struct Cli {
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
    /// Tells whether an installation works, and what to do where it does not.
    Check(Box<check::Args>),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn every_flag_has_its_own_variable_and_its_help() {
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
