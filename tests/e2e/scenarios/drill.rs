//! `envoy-drainer drill`: what it finds, and that it leaves nothing.

use std::env;
use std::fs;
use std::net::SocketAddr;
use std::process::Stdio;
use std::rc::Rc;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use strum::VariantArray;
use tests::binaries;
use tests::drill_reports::{self, PodEnd, Setting};
use tests::json::push;

use super::adopt::{Manager, Product};
use super::http3;
use super::lag::{self, EndpointMirror};
use crate::cluster_fixture::ClusterFixture;
use crate::command::{self, CommandOutput};
use crate::echo;
use crate::edge::{APP, EnvoyDeployment, annotate, deployment, remove_inject};
use crate::eventually::eventually;
use crate::images;
use crate::namespace::Namespace;

/// The label of the Jobs of drills.
const JOBS: &str = "app.kubernetes.io/name=envoy-drainer-drill";

/// What Envoy Gateway writes for `minDrainDuration` and `healthCheckFailureDelay`.
const TUNED_FLAGS: [&str; 2] = [
    "--min-drain-duration=40s",
    "--health-check-failure-delay=40s",
];

/// Where the last reports are.
const REPORTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/measured");

/// The time that the only pod's successor takes to become ready, in seconds.
const STARTUP: u64 = 20;

/// Drills pods in a setting with each end but [`PodEnd::DrainerTuned`], one after the other. With `CELL`, it records `RUNS` of
/// the cells that this names. Else it finds losses of SIGTERM, and none of a drainer where its defaults suffice.
pub(crate) async fn find_losses(fixture: &ClusterFixture<'_>, setting: Setting) -> Result<()> {
    let namespace = fixture.namespace().await?;
    let ends = PodEnd::VARIANTS.iter().copied();
    for end in ends.filter(|end| *end != PodEnd::DrainerTuned) {
        drill_cell(fixture, &namespace, setting, end).await?;
    }
    Ok(())
}

/// Drills pods with [`PodEnd::DrainerTuned`] in each setting, as [`find_losses`] does.
pub(crate) async fn tuned_drainers_lose_nothing(fixture: &ClusterFixture<'_>) -> Result<()> {
    let values = json!({ "drainerAPI": { "enabled": true } });
    let (namespace, _release) = fixture.release(values).await?;
    for setting in Setting::VARIANTS {
        drill_cell(fixture, &namespace, *setting, PodEnd::DrainerTuned).await?;
    }
    Ok(())
}

/// Drills the pods of a cell.
async fn drill_cell(
    fixture: &ClusterFixture<'_>,
    namespace: &Rc<Namespace>,
    setting: Setting,
    end: PodEnd,
) -> Result<()> {
    let cell = env::var("CELL").ok();
    let runs = match &cell {
        Some(cell) if drill_reports::is_of(setting, end, cell) => {
            env::var("RUNS").map_or(Ok(1), |runs| runs.parse())?
        }
        Some(_) => 0,
        None => u64::from(loses(setting, end).is_some()),
    };
    if runs == 0 {
        return Ok(());
    }
    let replicas = match setting {
        Setting::SolePod | Setting::NoSurge => 1,
        _ => 2,
    };
    let mut workload = deployment(replicas, echo::start(namespace).await?)?;
    if setting == Setting::NoSurge {
        workload["spec"]["strategy"]["rollingUpdate"] =
            json!({ "maxSurge": 0, "maxUnavailable": 1 });
    }
    change(&mut workload["spec"]["template"], setting, end)?;
    let edge = EnvoyDeployment::deploy(namespace, &workload).await?;
    for _ in 0..runs {
        let report = run(&edge, setting, end).await;
        let report = report.with_context(|| format!("{setting:?}: {}", end.name()))?;
        let shown = format!("{} of {} failed", report["failed"], report["sent"]);
        fixture.add_row(&format!("{setting:?}: {}", end.name()), shown);
        if cell.is_some() {
            drill_reports::record(setting, end, serde_json::from_value(report)?)?;
            continue;
        }
        let has_failed = report["failed"].as_u64() > Some(0);
        ensure!(loses(setting, end) == Some(has_failed), "{report:#}");
        if matches!(end, PodEnd::Drainer | PodEnd::DrainerTuned) {
            ensure_drained(&report)?;
        }
    }
    remove(namespace).await
}

/// Whether requests fail; `None` if that may differ from run to run, or is nothing that a drainer promises.
fn loses(setting: Setting, end: PodEnd) -> Option<bool> {
    use Setting::{BehindLag, Http3, Idle, Mixed, NoSurge, SolePod};
    match (setting, end) {
        (Mixed | BehindLag | SolePod | NoSurge | Http3, PodEnd::Sigterm) => Some(true),
        (Mixed | BehindLag | Idle, PodEnd::Drainer) => Some(false),
        (SolePod | Http3, PodEnd::DrainerTuned) => Some(false),
        _ => None,
    }
}

/// Turns a pod template into that of a setting, whose pods end so.
fn change(template: &mut Value, setting: Setting, end: PodEnd) -> Result<()> {
    match setting {
        Setting::SolePod => {
            let probe = &mut template["spec"]["containers"][0]["readinessProbe"];
            probe["initialDelaySeconds"] = json!(STARTUP);
        }
        Setting::Http3 => http3::add_quic_listener(template)?,
        _ => {}
    }
    if !matches!(end, PodEnd::Drainer | PodEnd::DrainerTuned) {
        remove_inject(template)?;
    }
    let mut sleep = |seconds: u64| {
        let envoy = &mut template["spec"]["containers"][0];
        envoy["lifecycle"] = json!({ "preStop": { "sleep": { "seconds": seconds } } });
        Ok(())
    };
    match end {
        PodEnd::Sigterm | PodEnd::Drainer => Ok(()),
        PodEnd::Sleep15 => sleep(15),
        PodEnd::Sleep30 => sleep(30),
        PodEnd::Contour => Product::contour().change(template, Manager::Own),
        PodEnd::Marin3r => Product::marin3r().change(template, Manager::Own),
        PodEnd::EnvoyGateway => Product::envoy_gateway().change(template, Manager::Own),
        PodEnd::EnvoyGatewayTuned => {
            let mut product = Product::envoy_gateway();
            let command = &mut product.manager["lifecycle"]["preStop"]["exec"]["command"];
            TUNED_FLAGS
                .iter()
                .for_each(|flag| push(command, json!(flag)));
            product.change(template, Manager::Own)
        }
        PodEnd::DropIn => Product::envoy_gateway().change(template, Manager::DropIn),
        PodEnd::DrainerTuned => {
            annotate(template, "drain-strategy", "immediate");
            annotate(template, "wait-for-replacement", "60s");
            Ok(())
        }
    }
}

/// Runs the drill of a setting, and returns its report.
async fn run(edge: &EnvoyDeployment, setting: Setting, end: PodEnd) -> Result<Value> {
    let name = format!("{setting:?}-{end:?}");
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
        Setting::NoSurge => drill(edge.address, &["--mix=connect", "--rate=20"]).await,
        Setting::Idle => drill(edge.address, &["--mix=idle", "--timeout=15m"]).await,
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
    let report: Value =
        serde_json::from_str(&output.stdout).with_context(|| output.stderr.clone())?;
    let is_complete = report["completed"] == true && report["pods"][0].is_object();
    ensure!(is_complete, "{report:#}");
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
