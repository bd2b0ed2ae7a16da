//! The number of calls of the webhook, and the mounts of its sidecar.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;
use tokio::time::sleep;

use super::live::replace_drainer_image;
use super::shapes::LIMIT_RANGE;
use crate::admissions::AdmissionLoad;
use crate::cluster_fixture::ClusterFixture;
use crate::edge::{EnvoyDeployment, exec_in_drainer};

/// Enough for about 200 pods.
const LOAD_TIME: Duration = Duration::from_secs(20);

/// Where the kubelet mounts a service account's token.
const TOKEN_DIR: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The webhook is called once per pod, even with `reinvocationPolicy: IfNeeded` and a LimitRange, whose
/// admission plugin runs again after the patch.
pub(crate) async fn are_one_per_pod(fixture: &ClusterFixture<'_>) -> Result<()> {
    let (namespace, release) = fixture.release(json!({})).await?;
    let webhooks = release.webhooks().await?;
    let policy = &webhooks[0]["reinvocationPolicy"];
    ensure!(policy == "IfNeeded", "reinvocationPolicy is {policy}");
    namespace.apply(serde_json::from_str(LIMIT_RANGE)?).await?;
    let count_calls = async || {
        let metric = release.metric(&["admissions_total{"]).await?;
        anyhow::Ok(metric.iter().sum::<u64>())
    };
    let before = count_calls().await?;
    let admissions = AdmissionLoad::start(&namespace).await?;
    sleep(LOAD_TIME).await;
    let counts = fixture.stop_admissions(admissions).await?;
    let calls = count_calls().await? - before;
    fixture.add_row("calls of the webhook", calls.to_string());
    ensure!(
        calls == counts.sent,
        "{calls} calls for {} pods",
        counts.sent
    );
    counts.ensure_all_injected()
}

/// The sidecar has no service account token, although the pod's other containers have one.
pub(crate) async fn drainer_has_no_token(fixture: &ClusterFixture<'_>) -> Result<()> {
    let namespace = fixture.namespace().await?;
    let edge = EnvoyDeployment::start(&namespace, 1, |template| {
        template["spec"]["automountServiceAccountToken"] = json!(true);
        Ok(())
    })
    .await?;
    let pod = edge.only_pod().await?;
    let object = namespace.json(&["get", "pod", &pod]).await?;
    let mounts = object["spec"]["containers"][0]["volumeMounts"].as_array();
    let mut mounts = mounts.into_iter().flatten();
    let has_envoy_token = mounts.any(|mount| mount["mountPath"] == TOKEN_DIR);
    ensure!(has_envoy_token, "Envoy has no token either");
    // The chart's image has no program that lists files.
    replace_drainer_image(&namespace, &pod).await?;
    let list = format!("list {TOKEN_DIR}");
    let entries = exec_in_drainer(&namespace, &pod, &list).await?;
    // The kubelet's own directories of a projected volume, `..data` and what that points to, are empty.
    let files = entries.lines().filter(|name| !name.starts_with(".."));
    let files: Vec<_> = files.collect();
    fixture.add_row("files in the token's directory", files.len().to_string());
    ensure!(files.is_empty(), "the drainer has {files:?}");
    Ok(())
}
