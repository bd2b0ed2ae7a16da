//! `envoy-drainer drill`: what it finds, and that it leaves nothing.

use std::fs;
use std::net::SocketAddr;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tests::binaries;
use tests::drill_reports::{self, PodEnd, Setting};

use super::adopt::{Manager, Product};
use super::http3;
use super::lag::{self, EndpointMirror};
use crate::cluster_fixture::ClusterFixture;
use crate::command::{self, CommandOutput};
use crate::edge::{APP, EnvoyDeployment, annotate, remove_inject};
use crate::eventually::eventually;
use crate::images;
use crate::namespace::Namespace;

/// The label of the Jobs of drills.
const JOBS: &str = "app.kubernetes.io/name=envoy-drainer-drill";

/// Where the reports are kept, for `make drills`.
const REPORTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/measured");

/// The time that the only pod's successor takes to become ready, in seconds.
const STARTUP: u64 = 20;

/// Drills pods with each end, one after the other, and finds losses where there are some, and none of a drainer.
pub(crate) async fn find_losses(fixture: &ClusterFixture<'_>, setting: Setting) -> Result<()> {
    let (namespace, replicas) = match setting {
        Setting::SolePod => {
            let values = json!({ "drainerAPI": { "enabled": true } });
            (fixture.release(values).await?.0, 1)
        }
        _ => (fixture.namespace().await?, 2),
    };
    for end in PodEnd::ALL {
        let change = |template: &mut Value| change(template, setting, end);
        let edge = EnvoyDeployment::start(&namespace, replicas, change).await?;
        let report = run(&edge, setting, end).await;
        let report = report.with_context(|| end.name())?;
        fixture.add_row(
            end.name(),
            format!("{} of {} failed", report["failed"], report["sent"]),
        );
        let has_failed = report["failed"].as_u64() > Some(0);
        let wanted = loses(setting, end);
        ensure!(wanted.is_none_or(|it| it == has_failed), "{report:#}");
        if end == PodEnd::Drainer {
            ensure_drained(&report)?;
        }
        remove(&namespace).await?;
    }
    Ok(())
}

/// Whether requests fail; `None` if that may differ from run to run.
fn loses(setting: Setting, end: PodEnd) -> Option<bool> {
    match (setting, end) {
        (_, PodEnd::Drainer) => Some(false),
        (_, PodEnd::Sigterm)
        | (Setting::BehindLag | Setting::SolePod, _)
        | (Setting::Mixed, PodEnd::Sleep) => Some(true),
        _ => None,
    }
}

/// Turns a pod template into that of a setting, whose pods end so.
fn change(template: &mut Value, setting: Setting, end: PodEnd) -> Result<()> {
    match setting {
        Setting::SolePod => {
            let probe = &mut template["spec"]["containers"][0]["readinessProbe"];
            probe["initialDelaySeconds"] = json!(STARTUP);
            annotate(template, "wait-for-replacement", "60s");
        }
        Setting::Http3 => {
            http3::add_quic_listener(template)?;
            annotate(template, "drain-strategy", "immediate");
        }
        Setting::Mixed | Setting::BehindLag => {}
    }
    if end != PodEnd::Drainer {
        remove_inject(template)?;
    }
    match end {
        PodEnd::Drainer | PodEnd::Sigterm => Ok(()),
        PodEnd::Sleep => {
            let envoy = &mut template["spec"]["containers"][0];
            envoy["lifecycle"] = json!({ "preStop": { "sleep": { "seconds": 15 } } });
            Ok(())
        }
        PodEnd::EnvoyGateway => Product::envoy_gateway().change(template, Manager::Own),
        PodEnd::Contour => Product::contour().change(template, Manager::Own),
    }
}

/// Runs the drill of a setting, and returns its report.
async fn run(edge: &EnvoyDeployment, setting: Setting, end: PodEnd) -> Result<Value> {
    let name = drill_reports::file_name(setting, end);
    let drill = async |address, flags: &[&str]| drill_and_verify(edge, address, flags, &name).await;
    match setting {
        Setting::Mixed => {
            let clients = ["--mix=keep-alive,connect,slow,h2", "--slow-path=/?delay=2s"];
            drill(edge.address, &[&clients[..], &["--rate=100"]].concat()).await
        }
        // With moments without any open connection, until the endpoints are right again.
        Setting::BehindLag => {
            let mirror = EndpointMirror::new(&edge.namespace).await?;
            let flags = ["--mix=connect", "--rate=10", "--for=60s"];
            tokio::select! {
                report = drill(mirror.address, &flags) => report,
                never = mirror.copy() => match never? {},
            }
        }
        Setting::SolePod => {
            let flags = ["--evict", "--mix=keep-alive,connect", "--rate=20"];
            drill(edge.address, &flags).await
        }
        Setting::Http3 => {
            let address = http3::quic_service(&edge.namespace).await?;
            let url = format!("--url=https://{address}/?delay=2s");
            drill(address, &[&*url, "--mix=h3", "--rate=20"]).await
        }
    }
}

