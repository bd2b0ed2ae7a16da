//! docs/cli.md has the commands of both programs and their flags, as the programs parse them.

use std::path::Path;

use clap::{Arg, Command, CommandFactory, Subcommand};
use tests::golden;
use webhook::cli::Cli;

#[test]
fn page_has_every_command_and_flag() {
    let mut program = Cli::command().disable_help_subcommand(true);
    // Without the feature of this name, the program has another command in its place.
    let mut drill = drill::cli::Command::augment_subcommands(Command::new("envoy-drainer"));
    program.build();
    drill.build();
    let drill = drill.find_subcommand("drill");
    let commands = program.get_subcommands().filter(|it| !it.is_hide_set());
    let commands = commands.filter(|it| it.get_name() != "drill").chain(drill);
    let mut table = "| command | flags |\n| --- | --- |\n".to_owned();
    for command in commands {
        let (name, about) = (command.get_name(), command.get_about().unwrap());
        // The defaults for pods, which `inject` and `explain` share, have a heading.
        let is_shared = |it: &Arg| name != "serve" && it.get_help_heading().is_some();
        let flags = command.get_arguments();
        let flags = flags.filter(|it| !it.is_hide_set() && it.get_id() != "help" && !is_shared(it));
        let flags = flags.map(flag).collect::<Vec<_>>().join("<br>");
        table += &format!("| **`{name}`**<br>{about} | {flags} |\n");
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/cli.md");
    golden::check_section(&path, "envoy-drainer", &table);
    let help = format!("```text\n{}```\n", drainer::help());
    golden::check_section(&path, "drainer", &help);
}

/// A flag with its meaning, its default and the possible values.
fn flag(flag: &Arg) -> String {
    let short = flag.get_short().map(|it| format!("`-{it}`, "));
    let (short, help) = (short.unwrap_or_default(), flag.get_help().unwrap());
    let mut text = format!("{short}`{flag}`: {help}").replace('|', r"\|");
    if flag.get_action().takes_values() && !flag.is_hide_default_value_set() {
        let defaults = flag.get_default_values().iter();
        text.extend(defaults.map(|it| format!(" [default: {}]", it.display())));
        let possible = flag.get_possible_values();
        let possible: Vec<_> = possible.iter().map(|it| it.get_name()).collect();
        text += &format!(" [{}]", possible.join(", ")).replace(" []", "");
    }
    text
}
