//! Reports of drainers: metrics of all drains, by outcome, cause and kind of workload, and an Event on the workload of
//! each drain that cut something.
//!
//! ```text
//! POST /report ─► ReportQueue: what is valid, at a limited rate ─► process: Pod and ReplicaSet ─► metrics, Event
//! ```
//!
//! A pod can only falsify its own reports: it is the pod of its token, its numbers are limited, and labels are names of
//! enums alone. The drain of a pod that nothing terminates is not counted. A report that arrives while the queue is
//! full is counted at once, with an unknown cause and kind, and without an Event. Reports in the queue are lost with
//! the process.

mod metrics;
mod pod_termination;

use std::collections::BTreeSet;
use std::time::Duration;

use admission::{Cut, Owner, SUMMARY_ANNOTATION};
use drainer::{DrainOutcome, DrainSummary, MAX_DURATION, Remaining, Report};
use futures_util::{StreamExt, stream};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tracing::debug;

use crate::drainer_api::{PodIdentity, RequestError};
use crate::events::{EventQueue, EventReason, OwnerEvent};
use crate::rate_limit::{Rate, RateLimit};

pub use metrics::Metrics;
pub use pod_termination::{OwnedObject, OwnedObjectKind};

use pod_termination::PodTermination;

/// Reads the objects by which a drain is classified.
pub trait OwnerReader: Send + Sync + 'static {
    /// Reads a Pod or ReplicaSet.
    fn read(
        &self,
        kind: OwnedObjectKind,
        namespace: &str,
        name: &str,
    ) -> impl Future<Output = anyhow::Result<OwnedObject>> + Send;
}

/// Takes reports, and counts what needs no call to the API server.
#[derive(Debug)]
pub struct ReportQueue {
    sender: mpsc::Sender<PodDrain>,
    limit: RateLimit<String>,
    metrics: Metrics,
}

/// The drain of a pod, which [`process`] has yet to classify.
#[derive(Debug)]
pub struct PodDrain {
    pod: PodIdentity,
    drain: DrainSummary,
}

/// Capacity of the queue, in drains of less than 1 KiB each.
const QUEUE_CAPACITY: usize = 1_024;

/// Reports of one pod, which sends one for each process of its drainer, and one for its drain.
const POD_RATE: Rate = Rate::new(4, Duration::from_secs(15));

/// Reports of all pods: those of a thousand pods that end at once, and then as many as cause 100 calls to the API
/// server in a second.
const TOTAL_RATE: Rate = Rate::new(1_000, Duration::from_millis(20));

/// How many drains are classified at a time. A Pod has up to 1.5 MiB, as its author chooses.
const MAX_CONCURRENT: usize = 2;

/// For one call to the API server. A pod soon ceases to exist.
const READ_TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum length of a drain: its three parts are each at most [`MAX_DURATION`].
const MAX_SECONDS: f64 = 3.0 * MAX_DURATION.as_secs() as f64;

/// The connections of one pod count up to this number.
const MAX_COUNT: u64 = 1_000_000;

/// Creates the queue.
pub fn queue(metrics: &Metrics) -> (ReportQueue, mpsc::Receiver<PodDrain>) {
    let (sender, receiver) = mpsc::channel(QUEUE_CAPACITY);
    let queue = ReportQueue {
        sender,
        limit: RateLimit::new(POD_RATE, TOTAL_RATE, Instant::now()),
        metrics: metrics.clone(),
    };
    (queue, receiver)
}

/// Classifies the drains of the queue and counts them, until the queue is dropped. With `events`, workloads get Events.
pub async fn process(
    mut drains: mpsc::Receiver<PodDrain>,
    reader: impl OwnerReader,
    events: Option<EventQueue>,
    metrics: Metrics,
) {
    use DrainOutcome::{CallsForbidden, Unreachable};
    let drains = stream::poll_fn(|context| drains.poll_recv(context));
    let processed = drains.for_each_concurrent(MAX_CONCURRENT, async |PodDrain { pod, drain }| {
        let Some(termination) = read_termination(&reader, &pod).await else {
            debug!(?pod, "Dropped the report of a pod that is not terminating");
            metrics.count_report(false);
            return;
        };
        debug!(?pod, ?termination, "Classified a drain");
        metrics.count_report(true);
        let PodTermination { cause, kind, .. } = &termination;
        metrics.count_drain(&drain, *cause, *kind);
        let cut = Cut::of(&drain);
        if let Some(events) = &events
            && (cut.is_some() || matches!(drain.outcome, Unreachable | CallsForbidden))
        {
            events.send(cut_event(&pod, termination.owner, &drain, cut));
        }
    });
    processed.await;
}

