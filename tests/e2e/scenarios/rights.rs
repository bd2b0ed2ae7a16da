//! What the webhook's service account may do.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::modes;
use crate::cluster_fixture::ClusterFixture;
use crate::kubectl::{self, kubectl};
use crate::release::Release;

/// As much as it needs, and no more.
pub(crate) async fn are_minimal(fixture: &ClusterFixture<'_>) -> Result<()> {
    let (_, release) = fixture.release(json!({})).await?;
    let (name, secret) = (release.name(), release.secret_name());
    let own = account_rights(&release).await?;
    for right in &own {
        fixture.add_row("may", right);
    }
    let wanted = |secret: String| {
        let events = "events.events.k8s.io [] [] [create patch]".to_owned();
        let webhooks = format!(
            "mutatingwebhookconfigurations.admissionregistration.k8s.io [] [{name}] \
             [get list watch patch]"
        );
        vec![events, webhooks, secret]
    };
    let made = format!("secrets [] [{secret}] [create get list watch patch]");
    ensure!(own == wanted(made), "it may {own:#?}");

    // RBAC knows no fields; a policy does.
    let owner = json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "name": "nobody",
        "uid": "00000000-0000-0000-0000-000000000000",
    });
    let everything = json!([{
        "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"], "operations": ["*"],
    }]);
    let entry = [
        ("admissionReviewVersions", json!(["v1", "v1beta1"])),
        ("clientConfig", json!({ "url": "https://example.com" })),
        ("failurePolicy", json!("Fail")),
        ("matchConditions", json!([])),
        ("matchPolicy", json!("Exact")),
        ("name", json!("another.envoy-drainer.dev")),
        ("namespaceSelector", json!({})),
        (
            "objectSelector",
            json!({ "matchLabels": { "team": "edge" } }),
        ),
        ("reinvocationPolicy", json!("Never")),
        ("rules", everything),
        ("sideEffects", json!("None")),
        ("timeoutSeconds", json!(29)),
    ];
    ensure!(
        entry_fields().await? == entry.iter().map(|(field, _)| (*field).to_owned()).collect(),
        "this Kubernetes has fields that the policy does not compare"
    );
    let entry = entry.map(|(field, value)| ("add", format!("/webhooks/0/{field}"), value));
    let others = [
        ("remove", "/webhooks/1", json!(null)),
        ("add", "/metadata/ownerReferences", json!([&owner])),
        ("add", "/metadata/finalizers", json!(["example.com/held"])),
        ("add", "/metadata/generateName", json!("another-")),
        ("add", "/metadata/labels/team", json!("edge")),
        ("remove", "/metadata/labels", json!(null)),
        ("add", "/metadata/annotations", json!({ "team": "edge" })),
    ];
    let others = others.map(|(op, path, value)| (op, path.to_owned(), value));
    let changes = entry.into_iter().chain(others);
    let account = impersonate(&release, name);
    for (op, path, value) in changes {
        let patch = json!([{ "op": op, "path": path, "value": value }]);
        let refused = kubectl(&[
            "patch",
            "mutatingwebhookconfiguration",
            name,
            "--type=json",
            &format!("--patch={patch}"),
            &account,
        ])
        .await;
        let refused = refused.err().map(|error| error.to_string());
        ensure!(
            refused
                .as_ref()
                .is_some_and(|why| why.contains("may only change caBundle in its configuration")),
            "it may {op} {path}: {refused:?}"
        );
    }

    // Of its Secret, the data.
    let secret_changes = [
        json!({ "immutable": true }),
        json!({ "metadata": { "ownerReferences": [owner] } }),
        json!({ "metadata": { "finalizers": ["example.com/held"] } }),
        json!({ "metadata": { "labels": { "team": "edge" } } }),
        json!({ "metadata": { "annotations": { "team": "edge" } } }),
    ];
    for patch in secret_changes {
        let patch = format!("--patch={patch}");
        let patch = [
            "patch",
            "secret",
            &*secret,
            "--type=merge",
            &patch,
            &account,
        ];
        let refused = release.namespace.kubectl(&patch).await;
        let refused = refused.err().map(|error| error.to_string());
        ensure!(
            refused
                .as_ref()
                .is_some_and(|why| why.contains("may only change data in its Secret")),
            "it may {patch:?}: {refused:?}"
        );
    }

    // To create means: this Secret, which names itself.
    let delete = ["delete", "secret", &*secret];
    release.namespace.kubectl(&delete).await?;
    apply_secret(&release, &secret).await?;
    let another = apply_secret(&release, "another").await;
    ensure!(another.is_err(), "it may make any Secret");
    // And Helm takes it for its own again.
    release.upgrade(json!({})).await?;
    let labels = &release.secret().await?["metadata"]["labels"];
    let manager = &labels["app.kubernetes.io/managed-by"];
    ensure!(manager == "Helm", "the Secret is managed by {manager}");

    // What somebody else keeps it only reads.
    modes::apply_tls_secret(&release).await?;
    release.upgrade(modes::tls_secret_values()).await?;
    let own = self::account_rights(&release).await?;
    fixture.add_row("in mode secret", own.join(", "));
    let given = format!("secrets [] [{}] [get list watch]", modes::TLS_SECRET);
    ensure!(own == wanted(given), "in mode secret it may {own:#?}");
    Ok(())
}

/// The fields of a webhook in the cluster's own OpenAPI.
async fn entry_fields() -> Result<BTreeSet<String>> {
    let path = "/openapi/v3/apis/admissionregistration.k8s.io/v1";
    let document: Value = serde_json::from_str(&kubectl(&["get", "--raw", path]).await?)?;
    let schema = "io.k8s.api.admissionregistration.v1.MutatingWebhook";
    let fields = &document["components"]["schemas"][schema]["properties"];
    let fields = fields.as_object().context("no schema of a webhook")?;
    Ok(fields.keys().cloned().collect())
}

/// The rights of the webhook's account beyond those that every account has.
async fn account_rights(release: &Release) -> Result<Vec<String>> {
    let nobody = list_rights(release, "nobody").await?;
    let own = list_rights(release, release.name()).await?;
    Ok(own.difference(&nobody).cloned().collect())
}

/// The rights of an account of the release's namespace.
async fn list_rights(release: &Release, account: &str) -> Result<BTreeSet<String>> {
    let account = impersonate(release, account);
    let list = ["auth", "can-i", "--list", "--no-headers", &account];
    let told = release.namespace.kubectl(&list).await?;
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    Ok(told.lines().map(words).collect())
}

/// Has the webhook's account apply an empty Secret of this name.
async fn apply_secret(release: &Release, name: &str) -> Result<()> {
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": { "name": name, "namespace": release.name() },
    });
    let account = impersonate(release, release.name());
    kubectl::apply_as(&secret, &account).await.map(drop)
}

/// The flag by which kubectl acts as an account.
fn impersonate(release: &Release, account: &str) -> String {
    format!("--as=system:serviceaccount:{}:{account}", release.name())
}
