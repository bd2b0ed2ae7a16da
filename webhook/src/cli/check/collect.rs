//! What is looked at, and in which order.

use anyhow::bail;
use futures_util::{StreamExt, stream};
use k8s_openapi::api::core::v1::Pod;

use crate::admission::{Defaults, SidecarMode};
use crate::check::certificates::{self, ServerIdentity, ServingReplica};
use crate::check::cluster::{self, Kubelets};
use crate::check::deployment;
use crate::check::deployment::DeploymentObjects;
use crate::check::dry_run;
use crate::check::dry_run::{DryRun, DryRunOutcome};
use crate::check::installation::{self, Installation, ServeArgsError};
use crate::check::namespaces::{self, Namespaces};
use crate::check::pods::{PodDiagnoser, Pods};
use crate::check::replica_sets::BlockedReplicaSets;
use crate::check::rollout::Rollout;
use crate::check::{Section, Subject, webhook_configuration};
use crate::clock::wall_clock;
use crate::kubernetes::{ClusterReader, ReadError, Shown};

use super::serve_args;
use super::serve_args::ServeArgs;

/// So many namespaces get a trial pod, which each webhook of the cluster is asked about.
const MAX_DRY_RUNS: usize = 100;

/// So many of them at a time.
const CONCURRENCY: usize = 4;

/// So many replicas are called.
const MAX_REPLICAS: usize = 20;

/// Looks at an installation, and hands over one section after the other.
pub(super) async fn collect(
    reader: &ClusterReader,
    chosen: Option<&str>,
    mut emit: impl FnMut(Section) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let version = reader.version().await;
    match &version {
        Ok(_) | Err(ReadError::Forbidden(_)) => {}
        Err(ReadError::Unauthorized(_)) => {
            bail!("{} does not know who you are: log in", reader.server())
        }
        Err(error @ (ReadError::Timeout(_) | ReadError::Failed { .. })) => {
            bail!("{} does not answer: {error}", reader.server())
        }
    }
    let kubelets = kubelets(reader).await;
    let found = match reader.webhook_configurations().await {
        Ok(configurations) => installation::find(configurations, chosen),
        Err(unseen) => Err(Box::new(installation::unknown_installation(&unseen))),
    };
    let installation = match found {
        Ok(installation) => installation,
        Err(point) => {
            emit(cluster::section(&version, &kubelets, SidecarMode::Native))?;
            return emit(Section {
                name: "installation",
                results: vec![*point],
            });
        }
    };
    let objects = deployment_objects(reader, &installation).await;
    let flags = serve_args(&objects, &installation);
    let unread = flags.as_ref().and_then(|flags| flags.as_ref().err());
    let flags = flags.as_ref().and_then(|flags| flags.as_ref().ok());
    let defaults = match flags {
        Some(flags) => flags.defaults.clone(),
        None => Defaults::new("", &installation.namespace),
    };
    let form = match defaults.native_sidecar {
        true => SidecarMode::Native,
        false => SidecarMode::Plain,
    };
    emit(cluster::section(&version, &kubelets, form))?;
    emit(deployment::section(&installation, &objects, unread))?;
    let replicas = replicas(reader, &installation, &objects).await;
    let caller = ServerIdentity {
        host: &installation.host(),
        // While a rollout changes who keeps them, older replicas show those of the other.
        mode: flags
            .filter(|_| !is_rolling_out(&objects))
            .map(|flags| &flags.certificate_mode),
    };
    let entries = &installation.entries;
    emit(certificates::section(
        entries,
        &replicas,
        caller,
        wall_clock(),
    ))?;
    emit(webhook_configuration::section(&installation))?;

    let namespaces = namespaces(reader, &installation).await;
    let mut points = namespaces::results(&namespaces);
    let namespaces = namespaces.as_ref().ok();
    if let Some(namespaces) = namespaces {
        let dry_runs = dry_runs(reader, namespaces, &defaults).await;
        let untried = namespaces.selected.len() - dry_runs.len();
        points.extend(dry_run::results(&dry_runs, untried));
    }
    emit(Section {
        name: "namespaces",
        results: points,
    })?;

    let diagnoser = PodDiagnoser {
        defaults: &defaults,
        image: flags.map(|flags| &*flags.defaults.image),
        installed_at: installation.installed_at.as_ref(),
        namespaces,
    };
    let mut pods = Pods::new(diagnoser);
    let seen = reader.for_each_pod(|pod| pods.add(&pod)).await;
    let mut section = pods.section(seen.err().as_ref());
    let mut replica_sets = BlockedReplicaSets::new(diagnoser);
    let seen = reader
        .for_each_replica_set(|set| replica_sets.add(&set))
        .await;
    section
        .results
        .extend(replica_sets.results(seen.err().as_ref()));
    emit(section)
}

async fn kubelets(reader: &ClusterReader) -> Result<Kubelets, ReadError> {
    let mut kubelets = Kubelets::default();
    reader.for_each_node(|node| kubelets.add(node)).await?;
    Ok(kubelets)
}

