//! `envoy-drainer`: the admission webhook and its command line.

use std::process::ExitCode;

use clap::Parser;
use ctl::cli::Cli;
use webhook::serve;

fn main() -> ExitCode {
    Cli::parse().command.run(serve::run)
}
