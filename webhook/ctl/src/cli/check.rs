//! `envoy-drainer check`: checks an installation.

mod collect;
mod render;

use std::io;
use std::process::ExitCode;

use serde_json::json;

use super::args::cluster::ClusterArgs;
use super::args::output::{ColorArgs, OutputArgs, OutputFormat};
use super::block_on;
use super::terminal::{exit_code, print};
use crate::check::{Health, Section};
use crate::kubernetes::ClusterReader;
use crate::text::PrintableText;

use render::{render_section, render_summary};

/// The text below the flags in `--help`.
const HELP: &str = "\
Checks the webhook's replicas and caBundles, its configuration, the namespaces that have opted in, the pods that
request a drainer, and the nodes. It changes nothing. In each of those namespaces it sends the API server a small pod
as a dry run, which runs admission but creates no pod. Objects that your rights do not allow it to read are reported
as unknown, and everything else is checked nevertheless. JSON is an object with `healthy` (true, false, or null if
unknown) and the list `sections`.

Exit codes: 0 works, perhaps with warnings; 1 does not work, or too little could be read to say; 2 invalid usage.";

/// The flags of `check`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// MutatingWebhookConfiguration of the installation, if there are several.
    #[arg(long, value_name = "NAME")]
    webhook_configuration: Option<String>,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    color: ColorArgs,
}

/// Checks an installation and prints the results.
pub(super) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let output = args.output.output;
    let styled = args.color.is_enabled_for(&io::stdout());
    let mut sections = Vec::new();
    // Each section is printed while the next one is read.
    let mut emit = |section: Section| {
        if output == OutputFormat::Text {
            let _ = print(&render_section(&section, styled))?;
        }
        sections.push(section);
        anyhow::Ok(())
    };
    block_on(async {
        let reader = ClusterReader::from_config(args.cluster.load_config().await?)?;
        collect::collect(&reader, args.webhook_configuration.as_deref(), &mut emit).await
    })?;
    let health = Health::of(&sections);
    let _ = print(&match output {
        OutputFormat::Text => render_summary(health, &sections, styled),
        OutputFormat::Json => {
            PrintableText::json(&json!({"healthy": health, "sections": sections}))
        }
    })?;
    Ok(exit_code(health == Health::Healthy))
}
