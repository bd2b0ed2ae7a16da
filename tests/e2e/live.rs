//! Containers that are restarted alone, in a pod that lives on.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tests::until::until;
use tokio::time::{Instant, sleep};

use crate::echo;
use crate::edge::{DRAINER, Edge, deployment};
use crate::images;
use crate::namespace::{Namespace, in_namespace};
use crate::table::Table;
use crate::traffic::Traffic;

/// The kubelet restarts a container that it has only to start again.
const LIMIT: Duration = Duration::from_secs(120);

/// Longer than a drainer that starts anew takes to undo what the one before it did.
const AFTERMATH: Duration = Duration::from_secs(15);

/// The drainer's image is changed in place: Envoy is not restarted, and serves on.
///
/// # Errors
/// When it was restarted, or a request failed.
pub(crate) async fn a_new_drainer_leaves_envoy_alone(table: &mut Table) -> Result<()> {
    let report = in_namespace("image", async |namespace| {
        let upstream = echo::start(namespace).await?;
        let edge = Edge::deploy(namespace, &deployment(1, upstream)?).await?;
        let pod = edge.only_pod().await?;
        let traffic =
            Traffic::start(namespace, "load", edge.address, "--connection-each 20").await?;
        let patch = json!({ "spec": {
            "initContainers": [{ "name": DRAINER, "image": images::NEXT_DRAINER }],
        } });
        namespace
            .kubectl(&["patch", "pod", &pod, "--patch", &patch.to_string()])
            .await?;
        until("the drainer is a new one", LIMIT, || async {
            Ok(restarts(namespace, &pod, DRAINER).await? == 1)
        })
        .await?;
        sleep(AFTERMATH).await;
        let envoy = restarts(namespace, &pod, "envoy").await?;
        table.row("restarts of Envoy", envoy.to_string());
        let report = traffic.stop().await?;
        table.load(&report);
        ensure!(envoy == 0, "Envoy was restarted {envoy} times");
        ensure!(edge.only_pod().await? == pod, "it is another pod");
        edge.settled().await?;
        Ok(report)
    })
    .await?;
    ensure!(report.failed() == 0, "requests failed:\n{report}");
    Ok(())
}

/// Envoy fails its liveness probe: it is restarted soon, rather than drained to the deadline.
///
/// # Errors
/// When that takes longer, or the pod does not serve afterwards.
pub(crate) async fn an_envoy_that_fails_its_probe_is_restarted_within_15_s(
    table: &mut Table,
) -> Result<()> {
    in_namespace("liveness", async |namespace| {
        let upstream = echo::start(namespace).await?;
        let mut workload = deployment(1, upstream)?;
        // Envoy answers 503 when nothing is behind it.
        workload["spec"]["template"]["spec"]["containers"][0]["livenessProbe"] = json!({
            "httpGet": { "path": "/", "port": "http" },
            "periodSeconds": 1,
            "failureThreshold": 3,
        });
        let edge = Edge::deploy(namespace, &workload).await?;
        let pod = edge.only_pod().await?;
        echo::scale(namespace, 0).await?;
        let killing = || async {
            let events = namespace
                .json(&["get", "events", "--field-selector", "reason=Killing"])
                .await?;
            let mut events = events["items"].as_array().into_iter().flatten();
            Ok(events.any(|event| event["involvedObject"]["name"] == *pod))
        };
        until("the probe has failed", LIMIT, killing).await?;
        let failed = Instant::now();
        until("Envoy is restarted", LIMIT, || async {
            Ok(restarts(namespace, &pod, "envoy").await? >= 1)
        })
        .await?;
        let took = failed.elapsed();
        table.row("restarted after", format!("{:.1} s", took.as_secs_f64()));
        ensure!(took < Duration::from_secs(15), "it took {took:?}");
        echo::scale(namespace, 1).await?;
        edge.settled().await?;
        let drainer = restarts(namespace, &pod, DRAINER).await?;
        ensure!(drainer == 0, "the drainer was restarted {drainer} times");
        Ok(())
    })
    .await
}

/// How often a container of this pod was restarted.
async fn restarts(namespace: &Namespace, pod: &str, container: &str) -> Result<u64> {
    let pod = namespace.json(&["get", "pod", pod]).await?;
    let statuses = ["containerStatuses", "initContainerStatuses"];
    let all = statuses
        .iter()
        .filter_map(|list| pod["status"][list].as_array());
    let mut of_it = all.flatten().filter(|status| status["name"] == *container);
    let status: &Value = of_it.next().context("the container has a status")?;
    status["restartCount"].as_u64().context("a count")
}
