//! What the product is compared with, on the same server. The baseline is a straightforward webhook: it parses the
//! review and the pod into kube's types, makes the same change, and diffs the whole pod. The limit skips through the
//! review once and responds with a constant.

use std::collections::BTreeMap;
use std::fs;
use std::future;

use admission::{AdmissionOutcome, CONTAINER_NAME, RequestMeta, ReviewResponse};
use anyhow::{Context, Result, ensure};
use json_patch::Patch;
use k8s_openapi::api::core::v1::{Container, Lifecycle, Pod, Volume};
use kube_core::admission::{AdmissionRequest, AdmissionResponse, AdmissionReview};
use serde::de::IgnoredAny;
use serde_json::Value;
use tests::admission_report::{BASELINE, LIMIT, USUAL};
use tests::review::{AdmissionResult, admit, defaults};
use webhook::server::{self, AdmitFn, Limits, Server, ServerPorts};

use crate::pods::Review;

/// The server that this program runs as, by its first argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Baseline,
    Limit,
}

const ENVOY: &str = "envoy";

/// What is added to every pod. It is computed once, whereas the product computes it for each pod.
struct Injection {
    drainer: Container,
    volumes: Vec<Volume>,
    lifecycle: Option<Lifecycle>,
    grace: Option<i64>,
    annotations: BTreeMap<String, String>,
    labels: BTreeMap<String, String>,
}

/// Serves until the process is killed.
pub(crate) async fn serve(role: Role, mut args: impl Iterator<Item = String>) -> Result<()> {
    let mut next = || {
        args.next()
            .context("missing argument: three addresses and a file are required")
    };
    let (tls, health, metrics, ca_file) = (next()?, next()?, next()?, next()?);
    let body = Review::of_pod(USUAL)?.body;
    let admit: Box<AdmitFn> = match role {
        Role::Baseline => {
            let injection = Injection::from_product(&body)?;
            injection.ensure_same_patch(&body)?;
            Box::new(move |body| {
                let response = injection.respond(body);
                Ok(response.expect("the benchmark sends valid reviews"))
            })
        }
        Role::Limit => {
            let constant = admit(&body, &defaults())?;
            Box::new(move |body| {
                let skipped: Result<IgnoredAny, _> = serde_json::from_slice(body);
                skipped.expect("the benchmark sends JSON");
                Ok(constant.clone())
            })
        }
    };
    let (server, ca) = tests::webhook::server(Limits::default());
    fs::write(ca_file, ca)?;
    let ports = ServerPorts {
        tls: server::listen(tls.parse()?)?,
        health: server::listen(health.parse()?)?,
        metrics: server::listen(metrics.parse()?)?,
    };
    let server = Server {
        admissions: vec![("/inject", admit)],
        ..server
    };
    server::run(ports, server, future::pending()).await
}

// === impl Role ===

impl Role {
    /// The role of an argument; `None` if it names none.
    pub(crate) fn of_arg(arg: &str) -> Option<Self> {
        let mut roles = [Self::Baseline, Self::Limit].into_iter();
        roles.find(|role| role.arg() == arg)
    }

    pub(crate) fn arg(self) -> &'static str {
        match self {
            Self::Baseline => BASELINE,
            Self::Limit => LIMIT,
        }
    }
}

// === impl Injection ===

impl Injection {
    /// Extracts what the product adds to this review's pod.
    fn from_product(body: &[u8]) -> Result<Self> {
        let before: Pod = serde_json::from_value(pod(body)?)?;
        let result = AdmissionResult::read(&admit(body, &defaults())?, pod(body)?);
        let pod: Pod = serde_json::from_value(result.pod)?;
        let spec = pod.spec.context("the pod has no spec")?;
        let old_volumes = before.spec.and_then(|spec| spec.volumes);
        let old_volumes = old_volumes.unwrap_or_default();
        let mut volumes = spec.volumes.unwrap_or_default();
        volumes.retain(|volume| !old_volumes.contains(volume));
        let sidecars = spec.init_containers.unwrap_or_default();
        let drainer = sidecars
            .into_iter()
            .find(|container| container.name == CONTAINER_NAME);
        let mut containers = spec.containers.into_iter();
        let envoy = containers.find(|container| container.name == ENVOY);
        Ok(Self {
            drainer: drainer.context("no native sidecar was injected")?,
            volumes,
            lifecycle: envoy.context("the pod has no Envoy")?.lifecycle,
            grace: spec.termination_grace_period_seconds,
            annotations: pod.metadata.annotations.unwrap_or_default(),
            labels: pod.metadata.labels.unwrap_or_default(),
        })
    }

    /// Returns an error unless the baseline and the product make the same change.
    fn ensure_same_patch(&self, body: &[u8]) -> Result<()> {
        let product = AdmissionResult::read(&admit(body, &defaults())?, pod(body)?);
        let review: Value = serde_json::from_slice(&self.respond(body)?.body)?;
        let patch: Vec<u8> = serde_json::from_value(review["response"]["patch"].clone())?;
        let mut patched = pod(body)?;
        json_patch::patch(&mut patched, &serde_json::from_slice::<Patch>(&patch)?)?;
        ensure!(
            patched == product.pod,
            "the baseline's change differs from the product's"
        );
        Ok(())
    }

    fn respond(&self, body: &[u8]) -> Result<ReviewResponse> {
        let review: AdmissionReview<Pod> = serde_json::from_slice(body)?;
        let request: AdmissionRequest<Pod> = review.try_into()?;
        let pod = request.object.as_ref().context("the review has no pod")?;
        let mut injected = pod.clone();
        self.inject(&mut injected)?;
        let patch = json_patch::diff(
            &serde_json::to_value(pod)?,
            &serde_json::to_value(&injected)?,
        );
        let response = AdmissionResponse::from(&request).with_patch(patch)?;
        Ok(ReviewResponse {
            body: serde_json::to_vec(&response.into_review())?,
            request: RequestMeta {
                uid: request.uid,
                namespace: request.namespace.unwrap_or_default(),
                name: request.name,
                dry_run: request.dry_run,
            },
            outcome: AdmissionOutcome::Injected,
            diagnostics: Vec::new(),
            skipped_pod: None,
        })
    }

    fn inject(&self, pod: &mut Pod) -> Result<()> {
        let metadata = &mut pod.metadata;
        let annotations = metadata.annotations.get_or_insert_default();
        annotations.extend(self.annotations.clone());
        let labels = metadata.labels.get_or_insert_default();
        labels.extend(self.labels.clone());
        let spec = pod.spec.as_mut().context("the pod has no spec")?;
        spec.termination_grace_period_seconds = self.grace;
        spec.volumes
            .get_or_insert_default()
            .extend(self.volumes.clone());
        spec.init_containers
            .get_or_insert_default()
            .push(self.drainer.clone());
        let mut containers = spec.containers.iter_mut();
        let envoy = containers.find(|container| container.name == ENVOY);
        let envoy = envoy.context("the pod has no Envoy")?;
        envoy.lifecycle.clone_from(&self.lifecycle);
        Ok(())
    }
}

fn pod(review: &[u8]) -> Result<Value> {
    let mut review: Value = serde_json::from_slice(review)?;
    Ok(review["request"]["object"].take())
}