/// Removes the Envoys of a drill, with their Services.
async fn remove(namespace: &Namespace) -> Result<()> {
    let services = [APP, lag::LAGGING_SERVICE, http3::QUIC].join(" ");
    let delete = "delete --ignore-not-found --wait=false";
    namespace.run(&format!("{delete} deployment {APP}")).await?;
    namespace
        .run(&format!("{delete} service {services}"))
        .await?;
    eventually("the pods are gone", || async {
        Ok(namespace.pods(&format!("app={APP}")).await?.is_empty())
    })
    .await
}

fn ensure_drained(report: &Value) -> Result<()> {
    for pod in report["pods"].as_array().into_iter().flatten() {
        let outcome = pod["outcome"].as_str();
        ensure!(matches!(outcome, Some("drained" | "idle")), "{pod:#}");
    }
    Ok(())
}

/// Runs a drill, keeps its report, and ensures that its exit status, its files and the cluster are as they should be.
async fn drill_and_verify(
    edge: &EnvoyDeployment,
    address: SocketAddr,
    flags: &[&str],
    name: &str,
) -> Result<Value> {
    fs::create_dir_all(REPORTS)?;
    let file = |ending| format!("{REPORTS}/{name}.{ending}");
    let junit = format!("--junit={}", file("xml"));
    let flags = [flags, &[&junit]].concat();
    let (output, report) = run_drill(edge, address, &flags).await?;
    fs::write(file("json"), &output.stdout)?;
    let has_failed = report["failed"].as_u64() > Some(0);
    ensure!(
        output.status.code() == Some(i32::from(has_failed)),
        "{}{report:#}",
        output.stderr
    );
    let has_ends = |pods: &Vec<Value>| !pods.is_empty();
    ensure!(
        report["pods"].as_array().is_some_and(has_ends),
        "{report:#}"
    );
    let junit = fs::read_to_string(file("xml"))?;
    ensure!(junit.contains("failures=\"0\"") != has_failed, "{junit}");
    ensure_nothing_is_left(&edge.namespace).await?;
    Ok(report)
}

/// Runs a drill, and returns its report too.
pub(super) async fn run_drill(
    edge: &EnvoyDeployment,
    address: SocketAddr,
    flags: &[&str],
) -> Result<(CommandOutput, Value)> {
    let args = args(edge, address, flags);
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    let program = binaries::envoy_drainer()?;
    let output = command::run_unchecked(program.as_os_str(), &args, None).await?;
    let report = serde_json::from_str(&output.stdout).with_context(|| output.stderr.clone())?;
    Ok((output, report))
}

/// A drill that is interrupted deletes its Job.
pub(crate) async fn that_is_interrupted_leaves_nothing(fixture: &ClusterFixture<'_>) -> Result<()> {
    let namespace = fixture.namespace().await?;
    let edge = EnvoyDeployment::start(&namespace, 1, |_| Ok(())).await?;
    let args = args(&edge, edge.address, &["--delete", "--for=10m"]);
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    let program = binaries::envoy_drainer()?;
    let mut drill = command::start(program.as_os_str(), &args, Stdio::null())?;
    eventually("the drill deletes a pod", || async {
        let pods = namespace.pods(&format!("app={APP}")).await?;
        Ok(pods
            .iter()
            .any(|pod| !pod["metadata"]["deletionTimestamp"].is_null()))
    })
    .await?;
    let pid = drill
        .id()
        .and_then(|pid| Pid::from_raw(pid.try_into().ok()?));
    kill_process(pid.context("the drill has exited")?, Signal::INT)?;
    let status = drill.wait().await?;
    ensure!(status.code() == Some(3), "{status}");
    ensure_nothing_is_left(&namespace).await
}

fn args(edge: &EnvoyDeployment, address: SocketAddr, flags: &[&str]) -> Vec<String> {
    let mut args = vec![
        "drill".to_owned(),
        format!("deploy/{APP}"),
        format!("--namespace={}", edge.namespace.name()),
        format!("--image={}", images::WEBHOOK_IMAGE),
        "--yes".to_owned(),
        "--output=json".to_owned(),
    ];
    args.extend(flags.iter().map(|flag| (*flag).to_owned()));
    if !flags.iter().any(|flag| flag.starts_with("--url=")) {
        args.push(format!("--url=http://{address}/"));
    }
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
