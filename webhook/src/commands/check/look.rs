//! What is looked at, and in which order.

use anyhow::bail;
use futures_util::{StreamExt, stream};
use k8s_openapi::api::core::v1::Pod;

use crate::admission::{Defaults, Sidecar};
use crate::check::certificates::{self, Caller, Replica};
use crate::check::cluster::{self, Kubelets};
use crate::check::installation::{self, Installation, UnreadFlags};
use crate::check::namespaces::{self, Namespaces};
use crate::check::pods::{Judge, Pods};
use crate::check::refused::Refused;
use crate::check::rollout::Rollout;
use crate::check::running::{self, Parts};
use crate::check::trial::{self, Outcome, Trial};
use crate::check::{About, Section, configuration};
use crate::clock::wall_clock;
use crate::kubernetes::{Shown, Survey, Unseen};

use super::flags::{self, Flags};

/// So many namespaces get a trial pod, which each webhook of the cluster is asked about.
const TRIALS: usize = 100;

/// So many of them at a time.
const AT_ONCE: usize = 4;

/// So many replicas are called.
const REPLICAS: usize = 20;

/// Looks at an installation, and hands over one section after the other.
pub(super) async fn look(
    survey: &Survey,
    chosen: Option<&str>,
    mut tell: impl FnMut(Section) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let version = survey.version().await;
    match &version {
        Ok(_) | Err(Unseen::Forbidden(_)) => {}
        Err(Unseen::Unauthorized(_)) => {
            bail!("{} does not know who you are: log in", survey.server())
        }
        Err(error @ (Unseen::Late(_) | Unseen::Failed { .. })) => {
            bail!("{} does not answer: {error}", survey.server())
        }
    }
    let kubelets = kubelets(survey).await;
    let found = match survey.configurations().await {
        Ok(configurations) => installation::find(configurations, chosen),
        Err(unseen) => Err(Box::new(installation::not_seen(&unseen))),
    };
    let installation = match found {
        Ok(installation) => installation,
        Err(point) => {
            tell(cluster::section(&version, &kubelets, Sidecar::Native))?;
            return tell(Section {
                name: "installation",
                points: vec![*point],
            });
        }
    };
    let parts = parts(survey, &installation).await;
    let flags = flags(&parts, &installation);
    let unread = flags.as_ref().and_then(|flags| flags.as_ref().err());
    let flags = flags.as_ref().and_then(|flags| flags.as_ref().ok());
    let defaults = match flags {
        Some(flags) => flags.defaults.clone(),
        None => Defaults::new("", &installation.namespace),
    };
    let form = match defaults.native_sidecar {
        true => Sidecar::Native,
        false => Sidecar::Plain,
    };
    tell(cluster::section(&version, &kubelets, form))?;
    tell(running::section(&installation, &parts, unread))?;
    let replicas = replicas(survey, &installation, &parts).await;
    let caller = Caller {
        host: &installation.host(),
        // While a rollout changes who keeps them, older replicas show those of the other.
        keeper: flags
            .filter(|_| !is_rolling(&parts))
            .map(|flags| &flags.keeper),
    };
    let entries = &installation.entries;
    tell(certificates::section(
        entries,
        &replicas,
        caller,
        wall_clock(),
    ))?;
    tell(configuration::section(&installation))?;

    let namespaces = namespaces(survey, &installation).await;
    let mut points = namespaces::points(&namespaces);
    let namespaces = namespaces.as_ref().ok();
    if let Some(namespaces) = namespaces {
        let trials = trials(survey, namespaces, &defaults).await;
        let untried = namespaces.asked.len() - trials.len();
        points.extend(trial::points(&trials, untried));
    }
    tell(Section {
        name: "namespaces",
        points,
    })?;

    let judge = Judge {
        defaults: &defaults,
        image: flags.map(|flags| &*flags.defaults.image),
        since: installation.since.as_ref(),
        namespaces,
    };
    let mut pods = Pods::new(judge);
    let seen = survey.each_pod(|pod| pods.add(&pod)).await;
    let mut section = pods.section(seen.err().as_ref());
    let mut refused = Refused::new(judge);
    let seen = survey.each_replica_set(|set| refused.add(&set)).await;
    section.points.extend(refused.points(seen.err().as_ref()));
    tell(section)
}

async fn kubelets(survey: &Survey) -> Result<Kubelets, Unseen> {
    let mut kubelets = Kubelets::default();
    survey.each_node(|node| kubelets.add(node)).await?;
    Ok(kubelets)
}

