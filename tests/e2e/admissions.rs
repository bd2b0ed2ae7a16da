//! A load of pod creations, which shows any admission that the webhook misses.

use std::fmt;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Error, Result, bail, ensure};
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
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, interval, timeout};

use crate::kubectl;
use crate::namespace::Namespace;
use crate::outcome::{Inconclusive, MIN_RATE_RATIO};
use crate::restricted;

/// The interval between two pods: ten per second.
const CREATE_INTERVAL: Duration = Duration::from_millis(100);

/// More than the API server waits for a webhook, which is 10 s at most.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

/// How many failures are kept with their messages.
const MAX_DETAILS: usize = 5;

/// A running load.
#[derive(Debug)]
pub(crate) struct AdmissionLoad {
    /// `kubectl proxy`: one `kubectl` process per pod would load the machine more than the pods do.
    _proxy: Child,
    stop: oneshot::Sender<()>,
    tasks: JoinSet<AdmissionCounts>,
}

/// The counts of a load.
#[derive(Debug, Default)]
pub(crate) struct AdmissionCounts {
    /// Pods sent to the API server.
    pub(crate) sent: u64,
    /// Pods created with a drainer.
    pub(crate) injected: u64,
    /// Pods created without a drainer.
    pub(crate) not_injected: u64,
    /// Pods that were not created.
    pub(crate) failed: u64,
    details: Vec<String>,
    seconds: f64,
}

// === impl AdmissionLoad ===

impl AdmissionLoad {
    /// Starts to create pods that request a drainer. They are never scheduled.
    ///
    /// # Errors
    /// If `kubectl proxy` does not start.
    pub(crate) async fn start(namespace: &Namespace) -> Result<Self> {
        let mut proxy = kubectl::start(&["proxy", "--port=0"], Stdio::piped())?;
        let stdout = proxy.stdout.take().context("stdout is piped")?;
        let line = BufReader::new(stdout).lines().next_line().await?;
        let line = line.context("kubectl proxy printed no address")?;
        let address = line.rsplit(' ').next().unwrap_or_default();
        let address = AdminAddress::Tcp(address.parse().context(line.clone())?);
        let path = format!("/api/v1/namespaces/{}/pods", namespace.name());
        let (stop, stopped) = oneshot::channel();
        let mut tasks = JoinSet::new();
        tasks.spawn(create_pods(address, path, stopped));
        Ok(Self {
            _proxy: proxy,
            stop,
            tasks,
        })
    }

    /// Stops the load and returns its counts, once all responses have arrived.
    ///
    /// # Errors
    /// [`Inconclusive`] if fewer pods were sent than [`MIN_RATE_RATIO`] allows.
    pub(crate) async fn stop(mut self) -> Result<AdmissionCounts> {
        // The receiver exists: the task runs until this message.
        let _ = self.stop.send(());
        let counts = self.tasks.join_next().await;
        let counts = counts.context("the task has not been joined yet")??;
        if counts.rate_ratio() < MIN_RATE_RATIO {
            bail!(Inconclusive(counts.to_string()));
        }
        Ok(counts)
    }
}

/// Creates pods at a fixed rate, without waiting for the responses.
async fn create_pods(
    address: AdminAddress,
    path: String,
    mut stopped: oneshot::Receiver<()>,
) -> AdmissionCounts {
    let start = Instant::now();
    let mut counts = AdmissionCounts::default();
    let mut in_flight = JoinSet::new();
    let mut ticks = interval(CREATE_INTERVAL);
    loop {
        select! {
            _ = &mut stopped => break,
            _ = ticks.tick() => {
                counts.sent += 1;
                in_flight.spawn(create_one(address.clone(), path.clone()));
            }
            Some(result) = in_flight.join_next() => counts.add(result),
        }
    }
    counts.seconds = start.elapsed().as_secs_f64();
    while let Some(result) = in_flight.join_next().await {
        counts.add(result);
    }
    counts
}

/// Creates a pod and deletes it. Returns whether it has a drainer.
async fn create_one(address: AdminAddress, path: String) -> Result<bool> {
    let response = send(&address, Method::POST, &path, Some(&pod_with_inject())).await;
    let TextResponse { status, body } = response?;
    ensure!(status == StatusCode::CREATED, "{status}: {}", body.trim());
    let pod: Value = serde_json::from_str(&body).unwrap_or_default();
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    // A pod that is not deleted here is deleted with its namespace.
    let path = format!("{path}/{name}?gracePeriodSeconds=0");
    let _ = send(&address, Method::DELETE, &path, None).await;
    Ok(pod["metadata"]["labels"]["envoy-drainer.dev/injected"] == "true")
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
    timeout(REQUEST_TIMEOUT, exchange(address, request))
        .await
        .with_context(|| {
            format!("no response from the API server to {path} within {REQUEST_TIMEOUT:?}")
        })?
}

/// Returns a pod that requests a drainer and is never scheduled.
pub(crate) fn pod_with_inject() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": "requesting-",
            "annotations": { "envoy-drainer.dev/inject": "true" },
        },
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

// === impl AdmissionCounts ===

impl AdmissionCounts {
    fn add(&mut self, result: Result<Result<bool>, JoinError>) {
        match result.map_err(Error::from).flatten() {
            Ok(true) => self.injected += 1,
            Ok(false) => self.not_injected += 1,
            Err(error) => {
                self.failed += 1;
                if self.details.len() < MAX_DETAILS {
                    self.details.push(format!("{error:#}"));
                }
            }
        }
    }

    /// Returns the pods sent as a share of those that the rate requires: 1 is all of them.
    fn rate_ratio(&self) -> f64 {
        self.sent as f64 / (self.seconds / CREATE_INTERVAL.as_secs_f64()).max(1.0)
    }

    /// Returns an error unless every pod was created with a drainer.
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
            not_injected,
            failed,
            seconds,
            ..
        } = self;
        let percent = self.rate_ratio() * 100.0;
        write!(
            f,
            "{failed} of {sent} failed, {not_injected} without a drainer, in {seconds:.0} s, \
             at {percent:.1} % of the intended rate"
        )
    }
}
