//! A release from its install to its uninstall, by Helm, while pods are created all the time.

use std::collections::BTreeSet;

use anyhow::{Error, Result, bail, ensure};
use serde_json::{Value, json};

use crate::admissions::AdmissionLoad;
use crate::cluster_fixture::ClusterFixture;
use crate::echo;
use crate::edge::{EnvoyDeployment, deployment};
use crate::eventually::eventually;
use crate::helm::{self, Helm};
use crate::kubectl::kubectl;
use crate::namespace::Namespace;
use crate::release::Release;
use crate::scenario::Skipped;
use crate::traffic::{MIXED, Traffic};

/// What comes and goes by itself.
const VOLATILE_KINDS: [&str; 4] = [
    "events",
    "events.events.k8s.io",
    "leases.coordination.k8s.io",
    "endpointslices.discovery.k8s.io",
];

/// By the Helm that installs everything here.
pub(crate) async fn leaves_only_injected_pods(fixture: &ClusterFixture<'_>) -> Result<()> {
    observe(fixture, &helm::find_helm().await?).await
}

/// The same by another Helm, of another version.
pub(crate) async fn with_helm_4(fixture: &ClusterFixture<'_>) -> Result<()> {
    let Some(helm) = helm::other_version().await? else {
        bail!(Skipped("HELM4=path names a Helm 4 to do it with as well"));
    };
    observe(fixture, &helm).await
}

/// Install, upgrade twice, roll back, uninstall: what the webhook wrote stays until then, no pod is
/// missed, nothing is left but pods that live on and drain.
async fn observe(fixture: &ClusterFixture<'_>, helm: &Helm) -> Result<()> {
    fixture.add_row("Helm", &*helm.version);
    let namespace = fixture.namespace().await?;
    let name = format!("{}-webhook", namespace.name());
    let release = fixture.prepare_release(helm, &name).await?;
    let before = objects_of(&release).await?;
    release.install(json!({}), &namespace).await?;
    let upstream = echo::start(&namespace).await?;
    let edge = EnvoyDeployment::deploy(&namespace, &deployment(2, upstream)?).await?;

    let admissions = AdmissionLoad::start(&namespace).await?;
    let written = WebhookWrites::read(&release).await?;
    upgrade_and_roll_back(&release, &written).await?;
    let admitted = admissions.stop().await?;
    fixture.add_admissions(&admitted);
    admitted.ensure_all_injected()?;

    release.uninstall().await?;
    let left = async || {
        let now = objects_of(&release).await?;
        Ok::<_, Error>(Vec::from_iter(now.symmetric_difference(&before).cloned()))
    };
    let nothing = || async { Ok(left().await?.is_empty()) };
    if let Err(error) = eventually("nothing is left of the release", nothing).await {
        return Err(error.context(format!("left or lost: {:?}", left().await?)));
    }
    fixture.add_row("left of the release", "nothing");
    check_remaining_pods(fixture, &namespace, &edge).await
}

async fn upgrade_and_roll_back(release: &Release, written: &WebhookWrites) -> Result<()> {
    let first = json!({
        "admission": { "timeoutSeconds": 6 },
        "commonLabels": { "team": "edge" },
    });
    release.upgrade(first).await?;
    written.ensure_unchanged(release, 6).await?;
    let second = json!({
        "admission": { "timeoutSeconds": 7 },
        "aks": true,
        "openshift": true,
        "policy": { "action": "Deny" },
    });
    release.upgrade(second).await?;
    written.ensure_unchanged(release, 7).await?;
    release.rollback().await?;
    written.ensure_unchanged(release, 5).await?;
    release.wait_until_stable().await
}

/// The pods that have a drainer end as well as they would have before.
async fn check_remaining_pods(
    fixture: &ClusterFixture<'_>,
    namespace: &Namespace,
    edge: &EnvoyDeployment<'_>,
) -> Result<()> {
    let pods = edge.pods().await?;
    edge.ensure_drainers(true).await?;
    let traffic = Traffic::start(namespace, "load", edge.address, MIXED).await?;
    for pod in pods {
        let delete = ["delete", "pod", &pod, "--wait=false"];
        namespace.kubectl(&delete).await?;
        edge.wait_until_stable().await?;
    }
    let report = traffic.stop().await?;
    fixture.add_load(&report);
    fixture.add_drains(namespace)?;
    edge.ensure_drainers(false).await?;
    ensure!(report.failed() == 0, "requests failed:\n{report}");
    Ok(())
}

/// Every object of the cluster that has the release's name in its own, its namespace's or a label, but
/// for what is restless. Others may be at work in the cluster.
async fn objects_of(release: &Release) -> Result<BTreeSet<String>> {
    let kinds = ["api-resources", "--verbs=list", "--output=name"];
    let kinds = kubectl(&kinds).await?;
    let calm = kinds.lines().filter(|kind| !VOLATILE_KINDS.contains(kind));
    let kinds = calm.collect::<Vec<_>>().join(",");
    let columns =
        "--output=custom-columns=:kind,:metadata.namespace,:metadata.name,:metadata.labels";
    let get = ["get", &kinds, "--all-namespaces", "--no-headers", columns];
    let objects = kubectl(&get).await?;
    let ours = objects.lines().filter(|line| line.contains(release.name()));
    // Columns are as wide as what else is in them, and labels may change.
    let ours = ours.map(|line| {
        line.split_whitespace()
            .take(3)
            .collect::<Vec<_>>()
            .join(" ")
    });
    // What every namespace gets, sooner or later.
    let ours = ours.filter(|line| !line.ends_with(" default") && !line.contains("kube-root-ca"));
    Ok(ours.collect())
}

/// What the webhook itself wrote into the release's objects.
struct WebhookWrites {
    bundle: Value,
    data: Value,
}

// === impl Written ===

impl WebhookWrites {
    async fn read(release: &Release) -> Result<Self> {
        let bundle = release.webhooks().await?[0]["clientConfig"]["caBundle"].take();
        let data = release.secret().await?["data"].take();
        ensure!(bundle.is_string(), "no caBundle was written");
        ensure!(data["signer.key"].is_string(), "no authority was written");
        Ok(Self { bundle, data })
    }

    /// Makes sure that Helm left it alone, and changed what it was to change.
    async fn ensure_unchanged(&self, release: &Release, timeout: u64) -> Result<()> {
        let webhooks = release.webhooks().await?;
        let seconds = &webhooks[0]["timeoutSeconds"];
        ensure!(*seconds == timeout, "timeoutSeconds is {seconds}");
        for webhook in webhooks {
            let bundle = &webhook["clientConfig"]["caBundle"];
            ensure!(*bundle == self.bundle, "caBundle is {bundle}");
        }
        let secret = release.secret().await?;
        ensure!(secret["data"] == self.data, "the Secret was changed");
        let manager = &secret["metadata"]["labels"]["app.kubernetes.io/managed-by"];
        ensure!(manager == "Helm", "the Secret is managed by {manager}");
        Ok(())
    }
}
