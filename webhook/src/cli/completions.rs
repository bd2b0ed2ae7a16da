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
  envoy-drainer completions fish > ~/.config/fish/completions/envoy-drainer.fish
  envoy-drainer completions kubectl > ~/.local/bin/kubectl_complete-envoy_drainer

The last is a program that kubectl runs, from the PATH, to complete `kubectl envoy-drainer` in any shell. It needs bash.";

/// The value for kubectl.
const KUBECTL: &str = "kubectl";

/// What follows bash's script in the program that kubectl runs with the words after its plugin's name, and which prints
/// candidates as Cobra does. Files are left to the shell, which completes them where there is no candidate (`:0`).
/// <https://kubernetes.io/docs/tasks/extend-kubectl/kubectl-plugins/#providing-completions-for-plugins>
const KUBECTL_END: &str = r#"
compopt() { :; }; compgen() { [[ $1 == -f ]] || builtin compgen "$@"; }
COMP_WORDS=(envoy-drainer "$@") COMP_CWORD=$#
_envoy__drainer envoy-drainer "${COMP_WORDS[$#]}" "${COMP_WORDS[$# - 1]}"
printf '%s\n' "${COMPREPLY[@]}" | grep -v -e '^[[<]' -e '^$'
echo :0
"#;

/// The flags of `completions`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct CompletionsArgs {
    /// The shell, or kubectl for the plugin in any shell.
    #[arg(value_parser = ["bash", "elvish", "fish", "powershell", "zsh", KUBECTL])]
    shell: String,
}

/// The flags of `man`.
#[derive(Debug, clap::Args)]
pub struct ManArgs {
    /// The folder to write the pages to; it is created if it does not exist.
    folder: PathBuf,
}

/// Prints a script for a shell.
pub(super) fn run(args: &CompletionsArgs, program: Command) -> anyhow::Result<ExitCode> {
    let _ = print_documents(script(&args.shell, program)?.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn script(shell: &str, mut program: Command) -> anyhow::Result<String> {
    let name = program.get_name().to_owned();
    let generator = shell.parse().unwrap_or(Shell::Bash);
    let mut script = Vec::new();
    clap_complete::generate(generator, &mut program, &*name, &mut script);
    // bash's has two spellings of a name with a hyphen: <https://github.com/clap-rs/clap/issues/6421>.
    let [wrong, right] = ["__subcmd__", "__"].map(|hyphen| name.replace('-', hyphen));
    let script = String::from_utf8(script)?.replace(&wrong, &right);
    let of_kubectl = || format!("#!/usr/bin/env bash\n{script}{KUBECTL_END}");
    Ok((shell == KUBECTL).then(of_kubectl).unwrap_or(script))
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
        let script = script("bash", Cli::command()).unwrap();
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

    /// As kubectl runs it: the last word is the one to complete, and may be empty.
    #[test]
    fn kubectl_completes_its_plugin() {
        let script = script("kubectl", Cli::command()).unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), script).unwrap();
        for (words, want) in [
            (&["che"][..], &["check"][..]),
            (&["check", "--str"], &["--strict"]),
            (&["check", "--output", ""], &["text", "json"]),
            (&["completions", "k"], &["kubectl"]),
            (&["check", "--kubeconfig", ""], &[]),
            (&["no-such-command", "a"], &[]),
        ] {
            let output = process::Command::new("bash")
                .arg(file.path())
                .args(words)
                .output();
            let output = output.unwrap();
            assert_eq!(output.stderr, b"", "{words:?}");
            let printed = String::from_utf8(output.stdout).unwrap();
            let want = [want, &[":0"]].concat();
            assert_eq!(printed.lines().collect::<Vec<_>>(), want, "{words:?}");
        }
        let output = process::Command::new("bash")
            .arg(file.path())
            .arg("")
            .output();
        let printed = String::from_utf8(output.unwrap().stdout).unwrap();
        let lines: Vec<_> = printed.lines().collect();
        assert!(
            lines.contains(&"drill") && lines.contains(&"--help"),
            "{printed}"
        );
        assert!(
            !printed.contains('<') && !printed.contains('['),
            "{printed}"
        );
    }
}
