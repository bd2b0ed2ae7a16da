//! `envoy-drainer check`: reads an installation and emits the sections of a report on it, one after the other.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use admission::{Defaults, NativeSidecar, SidecarMode};
use anyhow::bail;
use drainer::duration;
use futures_util::{StreamExt, stream};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::version::Info;
use kubernetes::{ClusterReader, ReadError};
use pki::clock::wall_clock;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::args::{ClusterArgs, ColorArgs, OutputArgs, OutputFormat};
use super::installation::{ServeArgs, find_installation, list_selected};
use super::terminal::{exit_code, print};
use crate::check::cluster::NodeVersions;
use crate::check::deployment::DeploymentObjects;
use crate::check::dry_run::DryRun;
use crate::check::installation::Installation;
use crate::check::namespaces::Namespaces;
use crate::check::pods::{PodDiagnoser, Pods};
use crate::check::replica_sets::ReplicaSets;
use crate::check::{
    Section, Severity, certificates, cluster, deployment, dry_run, is_healthy, namespaces, summary,
    webhook_configuration,
};
use crate::load_balancers::is_load_balancer;
use crate::runtime::block_on;
use crate::text::PrintableText;

/// The maximum number of namespaces with a dry run, each of which calls every webhook of the cluster.
const MAX_DRY_RUNS: usize = 100;

/// The interval between two attempts of `--wait`.
const ATTEMPT_INTERVAL: Duration = Duration::from_secs(2);

/// Dry runs at a time.
const CONCURRENCY: usize = 4;

/// The text below the flags in `--help`.
const HELP: &str = "\
Examples:
  envoy-drainer check
  envoy-drainer check --strict --wait 2m      # after helm upgrade, in a pipeline

Reads the webhook's replicas, its caBundles and its configuration, the namespaces that have opted in, the pods \
that request a drainer, and the nodes. It changes nothing. In each of those namespaces it sends the API server a \
small pod as a dry run, which runs admission and creates no pod. What your rights do not allow it to read is \
reported as unknown, and the rest is checked.

JSON is an object with `healthy` (true, false, or null if unknown) and the list `sections`.

Exit codes: 0 works, perhaps with warnings; 1 does not work, is unknown, or has a warning with --strict; 2 \
invalid usage.";

/// The flags of `check`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// MutatingWebhookConfiguration of the installation, if there are several.
    #[arg(long, value_name = "NAME")]
    webhook_configuration: Option<String>,
    /// Fail also for warnings, such as a pod that requests a drainer and has none.
    #[arg(long)]
    strict: bool,
    /// Check again until it works, for this long at most.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration::parse)]
    wait: Duration,
    /// Send no dry runs, which need the right to create pods.
    #[arg(long)]
    no_dry_run: bool,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    color: ColorArgs,
}

/// Checks an installation, and prints the results.
pub(super) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let output = args.output.output;
    let styled = args.color.is_enabled_for(&io::stdout());
    let chosen = args.webhook_configuration.as_deref();
    let deadline = Instant::now() + args.wait;
    let has_passed = |sections: &[Section]| {
        let mut results = sections.iter().flat_map(|section| &section.results);
        let has_warning = results.any(|result| result.severity == Severity::Warning);
        is_healthy(sections) == Some(true) && !(args.strict && has_warning)
    };
    let sections = block_on(async {
        let reader = args.cluster.connect().await?;
        loop {
            let is_last = Instant::now() >= deadline;
            let mut sections = Vec::new();
            // Each section is printed while the next one is read, unless there is another attempt.
            let emit = |section: Section| {
                if output == OutputFormat::Text && args.wait.is_zero() {
                    let _ = print(&section.to_text(styled))?;
                }
                sections.push(section);
                Ok(())
            };
            collect(&reader, chosen, !args.no_dry_run, emit).await?;
            if is_last || has_passed(&sections) {
                return Ok(sections);
            }
            sleep(ATTEMPT_INTERVAL).await;
        }
    })?;
    let is_healthy = is_healthy(&sections);
    match output {
        OutputFormat::Text => {
            if !args.wait.is_zero() {
                for section in &sections {
                    let _ = print(&section.to_text(styled))?;
                }
            }
            let _ = print(&summary(&sections, styled))?;
        }
        OutputFormat::Json => {
            let report = json!({"healthy": is_healthy, "sections": sections});
            let _ = print(&PrintableText::json(&report))?;
        }
    }
    Ok(exit_code(has_passed(&sections)))
}

/// Reads the version of the API server.
///
/// # Errors
/// If it does not respond, so that nothing can be checked.
async fn read_version(reader: &ClusterReader) -> anyhow::Result<Result<Info, ReadError>> {
    let version = reader.version().await;
    let server = reader.server();
    match &version {
        Ok(_) | Err(ReadError::Forbidden(_)) => Ok(version),
        Err(error @ ReadError::Unauthorized(_)) => bail!("{server}: {error}"),
        Err(error) => bail!("{server} did not respond: {error}"),
    }
}

