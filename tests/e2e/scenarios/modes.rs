//! The webhook's certificate comes from somebody else's Secret, and from the webhook itself again, while
//! pods are created all the time with `failurePolicy: Fail`.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tests::authority::Authority;

use super::webhooks::unforgiving;
use crate::admissions::Admissions;
use crate::eventually::eventually;
use crate::release::Release;
use crate::stage::Stage;

/// Somebody else's Secret.
pub(super) const GIVEN: &str = "given";

/// A running release is changed to mode `secret`, its Secret to another authority, and the release to
/// mode `self` again.
///
/// # Errors
/// When an admission fails.
pub(crate) async fn changed_refuse_nobody(stage: &Stage<'_>) -> Result<()> {
    let (namespace, release) = stage.release(own()).await?;
    let admissions = Admissions::start(&namespace).await?;

    give(&release).await?;
    release.upgrade(given()).await?;
    release.settled().await?;
    ensure!(shown(&release).await? == [1, 1], "each shows the Secret's");
    give(&release).await?;
    eventually("each replica shows the other authority's", || async {
        Ok(shown(&release).await? == [2, 2])
    })
    .await?;
    release.upgrade(own()).await?;
    release.settled().await?;

    let admitted = admissions.stop().await?;
    stage.admitted(&admitted);
    admitted.ensure_all_injected()
}

/// Mode `self`.
fn own() -> Value {
    values("self", "")
}

/// Mode `secret`, with the Secret that [`give`] fills.
pub(super) fn given() -> Value {
    values("secret", GIVEN)
}

/// API servers need not be given minutes to learn of an authority: here they are one, and near.
fn values(mode: &str, secret: &str) -> Value {
    let mut values = unforgiving();
    values["certificates"] = json!({
        "mode": mode,
        "caActivationDelay": "5s",
        "secret": { "name": secret },
    });
    values
}

/// Fills the Secret with a certificate of a new authority.
pub(super) async fn give(release: &Release) -> Result<()> {
    let authority = Authority::new()?;
    let leaf = authority.leaf_for(&format!("{0}.{0}.svc", release.name()))?;
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": { "name": GIVEN },
        "type": "kubernetes.io/tls",
        "stringData": {
            "tls.crt": leaf.certificate,
            "tls.key": leaf.key,
            "ca.crt": authority.pem(),
        },
    });
    release.namespace.apply(secret).await.map(drop)
}

/// How many certificates each replica has shown.
async fn shown(release: &Release) -> Result<Vec<u64>> {
    release.metric(&["certificate_reloads_total", "ok"]).await
}