/// Finds out why a pod terminates, and to which workload it belongs, as far as the API server answers in time. `None`
/// if nothing terminates it.
async fn read_termination(reader: &impl OwnerReader, pod: &PodIdentity) -> Option<PodTermination> {
    let object = read(reader, OwnedObjectKind::Pod, &pod.namespace, &pod.name).await;
    if object
        .as_ref()
        .is_some_and(|object| object.keeps_running(pod))
    {
        return None;
    }
    let mut termination = PodTermination::new(pod, object.as_ref());
    if let Some(replica_set) = termination.replica_set() {
        let kind = OwnedObjectKind::ReplicaSet;
        let object = read(reader, kind, &pod.namespace, &replica_set.name).await;
        termination.add_replica_set(object.as_ref());
    }
    Some(termination)
}

async fn read(
    reader: &impl OwnerReader,
    kind: OwnedObjectKind,
    namespace: &str,
    name: &str,
) -> Option<OwnedObject> {
    let read = timeout(READ_TIMEOUT, reader.read(kind, namespace, name)).await;
    read.unwrap_or_else(|elapsed| Err(elapsed.into()))
        .inspect_err(|error| {
            let error = format!("{error:#}");
            debug!(?kind, namespace, name, error, "Cannot read");
        })
        .ok()
}

/// The Event of a drain that cut something or may have, or of one that could not reach Envoy's clients. Its note has numbers
/// and the pod's name alone, and its annotation numbers and names of enums.
fn cut_event(
    pod: &PodIdentity,
    owner: Owner,
    drain: &DrainSummary,
    cut: Option<Cut>,
) -> OwnerEvent {
    use DrainOutcome::{CallsForbidden, Deadline, Drained, Gone, HookMissed};
    use DrainOutcome::{Idle, Silent, Unreachable};
    let (name, seconds) = (&pod.name, drain.seconds);
    let end = match drain.outcome {
        Deadline => format!("The drain of pod {name} reached its deadline after {seconds:.1} s"),
        outcome @ (Drained | Idle | Silent | Gone | CallsForbidden) => {
            format!("The drain of pod {name} ended as {outcome} after {seconds:.1} s")
        }
        HookMissed => format!(
            "Envoy, or the server, has ended without a call of its preStop hook in pod {name}"
        ),
        Unreachable => format!(
            "No admin interface of Envoy and no listening server was found in pod {name}: its hooks returned after {seconds:.1} s without a drain"
        ),
    };
    let note = match cut {
        Some(Cut::Counted(counts)) => format!("{end} and cut {counts}"),
        Some(Cut::Unknown) if drain.outcome != Unreachable => {
            format!("{end}, and what it cut is unknown")
        }
        Some(Cut::Unknown) | None => end,
    };
    let summary = serde_json::to_string(drain).expect("its keys are strings");
    OwnerEvent {
        pod: (owner.uid != pod.uid).then(|| pod.into()),
        owner,
        reason: EventReason::DrainCut,
        note,
        annotation: Some((SUMMARY_ANNOTATION, summary)),
    }
}

/// Returns a drain with numbers that an honest drainer could have sent, or almost, and without text: it is published.
fn limited(mut drain: DrainSummary) -> Result<DrainSummary, RequestError> {
    let DrainSummary {
        outcome: _,
        is_final,
        seconds,
        seconds_to_failed_health,
        seconds_to_zero,
        seconds_to_last_new_connection,
        peak,
        remaining,
        disagreement,
        witness: _,
        replacement,
    } = &mut drain;
    if !*is_final {
        let invalid = "the drain has not ended";
        return Err(RequestError::InvalidReport(invalid.to_owned()));
    }
    let waited = replacement.as_ref().map(|wait| wait.seconds);
    let durations = [
        Some(*seconds),
        *seconds_to_failed_health,
        *seconds_to_zero,
        *seconds_to_last_new_connection,
        waited,
    ];
    let mut durations = durations.into_iter().flatten();
    if !durations.all(|seconds| (0.0..=MAX_SECONDS).contains(&seconds)) {
        let invalid = "a duration is negative, or longer than three days";
        return Err(RequestError::InvalidReport(invalid.to_owned()));
    }
    let limit = |count: &mut u64| *count = MAX_COUNT.min(*count);
    limit(peak);
    if let Some(Remaining {
        connections,
        requests,
        upgrades,
        tcp,
        http3,
        in_flight,
        by_listener,
    }) = remaining
    {
        limit(connections);
        let by_use = [requests, upgrades, tcp, http3, in_flight];
        by_use.into_iter().flatten().for_each(limit);
        by_listener.clear();
    }
    if let Some(it) = disagreement {
        limit(&mut it.connections);
        limit(&mut it.unaccepted);
        limit(&mut it.undelivered_bytes);
    }
    if let Some(wait) = replacement {
        wait.waiting_for = None;
    }
    Ok(drain)
}

