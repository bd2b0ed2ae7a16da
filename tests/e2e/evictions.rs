//! Pods that end because someone clears their node.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;
use tests::until::until;

use crate::echo;
use crate::edge::{APP, Edge, deployment};
use crate::namespace::{Namespace, in_namespace};
use crate::table::Table;
use crate::traffic::{MIXED, Traffic};

/// Longer than any drain here lasts.
const LIMIT: Duration = Duration::from_secs(180);

/// Each Envoy is evicted as its PodDisruptionBudget allows: no request fails.
///
/// # Errors
/// When one does.
pub(crate) async fn lose_nothing(table: &mut Table) -> Result<()> {
    let report = in_namespace("evictions", async |namespace| {
        let upstream = echo::start(namespace).await?;
        namespace
            .apply(json!({
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": { "name": APP },
                "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": APP } } },
            }))
            .await?;
        let edge = Edge::deploy(namespace, &deployment(2, upstream)?).await?;
        let traffic = Traffic::start(namespace, "load", edge.address, MIXED).await?;
        for pod in edge.pods().await? {
            until("the budget allows an eviction", LIMIT, || {
                evict(namespace, &pod)
            })
            .await?;
        }
        edge.settled().await?;
        let report = traffic.stop().await?;
        table.load(&report);
        table.drains(&namespace.last_words.heard()?);
        Ok(report)
    })
    .await?;
    ensure!(report.failed() == 0, "requests failed:\n{report}");
    Ok(())
}

/// Asks the Eviction API; returns false when the budget does not allow it now.
async fn evict(namespace: &Namespace, pod: &str) -> Result<bool> {
    let eviction = json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": { "name": pod, "namespace": namespace.name() },
    });
    let path = format!("pods/{pod}/eviction");
    match namespace.post(&path, &eviction).await {
        Ok(()) => Ok(true),
        Err(error) if error.to_string().contains("disruption budget") => Ok(false),
        Err(error) => Err(error),
    }
}
