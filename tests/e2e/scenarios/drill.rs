//! `envoy-drainer drill`: what it finds, and that it leaves nothing.

use std::fs;
use std::net::SocketAddr;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tests::binaries;

use super::adopt::Product;
use super::lag::EndpointMirror;
use crate::cluster_fixture::ClusterFixture;
use crate::command;
use crate::echo;
use crate::edge::{APP, EnvoyDeployment, deployment, without_inject};
use crate::eventually::eventually;
use crate::images;
use crate::namespace::Namespace;

/// The label of the Jobs of drills.
const JOBS: &str = "app.kubernetes.io/name=envoy-drainer-drill";

/// Clients of most kinds.
const MIXED: [&str; 3] = [
    "--mix=keep-alive,connect,slow,h2",
    "--slow-path=/?delay=2s",
    "--rate=100",
];

/// Clients with moments without any open connection, until the endpoints are right again.
const SPARSE: [&str; 3] = ["--mix=connect", "--rate=10", "--for=60s"];

/// Where the reports are kept, for `make pictures`.
const REPORTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/measured");

/// Whether a drill finds failed requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Losses {
    None,
    Some,
}

/// Drills of drained pods find no loss, and tell each pod's drain.
pub(crate) async fn of_drained_pods_finds_no_loss(fixture: &ClusterFixture<'_>) -> Result<()> {
    let report = run(fixture, "drainer", Losses::None, Ok).await?;
    ensure_drained(&report)
}

/// Drills find what pods lose that SIGTERM ends.
pub(crate) async fn of_naked_pods_finds_losses(fixture: &ClusterFixture<'_>) -> Result<()> {
    run(fixture, "sigterm", Losses::Some, naked).await.map(drop)
}

/// Drills find what pods lose that sleep before SIGTERM: requests that take longer than the rest of the sleep.
pub(crate) async fn of_sleeping_pods_finds_losses(fixture: &ClusterFixture<'_>) -> Result<()> {
    run(fixture, "sleep", Losses::Some, sleeping)
        .await
        .map(drop)
}

/// Behind endpoints that lag 15 s, drills of drained pods find no loss.
pub(crate) async fn behind_lag_of_drained_pods_finds_no_loss(
    fixture: &ClusterFixture<'_>,
) -> Result<()> {
    let report = run_behind_lag(fixture, "drainer", Losses::None, Ok).await?;
    ensure_drained(&report)
}

/// Behind endpoints that lag 15 s, drills find losses of SIGTERM, a sleep of 15 s, and both managers.
pub(crate) async fn behind_lag_of_naked_pods_finds_losses(
    fixture: &ClusterFixture<'_>,
) -> Result<()> {
    run_behind_lag(fixture, "sigterm", Losses::Some, naked)
        .await
        .map(drop)
}

pub(crate) async fn behind_lag_of_sleeping_pods_finds_losses(
    fixture: &ClusterFixture<'_>,
) -> Result<()> {
    run_behind_lag(fixture, "sleep", Losses::Some, sleeping)
        .await
        .map(drop)
}

pub(crate) async fn behind_lag_of_envoy_gateway_finds_losses(
    fixture: &ClusterFixture<'_>,
) -> Result<()> {
    let managed = |it| managed(Product::envoy_gateway(), it);
    run_behind_lag(fixture, "envoy-gateway", Losses::Some, managed)
        .await
        .map(drop)
}

pub(crate) async fn behind_lag_of_contour_finds_losses(fixture: &ClusterFixture<'_>) -> Result<()> {
    let managed = |it| managed(Product::contour(), it);
    run_behind_lag(fixture, "contour", Losses::Some, managed)
        .await
        .map(drop)
}

fn naked(deployment: Value) -> Result<Value> {
    Ok(without_inject(deployment))
}

/// With the product's shutdown manager.
fn managed(product: Product, deployment: Value) -> Result<Value> {
    product.deployment(without_inject(deployment), false)
}

fn sleeping(deployment: Value) -> Result<Value> {
    let mut deployment = without_inject(deployment);
    let envoy = &mut deployment["spec"]["template"]["spec"]["containers"][0];
    envoy["lifecycle"] = json!({ "preStop": { "sleep": { "seconds": 15 } } });
    Ok(deployment)
}

fn ensure_drained(report: &Value) -> Result<()> {
    for pod in report["pods"].as_array().into_iter().flatten() {
        let outcome = pod["outcome"].as_str();
        ensure!(matches!(outcome, Some("drained" | "idle")), "{pod:#}");
        let counts = pod["connections"].as_array();
        ensure!(counts.is_some_and(|counts| !counts.is_empty()), "{pod:#}");
    }
    Ok(())
}

/// Runs a drill of a rollout of two pods, changed by `change`, behind kube-proxy, under all kinds of clients.
async fn run(
    fixture: &ClusterFixture<'_>,
    name: &str,
    losses: Losses,
    change: impl FnOnce(Value) -> Result<Value>,
) -> Result<Value> {
    let namespace = fixture.namespace().await?;
    let edge = deploy(&namespace, change).await?;
    let report = drill_and_verify(fixture, &edge, edge.address, &MIXED, name).await?;
    verify_losses(report, losses)
}

