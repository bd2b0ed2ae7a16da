//! A namespace with the label `envoy-drainer.dev/injection: all`, in which no pod needs an annotation.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::cluster_fixture::ClusterFixture;
use crate::echo;
use crate::edge::{EnvoyDeployment, deployment, remove_inject};
use crate::images;
use crate::namespace::Namespace;
use crate::traffic::{ensure_no_failure, light, roll_under_load};

/// Pods whose Envoy is certain get a drainer without an annotation, so that a rollout loses no request. Others, and those
/// that opt out, get none.
pub(crate) async fn get_drainers_without_annotation(fixture: &ClusterFixture<'_>) -> Result<()> {
    let namespace = fixture.namespace_of_all_envoys().await?;
    let upstream = echo::start(&namespace).await?;
    let mut workload = deployment(2, upstream)?;
    remove_inject(&mut workload["spec"]["template"])?;
    let edge = EnvoyDeployment::apply(&namespace, &workload).await?;
    edge.ensure_drainers(true).await?;

    let template = || workload["spec"]["template"].clone();
    let mut app = template();
    app["spec"]["containers"][0]["name"] = json!("app");
    app["spec"]["containers"][0]["image"] = json!(images::backend()?);
    let mut opted_out = template();
    opted_out["metadata"]["annotations"]["envoy-drainer.dev/inject"] = json!("false");
    for (name, pod, expected) in [
        ("envoy", template(), true),
        ("app", app, false),
        ("opted-out", opted_out, false),
    ] {
        let is_injected = is_injected(&namespace, name, pod).await?;
        fixture.add_row(name, format!("injected: {is_injected}"));
        ensure!(is_injected == expected, "{name}: injected is {is_injected}");
    }

    let report = roll_under_load(fixture, &edge, light(), 1).await?;
    edge.ensure_drainers(true).await?;
    ensure_no_failure(&report)
}

/// Whether the webhook injects a pod.
async fn is_injected(namespace: &Namespace, name: &str, mut pod: Value) -> Result<bool> {
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod["metadata"]["name"] = json!(name);
    let admitted = namespace.dry_run(pod).await?;
    let pod: Value = serde_json::from_str(&admitted.stdout).context("the admitted pod")?;
    Ok(pod["metadata"]["labels"]["envoy-drainer.dev/injected"] == "true")
}
