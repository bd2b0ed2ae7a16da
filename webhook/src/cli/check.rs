//! `envoy-drainer check`: whether an installation works.

mod collect;
mod render;
pub mod serve_args;

use std::io;
use std::process::ExitCode;

use anyhow::Context;
use serde::Serialize;
use tokio::runtime;

use super::args::cluster::ClusterArgs;
use super::args::output::{ColorArgs, OutputArgs, OutputFormat};
use crate::check::{Health, Section};
use crate::cli::terminal::print;
use crate::kubernetes::ClusterReader;

use render::CheckRenderer;

/// What `--help` says below the flags.
const HELP: &str = "\
Looks at the webhook and its certificates, at what API servers ask it, at the namespaces that have opted in, at
the pods that ask for a drainer, and at the nodes. It changes nothing: in each of those namespaces it asks by a
dry run what would become of a small pod. What your rights do not let it see is told, and the rest is looked at
nevertheless. JSON is an object with `works`, which is null where that cannot be found out, and the list
`sections`.

Exit codes: 0 works, perhaps with warnings; 1 something does not work, or cannot be found out; 2 wrong usage.";

/// The flags of `check`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// The MutatingWebhookConfiguration of the installation, where there are several.
    #[arg(long, value_name = "NAME", env = "ENVOY_DRAINER_WEBHOOK_CONFIGURATION")]
    webhook_configuration: Option<String>,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    color: ColorArgs,
}

/// All that `check` has to say.
#[derive(Debug, Serialize)]
struct CheckReport {
    #[serde(rename = "works")]
    health: Health,
    sections: Vec<Section>,
}

/// Looks at an installation and tells what is to be told.
///
/// # Errors
/// When there is no cluster, or nothing can be written.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Args {
        cluster,
        webhook_configuration,
        output: OutputArgs { output },
        color,
    } = args;
    let page = CheckRenderer::new(color.is_enabled_for(&io::stdout()));
    let mut sections = Vec::new();
    // A person reads while the next is looked at.
    let mut emit = |section: Section| {
        if output == OutputFormat::Text {
            print(page.section(&section).as_bytes())?;
        }
        sections.push(section);
        anyhow::Ok(())
    };
    runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?
        .block_on(async {
            let reader = ClusterReader::open(cluster.into()).await?;
            collect::collect(&reader, webhook_configuration.as_deref(), &mut emit).await
        })?;
    let works = Health::of(&sections);
    match output {
        OutputFormat::Text => print(page.summary(works, &sections).as_bytes())?,
        OutputFormat::Json => {
            let report = CheckReport {
                health: works,
                sections,
            };
            let mut json = serde_json::to_string_pretty(&report)?;
            json.push('\n');
            print(json.as_bytes())?;
        }
    }
    Ok(match works {
        Health::Healthy => ExitCode::SUCCESS,
        Health::Unhealthy | Health::Unknown => ExitCode::FAILURE,
    })
}
