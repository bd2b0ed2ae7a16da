//! The webhook's own replicas are replaced, while pods are created all the time with `failurePolicy:
//! Fail`, which forgives nothing.

use anyhow::Result;
use serde_json::{Value, json};

use crate::admissions::AdmissionLoad;
use crate::cluster_fixture::ClusterFixture;

const ROLLOUTS: usize = 3;

/// The webhook is rolled: no admission fails.
pub(crate) async fn rollouts_fail_no_admission(fixture: &ClusterFixture<'_>) -> Result<()> {
    let (namespace, release) = fixture.release(fail_closed_values()).await?;
    let admissions = AdmissionLoad::start(&namespace).await?;
    for _ in 0..ROLLOUTS {
        release.rollout_restart().await?;
    }
    // What is left to the API server is its idle connections, on which it may send at any time.
    release.wait_until_stable().await?;
    let admitted = admissions.stop().await?;
    fixture.add_admissions(&admitted);
    admitted.ensure_all_injected()
}

/// Values with which a pod is refused if the webhook does not see it.
pub(crate) fn fail_closed_values() -> Value {
    json!({ "admission": { "failurePolicy": "Fail" } })
}
