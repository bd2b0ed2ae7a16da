//! `make terminations`: ends real Envoys by the shipped drainer, under load and with faults, each from a seed and in a
//! network namespace of its own, and prints those in which a request was lost. With `RECORD`, it adds the result to
//! `docs/measured/terminations.json`.

mod scenario;
mod termination;

use std::env;
use std::ops::Range;
use std::path::Path;
use std::process::{ExitCode, Stdio};

use anyhow::{Context, Result, ensure};
use futures_util::{StreamExt, stream};
use tests::binaries;
use tests::termination_report::TerminationRun;
use tokio::process::Command;

use scenario::Scenario;
use termination::TerminationResult;

/// How many run at once by default: most of a termination is waiting.
const PARALLEL: usize = 6;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode> {
    let args: Vec<_> = env::args().skip(1).collect();
    if let [flag, seed] = &args[..]
        && flag == "--inside"
    {
        let result = termination::run(&Scenario::new(seed.parse()?)).await?;
        println!("{}", serde_json::to_string(&result)?);
        return Ok(ExitCode::SUCCESS);
    }
    let seeds = parse_seeds(&args).context("usage: terminations FIRST COUNT [PARALLEL]")?;
    let parallel = args.get(2).map_or(Ok(PARALLEL), |number| number.parse())?;
    run_all(seeds, parallel).await
}

fn parse_seeds(args: &[String]) -> Result<Range<u64>> {
    let [first, count, ..] = args else {
        anyhow::bail!("two numbers are missing");
    };
    let (first, count): (u64, u64) = (first.parse()?, count.parse()?);
    Ok(first..first + count)
}

/// Runs the terminations of all seeds, and prints a line for each.
async fn run_all(seeds: Range<u64>, parallel: usize) -> Result<ExitCode> {
    let drainer = binaries::drainer()?;
    let records = env::var_os("RECORD").is_some();
    let mut run = if records {
        TerminationRun::new(seeds.start)?
    } else {
        TerminationRun::default()
    };
    let runs = stream::iter(seeds).map(|seed| {
        let drainer = &drainer;
        async move { (seed, run_in_namespace(seed, drainer).await) }
    });
    let mut runs = runs.buffer_unordered(parallel);
    while let Some((seed, result)) = runs.next().await {
        match result {
            Ok(result) => {
                run.terminations += 1;
                run.requests += result.sent;
                println!("{result}");
                if result.failed > 0 {
                    println!("{}", result.details);
                    run.lossy.push(seed);
                    run.after_quiet
                        .extend(result.came_after_quiet.then_some(seed));
                }
            }
            Err(error) => {
                println!("{seed}: no result: {error:#}");
                run.without_result.push(seed);
            }
        }
    }
    println!("{run:?}");
    let is_fine = run.lossy == run.after_quiet && run.without_result.is_empty();
    if records {
        run.record()?;
    }
    Ok(if is_fine {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Runs one termination in a process and a network namespace of its own.
async fn run_in_namespace(seed: u64, drainer: &Path) -> Result<TerminationResult> {
    let script = r#"ip link set lo up && exec "$@""#;
    let output = Command::new("unshare")
        .args(["--map-root-user", "--net", "sh", "-c", script, "sh"])
        .arg(env::current_exe()?)
        .args(["--inside", &seed.to_string()])
        .env("DRAINER", drainer)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {error}", output.status);
    let line = String::from_utf8(output.stdout)?;
    serde_json::from_str(&line).with_context(|| format!("{line}{error}"))
}
