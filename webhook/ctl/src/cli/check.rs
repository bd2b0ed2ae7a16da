//! `envoy-drainer check`: reads an installation and emits the sections of a report on it, one after the other.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io;
use std::process::ExitCode;
use std::time::Duration;

use admission::{Defaults, NativeSidecar, SidecarMode};
use anyhow::{Context, bail, ensure};
use drainer::duration;
use futures_util::{StreamExt, stream};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::version::Info;
use kube::core::GroupVersionKind;
use kubernetes::{ClusterReader, ObjectSelector, ReadError};
use pki::clock::wall_clock;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::args::{ClusterArgs, ColorArgs, OutputArgs, OutputFormat};
use super::installation::{ServeArgs, find_installation, list_selected};
use super::terminal::{exit_status, print, report};
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
use crate::restart::restart;
use crate::signals::Signals;
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
  envoy-drainer check --namespace shop        # with rights in this namespace alone
  envoy-drainer check --restart               # after an upgrade or changed values: new drainers

Reads the webhook's replicas, its caBundles and its configuration, the namespaces that have opted in, the pods \
that request a drainer, and the nodes. Without --restart it changes nothing. In each namespace that has opted in it \
sends the API server a small pod as a dry run, which creates no pod. For pods with a drainer, it says whether their \
replacements would be denied, or would get another image or other timings; other values, such as resources, are not \
compared. What your rights do not allow it to read is reported as unknown, and the rest is checked. With --namespace, \
rights in that namespace are enough: to get it, to list its pods, and to create one. The dry run decides then.

--restart needs the right to patch workloads, and does not wait for their pods. It leaves out workloads whose pods need \
another remedy first, and restarts nothing if the webhook does not work.

Exit codes: 0 works, perhaps with warnings; 1 does not work, has a warning with --strict, or a workload could not be \
restarted; 2 invalid usage; 3 unknown whether it works, or, with --strict, anything is unknown.";

/// The flags of `check`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// MutatingWebhookConfiguration of the installation, if there are several.
    #[arg(long, value_name = "NAME")]
    webhook_configuration: Option<String>,
    /// Check this namespace only, with what your rights allow besides.
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Fail also for warnings, such as a pod that requests a drainer and has none.
    #[arg(long)]
    strict: bool,
    /// Check again until it works, for this long at most.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration::parse)]
    wait: Duration,
    /// Then restart the Deployments, StatefulSets and DaemonSets whose pods need only that to get the installed drainer.
    #[arg(long, conflicts_with = "wait")]
    restart: bool,
    /// Send no dry runs, which need the right to create pods.
    #[arg(long)]
    no_dry_run: bool,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    color: ColorArgs,
}

/// Checks an installation, and prints the results.
pub(super) async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (output, wait) = (args.output.output, args.wait);
    let styled = args.color.is_enabled_for(&io::stdout());
    // Each section is printed while the next one is read, unless there is another attempt.
    let show = |section: &Section| match output {
        OutputFormat::Text if wait.is_zero() => print(&section.to_text(styled)).map(drop),
        _ => Ok(()),
    };
    let found = RefCell::new(Vec::new());
    let mut signals = Signals::install().context("cannot handle signals")?;
    let reader = args.cluster.clone().connect().await?;
    let is_complete = tokio::select! {
        ended = attempt(&reader, args, &found, show) => {
            if ended.is_err() && output == OutputFormat::Json {
                let _ = print(&PrintableText::json(&json!({"healthy": null, "sections": []})))?;
            }
            ended?;
            !(args.strict && reader.has_left_out())
        }
        () = signals.next() => {
            ensure!(!found.borrow().is_empty(), "interrupted before the end of an attempt");
            false
        }
    };
    let sections = found.into_inner();
    match output {
        OutputFormat::Text => {
            for section in sections.iter().filter(|_| !wait.is_zero()) {
                let _ = print(&section.to_text(styled))?;
            }
            let _ = print(&summary(&sections, styled))?;
        }
        OutputFormat::Json => {
            let report = json!({"healthy": is_healthy(&sections), "sections": sections});
            let _ = print(&PrintableText::json(&report))?;
        }
    }
    let (mut has_failed, is_known) = verdict(&sections, args.strict);
    if args.restart {
        has_failed |= tokio::select! {
            restarted = restart_workloads(&reader, &sections) => !restarted,
            () = signals.next() => true,
        };
    }
    Ok(exit_status(has_failed, is_known && is_complete))
}

