//! The permissions of the webhook's service account.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use super::modes;
use crate::cluster_fixture::ClusterFixture;
use crate::kubectl::{self, kubectl};
use crate::release::Release;

/// Changes that the account must not make.
#[derive(Deserialize)]
struct Changes {
    /// Other values of all fields of the configuration's first webhook.
    entry: BTreeMap<String, Value>,
    /// Operations of JSON patches of the rest of the configuration.
    configuration: Vec<Value>,
    /// Merge patches of the Secret.
    secret: Vec<Value>,
}

/// The account has the permissions that it needs, and no others.
pub(crate) async fn are_minimal(fixture: &ClusterFixture<'_>) -> Result<()> {
    let (_, release) = fixture.release(json!({})).await?;
    let (name, secret) = (release.configuration_name(), release.secret_name());
    let own = account_rights(&release).await?;
    for right in &own {
        fixture.add_row("permission", right);
    }
    let expected = |secret: String| {
        let events = "events.events.k8s.io [] [] [create patch]".to_owned();
        let webhooks = format!(
            "mutatingwebhookconfigurations.admissionregistration.k8s.io [] [{name}] \
             [get list watch patch]"
        );
        vec![events, webhooks, secret]
    };
    let own_secret = format!("secrets [] [{secret}] [create get list watch patch]");
    ensure!(own == expected(own_secret), "it may {own:#?}");

    ensure_drainer_api_rights(fixture, &release, &own).await?;

    // A policy restricts the fields, which RBAC cannot.
    let Changes {
        entry,
        configuration,
        secret: of_secret,
    } = serde_json::from_str(include_str!("rights/changes.json"))?;
    ensure!(
        entry_fields().await?.iter().eq(entry.keys()),
        "this Kubernetes has fields that the policy does not compare"
    );
    let entry = entry.into_iter().map(|(field, value)| {
        json!({ "op": "add", "path": format!("/webhooks/0/{field}"), "value": value })
    });
    for change in entry.chain(configuration) {
        let patch = json!([change]);
        let object = ["mutatingwebhookconfiguration", &*name];
        let message = "may only change caBundle in its configuration";
        ensure_patch_is_refused(&release, object, "json", &patch, message).await?;
    }

    // In its Secret it may change only the data.
    for patch in of_secret {
        let message = "may only change data in its Secret";
        ensure_patch_is_refused(&release, ["secret", &secret], "merge", &patch, message).await?;
    }

    // It may create only this Secret, by server-side apply, whose requests have the name in their path.
    let delete = ["delete", "secret", &*secret];
    release.namespace.kubectl(&delete).await?;
    apply_secret(&release, &secret).await?;
    let another = apply_secret(&release, "another").await;
    ensure!(another.is_err(), "it may create other Secrets");
    // Helm adopts the new Secret again.
    release.upgrade(json!({})).await?;
    let labels = &release.secret().await?["metadata"]["labels"];
    let manager = &labels["app.kubernetes.io/managed-by"];
    ensure!(manager == "Helm", "the Secret is managed by {manager}");

    // In mode `secret` it may only read the Secret.
    modes::apply_tls_secret(&release).await?;
    release.upgrade(modes::tls_secret_values()).await?;
    let own = account_rights(&release).await?;
    fixture.add_row("in mode secret", own.join(", "));
    let tls_secret = format!("secrets [] [{}] [get list watch]", modes::TLS_SECRET);
    ensure!(
        own == expected(tls_secret),
        "in mode secret it may {own:#?}"
    );
    Ok(())
}

/// Ensures that the webhook's account may not patch an object, with `wanted` in the error.
async fn ensure_patch_is_refused(
    release: &Release,
    [kind, name]: [&str; 2],
    patch_type: &str,
    patch: &Value,
    wanted: &str,
) -> Result<()> {
    let account = impersonate(release, release.name());
    let (flag, patch_type) = (format!("--patch={patch}"), format!("--type={patch_type}"));
    let patch_object = ["patch", kind, name, &patch_type, &flag, &account];
    let result = release.namespace.kubectl(&patch_object).await;
    let message = result.err().map(|error| error.to_string());
    ensure!(
        message
            .as_ref()
            .is_some_and(|message| message.contains(wanted)),
        "it may change its {kind} by {patch}: {message:?}"
    );
    Ok(())
}

/// Returns an error unless the drainer API adds its own rights to those without it, and takes them with it.
async fn ensure_drainer_api_rights(
    fixture: &ClusterFixture<'_>,
    release: &Release,
    without: &[String],
) -> Result<()> {
    let added = [
        "tokenreviews.authentication.k8s.io [] [] [create]",
        "endpointslices.discovery.k8s.io [] [] [list]",
        "pods [] [] [get]",
        "replicasets.apps [] [] [get]",
    ];
    fixture.add_row("with the drainer API", added.join(", "));
    let drainer_api = json!({ "enabled": true, "replacement": true, "reports": true });
    release
        .upgrade(json!({ "drainerAPI": drainer_api }))
        .await?;
    let own: BTreeSet<_> = account_rights(release).await?.into_iter().collect();
    let expected = without.iter().cloned().chain(added.map(str::to_owned));
    ensure!(own == expected.collect(), "with it, it may {own:#?}");
    release.upgrade(json!({})).await?;
    let own = account_rights(release).await?;
    ensure!(own == without, "without the drainer API it may {own:#?}");
    Ok(())
}

/// Returns the fields of a webhook in the cluster's OpenAPI document.
async fn entry_fields() -> Result<BTreeSet<String>> {
    let path = "/openapi/v3/apis/admissionregistration.k8s.io/v1";
    let document: Value = serde_json::from_str(&kubectl(&["get", "--raw", path]).await?)?;
    let schema = "io.k8s.api.admissionregistration.v1.MutatingWebhook";
    let fields = &document["components"]["schemas"][schema]["properties"];
    let fields = fields
        .as_object()
        .context("the document has no schema of a webhook")?;
    Ok(fields.keys().cloned().collect())
}

/// Returns the permissions of the webhook's account beyond those that every account has.
async fn account_rights(release: &Release) -> Result<Vec<String>> {
    let common = list_rights(release, "unprivileged").await?;
    let own = list_rights(release, release.name()).await?;
    Ok(own.difference(&common).cloned().collect())
}

/// Returns the permissions of an account in the release's namespace, which need not exist.
async fn list_rights(release: &Release, account: &str) -> Result<BTreeSet<String>> {
    let account = impersonate(release, account);
    let list = ["auth", "can-i", "--list", "--no-headers", &account];
    let output = release.namespace.kubectl(&list).await?;
    let normalize = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    Ok(output.lines().map(normalize).collect())
}

/// Applies an empty Secret as the webhook's account.
async fn apply_secret(release: &Release, name: &str) -> Result<()> {
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": { "name": name, "namespace": release.name() },
    });
    let account = impersonate(release, release.name());
    kubectl::apply_as(&secret, &account).await.map(drop)
}

/// Returns the flag with which kubectl impersonates an account.
fn impersonate(release: &Release, account: &str) -> String {
    format!("--as=system:serviceaccount:{}:{account}", release.name())
}
