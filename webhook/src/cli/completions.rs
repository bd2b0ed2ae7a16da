//! `envoy-drainer completions` and `envoy-drainer man`: what shells and `man` know of the command line.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;
use ctl::cli::terminal::print_documents;

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
pub(super) fn run(args: &CompletionsArgs, program: Command) -> anyhow::Result<ExitCode> {
    let _ = print_documents(script(args.shell, program)?.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn script(shell: Shell, mut program: Command) -> anyhow::Result<String> {
    let name = program.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut program, &*name, &mut script);
    // bash's has two spellings of a name with a hyphen: <https://github.com/clap-rs/clap/issues/6421>.
    let [wrong, right] = ["__subcmd__", "__"].map(|hyphen| name.replace('-', hyphen));
    Ok(String::from_utf8(script)?.replace(&wrong, &right))
}

/// Writes a page for the program and for each subcommand.
pub(super) fn write_man_pages(args: &ManArgs, program: Command) -> anyhow::Result<ExitCode> {
    let source = format!("{} {}", program.get_name(), env!("CARGO_PKG_VERSION"));
    // A page has the long help alone, and none of arguments that the short one hides.
    let show = |command: Command| command.mut_args(|arg| arg.hide_short_help(false));
    let mut program = program.disable_help_subcommand(true).mut_subcommands(show);
    program.build();
    let write = || {
        fs::create_dir_all(&args.folder)?;
        let all = program.get_subcommands().filter(|it| !it.is_hide_set());
        all.chain([&program]).try_for_each(|command| {
            let page = Man::new(command.clone()).source(&*source);
            page.generate_to(&args.folder).map(drop)
        })
    };
    write().with_context(|| format!("cannot write to {}", args.folder.display()))?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use std::process;

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
        let page = fs::read_to_string(folder.join(format!("{NAME}-inject.1"))).unwrap();
        let footer = format!("\"{NAME} {}\"", env!("CARGO_PKG_VERSION"));
        assert!(page.contains(&footer), "{page}");
        let undescribed = "[default: 60s]\n\n";
        assert!(!page.contains(undescribed), "{page}");
    }

    #[test]
    fn bash_completes_what_follows_a_subcommand() {
        let script = script(Shell::Bash, Cli::command()).unwrap();
        for (words, want) in [
            (["envoy-drainer", "che"], "check"),
            (["check", "--str"], "--strict"),
            (["inject", "--drain-t"], "--drain-timeout"),
        ] {
            let line = ["envoy-drainer", words[0], words[1]];
            let line = &line[usize::from(words[0] == line[0])..];
            let (count, last) = (line.len() - 1, words[1]);
            let complete = format!(
                "{script}\nCOMP_WORDS=({}) COMP_CWORD={count}\n_envoy__drainer {NAME} {last} {}\n\
                 echo \"${{COMPREPLY[@]}}\"",
                line.join(" "),
                words[0],
            );
            let output = process::Command::new("bash")
                .args(["-c", &complete])
                .output();
            let output = output.unwrap();
            let completions = String::from_utf8(output.stdout).unwrap();
            assert_eq!(completions.trim(), want, "{words:?}");
        }
    }
}
