//! What is known of a drain after its pod is gone: metrics, an Event, and `envoy-drainer drains`.

use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tests::binaries;
use tests::load::{EchoLoad, load};

use crate::cluster_fixture::ClusterFixture;
use crate::command::{self, JsonStream};
use crate::edge::{APP, EnvoyDeployment};
use crate::eventually::eventually;
use crate::namespace::Namespace;
use crate::release::Release;
use crate::traffic::Traffic;

/// Requests that take longer than a drain may: see [`deploy`].
fn clients() -> EchoLoad {
    load().slow(2.0, Duration::from_secs(8))
}

/// A drain that cuts requests is counted with its cause and the kind of its workload, and is an Event on the workload. A
/// drain that cuts nothing is counted, and no Event.
pub(crate) async fn are_known_after_their_pods_are_gone(
    fixture: &ClusterFixture<'_>,
) -> Result<()> {
    let drainer_api =
        json!({ "drainerAPI": { "enabled": true, "replacement": false, "reports": true } });
    let (namespace, release) = fixture.release(drainer_api).await?;
    let edge = deploy(&namespace).await?;
    let (first, failed) = evict_under_load(&edge).await?;
    ensure!(failed > 0, "the drain has cut no request");

    let counted = async |outcome: &str, cause: &str| {
        let labels = [
            "drains_total{".to_owned(),
            format!("outcome=\"{outcome}\""),
            format!("cause=\"{cause}\""),
            "kind=\"Deployment\"".to_owned(),
        ];
        count(&release, &labels.each_ref().map(String::as_str)).await
    };
    let cut = ["drain_cuts_total{what=\"requests\"}"];
    eventually("the drain is counted", || async {
        Ok(counted("deadline", "eviction").await? == 1)
    })
    .await?;
    let cut_requests = count(&release, &cut).await?;
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

    edge.rollout_restart().await?;
    let ended_without_cut = async || {
        let drained = counted("drained", "deletion").await?;
        anyhow::Ok(drained + counted("idle", "deletion").await?)
    };
    eventually("the second drain is counted", || async {
        Ok(ended_without_cut().await? == 1)
    })
    .await?;
    ensure!(
        count(&release, &cut).await? == cut_requests,
        "a drain without load has cut requests"
    );
    let events = drain_events(&namespace).await?;
    ensure!(events.len() == 1, "there are several Events: {events:?}");
    Ok(())
}

/// Without reports nothing is known of the same drain: otherwise [`are_known_after_their_pods_are_gone`] would prove
/// nothing.
pub(crate) async fn are_unknown_without_reports(fixture: &ClusterFixture<'_>) -> Result<()> {
    let (namespace, release) = fixture.release(json!({})).await?;
    let edge = deploy(&namespace).await?;
    let (first, failed) = evict_under_load(&edge).await?;
    ensure!(failed > 0, "the drain has cut no request");
    let counted = count(&release, &["drains_total"]).await?;
    let events = drain_events(&namespace).await?;
    ensure!(
        counted == 0 && events.is_empty(),
        "{counted} drains are counted, and there are Events: {events:?}"
    );
    let listed = list_drains(&namespace).await?;
    ensure!(
        listed.iter().all(|drain| drain["pod"] != *first),
        "`drains` lists {listed:?}"
    );
    Ok(())
}

/// Deploys one Envoy, whose drains are short.
async fn deploy(namespace: &Rc<Namespace>) -> Result<EnvoyDeployment> {
    EnvoyDeployment::start(namespace, 1, |template| {
        let annotations = &mut template["metadata"]["annotations"];
        annotations["envoy-drainer.dev/drain-timeout"] = json!("5s");
        annotations["envoy-drainer.dev/min-drain-duration"] = json!("2s");
        Ok(())
    })
    .await
}

/// Evicts the only pod under load. Returns its name, once it is gone, and the number of failed requests.
async fn evict_under_load(edge: &EnvoyDeployment) -> Result<(String, u64)> {
    let pod = edge.only_pod().await?;
    let traffic = Traffic::start(&edge.namespace, "load", edge.address, clients()).await?;
    edge.namespace.evict(&pod).await?;
    edge.wait_until_stable().await?;
    let report = traffic.stop().await?;
    Ok((pod, report.failed()))
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

/// What `envoy-drainer drains` lists.
async fn list_drains(namespace: &Namespace) -> Result<Vec<Value>> {
    let program = binaries::envoy_drainer()?;
    let args = ["drains", "--namespace", namespace.name(), "--output=json"];
    let output = command::run(program.as_os_str(), &args, None).await?;
    let lines = output.stdout.lines().map(serde_json::from_str);
    Ok(lines.collect::<Result<_, _>>()?)
}
