//! End-to-end tests in a real cluster, with kubelet, kube-proxy, Envoys, the chart with its webhook,
//! drainers, and a load generator that never retries.
//!
//! `make e2e` runs every scenario, `make e2e ONLY=rollouts` those with that slug or with that word in
//! their names; `make soak` runs the [soak] instead.

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
mod metrics;
mod namespace;
mod outcome;
mod prerequisites;
mod release;
mod report;
mod report_table;
mod restricted;
mod scenario;
mod scenarios;
mod service;
mod soak;
mod termination_message;
mod traffic;

use std::env;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::json;
use tokio::time::Instant;
use tokio::{join, runtime, select};

use cluster_fixture::{ClusterFixture, namespace_of};
use helm::Helm;
use interrupt::Interrupt;
use namespace::{PREFIX, wait_until_gone};
use report_table::{ReportTable, ScenarioResult};
use scenario::{Scenario, WebhookScope};
use scenarios::PARALLEL_GROUPS;

fn main() -> ExitCode {
    let words: Vec<_> = env::args().skip(1).collect();
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let result = runtime
        .context("starting the runtime")
        .and_then(|runtime| match &words[..] {
            [flag, minutes] if flag == "--soak" => runtime.block_on(soak::run(minutes)),
            words => runtime.block_on(run(words)),
        });
    result.unwrap_or_else(|error| {
        eprintln!("{error:#}");
        ExitCode::FAILURE
    })
}

async fn run(words: &[String]) -> Result<ExitCode> {
    let interrupt = Interrupt::listen()?;
    let groups = PARALLEL_GROUPS.map(|group| select_scenarios(group, words));
    let mut all = groups.iter().flatten();
    ensure!(
        all.clone().count() > 0,
        "no scenario's name contains any of {words:?}"
    );
    let helm = prerequisites::check_all().await?;
    prerequisites::ensure_no_leftovers(&helm).await?;
    images::load_images().await?;

    let started = Instant::now();
    let dedicated = namespaces(|scenario| scenario.webhook == WebhookScope::Dedicated);
    let shared = ClusterFixture::new("shared", &helm, &dedicated);
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
        let groups = groups.map(|group| run_group(group, &helm, &interrupt));
        let [heavy, endpoints, light, admission] = groups;
        let (heavy, endpoints, light, admission) = join!(heavy, endpoints, light, admission);
        let results = [heavy, endpoints, light, admission];
        table.add(results.into_iter().flatten());
    }
    let is_success = installed.is_ok() && table.is_success() && !interrupt.is_requested();
    if !is_success && !interrupt.is_requested() {
        println!("{}", shared.diagnostics().await);
    }
    let cleanup = shared.clean_up().await.and(wait_until_gone().await);
    println!("\n{table}{} s in total", started.elapsed().as_secs());
    installed.and(cleanup)?;
    Ok(if is_success {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Returns the scenarios of a group whose slugs begin with one of the words, or whose names have one; all without words.
fn select_scenarios(group: &'static [Scenario], words: &[String]) -> Vec<&'static Scenario> {
    let is_selected = |scenario: &&Scenario| {
        let matches =
            |word: &String| scenario.name.contains(&**word) || scenario.slug.starts_with(&**word);
        words.is_empty() || words.iter().any(matches)
    };
    group.iter().filter(is_selected).collect()
}

/// Returns the namespaces of the scenarios for which `predicate` is true.
fn namespaces(predicate: impl Fn(&Scenario) -> bool) -> Vec<String> {
    let scenarios = PARALLEL_GROUPS.into_iter().flatten();
    let scenarios = scenarios.filter(|scenario| predicate(scenario));
    scenarios
        .map(|scenario| namespace_of(scenario.slug))
        .collect()
}

async fn run_group(
    group: Vec<&Scenario>,
    helm: &Helm,
    interrupt: &Interrupt,
) -> Vec<ScenarioResult> {
    let mut entries = Vec::new();
    for scenario in group {
        if interrupt.is_requested() {
            break;
        }
        let other_namespaces = namespaces(|other| other.slug != scenario.slug);
        entries.push(
            scenario
                .run_with_retry(helm, &other_namespaces, interrupt)
                .await,
        );
    }
    entries
}
