//! Attacks by floods of connections on each port of the webhook, and the latencies that the API server and the
//! kubelet see meanwhile.

mod attack;
mod cluster;
mod cpu_limit;
mod metrics;
mod reference_clients;
mod socket_queues;

use std::collections::BTreeSet;
use std::env;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;
use tests::binaries::envoy_drainer_of_image;
use tests::http::Client;
use tests::https::inject_request;
use tests::webhook::review;
use tests::webhook_process::WebhookProcess;
use tokio::time::{Instant, sleep};

use attack::{Attack, RunningAttack, attacks};
use cluster::largest_cluster;
use cpu_limit::{CpuLimit, parse_millicores};
use metrics::ConnectionMetrics;
use reference_clients::{Latencies, ReferenceClients};
use socket_queues::queued_bytes;

use crate::MEASUREMENT_LOCK;

/// The duration of an attack without `HOSTILE_SECONDS`.
const ATTACK_TIME: Duration = Duration::from_secs(4);

/// The attacks that run without `HOSTILE_SECONDS` and `HOSTILE_FLOOD`.
const BRIEF_ATTACKS: [&str; 5] = [
    "600 open on the metrics port",
    "600 with small and large bodies",
    "continuous handshakes",
    "600 pipelining, 8 addresses",
    "120 with forged tokens",
];

/// Maximum latency of a legitimate call, on a new connection, and of a probe, with `HOSTILE_SECONDS`.
const MAX_LATENCY: Duration = Duration::from_secs(1);

/// Maximum latency on a machine that may be busy: less than the API server's timeout of 5 s.
const MAX_LATENCY_BUSY: Duration = Duration::from_secs(3);

/// Maximum of resident memory and the kernel's socket queues together, in KiB: three quarters of the
/// chart's limit.
const MAX_MEMORY: u64 = 96 << 10;

/// In a flood from as many addresses, a call may take [`MAX_LATENCY_BUSY`], since it waits for a share of each of them.
const MANY_ADDRESSES: u16 = 100;

/// With less CPU than a core, `HOSTILE_CPU`, latencies and lost calls are printed, and only the memory is limited.
const MIN_MILLICORES: u64 = 1_000;

/// The columns of what is printed of each attack.
const HEADER: &str = "attack                                  \
    calls       max   kept  lost       max  probes       max       peak     queued    slots  evicted   full";

/// The figures of one attack.
struct AttackResult {
    name: &'static str,
    source_addresses: u16,
    calls: Latencies,
    probes: Latencies,
    /// Calls on kept connections.
    kept: Latencies,
    peak: u64,
    socket_queue_size: u64,
    metrics: ConnectionMetrics,
}

#[tokio::test]
async fn legitimate_clients_are_served_during_every_attack() {
    let _lock = MEASUREMENT_LOCK.lock().await;
    let seconds = env::var("HOSTILE_SECONDS").ok().map(|seconds| {
        let seconds = seconds.parse();
        seconds.expect("HOSTILE_SECONDS must be a number of seconds")
    });
    let (duration, max_latency) = match seconds {
        Some(seconds) => (Duration::from_secs(seconds), MAX_LATENCY),
        None => (ATTACK_TIME, MAX_LATENCY_BUSY),
    };
    // Selects attacks by a part of their name.
    let name_filter = env::var("HOSTILE_FLOOD").ok();
    let is_selected = |name: &str| match &name_filter {
        Some(part) => name.contains(part),
        None => seconds.is_some() || BRIEF_ATTACKS.contains(&name),
    };
    // As Kubernetes writes it: `25m`.
    let millicores = env::var("HOSTILE_CPU").ok().map(|cpu| {
        println!("\nthe webhook has {cpu} of CPU");
        parse_millicores(&cpu).expect("HOSTILE_CPU must be an amount of CPU")
    });
    let cpu_limit = match millicores.map(CpuLimit::try_new).transpose() {
        Ok(cpu_limit) => cpu_limit,
        Err(error) => {
            println!("SKIPPED: a control group limits the CPU, which needs root: {error}");
            return;
        }
    };
    let is_slow = millicores.is_some_and(|millicores| millicores < MIN_MILLICORES);
    println!("\n{HEADER}");
    let mut violations = Vec::new();
    for attack in attacks().filter(|attack| is_selected(attack.name)) {
        let result = run_attack(&attack, duration, cpu_limit.as_ref()).await;
        let result = result.expect(attack.name);
        result.print();
        if !is_slow {
            violations.extend(result.violations(max_latency));
        }
        violations.extend(result.excess_memory());
    }
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}

/// Returns the names and labels of all metric series.
async fn metric_series(webhook: &WebhookProcess) -> Result<BTreeSet<String>> {
    let text = Client::from(webhook.metrics).get("/metrics").await?.body;
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let series = lines.filter_map(|line| Some(line.rsplit_once(' ')?.0.to_owned()));
    Ok(series.collect())
}

