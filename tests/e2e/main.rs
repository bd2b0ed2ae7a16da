//! The proof in a real cluster: kubelet, kube-proxy, Envoys, the chart with its webhook, drainers, and
//! a load that never retries.
//!
//! `make e2e` runs every scenario, `make e2e ONLY=rollouts` those that are called so or hold that word
//! in their names.

mod admissions;
mod cluster_fixture;
mod command;
mod debug_container;
mod echo;
mod edge;
mod eventually;
mod helm;
mod images;
mod interrupt;
mod kubectl;
mod namespace;
mod prerequisites;
mod release;
mod report;
mod report_table;
mod restricted;
mod scenario;
mod scenarios;
mod service;
mod termination_message;
mod traffic;

use std::env;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::json;
use tokio::time::Instant;
use tokio::{join, runtime, select};

use cluster_fixture::{ClusterFixture, namespaces_of};
use eventually::eventually;
use helm::Helm;
use interrupt::Interrupt;
use kubectl::kubectl;
use report_table::{ReportTable, ScenarioResult};
use scenario::{Scenario, WebhookScope};
use scenarios::LANES;

/// The release that most scenarios share, and the beginning of every name that this run gives.
const PREFIX: &str = "envoy-drainer-e2e";

fn main() -> ExitCode {
    let asked: Vec<_> = env::args().skip(1).collect();
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let done = runtime
        .context("starting the runtime")
        .and_then(|runtime| runtime.block_on(run(&asked)));
    done.unwrap_or_else(|error| {
        eprintln!("{error:#}");
        ExitCode::FAILURE
    })
}

async fn run(asked: &[String]) -> Result<ExitCode> {
    let interrupt = Interrupt::listen()?;
    let lanes = LANES.map(|lane| select_scenarios(lane, asked));
    let mut all = lanes.iter().flatten();
    ensure!(
        all.clone().count() > 0,
        "no scenario's name holds {asked:?}"
    );
    let helm = prerequisites::check_all().await?;
    prerequisites::ensure_no_leftovers(&helm).await?;
    images::load_images().await?;

    let started = Instant::now();
    let alone = namespaces(|scenario| scenario.webhook == WebhookScope::Dedicated);
    let shared = ClusterFixture::new("shared", &helm, &alone);
    let install = async {
        if all.any(|scenario| scenario.webhook == WebhookScope::Shared) {
            let release = shared.prepare_release(&helm, PREFIX).await?;
            let namespace = shared.namespace().await?;
            release.install(json!({}), &namespace).await?;
        }
        Ok(())
    };
    let installed = select! {
        installed = install => installed,
        () = interrupt.wait() => Err(anyhow!("interrupted")),
    };
    let mut table = ReportTable::default();
    if installed.is_ok() {
        let [heavy, light, created] = lanes.map(|lane| run_lane(lane, &helm, &interrupt));
        let (heavy, light, created) = join!(heavy, light, created);
        table.add(heavy.into_iter().chain(light).chain(created));
    }
    let is_good = installed.is_ok() && table.is_success() && !interrupt.is_requested();
    if !is_good && !interrupt.is_requested() {
        println!("{}", shared.diagnostics().await);
    }
    let cleared = shared.clean_up().await.and(wait_until_gone().await);
    println!("\n{table}{} s in all", started.elapsed().as_secs());
    installed.and(cleared)?;
    Ok(if is_good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The scenarios of a lane whose names hold one of the words; all if there is none.
fn select_scenarios(lane: &'static [Scenario], words: &[String]) -> Vec<&'static Scenario> {
    let is_asked = |scenario: &&Scenario| {
        let is_in = |word: &String| scenario.name.contains(&**word) || scenario.slug == word;
        words.is_empty() || words.iter().any(is_in)
    };
    lane.iter().filter(is_asked).collect()
}

/// The namespaces of these scenarios.
fn namespaces(of: impl Fn(&Scenario) -> bool) -> Vec<String> {
    let scenarios = LANES.into_iter().flatten().filter(|scenario| of(scenario));
    scenarios
        .flat_map(|scenario| namespaces_of(scenario.slug))
        .collect()
}

async fn run_lane(lane: Vec<&Scenario>, helm: &Helm, interrupt: &Interrupt) -> Vec<ScenarioResult> {
    let mut entries = Vec::new();
    for scenario in lane {
        if interrupt.is_requested() {
            break;
        }
        let others = namespaces(|other| other.slug != scenario.slug);
        entries.push(scenario.run_with_retry(helm, &others, interrupt).await);
    }
    entries
}

/// Waits until the namespaces of this run are gone.
async fn wait_until_gone() -> Result<()> {
    eventually("all namespaces of this run are gone", || async {
        let left = kubectl(&["get", "namespaces", "--output", "name"]).await?;
        Ok(!left.contains(PREFIX))
    })
    .await
}
