//! The webhook's authority is replaced, while pods are created all the time with `failurePolicy:
//! Fail`: at no time does an API server meet a certificate that it does not trust.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::webhooks::fail_closed_values;
use crate::admissions::AdmissionLoad;
use crate::cluster_fixture::ClusterFixture;
use crate::eventually::eventually;
use crate::release::Release;

const ROTATIONS: u64 = 20;

/// It is replaced 20 times, each time by whichever of the three replicas is first.
pub(crate) async fn twenty_rotations_fail_no_admission(fixture: &ClusterFixture<'_>) -> Result<()> {
    let (namespace, release) = fixture.release(short_lived()).await?;
    let admissions = AdmissionLoad::start(&namespace).await?;
    let mut signers = ActiveCa::read(&release).await?;
    while signers.rotations < ROTATIONS {
        signers.wait_for_rotation(&release).await?;
    }
    let admitted = admissions.stop().await?;
    let made = release.metric(&["ca_rotations_total", "due"]).await?;
    let shown = release.metric(&["certificate_reloads_total", "ok"]).await?;
    fixture.add_row("authorities replaced", signers.rotations.to_string());
    fixture.add_row("made by each replica", format!("{made:?}"));
    fixture.add_row("certificates shown by each", format!("{shown:?}"));
    fixture.add_admissions(&admitted);
    let all = shown.iter().all(|shown| *shown >= ROTATIONS);
    ensure!(all, "not every replica followed: {shown:?}");
    admitted.ensure_all_injected()
}

/// Its Secret is deleted: another authority takes over from what API servers still trust.
pub(crate) async fn lost_secret_fails_no_admission(fixture: &ClusterFixture<'_>) -> Result<()> {
    let (namespace, release) = fixture.release(short_lived()).await?;
    let admissions = AdmissionLoad::start(&namespace).await?;
    let mut signers = ActiveCa::read(&release).await?;
    let delete = ["delete", "secret", &release.secret_name()];
    release.namespace.kubectl(&delete).await?;
    signers.wait_for_rotation(&release).await?;
    // That one's life from its first day to its last.
    signers.wait_for_rotation(&release).await?;
    let admitted = admissions.stop().await?;
    let made = release.metric(&["ca_rotations_total", "missing"]).await?;
    fixture.add_row("made for want of one, by each", format!("{made:?}"));
    fixture.add_admissions(&admitted);
    ensure!(made.iter().sum::<u64>() == 2, "the Secret was not missed");
    admitted.ensure_all_injected()
}

/// Three replicas, and lifetimes that leave a leaf three seconds for its replacement.
fn short_lived() -> Value {
    let mut values = fail_closed_values();
    values["replicaCount"] = json!(3);
    values["certificates"] = json!({
        "caActivationDelay": "1s",
        "self": { "caLifetime": "27s", "leafLifetime": "9s" },
    });
    values
}

/// The authorities that sign, one after the other.
struct ActiveCa {
    rotations: u64,
    current: Value,
}

// === impl Signers ===

impl ActiveCa {
    async fn read(release: &Release) -> Result<Self> {
        let current = active_ca(release).await?;
        ensure!(current.is_string(), "there is no authority");
        let replaced = 0;
        Ok(Self {
            rotations: replaced,
            current,
        })
    }

    /// Waits until another one signs.
    async fn wait_for_rotation(&mut self, release: &Release) -> Result<()> {
        eventually("another authority signs", || async {
            let now = active_ca(release).await?;
            Ok(now.is_string() && now != self.current)
        })
        .await?;
        self.current = active_ca(release).await?;
        self.rotations += 1;
        Ok(())
    }
}

/// The certificate of the authority that signs; null without one.
async fn active_ca(release: &Release) -> Result<Value> {
    let get = [
        "get",
        "secret",
        &release.secret_name(),
        "--ignore-not-found",
        "--output",
        "json",
    ];
    let secret = release.namespace.kubectl(&get).await?;
    if secret.is_empty() {
        return Ok(Value::Null);
    }
    let mut secret: Value = serde_json::from_str(&secret).context("a Secret")?;
    Ok(secret["data"]["signer.crt"].take())
}
