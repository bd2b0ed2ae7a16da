//! `envoy-drainer`: the admission webhook and its command line.

use std::process::ExitCode;

use ctl::cli::Cli;
use webhook::serve;

fn main() -> ExitCode {
    Cli::parse_args().command.run(serve::run)
}