async fn namespaces(survey: &Survey, installation: &Installation) -> Result<Namespaces, Unseen> {
    let asked_about = installation.pods_entry().map(configuration::asked_about);
    let mut namespaces = Namespaces::new(asked_about.unwrap_or_default());
    survey
        .each_namespace(|namespace| namespaces.add(namespace))
        .await?;
    Ok(namespaces)
}

async fn parts(survey: &Survey, installation: &Installation) -> Parts {
    let Installation {
        namespace,
        service: name,
        ..
    } = installation;
    let service = survey.service(namespace, name).await;
    let selector = match &service {
        Ok(service) => Ok(service
            .as_ref()
            .and_then(|service| service.spec.as_ref()?.selector.clone())),
        Err(unseen) => Err(unseen.clone()),
    };
    let (deployment, pods) = match selector {
        Ok(Some(labels)) => (
            survey.deployment(namespace, &labels).await,
            survey.pods(namespace, &labels).await,
        ),
        Ok(None) => (Ok(None), Ok(Vec::new())),
        Err(unseen) => (Err(unseen.clone()), Err(unseen)),
    };
    let policy = survey.policy(&installation.policy()).await;
    let ca_bundle_policy = survey.policy(&installation.ca_bundle_policy()).await;
    Parts {
        service,
        deployment,
        pods,
        policy,
        ca_bundle_policy,
    }
}

/// Returns true if the replicas may have other flags than the newest.
fn is_rolling(parts: &Parts) -> bool {
    let deployment = parts.deployment.as_ref().ok().and_then(Option::as_ref);
    deployment.is_some_and(|deployment| Rollout::of(deployment) != Rollout::Done)
}

/// `None` where no Deployment could be seen.
fn flags(parts: &Parts, installation: &Installation) -> Option<Result<Flags, UnreadFlags>> {
    let deployment = parts.deployment.as_ref().ok()?.as_ref()?;
    let template = deployment.spec.as_ref()?.template.spec.as_ref()?;
    let container = flags::serving(&template.containers)?;
    Some(Flags::read(container, &installation.namespace))
}

/// Calls every replica that is ready: the others are told as such.
async fn replicas(
    survey: &Survey,
    installation: &Installation,
    parts: &Parts,
) -> Result<Vec<Replica>, Unseen> {
    let pods = parts.pods.as_ref().map_err(Unseen::clone)?;
    let Some(service) = parts.service.as_ref().map_err(Unseen::clone)? else {
        return Ok(Vec::new());
    };
    let ready = pods.iter().filter(|pod| running::is_ready(pod));
    let host = installation.host();
    let call = async |pod: &Pod| {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let namespace = &installation.namespace;
        let shown = match running::target_port(service, installation.port, pod) {
            Some(port) => survey.shown(namespace, name, port, &host).await,
            None => Ok(Shown::Nothing(format!(
                "the Service's port {} leads to none of its ports",
                installation.port
            ))),
        };
        Replica {
            pod: About::in_namespace("Pod", namespace, name),
            shown,
        }
    };
    let replicas = stream::iter(ready.take(REPLICAS)).map(call);
    Ok(replicas.buffered(AT_ONCE).collect().await)
}

async fn trials(survey: &Survey, namespaces: &Namespaces, defaults: &Defaults) -> Vec<Trial> {
    let call = async |namespace: &String| Trial {
        namespace: namespace.clone(),
        outcome: outcome(survey, namespace, defaults).await,
    };
    stream::iter(namespaces.asked.iter().take(TRIALS))
        .map(call)
        .buffered(AT_ONCE)
        .collect()
        .await
}

/// What becomes of a pod that asks; where it is refused, also of pods that do not.
async fn outcome(survey: &Survey, namespace: &str, defaults: &Defaults) -> Result<Outcome, Unseen> {
    let answer = async |asks, requests| {
        let pod = trial::pod(asks, requests, defaults);
        survey.try_pod(namespace, &pod).await
    };
    let mut refusals = Vec::new();
    for requests in trial::ASKING {
        match trial::outcome(answer(true, requests).await?) {
            Ok(outcome) => return Ok(outcome),
            Err(why) => refusals.push(why),
        }
    }
    let why = trial::telling(refusals);
    if let Some(unseen) = trial::untryable(&why, namespace) {
        return Err(unseen);
    }
    for requests in trial::NOT_ASKING {
        if answer(false, requests).await?.is_ok() {
            return Ok(Outcome::Refused(why));
        }
    }
    Ok(Outcome::AllRefused(why))
}
