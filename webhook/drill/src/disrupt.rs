//! Disrupts the pods of a workload, and waits until they are replaced.

use std::collections::BTreeSet;
use std::time::Duration;

use ctl::cli::terminal::report;
use k8s_openapi::api::core::v1::Pod;
use kubernetes::ObjectSelector;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::disruption::Disruption;
use crate::pods::PodLog;
use crate::workload::Workload;
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
                let old = self.pods.borrow().uids();
                self.client.restart().await?;
                self.settle(&old).await
            }
            Disruption::Evict | Disruption::Delete => {
                let names = self.pods.borrow().names();
                for name in names {
                    self.end(disruption, &name).await?;
                    self.settle(&BTreeSet::new()).await?;
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

    /// Waits until the workload is complete, and its `old` pods and those that were deleted are gone.
    async fn settle(&self, old: &BTreeSet<String>) -> anyhow::Result<()> {
        loop {
            // The controller has to see the change first.
            sleep(POLL_INTERVAL).await;
            let mut uids = BTreeSet::new();
            let add = |pod: Pod| uids.extend(pod.metadata.uid);
            self.client.reader.select(self.selector, add).await?;
            self.pods
                .send_modify(|pods| pods.observe_all(&uids, Instant::now()));
            let workload = self.client.workload().await?.unwrap_or_default();
            if is_replaced(&workload, old, &uids) && self.pods.borrow().terminating() == 0 {
                return Ok(());
            }
        }
    }
}

/// Whether a workload is complete, and as many of its `old` pods are gone as it has: a controller may change pods in
/// place, and a pod that has failed stays.
fn is_replaced(workload: &Workload, old: &BTreeSet<String>, existing: &BTreeSet<String>) -> bool {
    let gone = old.difference(existing).count();
    let desired = usize::try_from(workload.counts().desired).unwrap_or(usize::MAX);
    workload.is_complete() && gone >= desired.min(old.len())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A controller may say that it is complete before it is, and one that changes pods in place replaces none.
    #[test]
    fn restart_is_over_once_the_old_pods_are_gone() {
        let workload = |available: u32| {
            let object = json!({
                "apiVersion": "apps.kruise.io/v1alpha1", "kind": "CloneSet", "metadata": {"generation": 2},
                "spec": {"replicas": 2, "template": {"spec": {"containers": []}}},
                "status": {
                    "observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "availableReplicas": available,
                },
            });
            Workload::read(object).unwrap()
        };
        let uids = |uids: &[&str]| uids.iter().map(|&uid| uid.to_owned()).collect();
        for (old, existing, available, want) in [
            (&["a", "b"][..], &["c", "d"][..], 2, true),
            (&["a", "b"], &["c", "d"], 1, false),
            (&["a", "b"], &["a", "b"], 2, false),
            (&["a", "b"], &["a", "c"], 2, false),
            // Of more replicas than before.
            (&["a"], &["c", "d"], 2, true),
            // `f` has failed, and stays.
            (&["a", "b", "f"], &["c", "d", "f"], 2, true),
            // Of evictions, whose end the count of terminating pods says.
            (&[], &["a", "b"], 2, true),
        ] {
            let is_replaced = is_replaced(&workload(available), &uids(old), &uids(existing));
            assert_eq!(is_replaced, want, "{old:?} {existing:?} {available}");
        }
    }
}
