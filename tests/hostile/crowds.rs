//! Crowds on each port of the webhook, and what the API server and the kubelet have meanwhile.

mod crowd;
mod honest;
mod metrics;

use std::collections::BTreeSet;
use std::env;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tests::binaries::envoy_drainer_of_image;
use tests::http::Client;
use tests::https::inject_request;
use tests::shipped::WebhookProcess;
use tests::webhook::review;
use tokio::time::{Instant, sleep, timeout};

use crowd::{ATTACKS, Attack, RunningAttack};
use honest::ReferenceClients;
use metrics::ConnectionMetrics;

use crate::MEASUREMENT_LOCK;

/// How long each crowd stays; `HOSTILE_SECONDS` has another number.
const ATTACK_TIME: Duration = Duration::from_secs(4);

/// An honest call, on a connection of its own, and a probe are answered within this where it is measured,
/// with `HOSTILE_SECONDS`.
const MAX_LATENCY: Duration = Duration::from_secs(1);

/// The same on a machine that may be busy: less than the 5 s for which the API server waits.
const MAX_LATENCY_BUSY: Duration = Duration::from_secs(3);

/// The most memory that may ever be resident or in the kernel's queues, in KiB: three quarters of the
/// chart's limit.
const MAX_MEMORY: u64 = 96 << 10;

/// What one crowd did.
struct AttackResult {
    attack: &'static str,
    calls: honest::Latencies,
    probes: honest::Latencies,
    peak: u64,
    socket_queue_size: u64,
    metrics: ConnectionMetrics,
}

#[tokio::test]
async fn honest_clients_are_served_in_every_crowd() {
    let _alone = MEASUREMENT_LOCK.lock().await;
    let (stay, bar) =
        env::var("HOSTILE_SECONDS").map_or((ATTACK_TIME, MAX_LATENCY_BUSY), |seconds| {
            let seconds = seconds.parse().expect("HOSTILE_SECONDS is a number");
            (Duration::from_secs(seconds), MAX_LATENCY)
        });
    let only = env::var("HOSTILE_CROWD").unwrap_or_default();
    println!(
        "\n{:36}{:>7}{:>10}{:>8}{:>10}{:>11}{:>11}{:>9}{:>9}{:>7}",
        "crowd", "calls", "worst", "probes", "worst", "peak", "queued", "taken", "evicted", "full"
    );
    let mut missed = Vec::new();
    for crowd in ATTACKS.iter().filter(|crowd| crowd.name.contains(&only)) {
        let row = run_attack(crowd, stay).await.expect(crowd.name);
        row.print();
        missed.extend(row.violations(bar));
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

/// The names and labels of all that the metrics have.
async fn metric_series(webhook: &WebhookProcess) -> Result<BTreeSet<String>> {
    let text = Client::from(webhook.metrics).get("/metrics").await?.body;
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let names = lines.filter_map(|line| Some(line.rsplit_once(' ')?.0.to_owned()));
    Ok(names.collect())
}

#[tokio::test]
async fn odd_reviews_make_no_series() {
    let _alone = MEASUREMENT_LOCK.lock().await;
    let program = envoy_drainer_of_image().await.unwrap();
    let webhook = WebhookProcess::start(&program).await.unwrap();
    let mut connection = webhook.https.connect().await.unwrap();
    let mut known = BTreeSet::new();
    for n in 0..10_000 {
        let odd = |what: &str| json!(format!("{what}-{n}-\"\\\n{{}}"));
        let (pointer, value) = match n % 8 {
            0 => ("/request/namespace", odd("namespace")),
            1 => ("/request/name", odd("name")),
            2 => ("/request/operation", odd("operation")),
            3 => ("/request/kind/kind", odd("kind")),
            4 => (
                "/request/object/metadata/annotations",
                json!({"envoy-drainer.dev/inject": odd("answer")}),
            ),
            5 => ("/request/object/spec/containers/0/name", odd("container")),
            6 => ("/request/object/spec", odd("spec")),
            _ => ("/apiVersion", odd("version")),
        };
        let review = review(&format!("{n}")).with(pointer, value);
        connection
            .send(inject_request(review.bytes()))
            .await
            .unwrap();
        match n {
            99 => known = metric_series(&webhook).await.unwrap(),
            9_999 => assert_eq!(metric_series(&webhook).await.unwrap(), known),
            _ => {}
        }
    }
}

/// Starts a webhook, has the crowd come and stay, and measures it all the while.
async fn run_attack(crowd: &Attack, stay: Duration) -> Result<AttackResult> {
    let webhook = WebhookProcess::start(&envoy_drainer_of_image().await?).await?;
    let running = RunningAttack::start(crowd, &webhook)?;
    let honest = ReferenceClients::start(&webhook)?;
    let end = Instant::now() + stay;
    let mut metrics = ConnectionMetrics::default();
    let mut queued = 0;
    while Instant::now() < end {
        sleep(Duration::from_millis(500)).await;
        ensure!(webhook.process.is_running(), "the webhook ended");
        // Prometheus' own patience is 10 s.
        let read = timeout(
            Duration::from_secs(10),
            ConnectionMetrics::read(&webhook, crowd.port),
        );
        queued = queued.max(webhook.socket_queue_size()?);
        metrics = metrics.max(read.await.context("no metrics")??);
    }
    let (calls, probes) = honest.finish()?;
    let peak = webhook.peak_memory()?;
    running.stop();
    Ok(AttackResult {
        attack: crowd.name,
        calls,
        probes,
        peak,
        socket_queue_size: queued,
        metrics,
    })
}

// === impl Row ===

impl AttackResult {
    fn print(&self) {
        let Self {
            attack: crowd,
            calls,
            probes,
            peak,
            socket_queue_size: queued,
            metrics,
        } = self;
        println!(
            "{crowd:36}{:>7}{:>7} ms{:>8}{:>7} ms{:>7.1} MiB{:>7.1} MiB{:>9}{:>9}{:>5} s",
            calls.answered,
            calls.max.as_millis(),
            probes.answered,
            probes.max.as_millis(),
            *peak as f64 / 1024.0,
            *queued as f64 / 1024.0,
            metrics.slots_used,
            metrics.evicted,
            metrics.seconds_full,
        );
    }

    /// What was missed: the time for an honest answer, or the bound on memory.
    fn violations(&self, bar: Duration) -> Vec<String> {
        let mut missed = Vec::new();
        for (what, times) in [("call", &self.calls), ("probe", &self.probes)] {
            if let Some(error) = &times.failed {
                missed.push(format!("{}: a {what} failed: {error}", self.attack));
            }
            if times.max > bar || times.answered == 0 {
                missed.push(format!("{}: a {what} took {:?}", self.attack, times.max));
            }
        }
        let memory = self.peak + self.socket_queue_size;
        if memory > MAX_MEMORY {
            missed.push(format!("{}: {memory} KiB were taken", self.attack));
        }
        missed
    }
}