async fn read_nodes(reader: &ClusterReader) -> Result<NodeVersions, ReadError> {
    let mut nodes = NodeVersions::default();
    reader.for_each(|it| nodes.add(it)).await?;
    Ok(nodes)
}

/// Checks the installation of the configuration `chosen`, or the first, and emits its sections.
async fn collect(
    reader: &ClusterReader,
    chosen: Option<&str>,
    has_dry_runs: bool,
    mut emit: impl FnMut(Section) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let version = read_version(reader).await?;
    let nodes = read_nodes(reader).await;
    let installation = match find_installation(reader, chosen).await {
        Ok(installation) => installation,
        Err(result) => {
            emit(cluster::section(&version, &nodes, SidecarMode::Native))?;
            return emit(Section::new("installation", vec![*result]));
        }
    };
    let objects = deployment_objects(reader, &installation).await;
    let deployment = objects.deployment.as_ref().ok().and_then(Option::as_ref);
    let args = deployment.and_then(|it| ServeArgs::of_deployment(it, &installation.namespace));
    let (args, args_error) = match args.transpose() {
        Ok(args) => (args, None),
        Err(error) => (None, Some(error)),
    };
    let unknown = || Defaults::new("", &installation.namespace);
    let defaults = args.as_ref().map(|args| args.defaults.clone());
    let defaults = defaults.unwrap_or_else(unknown);
    let sidecar_mode = match defaults.settings.values().native_sidecar {
        NativeSidecar::False => SidecarMode::Plain,
        _ => SidecarMode::Native,
    };
    emit(cluster::section(&version, &nodes, sidecar_mode))?;
    let section = deployment::section(&installation, &objects, args_error.as_ref());
    emit(section)?;
    // During a rollout, older replicas may have another mode.
    let args = args.filter(|_| !deployment::is_rolling_out(&objects));
    let mode = args.as_ref().map(|args| &args.certificate_mode);
    let entries = &installation.entries;
    emit(certificates::section(entries, mode, wall_clock()))?;
    emit(webhook_configuration::section(&installation))?;

    let namespaces = namespaces(reader, &installation).await;
    let dry_runs = match &namespaces {
        Ok(namespaces) if has_dry_runs => Some(dry_runs(reader, namespaces, &defaults).await),
        _ => None,
    };
    emit(namespaces::section(&namespaces, dry_runs.as_deref()))?;

    let mut load_balancers = Vec::new();
    let add = |service| load_balancers.extend(Some(service).filter(is_load_balancer));
    // Without the right to list Services, nothing is said of them.
    let _ = reader.for_each(add).await;
    let mut pods = Pods::new(PodDiagnoser {
        load_balancers: &load_balancers,
        defaults: &defaults,
        installed_at: installation.installed_at.as_ref(),
        namespaces: namespaces.as_ref().ok(),
    });
    let read = reader.for_each(|pod| pods.add(&pod)).await;
    let mut section = pods.section(read.err().as_ref());
    let mut replica_sets = ReplicaSets::new(namespaces.as_ref().ok());
    let read = reader.for_each(|it| replica_sets.add(&it)).await;
    let results = replica_sets.results(read.err().as_ref());
    section.results.extend(results);
    emit(section)
}

async fn namespaces(
    reader: &ClusterReader,
    installation: &Installation,
) -> Result<Namespaces, ReadError> {
    let selector = installation.pods_entry.namespace_selector.as_ref();
    let mut namespaces = Namespaces::new(webhook_configuration::requirements(selector)?);
    let add = |namespace: Namespace| namespaces.add(namespace.metadata);
    reader.for_each(add).await?;
    Ok(namespaces)
}

async fn deployment_objects(
    reader: &ClusterReader,
    installation: &Installation,
) -> DeploymentObjects {
    let namespace = &installation.namespace;
    let service = reader.service(namespace, &installation.service).await;
    let deployments = list_selected(reader, namespace, &service).await;
    let policy = installation.unseen_pods_policy_name();
    let ca_bundle_policy = installation.ca_bundle_policy_name();
    DeploymentObjects {
        deployment: deployments.map(|found| found.into_iter().next()),
        pods: list_selected(reader, namespace, &service).await,
        policy: reader.has_policy(&policy).await,
        ca_bundle_policy: reader.has_policy(&ca_bundle_policy).await,
    }
}

async fn dry_runs(
    reader: &ClusterReader,
    namespaces: &Namespaces,
    defaults: &Defaults,
) -> Vec<DryRun> {
    let pod = dry_run::sample_pod(defaults);
    let dry_run = async |namespace: &String| DryRun {
        namespace: namespace.clone(),
        outcome: reader
            .dry_run_pod(namespace, &pod)
            .await
            .map(dry_run::outcome),
    };
    stream::iter(namespaces.selected.iter().take(MAX_DRY_RUNS))
        .map(dry_run)
        .buffered(CONCURRENCY)
        .collect()
        .await
}
