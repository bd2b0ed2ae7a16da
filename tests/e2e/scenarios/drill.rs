//! `envoy-drainer drill`: what it finds, and that it leaves nothing.

use std::fs;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tests::binaries;

use super::adopt::Product;
use crate::cluster_fixture::ClusterFixture;
use crate::command::{self, CommandOutput};
use crate::echo;
use crate::edge::{APP, EnvoyDeployment, deployment, without_inject};
use crate::eventually::eventually;
use crate::images;
use crate::namespace::Namespace;

/// The label of the Jobs of drills.
const JOBS: &str = "app.kubernetes.io/name=envoy-drainer-drill";

/// The clients of all drills.
const CLIENTS: [&str; 3] = [
    "--mix=keep-alive,connect,slow,h2",
    "--slow-path=/?delay=2s",
    "--rate=100",
];

/// Where the reports are kept, for `make pictures`.
const REPORTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/measured");

/// A drill of a rollout finds no loss with drainers, and tells each pod's drain.
pub(crate) async fn of_drained_pods_finds_no_loss(fixture: &ClusterFixture<'_>) -> Result<()> {
    let report = run(fixture, "drainer", "9901", Ok).await?;
    ensure!(report["failed"] == 0, "{report:#}");
    for pod in report["pods"].as_array().into_iter().flatten() {
        let outcome = pod["outcome"].as_str();
        ensure!(matches!(outcome, Some("drained" | "idle")), "{pod:#}");
        let counts = pod["connections"].as_array();
        ensure!(counts.is_some_and(|counts| !counts.is_empty()), "{pod:#}");
    }
    Ok(())
}

/// A drill of a rollout finds what pods lose that SIGTERM ends.
pub(crate) async fn of_naked_pods_finds_losses(fixture: &ClusterFixture<'_>) -> Result<()> {
    let report = run(fixture, "sigterm", "9901", |it| Ok(without_inject(it))).await?;
    ensure!(report["failed"].as_u64() > Some(0), "{report:#}");
    Ok(())
}

/// A drill of a rollout finds what pods lose that sleep before SIGTERM.
pub(crate) async fn of_sleeping_pods_finds_losses(fixture: &ClusterFixture<'_>) -> Result<()> {
    let sleeping = |deployment| {
        let mut deployment = without_inject(deployment);
        let envoy = &mut deployment["spec"]["template"]["spec"]["containers"][0];
        envoy["lifecycle"] = json!({ "preStop": { "sleep": { "seconds": 15 } } });
        Ok(deployment)
    };
    let report = run(fixture, "sleep", "9901", sleeping).await?;
    ensure!(report["failed"].as_u64() > Some(0), "{report:#}");
    Ok(())
}

/// A drill shows what pods of Envoy Gateway lose with its shutdown manager.
pub(crate) async fn of_envoy_gateway_shows_its_losses(fixture: &ClusterFixture<'_>) -> Result<()> {
    let managed = |it| Product::envoy_gateway().deployment(without_inject(it), false);
    run(fixture, "envoy-gateway", "19000", managed)
        .await
        .map(drop)
}

/// A drill shows what pods of Contour lose with its shutdown manager.
pub(crate) async fn of_contour_shows_its_losses(fixture: &ClusterFixture<'_>) -> Result<()> {
    let managed = |it| Product::contour().deployment(without_inject(it), false);
    run(fixture, "contour", "9901", managed).await.map(drop)
}

/// Runs a drill of a rollout of two pods, changed by `change`, keeps its report, and ensures that its exit status, its
/// files and the cluster are as they should be.
async fn run(
    fixture: &ClusterFixture<'_>,
    name: &str,
    admin_port: &str,
    change: impl FnOnce(Value) -> Result<Value>,
) -> Result<Value> {
    let namespace = fixture.namespace().await?;
    let upstream = echo::start(&namespace).await?;
    let deployment = change(deployment(2, upstream)?)?;
    let edge = EnvoyDeployment::apply(&namespace, &deployment).await?;
    fs::create_dir_all(REPORTS)?;
    let file = |ending| format!("{REPORTS}/drill-{name}.{ending}");
    let flags = [
        format!("--admin-port={admin_port}"),
        format!("--junit={}", file("xml")),
        format!("--html={}", file("html")),
    ];
    let flags = [&CLIENTS[..], &flags.each_ref().map(String::as_str)].concat();
    let output = drill(&edge, &flags).await?;
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
    ensure_nothing_is_left(&namespace).await?;
    Ok(report)
}

/// A drill that is interrupted takes back what it has changed.
pub(crate) async fn that_is_interrupted_leaves_nothing(fixture: &ClusterFixture<'_>) -> Result<()> {
    let namespace = fixture.namespace().await?;
    let upstream = echo::start(&namespace).await?;
    let edge = EnvoyDeployment::deploy(&namespace, &deployment(1, upstream)?).await?;
    let args = args(&edge, &["--scale=2", "--for=10m"]);
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
    ensure!(status.code() == Some(1), "{status}");
    ensure!(replicas().await? == 1, "the Deployment is not scaled back");
    ensure_nothing_is_left(&namespace).await
}

async fn drill(edge: &EnvoyDeployment<'_>, flags: &[&str]) -> Result<CommandOutput> {
    let args = args(edge, flags);
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    let program = binaries::envoy_drainer()?;
    command::run_unchecked(program.as_os_str(), &args, None).await
}

fn args(edge: &EnvoyDeployment<'_>, flags: &[&str]) -> Vec<String> {
    let mut args = vec![
        "drill".to_owned(),
        format!("deploy/{APP}"),
        format!("--namespace={}", edge.namespace.name()),
        format!("--url=http://{}/", edge.address),
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
