//! Measures the cost of an admission, over TLS on one CPU, and compares it with a straightforward webhook
//! on the same server. Figures per second of wall time need an idle machine; those per second of the
//! server's CPU time do not.

mod baseline;
mod load;
mod measure;
mod pods;
mod subject;
mod table;

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use tests::review::IMAGE;
use tokio::process::Command;
use tokio::runtime;

use measure::Figures;
use subject::{ServerAddresses, ServerProcess, pin};

/// The servers' CPU and the client's CPU.
const CPUS: [usize; 2] = [0, 1];

/// Number of rounds, in which the servers alternate; each figure is the median of all rounds.
const ROUNDS: usize = 3;

fn main() -> Result<()> {
    let mut args = env::args().skip(1);
    let is_baseline = args.next().is_some_and(|role| role == baseline::ROLE);
    runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(async {
            if is_baseline {
                baseline::serve(args).await
            } else {
                bench().await
            }
        })
}

async fn bench() -> Result<()> {
    let program = program()?;
    pin(None, CPUS[1]).context("two CPUs are required")?;
    let (usual, large) = (pods::usual()?, pods::large()?);
    let product_server =
        ServerProcess::start(CPUS[0], |addresses| product(&program, addresses)).await?;
    let baseline_server = ServerProcess::start(CPUS[0], baseline).await?;
    let subjects = [&product_server, &baseline_server];
    let mut figures = [Figures::default(), Figures::default()];
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
    let [product_figures, baseline_figures] = figures;
    table::print(&product_figures, &baseline_figures, &usual, &large);
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

fn product(program: &PathBuf, addresses: &ServerAddresses<'_>) -> Command {
    let mut command = Command::new(program);
    command
        .args(["serve", "--image", IMAGE, "--tls-name", "localhost"])
        .args([
            "--listen",
            addresses.tls,
            "--health-listen",
            addresses.health,
        ])
        .args(["--metrics-listen", addresses.metrics])
        .arg("--tls-ca-out")
        .arg(addresses.ca_file);
    command
}

fn baseline(addresses: &ServerAddresses<'_>) -> Command {
    let this = env::current_exe().unwrap_or_else(|_| "/proc/self/exe".into());
    let mut command = Command::new(this);
    command
        .args([
            baseline::ROLE,
            addresses.tls,
            addresses.health,
            addresses.metrics,
        ])
        .arg(addresses.ca_file);
    command
}
