//! Kubernetes Events on the owners of pods: of those that were admitted without the drainer they request, and of those
//! whose drain cut something.
//!
//! They are published apart from admissions and reports: a bounded queue takes them, and sending to it never waits.
//! Events on one owner for the same reason share one Event, and each replica of the webhook writes its own.

mod metrics;
mod owner_event;
mod series;

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use admission::Owner;
use futures_util::future::OptionFuture;
use k8s_openapi::api::events::v1::Event;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use pki::clock::wall_clock;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{debug, warn};

pub use metrics::Metrics;
pub use owner_event::{EventPod, EventReason, OwnerEvent};
pub use series::Series;

use series::EventAggregator;

/// Capacity of the queue in production, in Events of less than 3 KiB each.
pub const QUEUE_CAPACITY: usize = 256;

/// The sending half of the queue of [`publish`].
#[derive(Debug, Clone)]
pub struct EventQueue {
    sender: mpsc::Sender<OwnerEvent>,
    metrics: Metrics,
}

/// Why an Event was not written.
#[derive(Debug)]
pub enum PublishError {
    /// It never will be, for example because it is forbidden: the API server's message.
    Rejected(String),
    /// A retry may succeed.
    Transient(anyhow::Error),
}

/// Writes the Events of one replica, as `events.k8s.io/v1`.
pub struct EventWriter {
    client: Client,
    instance: String,
}

/// For the write of one Event. The others wait for it.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// The field manager of Events.
const FIELD_MANAGER: &str = "envoy-drainer";

/// Maximum length of the name of a replica in an Event, in bytes. The API server rejects longer ones.
const MAX_INSTANCE_LEN: usize = 128;

/// Creates a queue for this many Events. Each source of Events has its own, and its own [`publish`], so that none uses
/// up the limits of another.
pub fn queue(capacity: usize, metrics: &Metrics) -> (EventQueue, mpsc::Receiver<OwnerEvent>) {
    let (sender, receiver) = mpsc::channel(capacity);
    let metrics = metrics.clone();
    (EventQueue { sender, metrics }, receiver)
}

/// Publishes the Events of the queue, for as long as it is polled, except in `excluded` namespaces: API servers do not
/// call the webhook for those, so their reviews are forged. `write` creates or updates the Event of a series, in a bounded
/// time.
pub async fn publish(
    mut queue: mpsc::Receiver<OwnerEvent>,
    excluded: &[String],
    metrics: &Metrics,
    write: impl AsyncFn(&Series) -> Result<(), PublishError>,
) -> Infallible {
    let mut aggregator = EventAggregator::new(Instant::now());
    loop {
        let due = OptionFuture::from(aggregator.due().map(sleep_until));
        tokio::select! {
            Some(event) = queue.recv() => {
                if excluded.contains(&event.owner.namespace) {
                    continue;
                }
                if !aggregator.record(event, Instant::now(), wall_clock()) {
                    metrics.dropped.inc();
                }
            }
            Some(()) = due => {
                let Some(series) = aggregator.take(Instant::now()) else { continue };
                let written = write(&series).await;
                metrics.count_write(written.is_ok());
                let OwnerEvent { owner, reason, .. } = &series.first;
                let Owner { namespace, kind, name, .. } = owner;
                match written {
                    Ok(()) => {}
                    Err(PublishError::Rejected(error)) => {
                        aggregator.drop_after_failures(&series, Instant::now());
                        warn!(namespace, kind, name, %reason, error, "Event rejected by the API server");
                    }
                    Err(PublishError::Transient(error)) => {
                        aggregator.put_back(&series);
                        let error = format!("{error:#}");
                        debug!(namespace, kind, name, %reason, error, "Failed to write Event, will retry");
                    }
                }
            }
            else => return pending().await,
        }
    }
}

// === impl EventQueue ===

impl EventQueue {
    /// Queues an Event without waiting. If the queue is full, or its receiver is dropped, it is counted as dropped.
    pub fn send(&self, event: OwnerEvent) {
        if self.sender.try_send(event).is_err() {
            self.metrics.dropped.inc();
        }
    }
}

// === impl EventWriter ===

