//! `envoy-drainer`: the admission webhook and its command line.

use std::process::ExitCode;

use clap::Parser;
use webhook::args::{Args, Command};
use webhook::commands::serve;

fn main() -> ExitCode {
    let done = match Args::parse().command {
        Command::Serve(args) => serve::run(*args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
