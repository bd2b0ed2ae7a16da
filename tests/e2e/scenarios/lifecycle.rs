//! The lifecycle of a Helm release, from install to uninstall, while pods are created.

use std::collections::BTreeSet;

use anyhow::{Error, Result, bail, ensure};
use serde_json::{Value, json};

use crate::admissions::AdmissionLoad;
use crate::cluster_fixture::ClusterFixture;
use crate::edge::EnvoyDeployment;
use crate::eventually::eventually;
use crate::helm::{self, Helm};
use crate::kubectl::kubectl;
use crate::outcome::Skipped;
use crate::release::Release;
use crate::traffic::{Requests, disrupt_under_load, mixed};

/// Kinds whose objects are created and deleted at any time.
const VOLATILE_KINDS: [&str; 4] = [
    "events",
    "events.events.k8s.io",
    "leases.coordination.k8s.io",
    "endpointslices.discovery.k8s.io",
];

/// The lifecycle with the Helm that installs all other releases.
pub(crate) async fn leaves_only_injected_pods(fixture: &ClusterFixture<'_>) -> Result<()> {
    observe(fixture, &helm::find_helm().await?).await
}

/// The lifecycle with the Helm of another version that `HELM4` names.
pub(crate) async fn with_helm_4(fixture: &ClusterFixture<'_>) -> Result<()> {
    let Some(helm) = helm::other_version().await? else {
        bail!(Skipped("set HELM4=path to run this with Helm 4"));
    };
    observe(fixture, &helm).await
}

/// Installs a release, upgrades it twice, rolls it back and uninstalls it. Until the uninstall Helm changes nothing
/// that the webhook wrote, and every pod gets a drainer; afterwards only the injected pods remain, and drain.
async fn observe(fixture: &ClusterFixture<'_>, helm: &Helm) -> Result<()> {
    fixture.add_row("Helm", &*helm.version);
    let namespace = fixture.namespace().await?;
    let name = format!("{}-webhook", namespace.name());
    let release = fixture.prepare_release(helm, &name).await?;
    let before = objects_of(&release).await?;
    release.install(json!({}), &namespace).await?;
    let edge = EnvoyDeployment::start(&namespace, 2, |_| Ok(())).await?;

    let admissions = AdmissionLoad::start(&namespace).await?;
    let writes = WebhookWrites::read(&release).await?;
    upgrade_and_roll_back(&release, &writes).await?;
    let counts = fixture.stop_admissions(admissions).await?;
    counts.ensure_all_injected()?;

    release.uninstall().await?;
    let difference = async || {
        let now = objects_of(&release).await?;
        Ok::<_, Error>(Vec::from_iter(now.symmetric_difference(&before).cloned()))
    };
    let is_clean = || async { Ok(difference().await?.is_empty()) };
    if let Err(error) = eventually("the release's objects are deleted", is_clean).await {
        return Err(error.context(format!("left over or lost: {:?}", difference().await?)));
    }
    fixture.add_row("objects left over", "none");
    check_remaining_pods(fixture, &edge).await
}

async fn upgrade_and_roll_back(release: &Release, writes: &WebhookWrites) -> Result<()> {
    let first = json!({
        "admission": { "timeoutSeconds": 6 },
        "commonLabels": { "team": "edge" },
    });
    release.upgrade(first).await?;
    writes.ensure_unchanged(release, 6).await?;
    let second = json!({
        "admission": { "timeoutSeconds": 7 },
        "aks": true,
        "openshift": true,
        "policy": { "action": "Deny" },
    });
    release.upgrade(second).await?;
    writes.ensure_unchanged(release, 7).await?;
    release.rollback().await?;
    writes.ensure_unchanged(release, 5).await?;
    release.wait_until_stable().await
}

/// Deletes the injected pods, which drain although the release is uninstalled: no request fails.
async fn check_remaining_pods(fixture: &ClusterFixture<'_>, edge: &EnvoyDeployment) -> Result<()> {
    let pods = edge.pods().await?;
    edge.ensure_drainers(true).await?;
    let report = disrupt_under_load(fixture, edge, mixed(), async || {
        for pod in pods {
            let delete = ["delete", "pod", &pod, "--wait=false"];
            edge.namespace.kubectl(&delete).await?;
            edge.wait_until_stable().await?;
        }
        Ok(())
    })
    .await?;
    edge.ensure_drainers(false).await?;
    Requests::Survive.ensure(&report)
}

/// Returns all objects with the release's name in their name, namespace or labels, except for [`VOLATILE_KINDS`].
/// Other objects are ignored, since the cluster may have other users.
async fn objects_of(release: &Release) -> Result<BTreeSet<String>> {
    let kinds = ["api-resources", "--verbs=list", "--output=name"];
    let kinds = kubectl(&kinds).await?;
    let stable = kinds.lines().filter(|kind| !VOLATILE_KINDS.contains(kind));
    let kinds = stable.collect::<Vec<_>>().join(",");
    let columns =
        "--output=custom-columns=:kind,:metadata.namespace,:metadata.name,:metadata.labels";
    let get = ["get", &kinds, "--all-namespaces", "--no-headers", columns];
    let objects = kubectl(&get).await?;
    let ours = objects.lines().filter(|line| line.contains(release.name()));
    // The widths of columns depend on other rows, and labels may change.
    let ours = ours.map(|line| {
        line.split_whitespace()
            .take(3)
            .collect::<Vec<_>>()
            .join(" ")
    });
    // Controllers create these in every namespace.
    let ours = ours.filter(|line| !line.ends_with(" default") && !line.contains("kube-root-ca"));
    Ok(ours.collect())
}

/// The fields that the webhook itself wrote into the release's objects.
struct WebhookWrites {
    bundle: Value,
    data: Value,
}

// === impl WebhookWrites ===

impl WebhookWrites {
    async fn read(release: &Release) -> Result<Self> {
        let bundle = release.webhooks().await?[0]["clientConfig"]["caBundle"].take();
        let data = release.secret().await?["data"].take();
        ensure!(bundle.is_string(), "the caBundle is not written");
        ensure!(data["active.key"].is_string(), "the CA is not written");
        Ok(Self { bundle, data })
    }

    /// Returns an error if Helm changed the fields, or did not apply the timeout of the upgrade.
    async fn ensure_unchanged(&self, release: &Release, timeout: u64) -> Result<()> {
        let webhooks = release.webhooks().await?;
        let seconds = &webhooks[0]["timeoutSeconds"];
        ensure!(*seconds == timeout, "timeoutSeconds is {seconds}");
        for webhook in webhooks {
            let bundle = &webhook["clientConfig"]["caBundle"];
            ensure!(*bundle == self.bundle, "caBundle was changed to {bundle}");
        }
        let secret = release.secret().await?;
        ensure!(secret["data"] == self.data, "the Secret was changed");
        let manager = &secret["metadata"]["labels"]["app.kubernetes.io/managed-by"];
        ensure!(manager == "Helm", "the Secret is managed by {manager}");
        Ok(())
    }
}
