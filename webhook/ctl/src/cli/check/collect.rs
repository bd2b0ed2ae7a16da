//! Reads the cluster and emits the sections of the report, one after the other.

use admission::{Defaults, NativeSidecar, SidecarMode};
use anyhow::bail;
use futures_util::{StreamExt, stream};
use k8s_openapi::api::core::v1::Namespace;
use pki::clock::wall_clock;

use crate::check::cluster::NodeVersions;
use crate::check::deployment::DeploymentObjects;
use crate::check::dry_run::{DryRun, DryRunOutcome, DryRunRequests};
use crate::check::installation::Installation;
use crate::check::namespaces::Namespaces;
use crate::check::pods::{PodDiagnoser, Pods};
use crate::check::replica_sets::ReplicaSets;
use crate::check::{
    Section, certificates, cluster, deployment, dry_run, namespaces, webhook_configuration,
};
use crate::cli::installation::{find_installation, read_deployment, selector, serve_args};
use crate::kubernetes::{ClusterReader, ReadError};

/// The maximum number of namespaces with a dry run, each of which calls every webhook of the cluster.
const MAX_DRY_RUNS: usize = 100;

/// Dry runs at a time.
const CONCURRENCY: usize = 4;

/// Checks the installation of the configuration `chosen`, or the first, and emits its sections.
pub(super) async fn collect(
    reader: &ClusterReader,
    chosen: Option<&str>,
    mut emit: impl FnMut(Section) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let version = reader.version().await;
    let server = reader.server();
    match &version {
        Ok(_) | Err(ReadError::Forbidden(_)) => {}
        Err(error @ ReadError::Unauthorized(_)) => bail!("{server}: {error}"),
        Err(error) => bail!("{server} did not respond: {error}"),
    }
    let mut node_versions = NodeVersions::default();
    let read = reader.for_each(|node| node_versions.add(node)).await;
    let node_versions = read.map(|()| node_versions);
    let installation = match find_installation(reader, chosen).await {
        Ok(installation) => installation,
        Err(result) => {
            emit(cluster::section(
                &version,
                &node_versions,
                SidecarMode::Native,
            ))?;
            return emit(Section::new("installation", vec![*result]));
        }
    };
    let objects = deployment_objects(reader, &installation).await;
    let deployment = objects.deployment.as_ref().ok().and_then(Option::as_ref);
    let args = deployment.and_then(|deployment| serve_args(deployment, &installation));
    let (args, args_error) = match args.transpose() {
        Ok(args) => (args, None),
        Err(error) => (None, Some(error)),
    };
    let args = args.as_ref();
    let unknown = || Defaults::new("", &installation.namespace);
    let defaults = args.map_or_else(unknown, |args| args.defaults.clone());
    let sidecar_mode = match defaults.settings.native_sidecar {
        NativeSidecar::False => SidecarMode::Plain,
        _ => SidecarMode::Native,
    };
    emit(cluster::section(&version, &node_versions, sidecar_mode))?;
    let section = deployment::section(&installation, &objects, args_error.as_ref());
    emit(section)?;
    // During a rollout, older replicas may have another mode.
    let args = args.filter(|_| !deployment::is_rolling_out(&objects));
    let mode = args.map(|args| &args.certificate_mode);
    emit(certificates::section(
        &installation.entries,
        mode,
        wall_clock(),
    ))?;
    emit(webhook_configuration::section(&installation))?;

    let namespaces = namespaces(reader, &installation).await;
    let dry_runs = match &namespaces {
        Ok(namespaces) => dry_runs(reader, namespaces, &defaults).await,
        Err(_) => Vec::new(),
    };
    emit(namespaces::section(&namespaces, &dry_runs))?;

    let mut pods = Pods::new(PodDiagnoser {
        defaults: &defaults,
        installed_at: installation.installed_at.as_ref(),
        namespaces: namespaces.as_ref().ok(),
    });
    let read = reader.for_each(|pod| pods.add(&pod)).await;
    let mut section = pods.section(read.err().as_ref());
    let mut replica_sets = ReplicaSets::default();
    let read = reader.for_each(|it| replica_sets.add(&it)).await;
    section
        .results
        .extend(replica_sets.results(read.err().as_ref()));
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
    let pods = match service.as_ref().map(selector) {
        Ok(Some(labels)) => reader.list(namespace, labels).await,
        Ok(None) => Ok(Vec::new()),
        Err(error) => Err(error.clone()),
    };
    DeploymentObjects {
        deployment: read_deployment(reader, installation, service.as_ref()).await,
        service,
        pods,
        policy: reader
            .has_policy(&installation.unseen_pods_policy_name())
            .await,
        ca_bundle_policy: reader
            .has_policy(&installation.ca_bundle_policy_name())
            .await,
    }
}

async fn dry_runs(
    reader: &ClusterReader,
    namespaces: &Namespaces,
    defaults: &Defaults,
) -> Vec<DryRun> {
    let dry_run = async |namespace: &String| DryRun {
        namespace: namespace.clone(),
        outcome: dry_run_outcome(reader, namespace, defaults).await,
    };
    stream::iter(namespaces.selected.iter().take(MAX_DRY_RUNS))
        .map(dry_run)
        .buffered(CONCURRENCY)
        .collect()
        .await
}

/// Creates pods that request a drainer, until one is admitted; if none is, also pods that request none.
async fn dry_run_outcome(
    reader: &ClusterReader,
    namespace: &str,
    defaults: &Defaults,
) -> Result<DryRunOutcome, ReadError> {
    let create = async |inject, requests| {
        let pod = dry_run::sample_pod(inject, requests, defaults);
        reader.dry_run_pod(namespace, &pod).await
    };
    let mut rejections = Vec::new();
    for requests in dry_run::TRIED_REQUESTS {
        match dry_run::outcome(create(true, requests).await?) {
            Ok(outcome) => return Ok(outcome),
            Err(reason) => rejections.push(reason),
        }
    }
    let reason = dry_run::most_relevant(&rejections);
    if let Some(error) = dry_run::unsupported(&reason) {
        return Err(error);
    }
    let requests = dry_run::TRIED_REQUESTS.into_iter();
    for requests in requests.chain([DryRunRequests::Unset]) {
        if create(false, requests).await?.is_ok() {
            return Ok(DryRunOutcome::DrainerRejected(reason));
        }
    }
    Ok(DryRunOutcome::PodRejected(reason))
}
