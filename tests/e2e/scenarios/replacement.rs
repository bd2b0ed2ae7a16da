//! Pods with `wait-for-replacement`, whose successors take 20 s to become ready.

use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures_util::future::try_join_all;
use serde_json::{Value, json};
use tests::load::{EchoLoad, load};
use tests::timing::SECOND;
use tokio::time::{Instant, sleep};

use crate::cluster_fixture::ClusterFixture;
use crate::echo;
use crate::edge::{APP, EnvoyDeployment, PORT_NAME, deployment, is_ready};
use crate::eventually::eventually;
use crate::namespace::Namespace;
use crate::service;
use crate::traffic::disrupt_under_load;

/// How long a pod takes to become ready, in seconds.
const STARTUP: u64 = 20;

/// A request on a connection of its own every 50 ms, and one every 50 ms on kept connections.
fn clients() -> EchoLoad {
    load().connection_per_request(20.0).keep_alive(20.0)
}

/// The annotation with its wait.
const WAIT: &str = "envoy-drainer.dev/wait-for-replacement";

/// The label by which a second Service selects pods.
const LANE: &str = "lane=one";

/// The chart's values with the drainer API.
fn with_drainer_api() -> Value {
    json!({ "drainerAPI": { "enabled": true } })
}

/// Deploys Envoys that become ready after [`STARTUP`], with this wait if there is one.
async fn start_slow(
    namespace: &Rc<Namespace>,
    replicas: u32,
    wait: Option<&str>,
) -> Result<EnvoyDeployment> {
    EnvoyDeployment::start(namespace, replicas, |template| {
        template["spec"]["containers"][0]["readinessProbe"]["initialDelaySeconds"] = json!(STARTUP);
        if let Some(wait) = wait {
            template["metadata"]["annotations"][WAIT] = json!(wait);
        }
        Ok(())
    })
    .await
}

/// Evicts all pods, so long one after the other, under load. Returns the number of failed requests.
async fn evict_all(
    fixture: &ClusterFixture<'_>,
    edge: &EnvoyDeployment,
    interval: Duration,
) -> Result<u64> {
    let report = disrupt_under_load(fixture, edge, clients(), async || {
        let pods = edge.pods().await?;
        let evictions = (0..).zip(&pods).map(|(n, pod)| async move {
            sleep(interval * n).await;
            edge.namespace.evict(pod).await
        });
        try_join_all(evictions).await?;
        edge.wait_until_stable().await
    });
    Ok(report.await?.failed())
}

/// Returns how the wait of the only drain so far ended, and what it waited for at its end, and reports that.
async fn only_wait(fixture: &ClusterFixture<'_>, namespace: &Namespace) -> Result<Value> {
    let messages = || namespace.termination_messages.read_all();
    eventually("a drain has ended", || async { Ok(messages()?.len() == 1) }).await?;
    let mut messages = messages()?;
    let message = messages.pop().context("there is one")?;
    let wait = message.replacement();
    let wait = wait.with_context(|| format!("the drain has not waited: {message}"))?;
    fixture.add_row("wait", wait.to_string());
    Ok(wait)
}

/// Returns an error unless a wait ended at its limit, in seconds.
fn ensure_timeout(wait: &Value, limit: f64) -> Result<()> {
    let seconds = wait["seconds"].as_f64().context("it has a duration")?;
    ensure!(
        wait["outcome"] == "timeout" && (limit..limit + 3.0).contains(&seconds),
        "the wait ended with {wait}"
    );
    Ok(())
}

/// The eviction of the only pod of a Service fails no request.
pub(crate) async fn only_pod_loses_no_request(fixture: &ClusterFixture<'_>) -> Result<()> {
    let (namespace, _release) = fixture.release(with_drainer_api()).await?;
    let edge = start_slow(&namespace, 1, Some("60s")).await?;
    let failed = evict_all(fixture, &edge, SECOND).await?;
    ensure!(failed == 0, "{failed} requests failed");
    let wait = only_wait(fixture, &namespace).await?;
    ensure!(wait["outcome"] == "ready", "the wait ended with {wait}");
    Ok(())
}

