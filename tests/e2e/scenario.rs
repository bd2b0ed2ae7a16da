//! A scenario: its claim and its steps.

use std::pin::Pin;

use anyhow::{Result, anyhow};
use tokio::select;
use tokio::time::Instant;

use crate::cluster_fixture::{ClusterFixture, namespace_of};
use crate::eventually::eventually;
use crate::helm::Helm;
use crate::interrupt::Interrupt;
use crate::kubectl::kubectl;
use crate::outcome::ScenarioOutcome;
use crate::report_table::ScenarioResult;

/// A claim about the product, and the steps in a cluster that verify it.
pub(crate) struct Scenario {
    /// The claim.
    pub(crate) name: &'static str,
    /// The claim in a word, which is part of the names of its namespaces.
    pub(crate) slug: &'static str,
    /// The release whose webhook admits its pods.
    pub(crate) webhook: WebhookScope,
    /// Its steps.
    pub(crate) run: ScenarioFn,
}

/// The steps of a scenario.
pub(crate) type ScenarioFn =
    for<'a> fn(&'a ClusterFixture<'a>) -> Pin<Box<dyn Future<Output = Result<()>> + 'a>>;

/// The release whose webhook admits the pods of a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WebhookScope {
    /// The release that most scenarios share.
    Shared,
    /// The scenario's own release, if it installs one.
    Dedicated,
}

// === impl Scenario ===

impl Scenario {
    /// Runs the scenario; once more if the first run is inconclusive.
    pub(crate) async fn run_with_retry(
        &self,
        helm: &Helm,
        other_namespaces: &[String],
        interrupt: &Interrupt,
    ) -> ScenarioResult {
        let first = self.run_once(helm, other_namespaces, interrupt).await;
        if !matches!(first.outcome, ScenarioOutcome::Inconclusive(_)) || interrupt.is_requested() {
            return first;
        }
        println!("{}: inconclusive, running it again", self.title());
        let mut second = match self.wait_until_gone().await {
            Ok(()) => self.run_once(helm, other_namespaces, interrupt).await,
            Err(_) => return first,
        };
        second
            .report
            .add_row("repeated", "the first run was inconclusive");
        second
    }

    /// The slug, which is in each row, and the claim.
    fn title(&self) -> String {
        format!("[{}] {}", self.slug, self.name)
    }

    async fn run_once(
        &self,
        helm: &Helm,
        other_namespaces: &[String],
        interrupt: &Interrupt,
    ) -> ScenarioResult {
        println!("started {}", self.title());
        let started = Instant::now();
        let fixture = ClusterFixture::new(self.slug, helm, other_namespaces);
        let result = select! {
            result = (self.run)(&fixture) => result,
            () = interrupt.wait() => Err(anyhow!("interrupted")),
        };
        let elapsed = started.elapsed();
        let outcome = ScenarioOutcome::from_result(result);
        if let (ScenarioOutcome::Failed(error), false) = (&outcome, interrupt.is_requested()) {
            println!("failed {}: {error:#}", self.title());
            println!("{}", fixture.diagnostics().await);
        }
        let outcome = outcome.and_cleanup(fixture.clean_up().await);
        println!("{outcome} {}, {} s", self.title(), elapsed.as_secs());
        ScenarioResult {
            name: self.name,
            outcome,
            elapsed,
            report: fixture.report.into_inner(),
        }
    }

    /// Waits until the scenario's namespaces are deleted.
    async fn wait_until_gone(&self) -> Result<()> {
        let own = namespace_of(self.slug);
        let release = format!("{own}-webhook");
        eventually("the scenario's namespaces are deleted", || async {
            let existing = kubectl(&["get", "namespaces", "--output", "name"]).await?;
            let mut names = existing.lines().filter_map(|line| line.split_once('/'));
            Ok(!names.any(|(_, name)| name == release || name == own))
        })
        .await
    }
}
