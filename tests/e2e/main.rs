//! The proof in a real cluster: kubelet, kube-proxy, Envoys, drainers, and a load that never retries.
//!
//! `make e2e` runs every scenario, `make e2e ONLY=rollouts` those whose names hold that word.

mod deletions;
mod echo;
mod edge;
mod evictions;
mod images;
mod installed;
mod jobs;
mod kubectl;
mod lag;
mod last_words;
mod live;
mod namespace;
mod restricted;
mod rollouts;
mod scale;
mod service;
mod shapes;
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
    ALagOf15sLosesNothing,
    ScalingLosesNothing,
    EvictionsLoseNothing,
    DeletionsWithin8sLoseNoRequestOf5s,
    ANewDrainerLeavesEnvoyAlone,
    AnEnvoyThatFailsItsProbeIsRestartedWithin15s,
    PodsOfAllShapesLoseNothing,
    JobsEndWithin3sOfTheirWork,
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
    const ALL: [Self; 10] = [
        Self::RolloutsLoseNothing,
        Self::RolloutsWithoutADrainerLoseOfEachKind,
        Self::ALagOf15sLosesNothing,
        Self::ScalingLosesNothing,
        Self::EvictionsLoseNothing,
        Self::DeletionsWithin8sLoseNoRequestOf5s,
        Self::ANewDrainerLeavesEnvoyAlone,
        Self::AnEnvoyThatFailsItsProbeIsRestartedWithin15s,
        Self::PodsOfAllShapesLoseNothing,
        Self::JobsEndWithin3sOfTheirWork,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::RolloutsLoseNothing => "rollouts lose nothing",
            Self::RolloutsWithoutADrainerLoseOfEachKind => {
                "rollouts without a drainer lose of each kind"
            }
            Self::ALagOf15sLosesNothing => "rollouts behind endpoints 15 s late lose nothing",
            Self::ScalingLosesNothing => "scaling down and up loses nothing",
            Self::EvictionsLoseNothing => "evictions lose nothing",
            Self::DeletionsWithin8sLoseNoRequestOf5s => {
                "deletions within 8 s lose no request of 5 s"
            }
            Self::ANewDrainerLeavesEnvoyAlone => "a new drainer leaves Envoy alone",
            Self::AnEnvoyThatFailsItsProbeIsRestartedWithin15s => {
                "an Envoy that fails its liveness probe is restarted within 15 s"
            }
            Self::PodsOfAllShapesLoseNothing => "pods of all shapes lose nothing",
            Self::JobsEndWithin3sOfTheirWork => "jobs end within 3 s of their work",
        }
    }

    async fn run(self, table: &mut Table) -> Result<()> {
        match self {
            Self::RolloutsLoseNothing => rollouts::lose_nothing(table).await,
            Self::RolloutsWithoutADrainerLoseOfEachKind => {
                rollouts::without_a_drainer_lose_of_each_kind(table).await
            }
            Self::ALagOf15sLosesNothing => lag::of_15_s_loses_nothing(table).await,
            Self::ScalingLosesNothing => scale::down_and_up_loses_nothing(table).await,
            Self::EvictionsLoseNothing => evictions::lose_nothing(table).await,
            Self::DeletionsWithin8sLoseNoRequestOf5s => {
                deletions::within_8_s_lose_no_request_of_5_s(table).await
            }
            Self::ANewDrainerLeavesEnvoyAlone => {
                live::a_new_drainer_leaves_envoy_alone(table).await
            }
            Self::AnEnvoyThatFailsItsProbeIsRestartedWithin15s => {
                live::an_envoy_that_fails_its_probe_is_restarted_within_15_s(table).await
            }
            Self::PodsOfAllShapesLoseNothing => shapes::all_lose_nothing(table).await,
            Self::JobsEndWithin3sOfTheirWork => jobs::end_within_3_s_of_their_work(table).await,
        }
    }
}
