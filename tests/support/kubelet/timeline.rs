//! The events of a pod's containers, with their times.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The events so far; clones share them.
#[derive(Debug, Clone, Default)]
pub struct Timeline(Arc<Mutex<Vec<Event>>>);

/// The termination of a pod.
#[derive(Debug, Clone)]
pub struct PodTermination {
    /// When it started.
    pub start: Instant,
    /// The time until the last container had exited.
    pub elapsed: Duration,
    /// The events of the pod, also from before the termination.
    pub timeline: Timeline,
}

/// One event of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// When it happened.
    pub at: Instant,
    /// The name of the container.
    pub container: String,
    /// What happened.
    pub step: Step,
    /// The hook's command or error, or the exit status; otherwise empty.
    pub detail: String,
}

/// The steps of a container's lifecycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Its process was started.
    Started,
    /// Its preStop hook was called.
    HookStarted,
    /// Its preStop hook has returned.
    HookReturned,
    /// Its preStop hook has failed, or has not returned within the grace period.
    HookFailed,
    /// Its process got SIGTERM.
    Sigterm,
    /// Its process got SIGKILL.
    Sigkill,
    /// Its process has exited.
    Exited,
}

// === impl Timeline ===

impl Timeline {
    /// All events, in order.
    pub fn events(&self) -> Vec<Event> {
        self.lock().clone()
    }

    /// The number of times that a container has reached a step.
    pub fn count(&self, container: &str, step: Step) -> usize {
        let matches = |event: &&Event| event.container == container && event.step == step;
        self.lock().iter().filter(matches).count()
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

// === impl PodTermination ===

impl PodTermination {
    /// The time from the start of the termination to a container's step; `None` if it did not happen.
    pub fn time_of(&self, container: &str, step: Step) -> Option<Duration> {
        let events = self.timeline.lock();
        let matches = |event: &&Event| event.container == container && event.step == step;
        let mut matching = events.iter().filter(matches);
        let event = matching.find(|event| event.at >= self.start);
        event.map(|event| event.at - self.start)
    }
}

impl fmt::Display for Timeline {
    /// Writes a line for each event, with the seconds since the first.
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
