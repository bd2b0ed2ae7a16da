//! A scenario, and what came of it.

use std::fmt;
use std::pin::Pin;

use anyhow::{Error, Result, anyhow};
use tokio::select;
use tokio::time::Instant;

use crate::cluster_fixture::{ClusterFixture, namespaces_of};
use crate::eventually::eventually;
use crate::helm::Helm;
use crate::interrupt::Interrupt;
use crate::kubectl::kubectl;
use crate::report_table::ScenarioResult;

/// Something that is to be shown.
pub(crate) struct Scenario {
    /// What it shows.
    pub(crate) name: &'static str,
    /// The same in a word, which its namespace is called after.
    pub(crate) slug: &'static str,
    /// Whose webhook sees its pods.
    pub(crate) webhook: WebhookScope,
    run: ScenarioFn,
}

/// A scenario's story.
type ScenarioFn =
    for<'a> fn(&'a ClusterFixture<'a>) -> Pin<Box<dyn Future<Output = Result<()>> + 'a>>;

/// Whose webhook sees the pods of a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WebhookScope {
    /// That of the release which all share.
    Shared,
    /// That of its own release, if it has one.
    Dedicated,
}

/// What a scenario came to.
#[derive(Debug)]
pub(crate) enum ScenarioOutcome {
    /// It showed what its name says.
    Passed,
    /// It showed nothing, for want of a program that was not asked for.
    Skipped(Error),
    /// It showed nothing, since the load could not be what it should be.
    Inconclusive(Error),
    /// It showed something else.
    Failed(Error),
}

/// Too few requests were sent: nothing was shown, neither well nor ill.
#[derive(Debug)]
pub(crate) struct Inconclusive(pub(crate) String);

/// What the scenario is about is not here.
#[derive(Debug)]
pub(crate) struct Skipped(pub(crate) &'static str);

// === impl Scenario ===

impl Scenario {
    /// A scenario in the release that all share.
    pub(crate) const fn shared(name: &'static str, about: &'static str, run: ScenarioFn) -> Self {
        let webhook = WebhookScope::Shared;
        Self {
            name,
            slug: about,
            webhook,
            run,
        }
    }

    /// A scenario with a release of its own.
    pub(crate) const fn isolated(name: &'static str, about: &'static str, run: ScenarioFn) -> Self {
        let webhook = WebhookScope::Dedicated;
        Self {
            name,
            slug: about,
            webhook,
            run,
        }
    }

    /// Runs it, and once more if that showed nothing.
    pub(crate) async fn run_with_retry(
        &self,
        helm: &Helm,
        others: &[String],
        interrupt: &Interrupt,
    ) -> ScenarioResult {
        let first = self.run_once(helm, others, interrupt).await;
        if !matches!(first.outcome, ScenarioOutcome::Inconclusive(_)) || interrupt.is_requested() {
            return first;
        }
        println!("{}: void, once more", self.name);
        let mut again = match self.wait_until_gone().await {
            Ok(()) => self.run_once(helm, others, interrupt).await,
            Err(_) => return first,
        };
        again.report.add_row("repeated", "a first run was void");
        again
    }

    async fn run_once(
        &self,
        helm: &Helm,
        others: &[String],
        interrupt: &Interrupt,
    ) -> ScenarioResult {
        println!("{} …", self.name);
        let started = Instant::now();
        let stage = ClusterFixture::new(self.slug, helm, others);
        let done = select! {
            done = (self.run)(&stage) => done,
            () = interrupt.wait() => Err(anyhow!("interrupted")),
        };
        let took = started.elapsed();
        let verdict = ScenarioOutcome::from_result(done);
        if let (ScenarioOutcome::Failed(error), false) = (&verdict, interrupt.is_requested()) {
            println!("{} failed: {error:#}", self.name);
            println!("{}", stage.diagnostics().await);
        }
        let verdict = verdict.combine(stage.clean_up().await);
        println!("{} {verdict}, {} s", self.name, took.as_secs());
        ScenarioResult {
            name: self.name,
            outcome: verdict,
            elapsed: took,
            report: stage.report.into_inner(),
        }
    }

    /// Waits until nothing is left of it.
    async fn wait_until_gone(&self) -> Result<()> {
        let own = namespaces_of(self.slug);
        let release = format!("{}-webhook", own[0]);
        eventually("its namespaces are gone", || async {
            let left = kubectl(&["get", "namespaces", "--output", "name"]).await?;
            let mut names = left.lines().filter_map(|line| line.split_once('/'));
            Ok(!names.any(|(_, left)| left == release || own.iter().any(|name| left == name)))
        })
        .await
    }
}

// === impl Verdict ===

impl ScenarioOutcome {
    fn from_result(done: Result<()>) -> Self {
        match done {
            Ok(()) => Self::Passed,
            Err(error) if error.is::<Inconclusive>() => Self::Inconclusive(error),
            Err(error) if error.is::<Skipped>() => Self::Skipped(error),
            Err(error) => Self::Failed(error),
        }
    }

    /// The same, unless what came afterwards makes it worse.
    fn combine(self, afterwards: Result<()>) -> Self {
        match (self, afterwards) {
            (Self::Passed | Self::Skipped(_) | Self::Inconclusive(_), Err(error)) => {
                Self::Failed(error)
            }
            (verdict, _) => verdict,
        }
    }

    /// Whether all is well as far as it was asked for.
    pub(crate) fn is_success(&self) -> bool {
        matches!(self, Self::Passed | Self::Skipped(_))
    }

    /// Why it is not simply good.
    pub(crate) fn reason(&self) -> Option<String> {
        match self {
            Self::Passed => None,
            Self::Skipped(error) | Self::Inconclusive(error) | Self::Failed(error) => {
                Some(format!("{error:#}"))
            }
        }
    }
}

impl fmt::Display for ScenarioOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Passed => "passed",
            Self::Skipped(_) => "skipped",
            Self::Inconclusive(_) => "VOID",
            Self::Failed(_) => "FAILED",
        })
    }
}

// === impl Void ===

impl fmt::Display for Inconclusive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "void, too few requests were sent:\n{}", self.0)
    }
}

impl std::error::Error for Inconclusive {}

// === impl Skipped ===

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Skipped {}