/// The same eviction without the annotation fails requests: otherwise [`only_pod_loses_no_request`] proves nothing.
pub(crate) async fn only_pod_loses_requests_without(fixture: &ClusterFixture<'_>) -> Result<()> {
    let namespace = fixture.namespace().await?;
    let edge = start_slow(&namespace, 1, None).await?;
    let failed = evict_all(fixture, &edge, SECOND).await?;
    ensure!(failed > 0, "no request failed");
    Ok(())
}

/// The evictions of all pods of a node, one after the other, fail no request.
pub(crate) async fn evicted_node_loses_no_request(fixture: &ClusterFixture<'_>) -> Result<()> {
    evicted_deployment_loses_no_request(fixture, SECOND).await
}

/// The evictions of all pods of a node at the same moment, as by `kubectl drain`, fail no request: none of them takes
/// another for its replacement.
pub(crate) async fn pods_evicted_together_lose_no_request(
    fixture: &ClusterFixture<'_>,
) -> Result<()> {
    evicted_deployment_loses_no_request(fixture, Duration::ZERO).await
}

async fn evicted_deployment_loses_no_request(
    fixture: &ClusterFixture<'_>,
    interval: Duration,
) -> Result<()> {
    let (namespace, _release) = fixture.release(with_drainer_api()).await?;
    let edge = start_slow(&namespace, 3, Some("60s")).await?;
    let failed = evict_all(fixture, &edge, interval).await?;
    ensure!(failed == 0, "{failed} requests failed");
    Ok(())
}

/// Without the webhook the wait lasts to its limit, which is longer than the successor takes: no request fails.
pub(crate) async fn absent_webhook_loses_no_request(fixture: &ClusterFixture<'_>) -> Result<()> {
    let (namespace, release) = fixture.release(with_drainer_api()).await?;
    let edge = start_slow(&namespace, 1, Some("30s")).await?;
    release.scale(0).await?;
    let failed = evict_all(fixture, &edge, SECOND).await?;
    ensure!(failed == 0, "{failed} requests failed");
    ensure_timeout(&only_wait(fixture, &namespace).await?, 30.0)
}

/// A pod waits for each of its Services, and for no other. The author of a StatefulSet is warned that its pods wait in
/// vain.
pub(crate) async fn each_service_is_waited_for(fixture: &ClusterFixture<'_>) -> Result<()> {
    let (namespace, _release) = fixture.release(with_drainer_api()).await?;
    let edge = start_slow(&namespace, 1, Some("170s")).await?;
    let first = edge.only_pod().await?;
    // Only pods with the label, which the successor does not have yet.
    namespace.kubectl(&["label", "pod", &first, LANE]).await?;
    let (key, value) = LANE.split_once('=').context("it is a label")?;
    let labels = json!({ key: value });
    service::create_for_pods(&namespace, "lane", labels, "TCP", PORT_NAME).await?;
    // Endpoints that are no pods, none of them ready.
    service::create_without_selector(&namespace, "external").await?;
    namespace.apply(external_endpoints()).await?;
    eventually("the Service selects the pod", || async {
        let selector = "kubernetes.io/service-name=lane";
        let slices = namespace
            .json(&["get", "endpointslices", "--selector", selector])
            .await?;
        Ok(slices["items"][0]["endpoints"][0]["conditions"]["ready"] == true)
    })
    .await?;
    namespace.evict(&first).await?;
    let successor = ready_successor(&namespace, &first).await?;
    // Long enough for another question, and for a drain that did not wait.
    sleep(Duration::from_secs(5)).await;
    let messages = namespace.termination_messages.read_all()?;
    ensure!(messages.is_empty(), "it has drained without waiting");
    namespace
        .kubectl(&["label", "pod", &successor, LANE])
        .await?;
    let labeled = Instant::now();
    let wait = only_wait(fixture, &namespace).await?;
    ensure!(wait["outcome"] == "ready", "the wait ended with {wait}");
    fixture.add_row("drained after", format!("{:.0?}", labeled.elapsed()));

    let mut deployment = deployment(0, edge.address)?;
    deployment["spec"]["template"]["metadata"]["annotations"][WAIT] = json!("170s");
    let stateful_set = json!({
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": { "name": "stateful" },
        "spec": {
            "replicas": 0,
            "serviceName": APP,
            "selector": deployment["spec"]["selector"],
            "template": deployment["spec"]["template"],
        },
    });
    ensure_late_warning(&namespace, stateful_set).await
}

