//! What happened to a pod, and when.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// What happened so far. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Timeline(Arc<Mutex<Vec<Event>>>);

/// A pod's end.
#[derive(Debug, Clone)]
pub struct PodTermination {
    /// When it began.
    pub start: Instant,
    /// How long it took until the last container was gone.
    pub elapsed: Duration,
    /// What happened, before the end too.
    pub timeline: Timeline,
}

/// One step in a container's life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// When.
    pub at: Instant,
    /// The container.
    pub container: String,
    /// What.
    pub step: Step,
    /// The hook's error, the exit status; empty where there is no more to say.
    pub detail: String,
}

/// The steps of a container's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Its process was started.
    Started,
    /// Its preStop hook was called.
    HookStarted,
    /// Its preStop hook has returned.
    HookReturned,
    /// Its preStop hook has failed, or the grace was over before it returned.
    HookFailed,
    /// Its process was asked to end.
    Sigterm,
    /// Its process was killed.
    Sigkill,
    /// Its process has ended.
    Exited,
}

// === impl Timeline ===

impl Timeline {
    /// All events, in their order.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        self.lock().clone()
    }

    /// How often a container came to a step.
    #[must_use]
    pub fn count(&self, container: &str, step: Step) -> usize {
        let is = |event: &&Event| event.container == container && event.step == step;
        self.lock().iter().filter(is).count()
    }

    pub(super) fn record(&self, container: &str, step: Step, detail: impl Into<String>) {
        self.lock().push(Event {
            at: Instant::now(),
            container: container.to_owned(),
            step,
            detail: detail.into(),
        });
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Event>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl End ===

impl PodTermination {
    /// How far into the end a container came to a step; `None` if it did not.
    #[must_use]
    pub fn time_of(&self, container: &str, step: Step) -> Option<Duration> {
        let events = self.timeline.lock();
        let is = |event: &&Event| event.container == container && event.step == step;
        let event = events
            .iter()
            .filter(is)
            .find(|event| event.at >= self.start);
        event.map(|event| event.at - self.start)
    }
}

impl fmt::Display for Timeline {
    /// A line for each event, with the seconds since the first.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let events = self.events();
        for event in &events {
            let at = event.at.saturating_duration_since(events[0].at);
            let Event {
                container,
                step,
                detail,
                ..
            } = event;
            writeln!(
                f,
                "{:8.3} s {container}: {step:?} {detail}",
                at.as_secs_f64()
            )?;
        }
        Ok(())
    }
}
