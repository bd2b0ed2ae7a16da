//! `envoy-drainer`: the admission webhook and its command line.

use std::process::ExitCode;

use clap::Parser;
use ctl::cli::args::pod_defaults::InvalidDefaults;
use ctl::cli::{Cli, Command, check, drains, explain, inject};
use webhook::serve;

/// clap's exit code for invalid flags.
const USAGE_ERROR: u8 = 2;

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Serve(args) => serve::run(*args).map(|()| ExitCode::SUCCESS),
        Command::Inject(args) => inject::run(*args),
        Command::Explain(args) => explain::run(*args),
        Command::Check(args) => check::run(*args),
        Command::Drains(args) => drains::run(*args),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            match error.is::<InvalidDefaults>() {
                true => ExitCode::from(USAGE_ERROR),
                false => ExitCode::FAILURE,
            }
        }
    }
}