async fn namespaces(
    reader: &ClusterReader,
    installation: &Installation,
) -> Result<Namespaces, ReadError> {
    let asked_about = installation
        .pods_entry()
        .map(webhook_configuration::namespace_requirements);
    let mut namespaces = Namespaces::new(asked_about.unwrap_or_default());
    reader
        .for_each_namespace(|namespace| namespaces.add(namespace))
        .await?;
    Ok(namespaces)
}

async fn deployment_objects(
    reader: &ClusterReader,
    installation: &Installation,
) -> DeploymentObjects {
    let Installation {
        namespace,
        service: name,
        ..
    } = installation;
    let service = reader.service(namespace, name).await;
    let selector = match &service {
        Ok(service) => Ok(service
            .as_ref()
            .and_then(|service| service.spec.as_ref()?.selector.clone())),
        Err(unseen) => Err(unseen.clone()),
    };
    let (deployment, pods) = match selector {
        Ok(Some(labels)) => (
            reader.deployment(namespace, &labels).await,
            reader.pods(namespace, &labels).await,
        ),
        Ok(None) => (Ok(None), Ok(Vec::new())),
        Err(unseen) => (Err(unseen.clone()), Err(unseen)),
    };
    let policy = reader.has_policy(&installation.policy()).await;
    let ca_bundle_policy = reader.has_policy(&installation.ca_bundle_policy()).await;
    DeploymentObjects {
        service,
        deployment,
        pods,
        policy,
        ca_bundle_policy,
    }
}

/// Returns true if the replicas may have other flags than the newest.
fn is_rolling_out(objects: &DeploymentObjects) -> bool {
    let deployment = objects.deployment.as_ref().ok().and_then(Option::as_ref);
    deployment.is_some_and(|deployment| Rollout::of(deployment) != Rollout::Complete)
}

/// `None` where no Deployment could be seen.
fn serve_args(
    objects: &DeploymentObjects,
    installation: &Installation,
) -> Option<Result<ServeArgs, ServeArgsError>> {
    let deployment = objects.deployment.as_ref().ok()?.as_ref()?;
    let template = deployment.spec.as_ref()?.template.spec.as_ref()?;
    let container = serve_args::serve_container(&template.containers)?;
    Some(ServeArgs::read(container, &installation.namespace))
}

/// Calls every replica that is ready: the others are told as such.
async fn replicas(
    reader: &ClusterReader,
    installation: &Installation,
    objects: &DeploymentObjects,
) -> Result<Vec<ServingReplica>, ReadError> {
    let pods = objects.pods.as_ref().map_err(ReadError::clone)?;
    let Some(service) = objects.service.as_ref().map_err(ReadError::clone)? else {
        return Ok(Vec::new());
    };
    let ready = pods.iter().filter(|pod| deployment::is_ready(pod));
    let host = installation.host();
    let call = async |pod: &Pod| {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let namespace = &installation.namespace;
        let shown = match deployment::target_port(service, installation.port, pod) {
            Some(port) => reader.served_chain(namespace, name, port, &host).await,
            None => Ok(Shown::Nothing(format!(
                "the Service's port {} leads to none of its ports",
                installation.port
            ))),
        };
        ServingReplica {
            pod: Subject::namespaced("Pod", namespace, name),
            chain: shown,
        }
    };
    let replicas = stream::iter(ready.take(MAX_REPLICAS)).map(call);
    Ok(replicas.buffered(CONCURRENCY).collect().await)
}

async fn dry_runs(
    reader: &ClusterReader,
    namespaces: &Namespaces,
    defaults: &Defaults,
) -> Vec<DryRun> {
    let call = async |namespace: &String| DryRun {
        namespace: namespace.clone(),
        outcome: dry_run_outcome(reader, namespace, defaults).await,
    };
    stream::iter(namespaces.selected.iter().take(MAX_DRY_RUNS))
        .map(call)
        .buffered(CONCURRENCY)
        .collect()
        .await
}

/// What becomes of a pod that asks; where it is refused, also of pods that do not.
async fn dry_run_outcome(
    reader: &ClusterReader,
    namespace: &str,
    defaults: &Defaults,
) -> Result<DryRunOutcome, ReadError> {
    let answer = async |asks, requests| {
        let pod = dry_run::sample_pod(asks, requests, defaults);
        reader.dry_run_pod(namespace, &pod).await
    };
    let mut refusals = Vec::new();
    for requests in dry_run::INJECT_REQUESTED {
        match dry_run::outcome(answer(true, requests).await?) {
            Ok(outcome) => return Ok(outcome),
            Err(why) => refusals.push(why),
        }
    }
    let why = dry_run::most_relevant(refusals);
    if let Some(unseen) = dry_run::unsupported(&why, namespace) {
        return Err(unseen);
    }
    for requests in dry_run::INJECT_NOT_REQUESTED {
        if answer(false, requests).await?.is_ok() {
            return Ok(DryRunOutcome::DrainerRejected(why));
        }
    }
    Ok(DryRunOutcome::PodRejected(why))
}
