//! Disrupts the pods of a workload, and waits until they are replaced.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::Duration;

use ctl::cli::terminal::report;
use ctl::kubernetes::{ClusterReader, ObjectSelector};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use pki::clock::wall_clock;
use tokio::time::{Instant, sleep};

use crate::clean_up::{CleanUp, Undo};
use crate::disruption::Disruption;
use crate::pods::PodLog;
use crate::workload::Workload;
use crate::workload_client::WorkloadClient;

/// The interval between two looks at the workload, and between two attempts of an eviction that a disruption budget does
/// not allow.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The pods of a workload, and what is done to them.
pub(super) struct Disrupter<'a> {
    pub(super) reader: &'a ClusterReader,
    pub(super) client: &'a WorkloadClient,
    pub(super) pods: &'a ObjectSelector,
    pub(super) log: &'a RefCell<PodLog>,
    pub(super) clean_up: &'a CleanUp,
}

// === impl Disrupter ===

impl Disrupter<'_> {
    /// Disrupts the pods, and returns when all that it has ended are gone and replaced.
    pub(super) async fn run(
        &self,
        disruption: Disruption,
        workload: &Workload,
    ) -> anyhow::Result<()> {
        self.clean_up.record_disruption();
        match disruption {
            Disruption::Rollout => {
                self.client.restart(now()).await?;
                self.settle().await
            }
            Disruption::Scale(replicas) => {
                self.clean_up.add(Undo::Scale(workload.counts().desired));
                self.client.scale(replicas).await?;
                self.settle().await?;
                self.client.scale(workload.counts().desired).await?;
                self.settle().await
            }
            Disruption::Evict | Disruption::Delete => {
                let mut names = Vec::new();
                let add = |pod: Pod| names.extend(pod.metadata.name);
                self.reader.select(self.pods, add).await?;
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
            self.reader.select(self.pods, add).await?;
            self.log.borrow_mut().observe_all(&uids, Instant::now());
            let workload = self.client.workload().await?.unwrap_or_default();
            if workload.is_complete() && self.log.borrow().terminating() == 0 {
                return Ok(());
            }
        }
    }
}

pub(super) fn now() -> Timestamp {
    Timestamp::try_from(wall_clock()).unwrap_or_default()
}
