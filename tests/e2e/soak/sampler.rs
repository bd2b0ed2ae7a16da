//! What is measured in the cluster, every 30 s: requests, the webhook's replicas, and the drainers.
//!
//! The webhook's metrics count neither tasks nor threads. Each of its connections is a task, so these stand for them.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Write as _;

use anyhow::{Context, Result, ensure};
use tokio::time::{Instant, interval, timeout};

use super::series::{Measure, SAMPLE_INTERVAL, SeriesSet};
use crate::kubectl::kubectl;
use crate::metrics::Metrics;
use crate::namespace::Namespace;
use crate::release::Release;
use crate::termination_message::DRAINER_CONTAINER;
use crate::traffic::Traffic;

/// Samples a cluster.
pub(crate) struct Sampler<'a> {
    release: &'a Release,
    /// The namespace of the Envoys.
    namespace: &'a Namespace,
    traffic: &'a [Traffic<'a>],
    /// The webhook's pod that is never killed.
    kept: &'a str,
    nodes: Vec<String>,
    started: Instant,
    /// How many CAs each of the webhook's pods had created at its last sample because the active one was due.
    due_rotations: BTreeMap<String, u64>,
    /// The samples so far.
    pub(crate) series: SeriesSet,
    /// Samples that could not be taken, as while the API server is away.
    pub(crate) missed: u64,
}

/// The measures of a replica, and their names in its metrics. By how much it may grow: glibc's allocator takes memory
/// by the arena, and API servers open connections as they need them.
const REPLICA_MEASURES: [(Measure, &str); 3] = [
    (
        Measure::new("resident memory", "MiB", Some(2.0)),
        "process_resident_memory_bytes",
    ),
    (
        Measure::new("descriptors", "", Some(8.0)),
        "process_open_fds",
    ),
    (
        Measure::new("connections", "", Some(8.0)),
        "envoy_drainer_connections{",
    ),
];

/// The largest of all drainers, none of which lives long.
const WORKING_SET: Measure = Measure::new("largest working set", "MiB", Some(1.0));

const MIB: f64 = (1 << 20) as f64;

// === impl Sampler ===

impl<'a> Sampler<'a> {
    pub(crate) async fn new(
        release: &'a Release,
        namespace: &'a Namespace,
        traffic: &'a [Traffic<'a>],
        kept: &'a str,
    ) -> Result<Self> {
        let nodes = kubectl(&["get", "nodes", "--output", "name"]).await?;
        let nodes = nodes.lines().filter_map(|line| line.split_once('/'));
        Ok(Self {
            release,
            namespace,
            traffic,
            kept,
            nodes: nodes.map(|(_, name)| name.to_owned()).collect(),
            started: Instant::now(),
            due_rotations: BTreeMap::new(),
            series: SeriesSet::default(),
            missed: 0,
        })
    }

    /// Takes a sample every [`SAMPLE_INTERVAL`], and prints it.
    pub(crate) async fn run(&mut self) -> Infallible {
        let mut ticks = interval(SAMPLE_INTERVAL);
        loop {
            ticks.tick().await;
            let minutes = self.started.elapsed().as_secs_f64() / 60.0;
            let sampled = timeout(SAMPLE_INTERVAL * 2 / 3, self.sample()).await;
            match sampled.context("no response in time").flatten() {
                Ok(line) => println!("  {minutes:5.1} min: {line}"),
                Err(error) => {
                    self.missed += 1;
                    println!("  {minutes:5.1} min: no sample: {error:#}");
                }
            }
        }
    }

    /// Takes a sample. Nothing is recorded if it is not complete.
    async fn sample(&mut self) -> Result<String> {
        let at = self.started.elapsed();
        let (mut sent, mut failed) = (0, 0);
        for traffic in self.traffic {
            let progress = traffic.progress().await?;
            sent += progress.sent;
            failed += progress.failed;
        }
        let mut replicas = Vec::new();
        for pod in self.release.pods().await? {
            match self.release.metrics(&pod).await {
                Ok(metrics) => replicas.push((pod, metrics)),
                // One that was just killed, or has just started, does not respond.
                Err(_) if pod != self.kept => {}
                Err(error) => return Err(error),
            }
        }
        let is_kept = |(pod, _): &(String, _)| pod == self.kept;
        ensure!(replicas.iter().any(is_kept), "{} is gone", self.kept);
        let drainers = self.drainers().await?;
        let mut line = format!("{failed} of {sent} requests failed");
        for (pod, metrics) in replicas {
            let due = metrics.sum(&["ca_rotations_total", "due"])?;
            let subject = if pod == self.kept {
                "webhook, never killed"
            } else {
                "webhook, killed"
            };
            self.due_rotations.insert(pod, due as u64);
            // Writing to a String cannot fail.
            let _ = write!(line, "; {subject}:");
            for (measure, name) in REPLICA_MEASURES {
                let sum = metrics.sum(&[name])?;
                ensure!(sum > 0.0, "no {name}");
                let (value, digits, what) = match measure.unit {
                    "MiB" => (sum / MIB, 1, "MiB"),
                    _ => (sum, 0, measure.name),
                };
                self.series.record(subject, measure, at, value);
                let _ = write!(line, " {value:.digits$} {what}");
            }
        }
        if let Some(largest) = drainers.iter().copied().reduce(f64::max) {
            self.series.record("drainers", WORKING_SET, at, largest);
        }
        Ok(format!("{line}; {} drainers", drainers.len()))
    }

    /// Rotations that were due, but for those by a replica that was killed before its next sample.
    pub(crate) fn due_rotations(&self) -> u64 {
        self.due_rotations.values().sum()
    }

    /// The working sets of all drainers in MiB, as their kubelets count them.
    async fn drainers(&self) -> Result<Vec<f64>> {
        let namespace = format!("namespace=\"{}\"", self.namespace.name());
        let container = format!("container=\"{DRAINER_CONTAINER}\"");
        let words = ["container_memory_working_set_bytes", &namespace, &container];
        let mut all = Vec::new();
        for node in &self.nodes {
            let path = format!("/api/v1/nodes/{node}/proxy/metrics/resource");
            let bytes = Metrics::read(&path).await?.values(&words)?;
            all.extend(bytes.iter().map(|bytes| bytes / MIB));
        }
        Ok(all)
    }
}
