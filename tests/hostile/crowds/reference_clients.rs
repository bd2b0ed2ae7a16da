//! Legitimate clients, the API server and the kubelet: a call and a probe every 100 ms, each on a new connection.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use tests::http::Client;
use tests::https::inject_request;
use tests::webhook::{assert_injected, review};
use tokio::runtime;
use tokio::time::{Instant, sleep, timeout};

use tests::shipped::WebhookProcess;

/// The API server's source address, which no attack uses.
const API_SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 9, 9, 9));

const CALL_INTERVAL: Duration = Duration::from_millis(100);

/// The `timeoutSeconds` of the chart's webhook configuration.
const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(5);

/// Running reference clients, on a thread of their own so that the attack's load does not distort the latencies.
pub(crate) struct ReferenceClients {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<(Latencies, Latencies)>>,
}

/// The latencies of successful and failed requests.
#[derive(Debug, Default)]
pub(crate) struct Latencies {
    /// Number of successful responses.
    pub(crate) answered: u32,
    /// The longest time that a request took.
    pub(crate) max: Duration,
    /// The first failure.
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
                let calls = measure(&stop_signal, async || {
                    let response = https
                        .send(inject_request(review("reference").bytes()))
                        .await?;
                    assert_injected(&response, "reference");
                    Ok(())
                });
                let probes = measure(&stop_signal, async || {
                    for path in ["/healthz", "/readyz"] {
                        let response = kubelet.get(path).await?;
                        ensure!(response.status.is_success(), "{path}: {}", response.status);
                    }
                    Ok(())
                });
                Ok(runtime.block_on(async { tokio::join!(calls, probes) }))
            })?;
        Ok(Self { stop, thread })
    }

    /// Stops the clients and returns the latencies of calls and probes.
    pub(crate) fn finish(self) -> Result<(Latencies, Latencies)> {
        self.stop.store(true, Ordering::Relaxed);
        let result = self.thread.join();
        result.map_err(|_| anyhow!("a reference client panicked"))?
    }
}

async fn measure(stop: &AtomicBool, exchange: impl AsyncFn() -> Result<()>) -> Latencies {
    let mut latencies = Latencies::default();
    while !stop.load(Ordering::Relaxed) {
        let started = Instant::now();
        let result = timeout(WEBHOOK_TIMEOUT, exchange()).await;
        latencies.max = latencies.max.max(started.elapsed());
        match result.context("timed out").flatten() {
            Ok(()) => latencies.answered += 1,
            Err(error) => latencies.failed = latencies.failed.or(Some(format!("{error:#}"))),
        }
        sleep(CALL_INTERVAL).await;
    }
    latencies
}
