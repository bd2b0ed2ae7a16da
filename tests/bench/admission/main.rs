//! Measures the cost of an admission, over TLS on one CPU, and compares it with a straightforward webhook and with a
//! constant response, on the same server. Figures per second of wall time need an idle machine; those per second of the
//! server's CPU time do not.

mod baseline;
mod load;
mod measure;
mod pods;
mod table;

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};
use tests::webhook_process::{IMAGE, WebhookAddresses, WebhookProcess};
use tokio::process::Command;
use tokio::runtime;

use baseline::Role;
use measure::Figures;

/// The servers' CPU and the client's CPU.
const CPUS: [usize; 2] = [0, 1];

/// Number of rounds, in which the servers alternate; each figure is the median of all rounds.
const ROUNDS: usize = 3;

fn main() -> Result<()> {
    let mut args = env::args().skip(1);
    let role = args.next().and_then(|arg| Role::of_arg(&arg));
    runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(async {
            match role {
                Some(role) => baseline::serve(role, args).await,
                None => bench().await,
            }
        })
}

async fn bench() -> Result<()> {
    let program = program()?;
    pin(None, CPUS[1])?;
    let (usual, large) = (pods::usual()?, pods::large()?);
    let product_server = start(|addresses| product(&program, addresses)).await?;
    let baseline_server = start(|addresses| reference(Role::Baseline, addresses)).await?;
    let limit_server = start(|addresses| reference(Role::Limit, addresses)).await?;
    let subjects = [&product_server, &baseline_server, &limit_server];
    let mut figures: [Figures; 3] = Default::default();
    for (subject, figures) in subjects.into_iter().zip(&mut figures) {
        figures.memory(subject, &usual).await?;
    }
    for round in 1..=ROUNDS {
        eprintln!("round {round} of {ROUNDS}");
        for (subject, figures) in subjects.into_iter().zip(&mut figures) {
            figures.usual_throughput.round(subject, &usual).await?;
            figures.large_throughput.round(subject, &large).await?;
            figures.latency(subject, &usual).await?;
        }
    }
    table::print(&figures, &usual, &large);
    Ok(())
}

/// Returns the webhook's release binary: the one that `ENVOY_DRAINER` names, or the one that `make bench`
/// builds for this machine.
fn program() -> Result<PathBuf> {
    let default_path = || {
        let target = format!("../target/{}-unknown-linux-gnu", env::consts::ARCH);
        let target = Path::new(env!("CARGO_MANIFEST_DIR")).join(target);
        target.join("release/envoy-drainer")
    };
    let program = env::var_os("ENVOY_DRAINER").map_or_else(default_path, PathBuf::from);
    ensure!(
        program.is_file(),
        "{} does not exist: run `make images`",
        program.display()
    );
    Ok(program)
}

/// Starts a server by this command, pinned to its CPU. Its log is formatted and discarded.
async fn start(command: impl FnOnce(&WebhookAddresses) -> Command) -> Result<WebhookProcess> {
    let server = WebhookProcess::run(Some(Path::new("/dev/null")), command).await?;
    pin(Pid::from_raw(server.process.pid()), CPUS[0])?;
    Ok(server)
}

fn product(program: &PathBuf, addresses: &WebhookAddresses) -> Command {
    let mut command = Command::new(program);
    command.args(addresses.serve_args(IMAGE));
    command
}

fn reference(role: Role, addresses: &WebhookAddresses) -> Command {
    let WebhookAddresses {
        tls,
        health,
        metrics,
        ca_file,
        ..
    } = addresses;
    let this = env::current_exe().unwrap_or_else(|_| "/proc/self/exe".into());
    let mut command = Command::new(this);
    let addresses = [tls, health, metrics].map(ToString::to_string);
    command.arg(role.arg()).args(addresses).arg(ca_file);
    command
}

/// Pins a process, by default this one, to one CPU.
fn pin(pid: Option<Pid>, cpu: usize) -> Result<()> {
    let mut cpus = CpuSet::new();
    cpus.set(cpu);
    sched_setaffinity(pid, &cpus).context("pinning a process to a CPU: two are required")
}
