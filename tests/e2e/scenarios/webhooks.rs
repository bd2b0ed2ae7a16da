//! The webhook's own replicas are replaced, while pods are created all the time with `failurePolicy:
//! Fail`, which forgives nothing.

use anyhow::Result;
use serde_json::{Value, json};

use crate::admissions::Admissions;
use crate::stage::Stage;

const ROLLOUTS: usize = 3;

/// The webhook is rolled: no admission fails.
///
/// # Errors
/// When one does.
pub(crate) async fn rolled_refuse_nobody(stage: &Stage<'_>) -> Result<()> {
    let (namespace, release) = stage.release(unforgiving()).await?;
    let admissions = Admissions::start(&namespace).await?;
    for _ in 0..ROLLOUTS {
        release.roll().await?;
    }
    // What is left to the API server is its idle connections, on which it may send at any time.
    release.settled().await?;
    let admitted = admissions.stop().await?;
    stage.admitted(&admitted);
    admitted.ensure_all_injected()
}

/// Values with which a pod is refused if the webhook does not see it.
pub(crate) fn unforgiving() -> Value {
    json!({ "admission": { "failurePolicy": "Fail" } })
}
