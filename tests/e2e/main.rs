//! The proof in a real cluster: kubelet, kube-proxy, Envoys, drainers, and a load that never retries.
//!
//! `make e2e` runs every scenario, `make e2e E2E=rollouts` those whose names hold that word.

mod deletions;
mod echo;
mod edge;
mod evictions;
mod images;
mod installed;
mod kubectl;
mod last_words;
mod namespace;
mod restricted;
mod rollouts;
mod scale;
mod service;
mod table;
mod traffic;

use std::env;
use std::process::ExitCode;

use anyhow::Result;
use tokio::runtime;

use table::Table;

/// A scenario: its name says what it shows.
#[derive(Debug, Clone, Copy)]
enum Scenario {
    RolloutsLoseNothing,
    RolloutsWithoutADrainerLoseOfEachKind,
    ScalingLosesNothing,
    EvictionsLoseNothing,
    DeletionsWithin8sLoseNoRequestOf5s,
}

fn main() -> Result<ExitCode> {
    let asked: Vec<_> = env::args().skip(1).collect();
    runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(run(&asked))
}

async fn run(asked: &[String]) -> Result<ExitCode> {
    images::load().await?;
    let mut code = ExitCode::SUCCESS;
    let mut table = Table::default();
    for scenario in Scenario::ALL {
        let name = scenario.name();
        if !asked.is_empty() && !asked.iter().any(|word| name.contains(word.as_str())) {
            continue;
        }
        println!("{name} …");
        table.begin(name);
        if let Err(error) = scenario.run(&mut table).await {
            println!("{name} failed: {error:#}");
            table.row("FAILED", format!("{error:#}"));
            code = ExitCode::FAILURE;
        }
    }
    println!("\n{table}");
    Ok(code)
}

// === impl Scenario ===

impl Scenario {
    const ALL: [Self; 5] = [
        Self::RolloutsLoseNothing,
        Self::RolloutsWithoutADrainerLoseOfEachKind,
        Self::ScalingLosesNothing,
        Self::EvictionsLoseNothing,
        Self::DeletionsWithin8sLoseNoRequestOf5s,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::RolloutsLoseNothing => "rollouts lose nothing",
            Self::RolloutsWithoutADrainerLoseOfEachKind => {
                "rollouts without a drainer lose of each kind"
            }
            Self::ScalingLosesNothing => "scaling down and up loses nothing",
            Self::EvictionsLoseNothing => "evictions lose nothing",
            Self::DeletionsWithin8sLoseNoRequestOf5s => "deletions within 8 s lose no request of 5 s",
        }
    }

    async fn run(self, table: &mut Table) -> Result<()> {
        match self {
            Self::RolloutsLoseNothing => rollouts::lose_nothing(table).await,
            Self::RolloutsWithoutADrainerLoseOfEachKind => {
                rollouts::without_a_drainer_lose_of_each_kind(table).await
            }
            Self::ScalingLosesNothing => scale::down_and_up_loses_nothing(table).await,
            Self::EvictionsLoseNothing => evictions::lose_nothing(table).await,
            Self::DeletionsWithin8sLoseNoRequestOf5s => {
                deletions::within_8_s_lose_no_request_of_5_s(table).await
            }
        }
    }
}