/// Restarts the workloads that need it, unless new pods may get no drainer. Returns false if one could not be restarted.
async fn restart_workloads(reader: &ClusterReader, sections: &[Section]) -> bool {
    let results = sections.iter().flat_map(|section| &section.results);
    let workloads: BTreeSet<_> = results.filter_map(|it| it.restart.as_ref()).collect();
    if is_healthy(sections) != Some(true) {
        report("nothing is restarted, since new pods may get no drainer");
        return true;
    }
    let mut are_restarted = true;
    for workload in workloads {
        let kind = GroupVersionKind::gvk("apps", "v1", &workload.kind);
        let namespace = workload.namespace.as_deref().unwrap_or_default();
        let restarted = restart(reader, &kind, namespace, &workload.name).await;
        are_restarted &= restarted.is_ok();
        report(match restarted {
            Ok(()) => format!("restarted {workload}"),
            Err(error) => format!("cannot restart {workload}: {error}"),
        });
    }
    are_restarted
}

/// Whether a check has failed, and whether enough is known.
fn verdict(sections: &[Section], is_strict: bool) -> (bool, bool) {
    let results = sections.iter().flat_map(|section| &section.results);
    let has = |severity| is_strict && results.clone().any(|it| it.severity == severity);
    let health = is_healthy(sections);
    let has_failed = health == Some(false) || has(Severity::Warning);
    (has_failed, health.is_some() && !has(Severity::Unknown))
}

/// Checks until it has passed or the time is over. `found` gets the sections of each attempt; each reason for another
/// one is reported.
async fn attempt(
    reader: &ClusterReader,
    args: &Args,
    found: &RefCell<Vec<Section>>,
    show: impl Fn(&Section) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + args.wait;
    let mut reported = String::new();
    loop {
        let is_last = Instant::now() >= deadline;
        let mut sections = Vec::new();
        let emit = |section: Section| {
            show(&section)?;
            sections.push(section);
            Ok(())
        };
        let reason = match collect(reader, args, emit).await {
            Err(error) if is_last => return Err(error),
            Err(error) => format!("{error:#}"),
            Ok(()) => {
                let has_passed = verdict(&sections, args.strict) == (false, true);
                let text = summary(&sections, false);
                found.replace(sections);
                if is_last || has_passed {
                    return Ok(());
                }
                text.trim_end().to_owned()
            }
        };
        if reason != reported {
            report(format_args!("waiting: {reason}"));
            reported = reason;
        }
        sleep(ATTEMPT_INTERVAL).await;
    }
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
    let all = ObjectSelector::default();
    reader.select(&all, |it| nodes.add(it)).await?;
    Ok(nodes)
}

