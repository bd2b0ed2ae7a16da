//! Rollouts of the webhook while pods are created with `failurePolicy: Fail`, so that any missed call fails.

use anyhow::Result;
use serde_json::{Value, json};

use crate::admissions::AdmissionLoad;
use crate::cluster_fixture::ClusterFixture;

const ROLLOUTS: usize = 3;

/// Rollouts of the webhook fail no admission.
pub(crate) async fn rollouts_fail_no_admission(fixture: &ClusterFixture<'_>) -> Result<()> {
    let (namespace, release) = fixture.release(fail_closed_values()).await?;
    let admissions = AdmissionLoad::start(&namespace).await?;
    for _ in 0..ROLLOUTS {
        release.rollout_restart().await?;
    }
    // The API server may still send requests on idle connections to terminating replicas.
    release.wait_until_stable().await?;
    let counts = admissions.stop().await?;
    fixture.add_admissions(&counts);
    counts.ensure_all_injected()
}

/// Returns values with which the API server rejects pods if it cannot call the webhook.
pub(crate) fn fail_closed_values() -> Value {
    json!({ "admission": { "failurePolicy": "Fail" } })
}
