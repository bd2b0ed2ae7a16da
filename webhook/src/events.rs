//! Events on the owners of pods that were admitted without the drainer they asked for.
//!
//! Off the admission path: what is to be told comes through a queue, and whoever fills that never waits.
//! Pods of one owner that lack their drainers for one reason are one Event, each replica's own.

mod rate_limit;
mod series;

use std::convert::Infallible;
use std::future::pending;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tracing::{debug, warn};

use crate::admission::{Owner, SkippedPod};
use crate::clock::wall_clock;
use crate::metrics::Metrics;

pub use series::Series;

use series::EventAggregator;

/// How many pods wait for being told of, at most, each less than 3 KiB.
pub const QUEUE_CAPACITY: usize = 256;

/// Why an Event was not written.
#[derive(Debug)]
pub enum PublishError {
    /// It never will be, as when there is no right to: what the API server says.
    Rejected(String),
    /// It may be later.
    Transient(anyhow::Error),
}

/// Has Events written for what comes through the queue, for as long as it is polled, but none in `excluded`
/// namespaces, of whose pods no API server asks. `write` creates the Event of a series or brings it up to date,
/// in a bounded time.
pub async fn publish(
    mut queue: mpsc::Receiver<SkippedPod>,
    excluded: &[String],
    metrics: &Metrics,
    write: impl AsyncFn(&Series) -> Result<(), PublishError>,
) -> Infallible {
    let mut ledger = EventAggregator::new(Instant::now());
    loop {
        let due = ledger.due();
        let due = async {
            match due {
                Some(due) => sleep_until(due).await,
                None => pending().await,
            }
        };
        tokio::select! {
            Some(undrained) = queue.recv() => {
                if excluded.contains(&undrained.owner.namespace) {
                    continue;
                }
                if !ledger.record(undrained, Instant::now(), wall_clock()) {
                    metrics.count_dropped_event();
                }
            }
            () = due => {
                let Some(series) = ledger.take(Instant::now()) else { continue };
                let written = write(&series).await;
                metrics.count_event_write(written.is_ok());
                let SkippedPod { owner, code, .. } = &series.skipped_pod;
                let Owner { namespace, kind, name, .. } = owner;
                match written {
                    Ok(()) => {}
                    Err(PublishError::Rejected(error)) => {
                        ledger.drop_after_failures(&series, Instant::now());
                        warn!(namespace, kind, name, %code, error, "Event not written");
                    }
                    Err(PublishError::Transient(error)) => {
                        ledger.put_back(&series);
                        let error = format!("{error:#}");
                        debug!(namespace, kind, name, %code, error, "Event not written yet");
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;
    use crate::admission::Code;

    fn skipped_pod() -> SkippedPod {
        SkippedPod {
            owner: Owner {
                api_version: "apps/v1".to_owned(),
                kind: "ReplicaSet".to_owned(),
                namespace: "shop".to_owned(),
                name: "edge-7f".to_owned(),
                uid: "2".to_owned(),
            },
            code: Code::ExistingHook,
            note: "DRN008".to_owned(),
        }
    }

    /// What is written of 100 pods that come at once, and its figures, where the cluster answers so.
    async fn publish_pods(
        answer: impl Fn(usize) -> Result<(), PublishError>,
    ) -> (Vec<i32>, String) {
        let (sender, queue) = mpsc::channel(QUEUE_CAPACITY);
        let (report, counts) = (Metrics::new(), RefCell::new(Vec::new()));
        for _ in 0..100 {
            sender.try_send(skipped_pod()).unwrap();
        }
        let write = async |series: &Series| {
            counts.borrow_mut().push(series.count);
            answer(counts.borrow().len())
        };
        let minutes = Duration::from_secs(5 * 60);
        let _ = timeout(minutes, publish(queue, &[], &report, write)).await;
        (counts.into_inner(), report.text())
    }

    #[tokio::test(start_paused = true)]
    async fn a_hundred_pods_are_one_event_and_their_number() {
        let (counts, metrics) = publish_pods(|_| Ok(())).await;
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
    async fn what_failed_is_tried_again_and_what_is_refused_is_not() {
        let fails = |times: usize| match times {
            1..4 => Err(PublishError::Transient(anyhow::Error::msg("on purpose"))),
            _ => Ok(()),
        };
        let (counts, metrics) = publish_pods(fails).await;
        assert_eq!(counts[1..], [100, 100, 100], "{counts:?}");
        assert!(
            metrics.contains("envoy_drainer_event_writes_total{result=\"failed\"} 3"),
            "{metrics}"
        );
        let (counts, _) =
            publish_pods(|_| Err(PublishError::Rejected("on purpose".to_owned()))).await;
        assert_eq!(counts.len(), 1);
    }
}
