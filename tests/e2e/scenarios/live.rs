//! Drainers that are restarted alone, in a pod that lives on: Envoy serves on as if nothing were.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::cluster_fixture::ClusterFixture;
use crate::debug_container;
use crate::echo;
use crate::edge::{ADMIN_PORT, DRAINER_CONTAINER, EnvoyDeployment, deployment};
use crate::eventually::eventually;
use crate::images;
use crate::namespace::Namespace;
use crate::traffic::Traffic;

/// Longer than a drainer that starts anew takes to undo what the one before it did.
const OBSERVATION_TIME: Duration = Duration::from_secs(15);

/// The drainer is killed.
pub(crate) async fn killed_drainer_does_not_affect_envoy(
    fixture: &ClusterFixture<'_>,
) -> Result<()> {
    let share = |workload: &mut Value| {
        // Within its own processes a process 1 cannot be killed.
        workload["spec"]["template"]["spec"]["shareProcessNamespace"] = json!(true);
    };
    let killed = async |namespace: &Namespace, pod: &str| {
        debug_container::exec_in_pod(namespace, pod, &["kill", "drainer"]).await?;
        let last = wait_for_restarts(namespace, pod, 1).await?;
        fixture.add_row("the drainer ended with", last["exitCode"].to_string());
        ensure!(last["exitCode"] == 137, "it was not killed: {last}");
        Ok(())
    };
    observe(fixture, share, killed).await
}

/// The drainer's image is changed in place.
pub(crate) async fn replaced_drainer_does_not_affect_envoy(
    fixture: &ClusterFixture<'_>,
) -> Result<()> {
    observe(fixture, |_| {}, replace_drainer_image).await
}

/// The drainer needs more memory than it may have.
pub(crate) async fn oom_killed_drainer_does_not_affect_envoy(
    fixture: &ClusterFixture<'_>,
) -> Result<()> {
    let guarantee = |workload: &mut Value| {
        // Of a Guaranteed pod's processes the kernel takes whichever says that it may.
        let all = json!({ "cpu": "500m", "memory": "256Mi" });
        workload["spec"]["template"]["spec"]["containers"][0]["resources"] =
            json!({ "requests": all, "limits": all });
    };
    let exhausted = async |namespace: &Namespace, pod: &str| {
        replace_drainer_image(namespace, pod).await?;
        let exec = [
            "exec",
            pod,
            "--container",
            DRAINER_CONTAINER,
            "--",
            "/load",
            "exhaust",
        ];
        // It ends with the drainer, so it says nothing.
        let said = namespace.kubectl(&exec).await;
        let last = wait_for_restarts(namespace, pod, 2).await?;
        fixture.add_row("the drainer ended with", last["reason"].to_string());
        let reason = &last["reason"];
        ensure!(reason == "OOMKilled", "it ended with {last}: {said:?}");
        Ok(())
    };
    observe(fixture, guarantee, exhausted).await
}

/// Has one drainer of two restarted under load, and sees what becomes of its Envoy. Until its drainer
/// runs again its pod is not ready, as with any container; the other serves meanwhile.
async fn observe(
    fixture: &ClusterFixture<'_>,
    shape: impl FnOnce(&mut Value),
    meddle: impl AsyncFnOnce(&Namespace, &str) -> Result<()>,
) -> Result<()> {
    let namespace = fixture.namespace().await?;
    let upstream = echo::start(&namespace).await?;
    let mut workload = deployment(2, upstream)?;
    shape(&mut workload);
    let edge = EnvoyDeployment::deploy(&namespace, &workload).await?;
    let pods = edge.pods().await?;
    let pod = pods.first().context("there are two")?;
    let flags = "--keep-alive 20 --connection-each 20";
    let traffic = Traffic::start(&namespace, "load", edge.address, flags).await?;
    meddle(&namespace, pod).await?;
    sleep(OBSERVATION_TIME).await;
    let envoy = namespace.container_status(pod, "envoy").await?["restartCount"].clone();
    let admin = format!("127.0.0.1:{ADMIN_PORT}");
    // It answers 200 if Envoy is live, and nothing else if it is not.
    // https://www.envoyproxy.io/docs/envoy/latest/operations/admin#get--ready
    let live = debug_container::exec_in_pod(&namespace, pod, &["get", &admin, "/ready"]).await;
    fixture.add_row("restarts of Envoy", envoy.to_string());
    fixture.add_row("Envoy is live", live.is_ok().to_string());
    edge.wait_until_stable().await?;
    let report = traffic.stop().await?;
    fixture.add_load(&report);
    ensure!(envoy == 0, "Envoy was restarted {envoy} times");
    live.context("Envoy is not live")?;
    ensure!(edge.pods().await?.contains(pod), "it is another pod");
    ensure!(report.failed() == 0, "requests failed:\n{report}");
    Ok(())
}

/// Replaces the drainer of a pod by the next one.
pub(crate) async fn replace_drainer_image(namespace: &Namespace, pod: &str) -> Result<()> {
    let next = json!({ "name": DRAINER_CONTAINER, "image": images::NEXT_DRAINER_IMAGE });
    let patch = json!({ "spec": { "initContainers": [next] } }).to_string();
    let change = ["patch", "pod", pod, "--patch", &patch];
    namespace.kubectl(&change).await?;
    wait_for_restarts(namespace, pod, 1).await.map(drop)
}

/// Waits until the drainer of a pod runs after so many restarts, and returns how the last one ended.
async fn wait_for_restarts(namespace: &Namespace, pod: &str, times: u64) -> Result<Value> {
    eventually("the drainer is a new one", || async {
        let drainer = namespace.container_status(pod, DRAINER_CONTAINER).await?;
        let runs = drainer["state"]["running"].is_object();
        Ok(runs && drainer["restartCount"] == times)
    })
    .await?;
    let mut drainer = namespace.container_status(pod, DRAINER_CONTAINER).await?;
    Ok(drainer["lastState"]["terminated"].take())
}
