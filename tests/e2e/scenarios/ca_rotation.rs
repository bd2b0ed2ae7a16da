//! Rotations of the webhook's CA while pods are created with `failurePolicy: Fail`: no API server is ever
//! served a certificate that it does not trust.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::modes::fail_closed_values;
use crate::admissions::AdmissionLoad;
use crate::cluster_fixture::ClusterFixture;
use crate::release::Release;

const ROTATIONS: u64 = 20;

/// The CA is rotated 20 times, each time by the first of three replicas.
pub(crate) async fn twenty_rotations_fail_no_admission(fixture: &ClusterFixture<'_>) -> Result<()> {
    let (namespace, release) = fixture.release(short_lived()).await?;
    let admissions = AdmissionLoad::start(&namespace).await?;
    let mut ca = ActiveCa::read(&release).await?;
    while ca.rotations < ROTATIONS {
        ca.wait_for_rotation(&release).await?;
    }
    let counts = fixture.stop_admissions(admissions).await?;
    let rotations = release.metric(&["ca_rotations_total", "due"]).await?;
    let reloads = release.metric(&["certificate_reloads_total", "ok"]).await?;
    fixture.add_row("CA rotations", ca.rotations.to_string());
    fixture.add_row("rotations by replica", format!("{rotations:?}"));
    fixture.add_row("certificates served by replica", format!("{reloads:?}"));
    let is_followed = reloads.iter().all(|count| *count >= ROTATIONS);
    ensure!(
        is_followed,
        "a replica did not serve certificates of all CAs: {reloads:?}"
    );
    counts.ensure_all_injected()
}

/// After its Secret is deleted, a new CA is activated while the API servers still trust the old one.
pub(crate) async fn lost_secret_fails_no_admission(fixture: &ClusterFixture<'_>) -> Result<()> {
    let (namespace, release) = fixture.release(short_lived()).await?;
    let admissions = AdmissionLoad::start(&namespace).await?;
    let mut ca = ActiveCa::read(&release).await?;
    let delete = ["delete", "secret", &release.secret_name()];
    release.namespace.kubectl(&delete).await?;
    ca.wait_for_rotation(&release).await?;
    // The next rotation covers the whole lifetime of the new CA.
    ca.wait_for_rotation(&release).await?;
    let counts = fixture.stop_admissions(admissions).await?;
    let rotations = release.metric(&["ca_rotations_total", "missing"]).await?;
    fixture.add_row("missing CAs created by replica", format!("{rotations:?}"));
    ensure!(
        rotations.iter().sum::<u64>() == 2,
        "expected one CA after the installation and one after the deletion: {rotations:?}"
    );
    counts.ensure_all_injected()
}

/// Returns values with three replicas, and with lifetimes that leave three seconds to renew a leaf.
fn short_lived() -> Value {
    let mut values = fail_closed_values();
    values["replicaCount"] = json!(3);
    values["certificates"] = json!({
        "caActivationDelay": "1s",
        "self": { "caLifetime": "27s", "leafLifetime": "9s" },
    });
    values
}

/// The active CA, which issues leaves, with the number of rotations so far.
struct ActiveCa {
    rotations: u64,
    current: Value,
}

// === impl ActiveCa ===

impl ActiveCa {
    async fn read(release: &Release) -> Result<Self> {
        let current = release.active_ca().await?;
        ensure!(current.is_string(), "there is no active CA");
        Ok(Self {
            rotations: 0,
            current,
        })
    }

    /// Waits until another CA is active.
    async fn wait_for_rotation(&mut self, release: &Release) -> Result<()> {
        self.current = release.wait_for_rotation(&self.current).await?;
        self.rotations += 1;
        Ok(())
    }
}
