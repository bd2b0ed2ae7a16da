//! Disrupts the pods of a workload, and waits until they are replaced.

use std::collections::BTreeSet;
use std::time::Duration;

use ctl::cli::terminal::report;
use k8s_openapi::api::core::v1::Pod;
use kubernetes::{ObjectSelector, now};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::disruption::Disruption;
use crate::pods::PodLog;
use crate::workload_client::WorkloadClient;

/// The interval between two looks at the workload, and between two attempts of an eviction that a disruption budget
/// does not allow.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The pods of a workload, and what is done to them.
pub(super) struct Disrupter<'a> {
    pub(super) client: &'a WorkloadClient,
    pub(super) selector: &'a ObjectSelector,
    pub(super) pods: &'a watch::Sender<PodLog>,
}

// === impl Disrupter ===

impl Disrupter<'_> {
    /// Disrupts the pods, and returns when all that it has ended are gone and replaced.
    pub(super) async fn run(&self, disruption: Disruption) -> anyhow::Result<()> {
        match disruption {
            Disruption::Rollout => {
                self.client.restart(now()).await?;
                self.settle().await
            }
            Disruption::Evict | Disruption::Delete => {
                let names = self.pods.borrow().names();
                for name in names {
                    self.end(disruption, &name).await?;
                    self.settle().await?;
                }
                Ok(())
            }
        }
    }

    /// Evicts or deletes a pod.
    async fn end(&self, disruption: Disruption, pod: &str) -> anyhow::Result<()> {
        if disruption == Disruption::Delete {
            return Ok(self.client.delete_pod(pod).await?);
        }
        let mut is_first = true;
        while let Some(reason) = self.client.evict(pod).await? {
            if is_first {
                report(format_args!("{pod} may not be evicted yet: {reason}"));
            }
            is_first = false;
            sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// Waits until the workload is complete, and the pods that were deleted are gone.
    async fn settle(&self) -> anyhow::Result<()> {
        loop {
            // The controller has to see the change first.
            sleep(POLL_INTERVAL).await;
            let mut uids = BTreeSet::new();
            let add = |pod: Pod| uids.extend(pod.metadata.uid);
            self.client.reader.select(self.selector, add).await?;
            self.pods
                .send_modify(|pods| pods.observe_all(&uids, Instant::now()));
            let workload = self.client.workload().await?.unwrap_or_default();
            if workload.is_complete() && self.pods.borrow().terminating() == 0 {
                return Ok(());
            }
        }
    }
}
