//! A scenario, and what came of it.

use std::fmt;
use std::pin::Pin;

use anyhow::{Error, Result, anyhow};
use tokio::select;
use tokio::time::Instant;

use crate::eventually::eventually;
use crate::helm::Helm;
use crate::interrupt::Interrupt;
use crate::kubectl::kubectl;
use crate::stage::{Stage, namespaces_of};
use crate::table::Entry;

/// Something that is to be shown.
pub(crate) struct Scenario {
    /// What it shows.
    pub(crate) name: &'static str,
    /// The same in a word, which its namespace is called after.
    pub(crate) about: &'static str,
    /// Whose webhook sees its pods.
    pub(crate) webhook: Webhook,
    run: Run,
}

/// A scenario's story.
type Run = for<'a> fn(&'a Stage<'a>) -> Pin<Box<dyn Future<Output = Result<()>> + 'a>>;

/// Whose webhook sees the pods of a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Webhook {
    /// That of the release which all share.
    Shared,
    /// That of its own release, if it has one.
    Own,
}

/// What a scenario came to.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// It showed what its name says.
    Passed,
    /// It showed nothing, for want of a program that was not asked for.
    Skipped(Error),
    /// It showed nothing, since the load could not be what it should be.
    Void(Error),
    /// It showed something else.
    Failed(Error),
}

/// Too few requests were sent: nothing was shown, neither well nor ill.
#[derive(Debug)]
pub(crate) struct Void(pub(crate) String);

/// What the scenario is about is not here.
#[derive(Debug)]
pub(crate) struct Skipped(pub(crate) &'static str);

// === impl Scenario ===

impl Scenario {
    /// A scenario in the release that all share.
    pub(crate) const fn shared(name: &'static str, about: &'static str, run: Run) -> Self {
        let webhook = Webhook::Shared;
        Self {
            name,
            about,
            webhook,
            run,
        }
    }

    /// A scenario with a release of its own.
    pub(crate) const fn alone(name: &'static str, about: &'static str, run: Run) -> Self {
        let webhook = Webhook::Own;
        Self {
            name,
            about,
            webhook,
            run,
        }
    }

    /// Runs it, and once more if that showed nothing.
    pub(crate) async fn perform(
        &self,
        helm: &Helm,
        others: &[String],
        interrupt: &Interrupt,
    ) -> Entry {
        let first = self.once(helm, others, interrupt).await;
        if !matches!(first.verdict, Verdict::Void(_)) || interrupt.is_asked() {
            return first;
        }
        println!("{}: void, once more", self.name);
        let mut again = match self.gone().await {
            Ok(()) => self.once(helm, others, interrupt).await,
            Err(_) => return first,
        };
        again.sheet.row("repeated", "a first run was void");
        again
    }

    async fn once(&self, helm: &Helm, others: &[String], interrupt: &Interrupt) -> Entry {
        println!("{} …", self.name);
        let started = Instant::now();
        let stage = Stage::new(self.about, helm, others);
        let done = select! {
            done = (self.run)(&stage) => done,
            () = interrupt.asked() => Err(anyhow!("interrupted")),
        };
        let took = started.elapsed();
        let verdict = Verdict::of(done);
        if let (Verdict::Failed(error), false) = (&verdict, interrupt.is_asked()) {
            println!("{} failed: {error:#}", self.name);
            println!("{}", stage.all_it_can_tell().await);
        }
        let verdict = verdict.and(stage.clear().await);
        println!("{} {verdict}, {} s", self.name, took.as_secs());
        Entry {
            name: self.name,
            verdict,
            took,
            sheet: stage.sheet.into_inner(),
        }
    }

    /// Waits until nothing is left of it.
    async fn gone(&self) -> Result<()> {
        let own = namespaces_of(self.about);
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

impl Verdict {
    fn of(done: Result<()>) -> Self {
        match done {
            Ok(()) => Self::Passed,
            Err(error) if error.is::<Void>() => Self::Void(error),
            Err(error) if error.is::<Skipped>() => Self::Skipped(error),
            Err(error) => Self::Failed(error),
        }
    }

    /// The same, unless what came afterwards makes it worse.
    fn and(self, afterwards: Result<()>) -> Self {
        match (self, afterwards) {
            (Self::Passed | Self::Skipped(_) | Self::Void(_), Err(error)) => Self::Failed(error),
            (verdict, _) => verdict,
        }
    }

    /// Whether all is well as far as it was asked for.
    pub(crate) fn is_good(&self) -> bool {
        matches!(self, Self::Passed | Self::Skipped(_))
    }

    /// Why it is not simply good.
    pub(crate) fn why(&self) -> Option<String> {
        match self {
            Self::Passed => None,
            Self::Skipped(error) | Self::Void(error) | Self::Failed(error) => {
                Some(format!("{error:#}"))
            }
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Passed => "passed",
            Self::Skipped(_) => "skipped",
            Self::Void(_) => "VOID",
            Self::Failed(_) => "FAILED",
        })
    }
}

// === impl Void ===

impl fmt::Display for Void {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "void, too few requests were sent:\n{}", self.0)
    }
}

impl std::error::Error for Void {}

// === impl Skipped ===

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Skipped {}