/// Checks the installation, and emits its sections.
async fn collect(
    reader: &ClusterReader,
    args: &Args,
    mut emit: impl FnMut(Section) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let version = read_version(reader).await?;
    let nodes = read_nodes(reader).await;
    let mut emit = |mut section: Section| {
        if args.namespace.is_some() && !args.no_dry_run && section.name != "namespaces" {
            // The dry run decides.
            for result in &mut section.results {
                result.is_blocking = false;
            }
        }
        emit(section)
    };
    let mut defaults = Defaults::new("", "");
    let installation = match find_installation(reader, args.webhook_configuration.as_deref()).await
    {
        Ok(installation) => {
            let objects = deployment_objects(reader, &installation).await;
            let deployment = objects.deployment.as_ref().ok().and_then(Option::as_ref);
            let namespace = &installation.namespace;
            let serve_args = deployment.and_then(|it| ServeArgs::of_deployment(it, namespace));
            let serve_args = serve_args.as_ref().map(Result::as_ref).transpose();
            let known_args = serve_args.ok().flatten();
            let known = known_args.map(|args| args.defaults.clone());
            defaults = known.unwrap_or_else(|| Defaults::new("", namespace));
            let sidecar_mode = match defaults.settings.values().native_sidecar {
                NativeSidecar::False => SidecarMode::Plain,
                _ => SidecarMode::Native,
            };
            emit(cluster::section(&version, &nodes, sidecar_mode))?;
            let section = deployment::section(&installation, &objects, serve_args.err());
            emit(section)?;
            // During a rollout, older replicas may have another mode.
            let is_rolling_out = deployment.is_some_and(deployment::is_rolling_out);
            let certain_args = known_args.filter(|_| !is_rolling_out);
            let mode = certain_args.map(|args| &args.certificate_mode);
            let entries = &installation.entries;
            emit(certificates::section(entries, mode, wall_clock()))?;
            emit(webhook_configuration::section(&installation))?;
            Some(installation)
        }
        Err(result) => {
            let is_missing = result.severity == Severity::Error;
            emit(cluster::section(&version, &nodes, SidecarMode::Native))?;
            emit(Section::new("installation", vec![*result]))?;
            if is_missing || args.namespace.is_none() {
                return Ok(());
            }
            None
        }
    };
    let namespaces = namespaces(reader, installation.as_ref(), args.namespace.as_deref()).await;
    let dry_runs = match &namespaces {
        Ok(namespaces) if !args.no_dry_run => Some(dry_runs(reader, namespaces, &defaults).await),
        _ => None,
    };
    let mut section = namespaces::section(&namespaces, dry_runs.as_deref());
    if installation.is_none() && dry_runs.is_none_or(|it| it.is_empty()) {
        // Nothing has shown whether the webhook is called.
        for result in &mut section.results {
            result.is_blocking = true;
        }
    }
    emit(section)?;

    let selector = ObjectSelector {
        namespace: args.namespace.clone(),
        ..ObjectSelector::default()
    };
    let mut load_balancers = Vec::new();
    let add = |service| load_balancers.extend(Some(service).filter(is_load_balancer));
    // Without the right to list Services, nothing is said of them.
    let _ = reader.select(&selector, add).await;
    let installed_at = installation.and_then(|it| it.installed_at);
    let mut pods = Pods::new(PodDiagnoser {
        load_balancers: &load_balancers,
        defaults: &defaults,
        installed_at: installed_at.as_ref(),
        namespaces: namespaces.as_ref().ok(),
    });
    let read = reader.select(&selector, |pod| pods.add(&pod)).await;
    let mut section = pods.section(read.err().as_ref());
    let mut replica_sets = ReplicaSets::new(namespaces.as_ref().ok());
    let read = reader.select(&selector, |it| replica_sets.add(&it)).await;
    let results = replica_sets.results(read.err().as_ref());
    section.results.extend(results);
    emit(section)
}

/// Reads the namespaces, or the only one to check.
async fn namespaces(
    reader: &ClusterReader,
    installation: Option<&Installation>,
    only: Option<&str>,
) -> Result<Namespaces, ReadError> {
    let requirements = installation.map_or_else(
        || Ok(vec![webhook_configuration::opt_in()]),
        |it| webhook_configuration::requirements(it.pods_entry.namespace_selector.as_ref()),
    );
    let mut namespaces = Namespaces::new(requirements?);
    let add = |namespace: Namespace| namespaces.add(namespace.metadata);
    match only {
        None => drop(reader.select(&ObjectSelector::default(), add).await?),
        Some(name) => reader.namespace(name).await?.into_iter().for_each(add),
    }
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
    let namespaces = stream::iter(namespaces.selected.iter().take(MAX_DRY_RUNS));
    let dry_runs = namespaces.map(dry_run).buffered(CONCURRENCY);
    dry_runs.collect().await
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use clap::error::ErrorKind;

    use super::*;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn restarts_are_neither_a_default_nor_repeated() {
        let parse = |args: &[&str]| Command::try_parse_from([&["check"], args].concat());
        assert!(!parse(&[]).unwrap().args.restart);
        assert!(parse(&["--restart"]).unwrap().args.restart);
        let error = parse(&["--restart", "--wait", "2m"]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ArgumentConflict);
    }
}
