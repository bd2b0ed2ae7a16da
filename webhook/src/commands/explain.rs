//! `envoy-drainer explain`: what would become of the pods in manifests, and why.

use std::process::ExitCode;

/// The flags of `explain`.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// x
pub fn run(_: Args) -> anyhow::Result<ExitCode> {
    Ok(ExitCode::SUCCESS)
}
