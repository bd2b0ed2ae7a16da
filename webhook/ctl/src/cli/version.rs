//! `envoy-drainer version`: the versions of this program and of the installation, and whether they differ.

use std::io;
use std::process::ExitCode;

use super::args::{ClusterArgs, ColorArgs};
use super::installation::find_installation;
use super::terminal::{exit_status, print};
use crate::check::{CheckResult, Section, Severity};

/// The text below the flags in `--help`.
const HELP: &str = "\
Use the program of the installation's version. To list mutatingwebhookconfigurations is the only right that it needs.

Exit codes: 0 the versions are the same; 1 they differ, or there is no installation; 2 invalid usage; 3 the \
installation cannot be read.";

/// The flags of `version`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    color: ColorArgs,
}

/// Prints both versions; that of the program before the cluster is called, which may not respond.
pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let show = |name, results: &[CheckResult]| {
        let section = Section::new(name, results.to_vec());
        print(&section.to_text(args.color.is_enabled_for(&io::stdout())))
    };
    let version = concat!("this program is envoy-drainer ", env!("CARGO_PKG_VERSION"));
    let _ = show("program", &[CheckResult::ok("version", version)])?;
    let reader = args.cluster.connect().await?;
    let results = match find_installation(&reader, None).await {
        Ok(installation) => installation.results(None),
        Err(result) => vec![*result],
    };
    let _ = show("installation", &results)?;
    let has = |severity| results.iter().any(|result| result.severity == severity);
    let differs = has(Severity::Warning) || has(Severity::Error);
    Ok(exit_status(differs, !has(Severity::Unknown)))
}
