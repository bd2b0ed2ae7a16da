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

use admission::Owner;
use futures_util::future::OptionFuture;
use pki::clock::wall_clock;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tracing::{debug, warn};

pub use metrics::Metrics;
pub use owner_event::{EventReason, OwnerEvent};
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

/// Creates a queue for this many Events. Each source of Events has its own, and its own [`publish`], so that none uses
/// up the limits of another.
pub fn queue(capacity: usize, metrics: &Metrics) -> (EventQueue, mpsc::Receiver<OwnerEvent>) {
    let (sender, receiver) = mpsc::channel(capacity);
    let metrics = metrics.clone();
    (EventQueue { sender, metrics }, receiver)
}

/// Publishes the Events of the queue, for as long as it is polled, except in `excluded` namespaces: API servers do not
/// call the webhook for those, so their reviews are forged. `write` creates or updates the Event of a series, in a
/// bounded time.
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

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::time::Duration;

    use admission::{Code, SkippedPod};
    use tokio::time::timeout;

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
}
