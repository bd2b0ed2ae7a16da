//! `envoy-drainer load`: the load of `drill`, in the pod of a Job.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use ctl::cli::terminal::{exit_status, print};
use ctl::signals::Signals;
use ctl::text::PrintableText;
use load::job::{JobLine, LoadJob};
use tokio::time::sleep;

/// How long the program stays after its last line, which `drill` reads in the logs of a pod that is being deleted.
const LINGER: Duration = Duration::from_secs(2);

/// The arguments of `load`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What to send, as JSON.
    #[arg(value_name = "JSON", value_parser = |json: &str| serde_json::from_str::<LoadJob>(json))]
    job: LoadJob,
}

/// Sends requests until SIGTERM, and prints lines of JSON.
pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::install().context("cannot handle signals")?;
    let mut has_ended = false;
    let mut result = Ok(());
    let emit = |line: &JobLine| {
        has_ended = matches!(line, JobLine::Ended(_));
        let mut text = PrintableText::default();
        text.push_json(line);
        let printed = print(&text);
        if let (Ok(()), Err(error)) = (&result, printed) {
            result = Err(error);
        }
    };
    args.job.run(signals.next(), emit).await;
    result?;
    sleep(LINGER).await;
    Ok(exit_status(!has_ended, true))
}
