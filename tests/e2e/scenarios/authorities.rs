//! The webhook's authority is replaced, while pods are created all the time with `failurePolicy:
//! Fail`: at no time does an API server meet a certificate that it does not trust.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::webhooks::unforgiving;
use crate::admissions::Admissions;
use crate::eventually::eventually;
use crate::release::Release;
use crate::stage::Stage;

const ROTATIONS: u64 = 20;

/// It is replaced 20 times, each time by whichever of the three replicas is first.
///
/// # Errors
/// When an admission fails.
pub(crate) async fn rotated_refuse_nobody(stage: &Stage<'_>) -> Result<()> {
    let (namespace, release) = stage.release(short_lived()).await?;
    let admissions = Admissions::start(&namespace).await?;
    let mut signers = Signers::of(&release).await?;
    while signers.replaced < ROTATIONS {
        signers.next(&release).await?;
    }
    let admitted = admissions.stop().await?;
    let made = release.metric(&["ca_rotations_total", "due"]).await?;
    let shown = release.metric(&["certificate_reloads_total", "ok"]).await?;
    stage.row("authorities replaced", signers.replaced.to_string());
    stage.row("made by each replica", format!("{made:?}"));
    stage.row("certificates shown by each", format!("{shown:?}"));
    stage.admitted(&admitted);
    let all = shown.iter().all(|shown| *shown >= ROTATIONS);
    ensure!(all, "not every replica followed: {shown:?}");
    admitted.ensure_all_injected()
}

/// Its Secret is deleted: another authority takes over from what API servers still trust.
///
/// # Errors
/// When an admission fails.
pub(crate) async fn lost_refuse_nobody(stage: &Stage<'_>) -> Result<()> {
    let (namespace, release) = stage.release(short_lived()).await?;
    let admissions = Admissions::start(&namespace).await?;
    let mut signers = Signers::of(&release).await?;
    let delete = ["delete", "secret", &release.secret_name()];
    release.namespace.kubectl(&delete).await?;
    signers.next(&release).await?;
    // That one's life from its first day to its last.
    signers.next(&release).await?;
    let admitted = admissions.stop().await?;
    let made = release.metric(&["ca_rotations_total", "missing"]).await?;
    stage.row("made for want of one, by each", format!("{made:?}"));
    stage.admitted(&admitted);
    ensure!(made.iter().sum::<u64>() == 2, "the Secret was not missed");
    admitted.ensure_all_injected()
}

/// Three replicas, and lifetimes that leave a leaf three seconds for its replacement.
fn short_lived() -> Value {
    let mut values = unforgiving();
    values["replicas"] = json!(3);
    values["certificates"] = json!({
        "caActivationDelay": "1s",
        "self": { "caLifetime": "27s", "leafLifetime": "9s" },
    });
    values
}

/// The authorities that sign, one after the other.
struct Signers {
    replaced: u64,
    current: Value,
}

// === impl Signers ===

impl Signers {
    async fn of(release: &Release) -> Result<Self> {
        let current = signer(release).await?;
        ensure!(current.is_string(), "there is no authority");
        let replaced = 0;
        Ok(Self { replaced, current })
    }

    /// Waits until another one signs.
    async fn next(&mut self, release: &Release) -> Result<()> {
        eventually("another authority signs", || async {
            let now = signer(release).await?;
            Ok(now.is_string() && now != self.current)
        })
        .await?;
        self.current = signer(release).await?;
        self.replaced += 1;
        Ok(())
    }
}

/// The certificate of the authority that signs; null without one.
async fn signer(release: &Release) -> Result<Value> {
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