/// A pod whose successor may not start, or starts only after it has terminated, terminates after its wait.
pub(crate) async fn missing_successor_ends_with_the_limit(
    fixture: &ClusterFixture<'_>,
) -> Result<()> {
    let (namespace, _release) = fixture.release(with_drainer_api()).await?;
    let upstream = echo::start(&namespace).await?;
    let mut deployment = deployment(1, upstream)?;
    deployment["spec"]["template"]["metadata"]["annotations"][WAIT] = json!("15s");
    let edge = EnvoyDeployment::deploy(&namespace, &deployment).await?;
    let pods = namespace.json(&["get", "pods"]).await?;
    let present = pods["items"].as_array().map_or(0, Vec::len).to_string();
    let quota = json!({
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": { "name": "full" },
        "spec": { "hard": { "pods": present } },
    });
    namespace.apply(quota).await?;
    eventually("the quota is in effect", || async {
        let quota = namespace.json(&["get", "resourcequota", "full"]).await?;
        Ok(quota["status"]["used"]["pods"] == *present)
    })
    .await?;
    namespace.evict(&edge.only_pod().await?).await?;
    let wait = only_wait(fixture, &namespace).await?;
    ensure_timeout(&wait, 15.0)?;
    ensure!(
        wait["waitingFor"] == format!("another ready endpoint of Service {APP}"),
        "{wait}"
    );

    deployment["metadata"]["name"] = json!("late");
    deployment["spec"]["replicas"] = json!(0);
    let mut recreated = deployment.clone();
    recreated["spec"]["strategy"] = json!({ "type": "Recreate" });
    ensure_late_warning(&namespace, recreated).await?;
    // The API server drops a field that it does not know, or whose feature is off.
    let mut completed = deployment;
    completed["spec"]["podReplacementPolicy"] = json!("TerminationComplete");
    let kept = namespace.dry_run(completed.clone()).await;
    let is_known = kept.is_ok_and(|object| object.stdout.contains("TerminationComplete"));
    fixture.add_row(
        "this cluster knows TerminationComplete",
        is_known.to_string(),
    );
    if is_known {
        ensure_late_warning(&namespace, completed).await?;
    }
    Ok(())
}

/// Returns an error unless the author of a workload is warned that its pods wait in vain.
async fn ensure_late_warning(namespace: &Namespace, workload: Value) -> Result<()> {
    let kind = workload["kind"].clone();
    let warnings = namespace.apply(workload).await?.stderr;
    ensure!(
        warnings.contains("DRN069"),
        "the warnings about a {kind} are {warnings:?}"
    );
    Ok(())
}

/// An EndpointSlice of the Service `external`, with an address that is not ready.
fn external_endpoints() -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": "external",
            "labels": { "kubernetes.io/service-name": "external" },
        },
        "addressType": "IPv4",
        "endpoints": [{ "addresses": ["192.0.2.1"], "conditions": { "ready": false } }],
        "ports": [{ "port": 80 }],
    })
}

/// Waits until another pod than `first` is ready, and returns its name.
async fn ready_successor(namespace: &Namespace, first: &str) -> Result<String> {
    let find = async || {
        let pods = namespace.pods(&format!("app={APP}")).await?;
        let is_successor = |pod: &&Value| pod["metadata"]["name"] != first && is_ready(pod);
        let successor = pods.iter().find(is_successor);
        let name = successor.and_then(|pod| pod["metadata"]["name"].as_str());
        anyhow::Ok(name.map(str::to_owned))
    };
    eventually("the successor is ready", || async {
        Ok(find().await?.is_some())
    })
    .await?;
    find().await?.context("it was ready before")
}
