//! How often the webhook is called, and what its sidecar is given.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;
use tokio::time::sleep;

use super::live::replace_drainer_image;
use super::shapes::limit_range;
use crate::admissions::AdmissionLoad;
use crate::cluster_fixture::ClusterFixture;
use crate::echo;
use crate::edge::{DRAINER_CONTAINER, EnvoyDeployment, deployment};

/// Time for some two hundred pods.
const LOAD_TIME: Duration = Duration::from_secs(20);

/// Where the kubelet mounts a service account's token.
const TOKEN_DIR: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// One call a pod: `reinvocationPolicy: IfNeeded` and a LimitRange, which looks at the pod again after
/// our change, are no reason for a second one.
pub(crate) async fn are_one_per_pod(fixture: &ClusterFixture<'_>) -> Result<()> {
    let (namespace, release) = fixture.release(json!({})).await?;
    let webhooks = release.webhooks().await?;
    let policy = &webhooks[0]["reinvocationPolicy"];
    ensure!(policy == "IfNeeded", "it is {policy}");
    namespace.apply(limit_range()).await?;
    let calls = async || {
        let metric = release.metric(&["admissions_total{"]).await?;
        anyhow::Ok(metric.iter().sum::<u64>())
    };
    let before = calls().await?;
    let admissions = AdmissionLoad::start(&namespace).await?;
    sleep(LOAD_TIME).await;
    let admitted = admissions.stop().await?;
    let calls = calls().await? - before;
    fixture.add_admissions(&admitted);
    fixture.add_row("calls of the webhook", calls.to_string());
    ensure!(
        calls == admitted.sent,
        "{calls} calls for {} pods",
        admitted.sent
    );
    admitted.ensure_all_injected()
}

/// The sidecar has no token of the pod's service account, whose other containers have it.
pub(crate) async fn drainer_has_no_token(fixture: &ClusterFixture<'_>) -> Result<()> {
    let namespace = fixture.namespace().await?;
    let upstream = echo::start(&namespace).await?;
    let mut workload = deployment(1, upstream)?;
    workload["spec"]["template"]["spec"]["automountServiceAccountToken"] = json!(true);
    let edge = EnvoyDeployment::deploy(&namespace, &workload).await?;
    let pod = edge.only_pod().await?;
    let object = namespace.json(&["get", "pod", &pod]).await?;
    let mounts = object["spec"]["containers"][0]["volumeMounts"].as_array();
    let mut mounts = mounts.into_iter().flatten();
    let envoys = mounts.any(|mount| mount["mountPath"] == TOKEN_DIR);
    ensure!(envoys, "Envoy has no token either");
    // That of the chart has nothing to look with.
    replace_drainer_image(&namespace, &pod).await?;
    let list = [
        "exec",
        &pod,
        "--container",
        DRAINER_CONTAINER,
        "--",
        "/load",
        "list",
        TOKEN_DIR,
    ];
    let found = namespace.kubectl(&list).await?;
    fixture.add_row(
        "files where a token would be",
        found.lines().count().to_string(),
    );
    ensure!(found.is_empty(), "there is {found}");
    Ok(())
}
