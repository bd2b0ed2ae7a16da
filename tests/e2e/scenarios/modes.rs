//! Changes of the certificate mode, from `self` to `secret` and back, while pods are created with `failurePolicy:
//! Fail`, so that any missed call fails. Each change is a rollout of the webhook.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tests::test_ca::TestCa;

use crate::admissions::AdmissionLoad;
use crate::cluster_fixture::ClusterFixture;
use crate::eventually::eventually;
use crate::release::Release;

/// The TLS Secret of mode `secret`.
pub(super) const TLS_SECRET: &str = "serving-cert";

/// Changing a release to mode `secret`, its Secret to another CA, and the release back to mode `self` fails no
/// admission.
pub(crate) async fn changes_fail_no_admission(fixture: &ClusterFixture<'_>) -> Result<()> {
    let (namespace, release) = fixture.release(self_managed_values()).await?;
    let admissions = AdmissionLoad::start(&namespace).await?;

    apply_tls_secret(&release).await?;
    release.upgrade(tls_secret_values()).await?;
    release.wait_until_stable().await?;
    ensure!(
        certificate_reloads(&release).await? == [1, 1],
        "a replica does not serve the certificate of the Secret"
    );
    apply_tls_secret(&release).await?;
    eventually(
        "each replica serves a certificate of the other CA",
        || async { Ok(certificate_reloads(&release).await? == [2, 2]) },
    )
    .await?;
    release.upgrade(self_managed_values()).await?;
    release.wait_until_stable().await?;

    let counts = fixture.stop_admissions(admissions).await?;
    counts.ensure_all_injected()
}

/// Returns values with which the API server rejects pods if it cannot call the webhook.
pub(super) fn fail_closed_values() -> Value {
    json!({ "admission": { "failurePolicy": "Fail" } })
}

/// Returns values for mode `self`.
fn self_managed_values() -> Value {
    mode_values("self", "")
}

/// Returns values for mode `secret`, with the Secret of [`apply_tls_secret`].
pub(super) fn tls_secret_values() -> Value {
    mode_values("secret", TLS_SECRET)
}

/// Returns values for a mode. The activation delay is short: test clusters have a single API server.
fn mode_values(mode: &str, secret: &str) -> Value {
    let mut values = fail_closed_values();
    values["certificates"] = json!({
        "mode": mode,
        "caActivationDelay": "5s",
        "secret": { "name": secret },
    });
    values
}

/// Applies the TLS Secret with a certificate of a new CA.
pub(super) async fn apply_tls_secret(release: &Release) -> Result<()> {
    let ca = TestCa::new()?;
    let leaf = ca.issue_leaf_for(&format!("{0}.{0}.svc", release.name()))?;
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": { "name": TLS_SECRET },
        "type": "kubernetes.io/tls",
        "stringData": {
            "tls.crt": leaf.certificate,
            "tls.key": leaf.key,
            "ca.crt": ca.pem(),
        },
    });
    release.namespace.apply(secret).await.map(drop)
}

/// Returns how many certificates each replica has served.
async fn certificate_reloads(release: &Release) -> Result<Vec<u64>> {
    release.metric(&["certificate_reloads_total", "ok"]).await
}
