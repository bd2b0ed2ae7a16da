//! What an admission costs: over TLS, on one CPU, beside a straightforward webhook on the same
//! server. Figures by the clock want an idle machine; those by the server's CPU time do not.

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

/// The CPU of the servers, and the client's.
const CPUS: [usize; 2] = [0, 1];

/// Each figure is the median of so many rounds, in which the servers take turns.
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
    pin(None, CPUS[1]).context("two CPUs are wanted")?;
    let (usual, large) = (pods::usual()?, pods::large()?);
    let ours = ServerProcess::start(CPUS[0], |place| product(&program, place)).await?;
    let theirs = ServerProcess::start(CPUS[0], baseline).await?;
    let subjects = [&ours, &theirs];
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
    let [ours, theirs] = figures;
    table::print(&ours, &theirs, &usual, &large);
    Ok(())
}

/// The program as its image holds it: the binary that `ENVOY_DRAINER` names, else the one that
/// `make bench` builds for this machine.
fn program() -> Result<PathBuf> {
    let shipped = || {
        let target = format!("../target/{}-unknown-linux-gnu", env::consts::ARCH);
        let target = Path::new(env!("CARGO_MANIFEST_DIR")).join(target);
        target.join("release/envoy-drainer")
    };
    let program = env::var_os("ENVOY_DRAINER").map_or_else(shipped, PathBuf::from);
    ensure!(
        program.is_file(),
        "{} is not there: run `make images`",
        program.display()
    );
    Ok(program)
}

fn product(program: &PathBuf, place: &ServerAddresses<'_>) -> Command {
    let mut command = Command::new(program);
    command
        .args(["serve", "--image", IMAGE, "--tls-name", "localhost"])
        .args(["--listen", place.tls, "--health-listen", place.health])
        .args(["--metrics-listen", place.metrics])
        .arg("--tls-ca-out")
        .arg(place.ca_file);
    command
}

fn baseline(place: &ServerAddresses<'_>) -> Command {
    let this = env::current_exe().unwrap_or_else(|_| "/proc/self/exe".into());
    let mut command = Command::new(this);
    command
        .args([baseline::ROLE, place.tls, place.health, place.metrics])
        .arg(place.ca_file);
    command
}
