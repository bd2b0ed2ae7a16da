//! `envoy-drainer`: the admission webhook and its command line.

use std::process::ExitCode;

use webhook::cli::Cli;

fn main() -> ExitCode {
    Cli::parse_args().command.run()
}
