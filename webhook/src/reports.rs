//! Reports of drainers: metrics of all drains, by outcome, cause and kind of workload, and an Event on the workload of
//! each drain that cut something.
//!
//! ```text
//! POST /report ─► ReportQueue: what is valid, at a limited rate ─► process: Pod and ReplicaSet ─► metrics, Event
//! ```
//!
//! A pod can only falsify its own reports: it is the pod of its token, its numbers are limited, and labels are names of
//! enums alone. A report that arrives while the queue is full is counted at once, with an unknown cause and kind, and
//! without an Event. Reports in the queue are lost with the process.

mod metrics;
mod pod_termination;

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use drainer::{Cut, DrainSummary, MAX_DURATION, Remaining, Report, SetupWarningKind};
use futures_util::{StreamExt, stream};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tracing::debug;

use crate::admission::Owner;
use crate::channel::{PodIdentity, ReportError};
use crate::events::{EventPod, EventQueue, EventReason, OwnerEvent};
use crate::rate_limit::RateLimit;
use crate::token_bucket::Rate;

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
    limit: Mutex<RateLimit<String>>,
    metrics: Metrics,
}

/// The drains that [`process`] has yet to classify.
#[derive(Debug)]
pub struct ReportedDrains(mpsc::Receiver<PodDrain>);

/// The drain of a pod.
#[derive(Debug)]
struct PodDrain {
    pod: PodIdentity,
    drain: DrainSummary,
}

/// Capacity of the queue, in drains of less than 1 KiB each.
const QUEUE_CAPACITY: usize = 1_024;

/// Reports of one pod, which sends one for each process of its drainer, and one for its drain.
const POD_RATE: Rate = Rate {
    burst: 4,
    refill: Duration::from_secs(15),
};

/// Reports of all pods: those of a thousand pods that end at once, and then as many as cause 100 calls to the API server
/// in a second.
const TOTAL_RATE: Rate = Rate {
    burst: 1_000,
    refill: Duration::from_millis(20),
};

/// How many drains are classified at a time.
const MAX_CONCURRENT: usize = 8;

/// For one call to the API server. A pod soon ceases to exist.
const READ_TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum length of a drain: its three parts are each at most [`MAX_DURATION`].
const MAX_SECONDS: f64 = 3.0 * MAX_DURATION.as_secs() as f64;

/// What is left in one pod counts up to this number.
const MAX_COUNT: u64 = 1_000_000;

/// Creates the queue.
pub fn queue(metrics: &Metrics) -> (ReportQueue, ReportedDrains) {
    let (sender, receiver) = mpsc::channel(QUEUE_CAPACITY);
    let limit = RateLimit::new(POD_RATE, TOTAL_RATE, Instant::now());
    let queue = ReportQueue {
        sender,
        limit: Mutex::new(limit),
        metrics: metrics.clone(),
    };
    (queue, ReportedDrains(receiver))
}

/// Classifies the drains of the queue and counts them, until the queue is dropped. With `events`, workloads get Events.
pub async fn process(
    drains: ReportedDrains,
    reader: impl OwnerReader,
    events: Option<EventQueue>,
    metrics: Metrics,
) {
    let ReportedDrains(mut receiver) = drains;
    let drains = stream::poll_fn(|context| receiver.poll_recv(context));
    let processed = drains.for_each_concurrent(MAX_CONCURRENT, async |PodDrain { pod, drain }| {
        let termination = read_termination(&reader, &pod).await;
        debug!(?pod, ?termination, "Classified a drain");
        metrics.count_drain(&drain, termination.cause, termination.kind);
        if let (Some(events), Some(cut)) = (&events, drain.cut()) {
            events.send(cut_event(pod, termination.owner, &drain, cut));
        }
    });
    processed.await;
}

/// Finds out why a pod terminates, and to which workload it belongs, as far as the API server answers in time.
async fn read_termination(reader: &impl OwnerReader, pod: &PodIdentity) -> PodTermination {
    let object = read(reader, OwnedObjectKind::Pod, &pod.namespace, &pod.name).await;
    let mut termination = PodTermination::new(pod, object.as_ref());
    if let Some(replica_set) = termination.replica_set() {
        let kind = OwnedObjectKind::ReplicaSet;
        let object = read(reader, kind, &pod.namespace, &replica_set.name).await;
        termination.add_replica_set(object.as_ref());
    }
    termination
}