// === impl ReportQueue ===

impl ReportQueue {
    /// Takes a report of a pod.
    ///
    /// # Errors
    /// If it is invalid, or there are too many.
    pub fn take(&self, pod: &PodIdentity, body: &[u8]) -> Result<(), RequestError> {
        if !self.limit.try_take(&pod.uid, Instant::now()) {
            self.metrics.count_report(false);
            return Err(RequestError::TooManyRequests);
        }
        let invalid = |error: serde_json::Error| RequestError::InvalidReport(error.to_string());
        match serde_json::from_slice(body).map_err(invalid)? {
            Report::SetupWarnings(warnings) => {
                self.metrics.count_report(true);
                // Each once.
                for warning in BTreeSet::from_iter(warnings) {
                    self.metrics.count_setup_warning(warning);
                }
            }
            Report::Drain(drain) => self.send(PodDrain {
                pod: pod.clone(),
                drain: limited(drain)?,
            }),
        }
        Ok(())
    }

    /// Queues a drain. If the queue is full, the drain is counted without its pod.
    fn send(&self, drain: PodDrain) {
        let Err(error) = self.sender.try_send(drain) else {
            return;
        };
        let PodDrain { pod, drain } = error.into_inner();
        let PodTermination { cause, kind, .. } = PodTermination::new(&pod, None);
        self.metrics.count_report(false);
        self.metrics.count_drain(&drain, cause, kind);
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::{Value, json};

    use super::*;
    use crate::events;
    use crate::metrics::{encode, registry};

    /// A cluster of one Deployment, whose pods are evicted, except the pod `running`. The pods `gone` and `slow` cannot
    /// be read.
    #[derive(Default)]
    struct Cluster {
        reads: Arc<AtomicUsize>,
    }

    impl OwnerReader for Cluster {
        async fn read(
            &self,
            kind: OwnedObjectKind,
            namespace: &str,
            name: &str,
        ) -> anyhow::Result<OwnedObject> {
            self.reads.fetch_add(1, Ordering::Relaxed);
            assert_eq!(namespace, "shop");
            let (uid, owner) = match kind {
                OwnedObjectKind::Pod => (name, "ReplicaSet"),
                OwnedObjectKind::ReplicaSet => ("8", "Deployment"),
            };
            match name {
                "gone" => anyhow::bail!("404"),
                "slow" => pending().await,
                _ => {}
            }
            let is_evicted = if name == "running" { "False" } else { "True" };
            let condition = json!({"type": "DisruptionTarget", "status": is_evicted,
                "reason": "EvictionByEvictionAPI"});
            Ok(serde_json::from_value(json!({
                "metadata": {"uid": uid, "ownerReferences": [{"apiVersion": "apps/v1",
                    "kind": owner, "name": "edge", "uid": "8", "controller": true}]},
                "status": {"conditions": [condition]},
            }))?)
        }
    }

    fn pod(name: &str) -> PodIdentity {
        PodIdentity {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            uid: name.to_owned(),
        }
    }

    fn report(drain: &Value) -> Vec<u8> {
        json!({ "drain": drain }).to_string().into_bytes()
    }

    fn cut_drain() -> Value {
        let remaining =
            json!({"connections": 9, "requests": 3, "upgrades": 1, "tcp": 0, "byListener": {}});
        json!({"outcome": "deadline", "seconds": 60.04, "peak": 9, "remaining": remaining})
    }

    /// Takes these reports and processes them all. Returns the Events, and the metrics that are not zero.
    async fn process_reports(reports: &[(&str, Vec<u8>)]) -> (Vec<OwnerEvent>, String) {
        let mut registry = registry();
        let metrics = Metrics::register(&mut registry);
        let (queue, drains) = queue(&metrics);
        for (name, report) in reports {
            queue.take(&pod(name), report).unwrap();
        }
        drop(queue);
        let event_metrics = events::Metrics::register(&mut registry);
        let (sender, mut receiver) = events::queue(8, &event_metrics);
        process(drains, Cluster::default(), Some(sender), metrics).await;
        let mut events = Vec::new();
        while let Some(event) = receiver.recv().await {
            events.push(event);
        }
        (events, nonzero(&encode(&registry)))
    }

    fn nonzero(metrics: &str) -> String {
        let lines = metrics.lines().filter(|line| !line.starts_with('#'));
        let lines = lines.filter(|line| !line.ends_with(" 0") && !line.ends_with(" 0.0"));
        let lines = lines.map(|line| line.trim_start_matches("envoy_drainer_"));
        lines.collect::<Vec<_>>().join("\n")
    }

    #[tokio::test(start_paused = true)]
    async fn drain_that_cut_something_is_counted_and_noted() {
        let (events, metrics) = process_reports(&[("edge-1", report(&cut_drain()))]).await;
        let [event] = &events[..] else {
            panic!("{events:?}")
        };
        assert_eq!(
            (&*event.owner.kind, &*event.owner.name),
            ("Deployment", "edge")
        );
        assert_eq!(event.pod.as_ref().map(|pod| &*pod.name), Some("edge-1"));
        let note = "The drain of pod edge-1 reached its deadline after 60.0 s and cut 2 requests and 1 upgrade";
        assert_eq!(event.note, note);
        let summary = r#"{"outcome":"deadline","seconds":60.04,"peak":9,"remaining":{"connections":9,"requests":3,"upgrades":1,"tcp":0,"byListener":{}}}"#;
        let annotation = ("envoy-drainer.dev/drain-summary", summary.to_owned());
        assert_eq!(event.annotation, Some(annotation));
        for line in [
            r#"drains_total{outcome="deadline",cause="eviction",kind="Deployment"} 1"#,
            r#"drains_with_cuts_total{kind="Deployment"} 1"#,
            r#"drain_cuts_total{what="requests"} 2"#,
            r#"drain_cuts_total{what="upgrades"} 1"#,
            r#"termination_duration_seconds_bucket{le="90.0",outcome="deadline"} 1"#,
            r#"termination_duration_seconds_sum{outcome="deadline"} 60.04"#,
            r#"drain_reports_total{result="ok"} 1"#,
        ] {
            assert!(metrics.lines().any(|it| it == line), "{line}\n{metrics}");
        }
        assert!(!metrics.contains("edge"), "{metrics}");
    }

    #[tokio::test(start_paused = true)]
    async fn published_summary_is_short_and_without_foreign_text() {
        let long = u64::MAX;
        let text = "foreign".repeat(100);
        let drain = json!({"outcome": "deadline", "seconds": 0.123_456_789_012_345_67, "peak": long,
            "secondsToFailedHealth": 1e-300, "secondsToZero": 2.225_073_858_507_201_4e-308,
            "secondsToLastNewConnection": 1e-300,
            "remaining": {"connections": long, "requests": long, "upgrades": 1, "tcp": long, "http3": long,
                "byListener": {&text: long}},
            "replacement": {"outcome": "no-service", "seconds": 0.1, "waitingFor": text},
            "foreign": "foreign"});
        let (events, _) = process_reports(&[("edge-1", report(&drain))]).await;
        let (_, summary) = events[0].annotation.as_ref().unwrap();
        assert!(summary.len() < 512, "{summary}");
        assert!(!summary.contains("foreign"), "{summary}");
        let drain: DrainSummary = serde_json::from_str(summary).unwrap();
        assert_eq!(drain.peak, MAX_COUNT);
    }

    #[tokio::test(start_paused = true)]
    async fn drain_without_a_cut_has_no_event() {
        let wait = json!({"outcome": "no-service", "seconds": 0.1, "waitingFor": "x"});
        let idle =
            json!({"connections": 1, "requests": 0, "upgrades": 0, "tcp": 0, "byListener": {}});
        let drained = json!({"outcome": "drained", "seconds": 12, "secondsToZero": 2, "peak": 1,
            "secondsToLastNewConnection": 1.5, "remaining": idle, "replacement": wait});
        let gone = json!({"outcome": "gone", "seconds": 2, "peak": 1, "remaining": idle});
        let reports = [("edge-1", report(&drained)), ("edge-2", report(&gone))];
        let (events, metrics) = process_reports(&reports).await;
        assert_eq!(events, []);
        for line in [
            r#"drains_total{outcome="drained",cause="eviction",kind="Deployment"} 1"#,
            r#"drains_total{outcome="gone",cause="eviction",kind="Deployment"} 1"#,
            r#"drain_time_to_zero_seconds_sum 2.0"#,
            r#"drain_time_to_last_new_connection_seconds_sum 1.5"#,
            r#"replacement_waits_total{outcome="no-service"} 1"#,
        ] {
            assert!(metrics.lines().any(|it| it == line), "{line}\n{metrics}");
        }
        assert!(!metrics.contains("cut"), "{metrics}");
    }

    #[tokio::test(start_paused = true)]
    async fn drain_that_the_kernel_did_not_confirm_is_counted() {
        let mut drain = cut_drain();
        drain["disagreement"] = json!({"connections": 20, "undeliveredBytes": u64::MAX});
        drain["witness"] = json!("kernel");
        let (_, metrics) = process_reports(&[("edge-1", report(&drain))]).await;
        for (what, is_counted) in [
            ("connections", true),
            ("unaccepted", false),
            ("undelivered_bytes", true),
        ] {
            let line = format!(r#"drain_disagreements_total{{what="{what}"}} 1"#);
            assert_eq!(
                metrics.lines().any(|it| it == line),
                is_counted,
                "{metrics}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn event_says_how_the_drain_ended_and_what_it_cut() {
        let one =
            json!({"connections": 1, "requests": 1, "upgrades": 0, "tcp": 0, "byListener": {}});
        for (outcome, remaining, note, metric) in [
            (
                "gone",
                &one,
                "The drain of pod edge-1 ended as gone after 9.0 s and cut 1 request",
                r#"drain_cuts_total{what="requests"} 1"#,
            ),
            (
                "drained",
                &one,
                "The drain of pod edge-1 ended as drained after 9.0 s and cut 1 request",
                r#"drains_with_cuts_total{kind="Deployment"} 1"#,
            ),
            (
                "deadline",
                &json!(null),
                "The drain of pod edge-1 reached its deadline after 9.0 s, and what it cut is unknown",
                r#"drain_cuts_total{what="unknown"} 1"#,
            ),
            (
                "unreachable",
                &json!(null),
                "No admin interface of Envoy and no listening server was found in pod edge-1: its hooks returned after 9.0 s without a drain",
                r#"drain_cuts_total{what="unknown"} 1"#,
            ),
        ] {
            let drain =
                json!({"outcome": outcome, "seconds": 9, "peak": 1, "remaining": remaining});
            let (events, metrics) = process_reports(&[("edge-1", report(&drain))]).await;
            let notes: Vec<_> = events.iter().map(|event| &*event.note).collect();
            assert_eq!(notes, [note], "{outcome}");
            assert!(metrics.lines().any(|it| it == metric), "{metrics}");
            let has_cut = metrics.contains("drains_with_cuts_total");
            assert_eq!(has_cut, !remaining.is_null(), "{outcome}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn pod_that_cannot_be_read_is_counted_as_unknown() {
        let reports = ["gone", "slow"].map(|name| (name, report(&cut_drain())));
        let (events, metrics) = process_reports(&reports).await;
        let unknown = r#"drains_total{outcome="deadline",cause="unknown",kind="unknown"} 2"#;
        assert!(metrics.contains(unknown), "{metrics}");
        let owners = events
            .iter()
            .map(|event| (&*event.owner.kind, &*event.owner.name));
        assert_eq!(
            owners.collect::<Vec<_>>(),
            [("Pod", "gone"), ("Pod", "slow")]
        );
        assert!(events.iter().all(|event| event.pod.is_none()));
    }

    #[tokio::test(start_paused = true)]
    async fn drain_of_a_pod_that_nothing_terminates_is_dropped() {
        let (events, metrics) = process_reports(&[("running", report(&cut_drain()))]).await;
        assert_eq!(events, []);
        assert_eq!(metrics, r#"drain_reports_total{result="dropped"} 1"#);
    }

    #[tokio::test(start_paused = true)]
    async fn reports_at_a_full_queue_are_counted_without_their_pods() {
        let mut registry = registry();
        let metrics = Metrics::register(&mut registry);
        let (sender, receiver) = mpsc::channel(1);
        let (queue, _) = queue(&metrics);
        let queue = ReportQueue { sender, ..queue };
        for name in ["a", "b", "c"] {
            queue.take(&pod(name), &report(&cut_drain())).unwrap();
        }
        drop(queue);
        let cluster = Cluster::default();
        let reads = Arc::clone(&cluster.reads);
        process(receiver, cluster, None, metrics).await;
        let metrics = nonzero(&encode(&registry));
        for line in [
            r#"drains_total{outcome="deadline",cause="unknown",kind="unknown"} 2"#,
            r#"drains_total{outcome="deadline",cause="eviction",kind="Deployment"} 1"#,
            r#"drain_reports_total{result="dropped"} 2"#,
            r#"drain_reports_total{result="ok"} 1"#,
        ] {
            assert!(metrics.lines().any(|it| it == line), "{line}\n{metrics}");
        }
        assert_eq!(reads.load(Ordering::Relaxed), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn reports_are_limited_by_pod_and_in_total() {
        let metrics = Metrics::register(&mut registry());
        let (queue, _drains) = queue(&metrics);
        let warnings = br#"{"setupWarnings": []}"#;
        let taken = |name: &str| queue.take(&pod(name), warnings).is_ok();
        assert_eq!((0..100).filter(|_| taken("a")).count(), 4);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!((0..100).filter(|_| taken("a")).count(), 4);
        let pods = (0..5000).filter(|n| taken(&n.to_string()));
        assert_eq!(pods.count(), 996);
        let refused = queue.take(&pod("b"), warnings);
        assert_eq!(refused, Err(RequestError::TooManyRequests));
    }

    #[test]
    fn numbers_of_a_report_are_limited() {
        let parse_drain = |drain: Value| match serde_json::from_slice(&report(&drain)) {
            Ok(Report::Drain(drain)) => limited(drain).ok(),
            _ => None,
        };
        for (field, value, is_valid) in [
            ("seconds", json!(0), true),
            ("seconds", json!(259_200), true),
            ("seconds", json!(-0.1), false),
            ("seconds", json!(1e300), false),
            ("seconds", json!("NaN"), false),
            ("seconds", json!(null), false),
            ("secondsToZero", json!(-1), false),
            ("secondsToZero", json!(null), true),
            ("secondsToFailedHealth", json!(1e6), false),
            (
                "replacement",
                json!({"outcome": "ready", "seconds": -1}),
                false,
            ),
            ("secondsToLastNewConnection", json!(-1), false),
            ("final", json!(true), true),
            ("final", json!(false), false),
            ("outcome", json!("lost"), false),
        ] {
            let mut drain = cut_drain();
            drain[field] = value.clone();
            assert_eq!(parse_drain(drain).is_some(), is_valid, "{field}: {value}");
        }
        let mut drain = cut_drain();
        drain["remaining"]["requests"] = json!(u64::MAX);
        drain["remaining"]["byListener"] = json!({"web": u64::MAX});
        let cut = parse_drain(drain).and_then(|drain| Cut::of(&drain));
        assert_eq!(
            cut.map(|cut| cut.numbers()[0]),
            Some(("requests", MAX_COUNT - 1))
        );
    }

    #[tokio::test(start_paused = true)]
    async fn setup_warning_counts_once_in_a_report() {
        let repeated = json!({"setupWarnings": vec!["stats-hidden"; 300]}).to_string();
        let (_, metrics) = process_reports(&[("edge-1", repeated.into_bytes())]).await;
        let line = r#"setup_warnings_total{warning="stats-hidden"} 1"#;
        assert!(metrics.lines().any(|it| it == line), "{metrics}");
    }

    #[tokio::test(start_paused = true)]
    async fn invalid_reports_are_refused() {
        let metrics = Metrics::register(&mut registry());
        let (queue, _drains) = queue(&metrics);
        let invalid = ["", "[]", "{}", r#"{"setupWarnings": ["web"]}"#];
        for (nth, body) in invalid.into_iter().enumerate() {
            let refused = queue.take(&pod(&nth.to_string()), body.as_bytes());
            let is_invalid = matches!(refused, Err(RequestError::InvalidReport(_)));
            assert!(is_invalid, "{body}: {refused:?}");
        }
    }
}
