//! `envoy-drainer completions` and `envoy-drainer man`: what shells and `man` know of the command line.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Command;
use clap_complete::Shell;
use ctl::cli::terminal::{exit_code, print_documents};

/// The text below the flags in `--help`.
const HELP: &str = "\
Examples:
  source <(envoy-drainer completions bash)
  envoy-drainer completions zsh > ~/.zfunc/_envoy-drainer
  envoy-drainer completions fish > ~/.config/fish/completions/envoy-drainer.fish";

/// The flags of `completions`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct CompletionsArgs {
    /// The shell.
    shell: Shell,
}

/// The flags of `man`.
#[derive(Debug, clap::Args)]
pub struct ManArgs {
    /// The folder to write the pages to; it is created if it does not exist.
    folder: PathBuf,
}

/// Prints a script for a shell.
pub(super) fn run(args: &CompletionsArgs, mut program: Command) -> anyhow::Result<ExitCode> {
    let name = program.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut program, name, &mut script);
    let _ = print_documents(&script)?;
    Ok(exit_code(true))
}

/// Writes a page for the program and for each subcommand.
pub(super) fn write_man_pages(args: &ManArgs, program: Command) -> anyhow::Result<ExitCode> {
    let folder = fs::create_dir_all(&args.folder);
    let written = folder.and_then(|()| clap_mangen::generate_to(program, &args.folder));
    written.with_context(|| format!("cannot write to {}", args.folder.display()))?;
    Ok(exit_code(true))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::{Cli, NAME};

    #[test]
    fn manual_has_a_page_for_each_command_in_a_new_folder() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("man/man1");
        let args = ManArgs {
            folder: folder.clone(),
        };
        write_man_pages(&args, Cli::command()).unwrap();
        for command in Cli::command().get_subcommands() {
            let page = folder.join(format!("{NAME}-{}.1", command.get_name()));
            assert_eq!(page.exists(), !command.is_hide_set(), "{page:?}");
        }
    }
}