#[tokio::test]
async fn unusual_reviews_create_no_metric_series() {
    let _lock = MEASUREMENT_LOCK.lock().await;
    let program = envoy_drainer_of_image().await.unwrap();
    let webhook = WebhookProcess::start(&program).await.unwrap();
    let mut connection = webhook.https.connect().await.unwrap();
    let mut expected = BTreeSet::new();
    for n in 0..10_000 {
        let unusual = |field: &str| json!(format!("{field}-{n}-\"\\\n{{}}"));
        let (pointer, value) = match n % 8 {
            0 => ("/request/namespace", unusual("namespace")),
            1 => ("/request/name", unusual("name")),
            2 => ("/request/operation", unusual("operation")),
            3 => ("/request/kind/kind", unusual("kind")),
            4 => (
                "/request/object/metadata/annotations",
                json!({"envoy-drainer.dev/inject": unusual("value")}),
            ),
            5 => (
                "/request/object/spec/containers/0/name",
                unusual("container"),
            ),
            6 => ("/request/object/spec", unusual("spec")),
            _ => ("/apiVersion", unusual("version")),
        };
        let review = review(&format!("{n}")).with(pointer, value);
        let sent = connection.send(inject_request(review.bytes()));
        sent.await.unwrap();
        match n {
            99 => expected = metric_series(&webhook).await.unwrap(),
            9_999 => assert_eq!(metric_series(&webhook).await.unwrap(), expected),
            _ => {}
        }
    }
}

/// Starts a webhook, attacks it for `duration` and measures it meanwhile.
async fn run_attack(
    attack: &Attack,
    duration: Duration,
    cpu_limit: Option<&CpuLimit>,
) -> Result<AttackResult> {
    let program = envoy_drainer_of_image().await?;
    let cluster = match attack.port {
        "drainer-api" => Some(largest_cluster().await?),
        _ => None,
    };
    let webhook = match &cluster {
        Some(cluster) => WebhookProcess::start_in_cluster(&program, cluster).await?,
        None => WebhookProcess::start(&program).await?,
    };
    if let Some(cpu_limit) = cpu_limit {
        cpu_limit.apply(&webhook.process)?;
    }
    let running = RunningAttack::start(attack, &webhook)?;
    let reference = ReferenceClients::start(&webhook)?;
    let end = Instant::now() + duration;
    let mut metrics = ConnectionMetrics::default();
    let tls_ports = [webhook.tls, webhook.drainer_api].map(|address| address.port());
    let mut socket_queue_size = 0;
    while Instant::now() < end {
        sleep(Duration::from_millis(500)).await;
        ensure!(webhook.process.is_running(), "the webhook exited");
        socket_queue_size = socket_queue_size.max(queued_bytes(&tls_ports)? >> 10);
        metrics = metrics.max(ConnectionMetrics::read(&webhook, attack.port).await?);
    }
    let [calls, probes, kept] = reference.finish()?;
    let peak = webhook.peak_memory()?;
    running.stop();
    Ok(AttackResult {
        name: attack.name,
        source_addresses: attack.source_addresses,
        calls,
        probes,
        kept,
        peak,
        socket_queue_size,
        metrics,
    })
}

// === impl AttackResult ===

impl AttackResult {
    fn print(&self) {
        let (calls, kept, probes) = (&self.calls, &self.kept, &self.probes);
        println!(
            "{:38}{:>7}{:>7} ms{:>7}{:>6}{:>7} ms{:>8}{:>7} ms{:>7.1} MiB{:>7.1} MiB{:>9}{:>9}{:>5} s",
            self.name,
            calls.answered,
            calls.max.as_millis(),
            kept.answered,
            self.lost(),
            kept.max.as_millis(),
            probes.answered,
            probes.max.as_millis(),
            self.peak as f64 / 1024.0,
            self.socket_queue_size as f64 / 1024.0,
            self.metrics.slots_used,
            self.metrics.evicted,
            self.metrics.seconds_full,
        );
        if let Some(error) = self.first_loss() {
            println!("{}: first call lost: {error}", self.name);
        }
    }

    /// The number of calls that were lost, on new and on kept connections.
    fn lost(&self) -> u32 {
        self.calls.failures + self.kept.failures
    }

    fn first_loss(&self) -> Option<&str> {
        let failed = self.calls.failed.as_ref().or(self.kept.failed.as_ref());
        failed.map(String::as_str)
    }

    /// Returns a message for each limit of latencies and losses that was exceeded. Of a hundred calls on kept connections,
    /// one may be lost.
    fn violations(&self, max_latency: Duration) -> Vec<String> {
        let mut violations = Vec::new();
        let max_call_latency = if self.source_addresses >= MANY_ADDRESSES {
            MAX_LATENCY_BUSY
        } else {
            max_latency
        };
        let Self {
            name,
            calls,
            probes,
            kept,
            ..
        } = self;
        for (request, latencies, max) in [
            ("call", calls, max_call_latency),
            ("kept call", kept, max_call_latency),
            ("probe", probes, max_latency),
        ] {
            if latencies.max > max || latencies.answered == 0 {
                violations.push(format!("{name}: a {request} took {:?}", latencies.max));
            }
        }
        if let Some(error) = &probes.failed {
            violations.push(format!("{name}: a probe failed: {error}"));
        }
        if let Some(error) = &calls.failed {
            violations.push(format!("{name}: a call failed: {error}"));
        }
        let (lost, answered) = (self.lost(), calls.answered + kept.answered);
        if lost * 100 > answered + lost {
            let error = self.first_loss().unwrap_or_default();
            violations.push(format!(
                "{name}: {lost} calls lost, {answered} answered: {error}"
            ));
        }
        violations
    }

    /// Returns a message if the memory exceeded its limit.
    fn excess_memory(&self) -> Option<String> {
        let memory = self.peak + self.socket_queue_size;
        let is_exceeded = memory > MAX_MEMORY;
        is_exceeded.then(|| format!("{}: {memory} KiB of memory in use", self.name))
    }
}
