//! The API server and the kubelet: a call and a probe each tenth of a second, each on a new connection.

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

/// Where the API server calls from, which no crowd does.
const API_SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 9, 9, 9));

const CALL_INTERVAL: Duration = Duration::from_millis(100);

/// The API server gives a webhook of the chart's five seconds.
const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(5);

/// Honest clients at work, on a thread of their own, so that a busy crowd is not what is measured.
pub(crate) struct ReferenceClients {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<(Latencies, Latencies)>>,
}

/// How long answers took.
#[derive(Debug, Default)]
pub(crate) struct Latencies {
    pub(crate) answered: u32,
    pub(crate) max: Duration,
    /// The first failure.
    pub(crate) failed: Option<String>,
}

// === impl Honest ===

impl ReferenceClients {
    /// Starts to call and to probe.
    pub(crate) fn start(webhook: &WebhookProcess) -> Result<Self> {
        let over = Arc::new(AtomicBool::new(false));
        let https = webhook.https.clone().with_source(API_SERVER);
        let kubelet = Client::from(webhook.health).with_timeout(WEBHOOK_TIMEOUT);
        let until = Arc::clone(&over);
        let thread = thread::Builder::new()
            .name("honest".into())
            .spawn(move || {
                let runtime = runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()?;
                let calls = measure(&until, async || {
                    let answer = https.send(inject_request(review("honest").bytes())).await?;
                    assert_injected(&answer, "honest");
                    Ok(())
                });
                let probes = measure(&until, async || {
                    for path in ["/healthz", "/readyz"] {
                        let answer = kubelet.get(path).await?;
                        ensure!(answer.status.is_success(), "{path}: {}", answer.status);
                    }
                    Ok(())
                });
                Ok(runtime.block_on(async { tokio::join!(calls, probes) }))
            })?;
        Ok(Self { stop: over, thread })
    }

    /// Ends, and tells how long calls and probes took.
    pub(crate) fn finish(self) -> Result<(Latencies, Latencies)> {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.join();
        ended.map_err(|_| anyhow!("an honest client panicked"))?
    }
}

async fn measure(over: &AtomicBool, exchange: impl AsyncFn() -> Result<()>) -> Latencies {
    let mut times = Latencies::default();
    while !over.load(Ordering::Relaxed) {
        let started = Instant::now();
        let done = timeout(WEBHOOK_TIMEOUT, exchange()).await;
        times.max = times.max.max(started.elapsed());
        match done.context("no answer in time").flatten() {
            Ok(()) => times.answered += 1,
            Err(error) => times.failed = times.failed.or(Some(format!("{error:#}"))),
        }
        sleep(CALL_INTERVAL).await;
    }
    times
}
