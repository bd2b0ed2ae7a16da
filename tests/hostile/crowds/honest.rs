//! The API server and the kubelet: a call and a probe each tenth of a second, each on a new connection.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use tests::http::Client;
use tests::https::inject;
use tests::webhook::{assert_injected, review};
use tokio::runtime;
use tokio::time::{Instant, sleep, timeout};

use tests::shipped::Shipped;

/// Where the API server calls from, which no crowd does.
const API_SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 9, 9, 9));

const PAUSE: Duration = Duration::from_millis(100);

/// The API server gives a webhook of the chart's five seconds.
const PATIENCE: Duration = Duration::from_secs(5);

/// Honest clients at work, on a thread of their own, so that a busy crowd is not what is measured.
pub(crate) struct Honest {
    over: Arc<AtomicBool>,
    thread: JoinHandle<Result<(Times, Times)>>,
}

/// How long answers took.
#[derive(Debug, Default)]
pub(crate) struct Times {
    pub(crate) answered: u32,
    pub(crate) worst: Duration,
    /// The first failure.
    pub(crate) failed: Option<String>,
}

// === impl Honest ===

impl Honest {
    /// Starts to call and to probe.
    pub(crate) fn start(webhook: &Shipped) -> Result<Self> {
        let over = Arc::new(AtomicBool::new(false));
        let https = webhook.https.clone().from_address(API_SERVER);
        let kubelet = Client::from(webhook.health).limit(PATIENCE);
        let until = Arc::clone(&over);
        let thread = thread::Builder::new()
            .name("honest".into())
            .spawn(move || {
                let runtime = runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()?;
                let calls = repeat(&until, async || {
                    let answer = https.send(inject(review("honest").bytes())).await?;
                    assert_injected(&answer, "honest");
                    Ok(())
                });
                let probes = repeat(&until, async || {
                    for path in ["/healthz", "/readyz"] {
                        let answer = kubelet.get(path).await?;
                        ensure!(answer.status.is_success(), "{path}: {}", answer.status);
                    }
                    Ok(())
                });
                Ok(runtime.block_on(async { tokio::join!(calls, probes) }))
            })?;
        Ok(Self { over, thread })
    }

    /// Ends, and tells how long calls and probes took.
    pub(crate) fn end(self) -> Result<(Times, Times)> {
        self.over.store(true, Ordering::Relaxed);
        let ended = self.thread.join();
        ended.map_err(|_| anyhow!("an honest client panicked"))?
    }
}

async fn repeat(over: &AtomicBool, exchange: impl AsyncFn() -> Result<()>) -> Times {
    let mut times = Times::default();
    while !over.load(Ordering::Relaxed) {
        let started = Instant::now();
        let done = timeout(PATIENCE, exchange()).await;
        times.worst = times.worst.max(started.elapsed());
        match done.context("no answer in time").flatten() {
            Ok(()) => times.answered += 1,
            Err(error) => times.failed = times.failed.or(Some(format!("{error:#}"))),
        }
        sleep(PAUSE).await;
    }
    times
}
