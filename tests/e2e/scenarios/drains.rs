//! What is known of a drain after its pod is gone: metrics, an Event, and `envoy-drainer drains`.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tests::binaries;
use tests::load::{EchoLoad, load};
use tests::timing::SECOND;
use tokio::time::sleep;

use super::live::replace_drainer_image;
use crate::cluster_fixture::ClusterFixture;
use crate::command::{self, JsonStream};
use crate::edge::{APP, EnvoyDeployment, annotate, drainer_status, exec_in_drainer};
use crate::eventually::eventually;
use crate::namespace::Namespace;
use crate::release::Release;
use crate::traffic::{Requests, Traffic};

/// Requests that take longer than the drain may.
fn clients() -> EchoLoad {
    load().slow(2.0, Duration::from_secs(8))
}

/// A drain that cuts requests is counted with its cause and the kind of its workload, and is an Event on the workload.
pub(crate) async fn are_known_after_their_pods_are_gone(
    fixture: &ClusterFixture<'_>,
) -> Result<()> {
    let drainer_api =
        json!({ "drainerAPI": { "enabled": true, "replacement": false, "reports": true } });
    let (namespace, release) = fixture.release(drainer_api).await?;
    let edge = EnvoyDeployment::start(&namespace, 1, |template| {
        annotate(template, "drain-timeout", "5s");
        annotate(template, "min-drain-duration", "2s");
        Ok(())
    })
    .await?;
    let first = edge.only_pod().await?;
    let traffic = Traffic::start(&namespace, "load", edge.address, clients()).await?;
    namespace.evict(&first).await?;
    edge.wait_until_stable().await?;
    Requests::Fail.ensure(&traffic.stop().await?)?;

    let labels = [
        "drains_total{",
        "outcome=\"deadline\"",
        "cause=\"eviction\"",
        "kind=\"Deployment\"",
    ];
    eventually("the drain is counted", || async {
        Ok(count(&release, &labels).await? == 1)
    })
    .await?;
    let cut_requests = count(&release, &["drain_cuts_total{what=\"requests\"}"]).await?;
    fixture.add_row("cut requests, counted", cut_requests.to_string());
    ensure!(cut_requests > 0, "no cut request is counted");

    eventually("the Deployment has an Event", || async {
        Ok(!drain_events(&namespace).await?.is_empty())
    })
    .await?;
    let events = drain_events(&namespace).await?;
    let [event] = &events[..] else {
        anyhow::bail!("there are several Events: {events:?}")
    };
    fixture.add_row("Event", event["note"].to_string());
    let (regarding, related) = (&event["regarding"], &event["related"]);
    ensure!(
        regarding["kind"] == "Deployment" && regarding["name"] == APP && related["name"] == *first,
        "the Event is about {regarding}, related to {related}"
    );

    let listed = list_drains(&namespace).await?;
    let drain = listed.iter().find(|drain| drain["pod"] == *first);
    let drain = drain.with_context(|| format!("`drains` lists only {listed:?}"))?;
    fixture.add_row("drains", drain.to_string());
    ensure!(drain["outcome"] == "deadline", "`drains` lists {drain}");
    Ok(())
}

/// `drains` counts what was in flight when Envoy was killed in mid-drain. If the drainer was, with the kubelet's or the
/// kernel's SIGKILL, it has that from the interim termination message.
pub(crate) async fn that_are_killed_have_cut_requests(fixture: &ClusterFixture<'_>) -> Result<()> {
    let namespace = fixture.namespace().await?;
    let edge = EnvoyDeployment::start(&namespace, 1, |template| {
        template["spec"]["shareProcessNamespace"] = json!(true);
        // That of the drainer, which may kill no other user's processes.
        template["spec"]["securityContext"]["runAsUser"] = json!(60902);
        Ok(())
    })
    .await?;
    let drains = watch_drains(&namespace)?;
    for (process, outcome) in [("envoy", "gone"), ("drainer", "killed")] {
        let pod = edge.only_pod().await?;
        replace_drainer_image(&namespace, &pod).await?;
        let traffic = Traffic::start(&namespace, process, edge.address, clients()).await?;
        let delete = format!("delete pod {pod} --wait=false");
        namespace.run(&delete).await?;
        eventually("the drainer counts requests", || async {
            let status = drainer_status(&namespace, &pod).await.unwrap_or_default();
            Ok(status["remaining"]["requests"].as_u64() > Some(0))
        })
        .await?;
        // Interim messages are written each second.
        sleep(2 * SECOND).await;
        // With the drainer its container ends, and thus the program.
        let _ = exec_in_drainer(&namespace, &pod, &format!("kill {process}")).await;
        let drain = wait_for_drain(&drains, &pod, outcome).await?;
        fixture.add_row(outcome, drain["cut"].to_string());
        ensure!(drain["cut"]["requests"].as_u64() > Some(0), "{drain}");
        edge.wait_until_stable().await?;
        Requests::Fail.ensure(&traffic.stop_at_any_rate().await?)?;
    }
    Ok(())
}

/// The sum of a metric over all replicas.
pub(super) async fn count(release: &Release, words: &[&str]) -> Result<u64> {
    Ok(release.metric(words).await?.iter().sum())
}

async fn drain_events(namespace: &Namespace) -> Result<Vec<Value>> {
    let selector = "--field-selector=reason=DrainCut";
    let events = namespace
        .json(&["get", "events.events.k8s.io", selector])
        .await?;
    Ok(events["items"].as_array().cloned().unwrap_or_default())
}

/// Starts `envoy-drainer drains --watch`, which prints each drain as it starts and ends.
pub(super) fn watch_drains(namespace: &Namespace) -> Result<JsonStream> {
    let program = binaries::envoy_drainer()?;
    let args = ["drains", "--watch", "--output=json", "--namespace"];
    let args = [&args[..], &[namespace.name()]].concat();
    JsonStream::start(program.as_os_str(), &args)
}

/// Waits until `drains` shows this outcome of a pod, and returns the drain.
pub(super) async fn wait_for_drain(drains: &JsonStream, pod: &str, outcome: &str) -> Result<Value> {
    let find = || {
        let mut shown = drains.documents()?.into_iter();
        anyhow::Ok(shown.find(|drain| drain["pod"] == *pod && drain["outcome"] == *outcome))
    };
    let what = format!("`drains` shows that {pod} is {outcome}");
    eventually(&what, || async { Ok(find()?.is_some()) }).await?;
    find()?.context("it has been shown")
}

/// What `envoy-drainer drains` lists.
async fn list_drains(namespace: &Namespace) -> Result<Vec<Value>> {
    let program = binaries::envoy_drainer()?;
    let args = ["drains", "--namespace", namespace.name(), "--output=json"];
    let output = command::run(program.as_os_str(), &args, None).await?;
    let lines = output.stdout.lines().map(serde_json::from_str);
    Ok(lines.collect::<Result<_, _>>()?)
}
