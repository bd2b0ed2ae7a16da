//! Legitimate clients, the API server and the kubelet: a call and a probe every 100 ms, each on a new connection, and
//! calls on kept connections.

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use bytes::Bytes;
use futures_util::future::join_all;
use hyper::Response;
use hyper::header::CONNECTION;
use tests::http::Client;
use tests::https::{HttpsClient, HttpsConnection, inject_request};
use tests::webhook::{assert_injected, review};
use tokio::runtime;
use tokio::time::{Instant, sleep, timeout};

use tests::webhook_process::WebhookProcess;

/// The API server's source address, which no attack uses.
const API_SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 9, 9, 9));

const CALL_INTERVAL: Duration = Duration::from_millis(100);

/// The `timeoutSeconds` of the chart's webhook configuration.
const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(5);

/// How many calls are made at a time on kept connections, one after the other.
const KEEPERS: usize = 4;

/// Pause after a call on a kept connection.
const KEPT_INTERVAL: Duration = Duration::from_millis(10);

/// Running reference clients, on a thread of their own so that the attack's load does not distort the latencies.
pub(crate) struct ReferenceClients {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<[Latencies; 3]>>,
}

/// The latencies of successful and failed requests.
#[derive(Debug, Default)]
pub(crate) struct Latencies {
    /// Number of successful responses.
    pub(crate) answered: u32,
    /// The longest time that a request took.
    pub(crate) max: Duration,
    /// Number of failures, and the first one.
    pub(crate) failures: u32,
    pub(crate) failed: Option<String>,
}

// === impl ReferenceClients ===

impl ReferenceClients {
    /// Starts the calls and the probes.
    pub(crate) fn start(webhook: &WebhookProcess) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let https = webhook.https.clone().with_source(API_SERVER);
        let kubelet = Client::from(webhook.health).with_timeout(WEBHOOK_TIMEOUT);
        let stop_signal = Arc::clone(&stop);
        let thread = thread::Builder::new()
            .name("reference".into())
            .spawn(move || {
                let runtime = runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()?;
                let connections = RefCell::new(Vec::new());
                let kept = (0..KEEPERS).map(|_| {
                    measure(&stop_signal, KEPT_INTERVAL, async || {
                        call_on_kept(&https, &connections).await
                    })
                });
                let calls = measure(&stop_signal, CALL_INTERVAL, async || {
                    let response = https
                        .send(inject_request(review("reference").bytes()))
                        .await?;
                    ensure_injected(&response)?;
                    Ok(())
                });
                let probes = measure(&stop_signal, CALL_INTERVAL, async || {
                    for path in ["/healthz", "/readyz"] {
                        let response = kubelet.get(path).await?;
                        ensure!(response.status.is_success(), "{path}: {}", response.status);
                    }
                    Ok(())
                });
                let kept = join_all(kept);
                let (calls, probes, kept) =
                    runtime.block_on(async { tokio::join!(calls, probes, kept) });
                let kept = kept.into_iter().reduce(Latencies::add).unwrap_or_default();
                Ok([calls, probes, kept])
            })?;
        Ok(Self { stop, thread })
    }

    /// Stops the clients and returns the latencies of calls, probes, and calls on kept connections.
    pub(crate) fn finish(self) -> Result<[Latencies; 3]> {
        self.stop.store(true, Ordering::Relaxed);
        let result = self.thread.join();
        result.map_err(|_| anyhow!("a reference client panicked"))?
    }
}

/// A call that is answered with an HTTP error is lost.
fn ensure_injected(response: &Response<Bytes>) -> Result<()> {
    let status = response.status();
    ensure!(status.is_success(), "{status}: {:?}", response.body());
    assert_injected(response, "reference");
    Ok(())
}

/// Calls as client-go does: on the idle connection that was used last, or else on a new one. A request is sent again
/// only if nothing of it was written, since Go's transport retries no POST otherwise.
async fn call_on_kept(https: &HttpsClient, idle: &RefCell<Vec<HttpsConnection>>) -> Result<()> {
    let request = || inject_request(review("reference").bytes());
    loop {
        let kept = idle.borrow_mut().pop();
        let is_new = kept.is_none();
        let mut connection = match kept {
            Some(kept) => kept,
            None => https.connect().await?,
        };
        let result = connection.send(request()).await;
        let is_unwritten = |error: &anyhow::Error| {
            let error = error.downcast_ref::<hyper::Error>();
            error.is_some_and(|error| error.is_canceled() || error.is_closed())
        };
        if !is_new && result.as_ref().is_err_and(is_unwritten) {
            continue;
        }
        let response = result?;
        ensure_injected(&response)?;
        let closes = response.headers().get(CONNECTION);
        if closes.is_none_or(|value| value != "close") {
            idle.borrow_mut().push(connection);
        }
        return Ok(());
    }
}

// === impl Latencies ===

impl Latencies {
    fn add(self, other: Self) -> Self {
        Self {
            answered: self.answered + other.answered,
            max: self.max.max(other.max),
            failures: self.failures + other.failures,
            failed: self.failed.or(other.failed),
        }
    }
}

async fn measure(
    stop: &AtomicBool,
    interval: Duration,
    exchange: impl AsyncFn() -> Result<()>,
) -> Latencies {
    let mut latencies = Latencies::default();
    while !stop.load(Ordering::Relaxed) {
        let started = Instant::now();
        let result = timeout(WEBHOOK_TIMEOUT, exchange()).await;
        latencies.max = latencies.max.max(started.elapsed());
        match result.context("timed out").flatten() {
            Ok(()) => latencies.answered += 1,
            Err(error) => {
                latencies.failures += 1;
                latencies.failed = latencies.failed.or(Some(format!("{error:#}")));
            }
        }
        sleep(interval).await;
    }
    latencies
}
