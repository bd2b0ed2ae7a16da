//! The webhook's certificate comes from somebody else's Secret, and from the webhook itself again, while
//! pods are created all the time with `failurePolicy: Fail`.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tests::test_ca::TestCa;

use super::webhooks::fail_closed_values;
use crate::admissions::AdmissionLoad;
use crate::cluster_fixture::ClusterFixture;
use crate::eventually::eventually;
use crate::release::Release;

/// Somebody else's Secret.
pub(super) const TLS_SECRET: &str = "given";

/// A running release is changed to mode `secret`, its Secret to another authority, and the release to
/// mode `self` again.
pub(crate) async fn changes_fail_no_admission(fixture: &ClusterFixture<'_>) -> Result<()> {
    let (namespace, release) = fixture.release(self_managed_values()).await?;
    let admissions = AdmissionLoad::start(&namespace).await?;

    apply_tls_secret(&release).await?;
    release.upgrade(tls_secret_values()).await?;
    release.wait_until_stable().await?;
    ensure!(
        certificate_reloads(&release).await? == [1, 1],
        "each shows the Secret's"
    );
    apply_tls_secret(&release).await?;
    eventually("each replica shows the other authority's", || async {
        Ok(certificate_reloads(&release).await? == [2, 2])
    })
    .await?;
    release.upgrade(self_managed_values()).await?;
    release.wait_until_stable().await?;

    let admitted = admissions.stop().await?;
    fixture.add_admissions(&admitted);
    admitted.ensure_all_injected()
}

/// Mode `self`.
fn self_managed_values() -> Value {
    mode_values("self", "")
}

/// Mode `secret`, with the Secret that [`give`] fills.
pub(super) fn tls_secret_values() -> Value {
    mode_values("secret", TLS_SECRET)
}

/// API servers need not be given minutes to learn of an authority: here they are one, and near.
fn mode_values(mode: &str, secret: &str) -> Value {
    let mut values = fail_closed_values();
    values["certificates"] = json!({
        "mode": mode,
        "caActivationDelay": "5s",
        "secret": { "name": secret },
    });
    values
}

/// Fills the Secret with a certificate of a new authority.
pub(super) async fn apply_tls_secret(release: &Release) -> Result<()> {
    let authority = TestCa::new()?;
    let leaf = authority.issue_leaf_for(&format!("{0}.{0}.svc", release.name()))?;
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": { "name": TLS_SECRET },
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
async fn certificate_reloads(release: &Release) -> Result<Vec<u64>> {
    release.metric(&["certificate_reloads_total", "ok"]).await
}
