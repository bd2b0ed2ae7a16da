//! An Envoy that the kubelet restarts because its liveness probe fails.

use std::rc::Rc;
use std::time::Duration;

use anyhow::{Result, ensure};
use drainer::DrainOutcome::{Drained, Idle};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::cluster_fixture::ClusterFixture;
use crate::echo;
use crate::edge::{EnvoyDeployment, PORT_NAME};
use crate::eventually::eventually;
use crate::namespace::Namespace;
use crate::termination_message::DRAINER_CONTAINER;

/// The most that may pass between the failed probe and the start of the new Envoy: the drainer's own hook may be 10 s
/// late, a soft drain takes at most 15 s, and the kubelet some more.
const RESTART_LIMIT: Duration = Duration::from_secs(30);

/// Envoy is restarted soon, rather than drained until the timeout, and the drainer is not restarted.
pub(crate) async fn failure_restarts_envoy_within_30_s(fixture: &ClusterFixture<'_>) -> Result<()> {
    let namespace = fixture.namespace().await?;
    let (edge, pod) = deploy_and_fail(&namespace).await?;
    let failed_at = Instant::now();
    eventually("Envoy is restarted", || async {
        let envoy = namespace.container_status(&pod, "envoy").await?;
        Ok(envoy["restartCount"].as_u64() >= Some(1))
    })
    .await?;
    let elapsed = failed_at.elapsed();
    fixture.add_row("restarted after", format!("{:.1} s", elapsed.as_secs_f64()));
    ensure!(elapsed < RESTART_LIMIT, "the restart took {elapsed:?}");
    echo::scale(&namespace, 1).await?;
    edge.wait_until_stable().await?;
    let drainer = namespace.container_status(&pod, DRAINER_CONTAINER).await?;
    let restarts = &drainer["restartCount"];
    ensure!(*restarts == 0, "the drainer was restarted {restarts} times");
    Ok(())
}

/// A pod that is deleted while the kubelet restarts its Envoy has the full drain: only that writes a termination
/// message.
pub(crate) async fn deletion_during_a_restart_is_drained(
    fixture: &ClusterFixture<'_>,
) -> Result<()> {
    let namespace = fixture.namespace().await?;
    let (_edge, pod) = deploy_and_fail(&namespace).await?;
    sleep(Duration::from_secs(4)).await;
    namespace
        .kubectl(&["delete", "pod", &pod, "--wait=false"])
        .await?;
    let summary = namespace.first_summary().await?;
    fixture.report_drains(&namespace)?;
    let outcome = summary.outcome;
    ensure!(matches!(outcome, Drained | Idle), "{outcome}");
    Ok(())
}

/// Deploys an Envoy, and waits until the kubelet restarts it since its liveness probe fails.
async fn deploy_and_fail(namespace: &Rc<Namespace>) -> Result<(EnvoyDeployment, String)> {
    let edge = EnvoyDeployment::start(namespace, 1, |template| {
        // Envoy responds with 503 if its upstream has no endpoint.
        template["spec"]["containers"][0]["livenessProbe"] = json!({
            "httpGet": { "path": "/", "port": PORT_NAME },
            "periodSeconds": 1,
            "failureThreshold": 3,
        });
        Ok(())
    })
    .await?;
    let pod = edge.only_pod().await?;
    echo::scale(namespace, 0).await?;
    let is_killed = || async {
        let get = ["get", "events", "--field-selector", "reason=Killing"];
        let events = namespace.json(&get).await?;
        let mut events = events["items"].as_array().into_iter().flatten();
        Ok(events.any(|event| event["involvedObject"]["name"] == *pod))
    };
    eventually("the liveness probe has failed", is_killed).await?;
    Ok((edge, pod))
}
