//! Pods that are created all the time, to see whether the webhook is ever missing.

use std::fmt;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use drainer::AdminAddress;
use http_body_util::Full;
use hyper::{Method, Request, StatusCode};
use serde_json::{Value, json};
use tests::http::{TextResponse, exchange};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;
use tokio::select;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, timeout};

use crate::kubectl;
use crate::namespace::Namespace;
use crate::restricted;
use crate::scenario::Inconclusive;
use crate::traffic::MIN_RATE_RATIO;

/// Between two pods: ten a second.
const CREATE_INTERVAL: Duration = Duration::from_millis(100);

/// More than the API server waits for a webhook.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

/// How many failures are kept with what was said.
const MAX_DETAILS: usize = 5;

/// Pods that are being created.
#[derive(Debug)]
pub(crate) struct AdmissionLoad {
    /// What speaks to the API server: a process for each pod would be the heavier load.
    _proxy: Child,
    stop: oneshot::Sender<()>,
    tasks: JoinSet<AdmissionCounts>,
}

/// What became of them.
#[derive(Debug, Default)]
pub(crate) struct AdmissionCounts {
    /// All that were to be created.
    pub(crate) sent: u64,
    /// Those that were, and have a drainer.
    pub(crate) injected: u64,
    /// Those that were, and have none.
    pub(crate) not_injected: u64,
    /// Those that were not.
    pub(crate) failed: u64,
    details: Vec<String>,
    seconds: f64,
}

/// What became of one.
enum PodResult {
    Injected(String),
    NotInjected(String),
    Failed(String),
}

// === impl Admissions ===

impl AdmissionLoad {
    /// Begins to create pods that ask for a drainer. No node ever gets them.
    ///
    /// # Errors
    /// When the API server cannot be reached.
    pub(crate) async fn start(namespace: &Namespace) -> Result<Self> {
        let mut proxy = kubectl::start(&["proxy", "--port=0"], Stdio::piped())?;
        let said = proxy.stdout.take().context("it was piped")?;
        let said = BufReader::new(said).lines().next_line().await?;
        let said = said.context("kubectl proxy said nothing")?;
        let address = said.rsplit(' ').next().unwrap_or_default();
        let address = AdminAddress::Tcp(address.parse().context(said.clone())?);
        let path = format!("/api/v1/namespaces/{}/pods", namespace.name());
        let (stop, stopped) = oneshot::channel();
        let mut running = JoinSet::new();
        running.spawn(create_pods(address, path, stopped));
        Ok(Self {
            _proxy: proxy,
            stop,
            tasks: running,
        })
    }

    /// Creates no more, and returns what became of all.
    ///
    /// # Errors
    /// When fewer were created than were to be: then nothing was shown.
    pub(crate) async fn stop(mut self) -> Result<AdmissionCounts> {
        // It runs for as long as it is not told.
        let _ = self.stop.send(());
        let admitted = self.tasks.join_next().await;
        let admitted = admitted.context("the loop runs")??;
        if admitted.rate_ratio() < MIN_RATE_RATIO {
            bail!(Inconclusive(admitted.to_string()));
        }
        Ok(admitted)
    }
}

/// Creates pods at their pace, whatever became of those before.
async fn create_pods(
    address: AdminAddress,
    path: String,
    mut stopped: oneshot::Receiver<()>,
) -> AdmissionCounts {
    let start = Instant::now();
    let mut admitted = AdmissionCounts::default();
    let mut under_way = JoinSet::new();
    let mut pace = interval(CREATE_INTERVAL);
    loop {
        select! {
            _ = &mut stopped => break,
            _ = pace.tick() => {
                admitted.sent += 1;
                under_way.spawn(create_one(address.clone(), path.clone()));
            }
            Some(done) = under_way.join_next() => admitted.add(done),
        }
    }
    admitted.seconds = start.elapsed().as_secs_f64();
    while let Some(done) = under_way.join_next().await {
        admitted.add(done);
    }
    admitted
}

