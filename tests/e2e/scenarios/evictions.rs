//! Pods are evicted, as by `kubectl drain`.

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tokio::try_join;

use crate::cluster_fixture::ClusterFixture;
use crate::edge::{APP, EnvoyDeployment};
use crate::eventually::eventually;
use crate::namespace::Namespace;
use crate::release::Release;
use crate::traffic::{disrupt_under_load, ensure_no_failure, mixed};

/// Evictions of all Envoys, as their PodDisruptionBudget allows, fail no request.
pub(crate) async fn evicted_envoys_lose_no_request(fixture: &ClusterFixture<'_>) -> Result<()> {
    let namespace = fixture.namespace().await?;
    let budget = json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": { "name": APP },
        "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": APP } } },
    });
    namespace.apply(budget).await?;
    let edge = EnvoyDeployment::start(&namespace, 2, |_| Ok(())).await?;
    let report = disrupt_under_load(fixture, &edge, mixed(), async || {
        for pod in edge.pods().await? {
            evict(&namespace, &pod).await?;
        }
        edge.wait_until_stable().await
    })
    .await?;
    ensure_no_failure(&report)
}

/// `kubectl drain` takes injected pods as it takes them without a drainer, and leaves a pod with an emptyDir. A server-side
/// dry run shows that, without a cordon that would disturb the other scenarios.
pub(crate) async fn kubectl_drain_needs_no_flag(fixture: &ClusterFixture<'_>) -> Result<()> {
    let namespace = fixture.namespace().await?;
    let drain = async |has_empty_dir: bool| {
        let label = format!("{}-{has_empty_dir}", namespace.name());
        let edge = EnvoyDeployment::start(&namespace, 1, |template| {
            template["metadata"]["labels"]["drained"] = json!(label);
            // As most pods have it; without it there is no volume at all.
            template["spec"]["automountServiceAccountToken"] = json!(true);
            if has_empty_dir {
                template["spec"]["volumes"] = json!([{ "name": "cache", "emptyDir": {} }]);
            }
            Ok(())
        })
        .await?;
        edge.ensure_drainers(true).await?;
        let pod = namespace
            .json(&["get", "pod", &edge.only_pod().await?])
            .await?;
        let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
        let flags = "--dry-run=server --ignore-daemonsets";
        let drain = format!("drain {node} --pod-selector=drained={label} {flags}");
        let drained = namespace.run(&drain).await;
        anyhow::Ok((pod["spec"]["volumes"].to_string(), drained))
    };
    let (volumes, drained) = drain(false).await?;
    fixture.add_row("volumes", volumes.clone());
    ensure!(!volumes.contains("emptyDir"), "the pod has {volumes}");
    let output = drained.context("the injected pod is not taken")?;
    ensure!(output.contains("evicting pod"), "{output}");
    let (_, drained) = drain(true).await?;
    let error = drained
        .err()
        .context("a pod with an emptyDir is taken")?
        .to_string();
    fixture.add_row(
        "with an emptyDir of its own",
        error.lines().next().unwrap_or_default().to_owned(),
    );
    ensure!(error.contains("delete-emptydir-data"), "{error}");
    Ok(())
}

/// Evictions of all of the webhook's pods during rollouts of Envoys fail no request, and every new pod gets a
/// drainer.
pub(crate) async fn evicted_webhook_loses_no_request(fixture: &ClusterFixture<'_>) -> Result<()> {
    let (namespace, release) = fixture.release(json!({})).await?;
    let edge = EnvoyDeployment::start(&namespace, 2, |_| Ok(())).await?;
    let rollouts = async {
        for _ in 0..2 {
            edge.rollout_restart().await?;
            edge.ensure_drainers(true).await?;
        }
        Ok(())
    };
    let disrupt = async || try_join!(rollouts, evict_each(&release)).map(drop);
    let report = disrupt_under_load(fixture, &edge, mixed(), disrupt).await?;
    ensure_no_failure(&report)
}

async fn evict_each(release: &Release) -> Result<()> {
    for pod in release.pods().await? {
        evict(&release.namespace, &pod).await?;
        release.wait_until_ready().await?;
    }
    Ok(())
}

async fn evict(namespace: &Namespace, pod: &str) -> Result<()> {
    eventually("the budget allows an eviction", || namespace.evict(pod)).await
}
