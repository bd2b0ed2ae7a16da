//! `envoy-drainer drill`: what it finds, and that it leaves nothing.

use std::fs;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tests::binaries;

use crate::cluster_fixture::ClusterFixture;
use crate::command::{self, CommandOutput};
use crate::echo;
use crate::edge::{APP, EnvoyDeployment, deployment, without_inject};
use crate::eventually::eventually;
use crate::images;
use crate::namespace::Namespace;

/// The label of the Jobs of drills.
const JOBS: &str = "app.kubernetes.io/name=envoy-drainer-drill";

/// A drill of a rollout finds no loss with drainers, and tells each pod's drain.
pub(crate) async fn of_drained_pods_finds_no_loss(fixture: &ClusterFixture<'_>) -> Result<()> {
    let namespace = fixture.namespace().await?;
    let upstream = echo::start(&namespace).await?;
    let edge = EnvoyDeployment::deploy(&namespace, &deployment(2, upstream)?).await?;
    let folder = tempfile::tempdir()?;
    let [junit, html] = ["junit.xml", "drill.html"].map(|name| folder.path().join(name));
    let files = [
        format!("--junit={}", junit.display()),
        format!("--html={}", html.display()),
    ];
    let mut args = vec![
        "--evict",
        "--mix=keep-alive,connect,slow,h2",
        "--slow-path=/?delay=2s",
    ];
    args.extend(files.iter().map(String::as_str));
    let output = drill(&edge, &args).await?;
    let report: Value =
        serde_json::from_str(&output.stdout).with_context(|| output.stderr.clone())?;
    report_losses(fixture, &report);
    ensure!(output.status.success(), "{}{report:#}", output.stderr);
    let pods = report["pods"].as_array().context("no pods")?;
    ensure!(pods.len() == 2, "{pods:#?}");
    for pod in pods {
        ensure!(
            pod["outcome"] == "drained" || pod["outcome"] == "idle",
            "{pod:#}"
        );
        ensure!(
            pod["connections"]
                .as_array()
                .is_some_and(|counts| !counts.is_empty()),
            "{pod:#}"
        );
    }
    ensure!(
        fs::read_to_string(junit)?.contains("failures=\"0\""),
        "JUnit"
    );
    ensure!(fs::read_to_string(html)?.contains("<svg"), "no chart");
    ensure_nothing_is_left(&namespace).await
}

/// A drill of a rollout finds what pods without a drainer lose.
pub(crate) async fn of_naked_pods_finds_losses(fixture: &ClusterFixture<'_>) -> Result<()> {
    let namespace = fixture.namespace().await?;
    let upstream = echo::start(&namespace).await?;
    let naked = without_inject(deployment(2, upstream)?);
    let edge = EnvoyDeployment::deploy(&namespace, &naked).await?;
    let args = [
        "--mix=keep-alive,connect,slow,h2",
        "--slow-path=/?delay=2s",
        "--rate=100",
    ];
    let output = drill(&edge, &args).await?;
    let report: Value =
        serde_json::from_str(&output.stdout).with_context(|| output.stderr.clone())?;
    report_losses(fixture, &report);
    ensure!(
        output.status.code() == Some(1),
        "{}{report:#}",
        output.stderr
    );
    ensure!(report["failed"].as_u64() > Some(0), "{report:#}");
    ensure_nothing_is_left(&namespace).await
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

fn report_losses(fixture: &ClusterFixture<'_>, report: &Value) {
    for client in report["clients"].as_array().into_iter().flatten() {
        let name = client["name"].as_str().unwrap_or_default();
        fixture.add_row(
            name,
            format!("{} of {} failed", client["failed"], client["sent"]),
        );
    }
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