/// Creates one, and deletes it.
async fn create_one(address: AdminAddress, path: String) -> PodResult {
    let pod = match post(&address, &path).await {
        Ok(TextResponse { status, body }) if status == StatusCode::CREATED => classify(&body),
        Ok(TextResponse { status, body }) => {
            PodResult::Failed(format!("{status}: {}", body.trim()))
        }
        Err(error) => PodResult::Failed(format!("{error:#}")),
    };
    if let PodResult::Injected(name) | PodResult::NotInjected(name) = &pod {
        // What stays goes with the namespace.
        let path = format!("{path}/{name}?gracePeriodSeconds=0");
        let _ = send(&address, Method::DELETE, &path, None).await;
    }
    pod
}

async fn post(address: &AdminAddress, path: &str) -> Result<TextResponse> {
    send(address, Method::POST, path, Some(&pod_with_inject())).await
}

async fn send(
    address: &AdminAddress,
    method: Method,
    path: &str,
    object: Option<&Value>,
) -> Result<TextResponse> {
    let body = object.map_or_else(Bytes::new, |object| object.to_string().into());
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "localhost")
        .header("content-type", "application/json")
        .body(Full::new(body))?;
    timeout(REQUEST_TIMEOUT, exchange(address, request)).await?
}

fn classify(body: &str) -> PodResult {
    let pod: Value = serde_json::from_str(body).unwrap_or_default();
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    match pod["metadata"]["labels"]["envoy-drainer.dev/injected"] == "true" {
        true => PodResult::Injected(name.to_owned()),
        false => PodResult::NotInjected(name.to_owned()),
    }
}

/// A pod that asks for a drainer, and is not to be scheduled.
pub(crate) fn pod_with_inject() -> Value {
    let mut pod = template_with_inject();
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod["metadata"]["generateName"] = json!("asking-");
    pod
}

/// The template of such a pod.
pub(crate) fn template_with_inject() -> Value {
    json!({
        "metadata": { "annotations": { "envoy-drainer.dev/inject": "true" } },
        "spec": {
            "schedulingGates": [{ "name": "envoy-drainer.dev/never" }],
            "securityContext": restricted::pod(),
            "containers": [{
                "name": "envoy",
                "image": "envoy",
                "securityContext": restricted::container(),
            }],
        },
    })
}

// === impl Admitted ===

impl AdmissionCounts {
    fn add(&mut self, pod: Result<PodResult, tokio::task::JoinError>) {
        match pod {
            Ok(PodResult::Injected(_)) => self.injected += 1,
            Ok(PodResult::NotInjected(_)) => self.not_injected += 1,
            Ok(PodResult::Failed(how)) => self.record_failure(how),
            Err(error) => self.record_failure(error.to_string()),
        }
    }

    fn record_failure(&mut self, how: String) {
        self.failed += 1;
        if self.details.len() < MAX_DETAILS {
            self.details.push(how);
        }
    }

    /// The share of those that were to be created in the time: 1 is all.
    fn rate_ratio(&self) -> f64 {
        self.sent as f64 / (self.seconds / CREATE_INTERVAL.as_secs_f64()).max(1.0)
    }

    /// Makes sure that each was created with its drainer.
    ///
    /// # Errors
    /// When one was not.
    pub(crate) fn ensure_all_injected(&self) -> Result<()> {
        let Self { details, .. } = self;
        ensure!(self.injected == self.sent, "{self}: {details:#?}");
        Ok(())
    }
}

impl fmt::Display for AdmissionCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            sent,
            not_injected: unseen,
            failed,
            seconds,
            ..
        } = self;
        let reached = self.rate_ratio() * 100.0;
        write!(
            f,
            "{failed} of {sent} failed, {unseen} without a drainer, in {seconds:.0} s, \
             {reached:.1} % of the rate reached"
        )
    }
}
