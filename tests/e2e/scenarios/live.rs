//! Restarts of the drainer in a running pod, which do not affect Envoy.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::time::sleep;

use tests::load::load;

use crate::cluster_fixture::ClusterFixture;
use crate::debug_container;
use crate::edge::{ADMIN_PORT, EnvoyDeployment, exec_in_drainer};
use crate::eventually::eventually;
use crate::images;
use crate::namespace::Namespace;
use crate::termination_message::DRAINER_CONTAINER;
use crate::traffic::{Requests, Traffic};

/// Longer than a restarted drainer takes to revert what the previous one did.
const OBSERVATION_TIME: Duration = Duration::from_secs(15);

/// A drainer that is killed does not affect Envoy.
pub(crate) async fn killed_drainer_does_not_affect_envoy(
    fixture: &ClusterFixture<'_>,
) -> Result<()> {
    let share_processes = |template: &mut Value| {
        // Process 1 cannot be killed from within its own PID namespace.
        template["spec"]["shareProcessNamespace"] = json!(true);
        Ok(())
    };
    let kill = async |namespace: &Namespace, pod: &str| {
        debug_container::exec_in_pod(namespace, pod, &["kill", "drainer"]).await?;
        let last = wait_for_restarts(namespace, pod, 1).await?;
        fixture.add_row("exit code of the drainer", last["exitCode"].to_string());
        ensure!(
            last["exitCode"] == 137,
            "the drainer was not killed: {last}"
        );
        Ok(())
    };
    observe(fixture, share_processes, kill).await
}

/// A drainer whose image is replaced in the running pod does not affect Envoy.
pub(crate) async fn replaced_drainer_does_not_affect_envoy(
    fixture: &ClusterFixture<'_>,
) -> Result<()> {
    observe(fixture, |_| Ok(()), replace_drainer_image).await
}

/// A drainer that exceeds its memory limit does not affect Envoy.
pub(crate) async fn oom_killed_drainer_does_not_affect_envoy(
    fixture: &ClusterFixture<'_>,
) -> Result<()> {
    let guarantee = |template: &mut Value| {
        // In a Guaranteed pod the kernel kills the process whose `oom_score_adj` says so: `load exhaust` raises
        // that of process 1.
        let amounts = json!({ "cpu": "500m", "memory": "256Mi" });
        template["spec"]["containers"][0]["resources"] =
            json!({ "requests": amounts, "limits": amounts });
        Ok(())
    };
    let exhaust_memory = async |namespace: &Namespace, pod: &str| {
        replace_drainer_image(namespace, pod).await?;
        // It is killed with the drainer, so its result is not checked.
        let exec_result = exec_in_drainer(namespace, pod, "exhaust").await;
        let last = wait_for_restarts(namespace, pod, 2).await?;
        fixture.add_row("reason of the drainer's exit", last["reason"].to_string());
        let reason = &last["reason"];
        ensure!(
            reason == "OOMKilled",
            "the drainer exited with {last}: {exec_result:?}"
        );
        Ok(())
    };
    observe(fixture, guarantee, exhaust_memory).await
}

/// Has the drainer of one of two pods restarted under load, and checks its Envoy. The pod is not ready until the
/// drainer runs again, as with any container; the other pod serves meanwhile.
async fn observe(
    fixture: &ClusterFixture<'_>,
    change: impl FnOnce(&mut Value) -> Result<()>,
    restart_drainer: impl AsyncFnOnce(&Namespace, &str) -> Result<()>,
) -> Result<()> {
    let namespace = fixture.namespace().await?;
    let edge = EnvoyDeployment::start(&namespace, 2, change).await?;
    let pods = edge.pods().await?;
    let pod = pods.first().context("there is no pod")?;
    let flags = load().keep_alive(20.0).connection_per_request(20.0);
    let traffic = Traffic::start(&namespace, "load", edge.address, flags).await?;
    restart_drainer(&namespace, pod).await?;
    sleep(OBSERVATION_TIME).await;
    let restarts = namespace.container_status(pod, "envoy").await?["restartCount"].clone();
    let admin = format!("127.0.0.1:{ADMIN_PORT}");
    // Its status is 200 if Envoy is live, and 503 otherwise.
    // https://www.envoyproxy.io/docs/envoy/latest/operations/admin#get--ready
    let live = debug_container::exec_in_pod(&namespace, pod, &["get", &admin, "/ready"]).await;
    fixture.add_row("restarts of Envoy", restarts.to_string());
    fixture.add_row("Envoy is live", live.is_ok().to_string());
    edge.wait_until_stable().await?;
    let report = traffic.stop().await?;
    fixture.report_load(&report);
    ensure!(restarts == 0, "Envoy was restarted {restarts} times");
    live.context("Envoy is not live")?;
    ensure!(edge.pods().await?.contains(pod), "the pod was replaced");
    Requests::Survive.ensure(&report)
}

/// Replaces the image of a pod's drainer by the next version, and waits until that runs. The termination of the
/// previous one is not waited for: the kubelet may never report it, and nothing here reads it.
pub(crate) async fn replace_drainer_image(namespace: &Namespace, pod: &str) -> Result<()> {
    let next = json!({ "name": DRAINER_CONTAINER, "image": images::NEXT_DRAINER_IMAGE });
    let patch = json!({ "spec": { "initContainers": [next] } }).to_string();
    let change = ["patch", "pod", pod, "--patch", &patch];
    namespace.kubectl(&change).await?;
    eventually("the next version of the drainer runs", || async {
        let drainer = namespace.container_status(pod, DRAINER_CONTAINER).await?;
        Ok(runs_after_restarts(&drainer, 1))
    })
    .await
}

/// Waits until the drainer of a pod runs after a number of restarts, and returns the state of its last termination,
/// which the kubelet may report later than the restart.
pub(super) async fn wait_for_restarts(
    namespace: &Namespace,
    pod: &str,
    restarts: u64,
) -> Result<Value> {
    eventually("the drainer is restarted", || async {
        let drainer = namespace.container_status(pod, DRAINER_CONTAINER).await?;
        let is_reported = drainer["lastState"]["terminated"].is_object();
        Ok(is_reported && runs_after_restarts(&drainer, restarts))
    })
    .await?;
    let mut drainer = namespace.container_status(pod, DRAINER_CONTAINER).await?;
    Ok(drainer["lastState"]["terminated"].take())
}

/// Whether a container, by its status, runs after this number of restarts.
fn runs_after_restarts(container: &Value, restarts: u64) -> bool {
    container["state"]["running"].is_object() && container["restartCount"] == restarts
}