async fn read(
    reader: &impl OwnerReader,
    kind: OwnedObjectKind,
    namespace: &str,
    name: &str,
) -> Option<OwnedObject> {
    match timeout(READ_TIMEOUT, reader.read(kind, namespace, name)).await {
        Ok(Ok(object)) => Some(object),
        Ok(Err(error)) => {
            let error = format!("{error:#}");
            debug!(?kind, namespace, name, error, "Cannot read");
            None
        }
        Err(_) => {
            debug!(?kind, namespace, name, "Cannot read in time");
            None
        }
    }
}

/// The Event of a drain that cut something. Its note has numbers and the pod's name alone.
fn cut_event(pod: PodIdentity, owner: Owner, drain: &DrainSummary, cut: Cut) -> OwnerEvent {
    let PodIdentity { name, uid, .. } = pod;
    let seconds = drain.seconds;
    let note =
        format!("The drain of pod {name} reached its deadline after {seconds:.1} s and cut {cut}");
    OwnerEvent {
        pod: (owner.uid != uid).then_some(EventPod { name, uid }),
        owner,
        reason: EventReason::DrainCut,
        note,
    }
}

/// Parses a report, without what is not counted.
fn parse(body: &[u8]) -> Result<Report, ReportError> {
    let invalid = |error: serde_json::Error| ReportError::Invalid(error.to_string());
    match serde_json::from_slice(body).map_err(invalid)? {
        Report::Drain(drain) => limited(drain).map(Report::Drain),
        Report::SetupWarnings(warnings) => {
            let is_listed = |kind: &SetupWarningKind| warnings.contains(kind);
            let kinds = SetupWarningKind::ALL.into_iter().filter(is_listed);
            Ok(Report::SetupWarnings(kinds.collect()))
        }
    }
}

/// Returns a drain with numbers that an honest drainer could have sent, or almost, and without text.
fn limited(drain: DrainSummary) -> Result<DrainSummary, ReportError> {
    let mut durations = [Some(drain.seconds), drain.seconds_to_zero].into_iter();
    if !durations
        .all(|seconds| seconds.is_none_or(|seconds| (0.0..=MAX_SECONDS).contains(&seconds)))
    {
        let invalid = "a duration is negative, or longer than three days";
        return Err(ReportError::Invalid(invalid.to_owned()));
    }
    let limited = |count: u64| count.min(MAX_COUNT);
    let mut drain = drain;
    drain.remaining = drain.remaining.map(|left| Remaining {
        connections: limited(left.connections),
        requests: left.requests.map(limited),
        upgrades: left.upgrades.map(limited),
        tcp: left.tcp.map(limited),
        ..Remaining::default()
    });
    if let Some(wait) = &mut drain.replacement {
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
    pub fn take(&self, pod: &PodIdentity, body: &[u8]) -> Result<(), ReportError> {
        if !self.is_allowed(pod) {
            self.metrics.count_report(false);
            return Err(ReportError::TooMany);
        }
        let is_complete = match parse(body)? {
            Report::SetupWarnings(warnings) => {
                warnings
                    .into_iter()
                    .for_each(|warning| self.metrics.count_setup_warning(warning));
                true
            }
            Report::Drain(drain) => self.send(PodDrain {
                pod: pod.clone(),
                drain,
            }),
        };
        self.metrics.count_report(is_complete);
        Ok(())
    }

    /// Queues a drain. If the queue is full, the drain is counted without its pod: returns false.
    fn send(&self, drain: PodDrain) -> bool {
        let Err(error) = self.sender.try_send(drain) else {
            return true;
        };
        let PodDrain { pod, drain } = error.into_inner();
        let PodTermination { cause, kind, .. } = PodTermination::new(&pod, None);
        self.metrics.count_drain(&drain, cause, kind);
        false
    }

    fn is_allowed(&self, pod: &PodIdentity) -> bool {
        let limit = self.limit.lock();
        let mut limit = limit.unwrap_or_else(PoisonError::into_inner);
        limit.allow(&pod.uid, Instant::now())
    }
}