impl EventWriter {
    /// A writer on behalf of the replica with this name.
    pub(crate) fn new(client: Client, mut instance: String) -> Self {
        instance.truncate(instance.floor_char_boundary(MAX_INSTANCE_LEN));
        Self { client, instance }
    }

    /// Creates or updates the Event of a series.
    ///
    /// # Errors
    /// When it could not be written, and whether a retry may help.
    pub async fn write(&self, series: &Series) -> Result<(), PublishError> {
        let event = series.event(&self.instance);
        let namespace = &series.first.owner.namespace;
        let api = Api::<Event>::namespaced(self.client.clone(), namespace);
        let name = event.metadata.name.as_deref().unwrap_or_default();
        // Applied, so that one call creates the Event, updates it, or restores one that was deleted.
        let (params, patch) = (PatchParams::apply(FIELD_MANAGER), Patch::Apply(&event));
        match timeout(WRITE_TIMEOUT, api.patch_metadata(name, &params, &patch)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(kube::Error::Api(status))) if is_permanent(status.code) => {
                Err(PublishError::Rejected(status.message))
            }
            Ok(Err(error)) => Err(PublishError::Transient(error.into())),
            Err(elapsed) => Err(PublishError::Transient(elapsed.into())),
        }
    }
}

/// Returns true for the HTTP status of a request that would fail again.
fn is_permanent(status: u16) -> bool {
    const TOO_MANY_REQUESTS: u16 = 429;
    (400..500).contains(&status) && status != TOO_MANY_REQUESTS
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use admission::{Code, SkippedPod};

    use super::*;
    use crate::metrics::{encode, registry};

    fn event() -> OwnerEvent {
        let skipped_pod = SkippedPod {
            owner: Owner {
                api_version: "apps/v1".to_owned(),
                kind: "ReplicaSet".to_owned(),
                namespace: "shop".to_owned(),
                name: "edge-7f".to_owned(),
                uid: "2".to_owned(),
            },
            code: Code::ExistingHook,
            note: "DRN008".to_owned(),
        };
        skipped_pod.into()
    }

    /// Publishes 100 Events that are queued at once, where the nth write has the result `result(n)`. Returns the
    /// counts that were written, and the metrics.
    async fn publish_events(
        result: impl Fn(usize) -> Result<(), PublishError>,
    ) -> (Vec<i32>, String) {
        let mut registry = registry();
        let metrics = Metrics::register(&mut registry);
        let (sender, queue) = queue(QUEUE_CAPACITY, &metrics);
        let counts = RefCell::new(Vec::new());
        for _ in 0..100 {
            sender.send(event());
        }
        let write = async |series: &Series| {
            counts.borrow_mut().push(series.count);
            result(counts.borrow().len())
        };
        let minutes = Duration::from_secs(5 * 60);
        let _ = timeout(minutes, publish(queue, &[], &metrics, write)).await;
        (counts.into_inner(), encode(&registry))
    }

    #[tokio::test(start_paused = true)]
    async fn pods_of_one_owner_share_one_event() {
        let (counts, metrics) = publish_events(|_| Ok(())).await;
        let [first, .., last] = counts[..] else {
            panic!("{counts:?}")
        };
        assert!(
            (1..100).contains(&first) && last == 100 && counts.len() == 2,
            "{counts:?}"
        );
        assert!(
            metrics.contains("envoy_drainer_event_writes_total{result=\"ok\"} 2"),
            "{metrics}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn transient_failures_are_retried_and_rejections_are_not() {
        let fails = |times: usize| match times {
            1..4 => Err(PublishError::Transient(anyhow::Error::msg("on purpose"))),
            _ => Ok(()),
        };
        let (counts, metrics) = publish_events(fails).await;
        assert_eq!(counts[1..], [100, 100, 100], "{counts:?}");
        assert!(
            metrics.contains("envoy_drainer_event_writes_total{result=\"failed\"} 3"),
            "{metrics}"
        );
        let (counts, _) =
            publish_events(|_| Err(PublishError::Rejected("on purpose".to_owned()))).await;
        assert_eq!(counts.len(), 1);
    }

    #[test]
    fn rejections_are_permanent_except_rate_limits() {
        for (status, want) in [
            (403, true),
            (404, true),
            (422, true),
            (429, false),
            (500, false),
        ] {
            assert_eq!(is_permanent(status), want, "{status}");
        }
    }
}