/// As [`run`], behind endpoints that lag, under sparse traffic.
async fn run_behind_lag(
    fixture: &ClusterFixture<'_>,
    name: &str,
    losses: Losses,
    change: impl FnOnce(Value) -> Result<Value>,
) -> Result<Value> {
    let namespace = fixture.namespace().await?;
    let edge = deploy(&namespace, change).await?;
    let mirror = EndpointMirror::new(&namespace).await?;
    let name = format!("{name}-behind-lag");
    let report = tokio::select! {
        report = drill_and_verify(fixture, &edge, mirror.address, &SPARSE, &name) => report?,
        never = mirror.copy() => match never? {},
    };
    verify_losses(report, losses)
}

async fn deploy(
    namespace: &Namespace,
    change: impl FnOnce(Value) -> Result<Value>,
) -> Result<EnvoyDeployment<'_>> {
    let upstream = echo::start(namespace).await?;
    EnvoyDeployment::apply(namespace, &change(deployment(2, upstream)?)?).await
}

fn verify_losses(report: Value, losses: Losses) -> Result<Value> {
    let has_failed = report["failed"].as_u64() > Some(0);
    ensure!(has_failed == (losses == Losses::Some), "{report:#}");
    Ok(report)
}

/// Runs a drill, keeps its report, and ensures that its exit status, its files and the cluster are as they should be.
async fn drill_and_verify(
    fixture: &ClusterFixture<'_>,
    edge: &EnvoyDeployment<'_>,
    address: SocketAddr,
    clients: &[&str],
    name: &str,
) -> Result<Value> {
    fs::create_dir_all(REPORTS)?;
    let file = |ending| format!("{REPORTS}/drill-{name}.{ending}");
    let admin_port = if name.starts_with("envoy-gateway") {
        19000
    } else {
        9901
    };
    let flags = [
        format!("--admin-port={admin_port}"),
        format!("--junit={}", file("xml")),
        format!("--html={}", file("html")),
    ];
    let flags = [clients, &flags.each_ref().map(String::as_str)].concat();
    let args = args(edge, address, &flags);
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    let program = binaries::envoy_drainer()?;
    let output = command::run_unchecked(program.as_os_str(), &args, None).await?;
    let report: Value =
        serde_json::from_str(&output.stdout).with_context(|| output.stderr.clone())?;
    fs::write(file("json"), &output.stdout)?;
    for client in report["clients"].as_array().into_iter().flatten() {
        let name = client["name"].as_str().unwrap_or_default();
        fixture.add_row(
            name,
            format!("{} of {} failed", client["failed"], client["sent"]),
        );
    }
    let has_failed = report["failed"].as_u64() > Some(0);
    ensure!(
        output.status.code() == Some(i32::from(has_failed)),
        "{}{report:#}",
        output.stderr
    );
    ensure!(
        report["pods"]
            .as_array()
            .is_some_and(|pods| pods.len() == 2),
        "{report:#}"
    );
    ensure!(
        fs::read_to_string(file("xml"))?.contains("failures=\"0\"") != has_failed,
        "JUnit"
    );
    ensure!(
        fs::read_to_string(file("html"))?.contains("<svg"),
        "no chart"
    );
    ensure_nothing_is_left(edge.namespace).await?;
    Ok(report)
}

/// A drill that is interrupted takes back what it has changed.
pub(crate) async fn that_is_interrupted_leaves_nothing(fixture: &ClusterFixture<'_>) -> Result<()> {
    let namespace = fixture.namespace().await?;
    let upstream = echo::start(&namespace).await?;
    let edge = EnvoyDeployment::deploy(&namespace, &deployment(1, upstream)?).await?;
    let args = args(&edge, edge.address, &["--scale=2", "--for=10m"]);
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    let program = binaries::envoy_drainer()?;
    let mut drill = command::start(program.as_os_str(), &args, Stdio::null())?;
    let replicas = async || -> Result<Value> {
        let edge = namespace.json(&["get", "deployment", APP]).await?;
        Ok(edge["spec"]["replicas"].clone())
    };
    eventually("the drill scales", || async { Ok(replicas().await? == 2) }).await?;
    let pid = drill
        .id()
        .and_then(|pid| Pid::from_raw(pid.try_into().ok()?));
    kill_process(pid.context("the drill has exited")?, Signal::INT)?;
    let status = drill.wait().await?;
    ensure!(status.code() == Some(3), "{status}");
    ensure!(replicas().await? == 1, "the Deployment is not scaled back");
    ensure_nothing_is_left(&namespace).await
}

fn args(edge: &EnvoyDeployment<'_>, address: SocketAddr, flags: &[&str]) -> Vec<String> {
    let mut args = vec![
        "drill".to_owned(),
        format!("deploy/{APP}"),
        format!("--namespace={}", edge.namespace.name()),
        format!("--url=http://{address}/"),
        format!("--image={}", images::WEBHOOK_IMAGE),
        "--yes".to_owned(),
        "--output=json".to_owned(),
    ];
    args.extend(flags.iter().map(|flag| (*flag).to_owned()));
    args
}

async fn ensure_nothing_is_left(namespace: &Namespace) -> Result<()> {
    eventually("the Job of the drill is gone", || async {
        let jobs = namespace
            .json(&["get", "jobs,pods", "--selector", JOBS])
            .await?;
        Ok(jobs["items"].as_array().is_some_and(Vec::is_empty))
    })
    .await
}
