//! The report of a load: requests sent, answered and failed.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::failure::{Failure, FailureKind};

/// The number of failures per kind of clients that are kept with their details.
const MAX_DETAILS: usize = 10;

/// The number of failures per kind of clients whose times are kept.
const MAX_FAILURE_TIMES: usize = 10_000;

/// The counts of a load.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// The counts by kind of clients.
    pub kinds: Vec<KindReport>,
    /// The time during which requests were sent.
    pub elapsed: Duration,
}

/// The counts of one kind of clients.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct KindReport {
    /// The name of the kind.
    pub name: String,
    /// The requested rate in requests per second; zero for a client with one request.
    pub rate: f64,
    /// The requests sent as a fraction of those requested: 1 is all of them.
    pub reached: f64,
    /// Requests sent or attempted.
    pub sent: u64,
    /// Requests with a complete and correct response.
    pub answered: u64,
    /// Requests that failed, by kind.
    pub failed: BTreeMap<FailureKind, u64>,
    /// The first failures.
    pub details: Vec<FailureSample>,
    /// The counts of each second since the start of the load.
    pub seconds: Vec<SecondReport>,
    /// When requests failed, in seconds since the start of the load: the first 10,000 of them.
    pub failed_at: Vec<f64>,
}

/// The counts of a second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecondReport {
    /// Requests sent or attempted in it.
    pub sent: u64,
    /// Requests that failed in it. One that was refused or timed out counts in the second in which it was sent.
    pub failed: u64,
}

/// A failure with its time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FailureSample {
    /// The time since the start of the load, in seconds.
    pub at: f64,
    /// The failure.
    #[serde(flatten)]
    pub failure: Failure,
}

/// The counters of one kind of clients while it runs.
#[derive(Debug)]
pub(super) struct Tally {
    start: Instant,
    /// Without what depends on the time of the report.
    counts: Mutex<KindReport>,
}

// === impl Report ===

impl Report {
    /// The number of requests sent.
    pub fn sent(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.sent).sum()
    }

    /// The number of failed requests.
    pub fn failed(&self) -> u64 {
        let failed = self.kinds.iter().flat_map(|kind| kind.failed.values());
        failed.sum()
    }

    /// The number of requests with this kind of failure.
    pub fn failed_of_kind(&self, kind: FailureKind) -> u64 {
        let failed = self.kinds.iter().filter_map(|it| it.failed.get(&kind));
        failed.sum()
    }

    /// The fraction of its rate that the slowest kind of clients reached: 1 is all of it.
    pub fn reached(&self) -> f64 {
        let reached = self.kinds.iter().map(|kind| kind.reached);
        reached.fold(1.0, f64::min)
    }
}

impl fmt::Display for Report {
    /// Writes a line for each kind of clients, and a line for each of its first failures.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for kind in &self.kinds {
            writeln!(
                f,
                "{:26} {:6} sent ({:3.0} % of {}/s), {:6} answered, {:?}",
                kind.name,
                kind.sent,
                kind.reached * 100.0,
                kind.rate,
                kind.answered,
                kind.failed,
            )?;
            for FailureSample { at, failure } in &kind.details {
                writeln!(f, "    at {at:.3} s {failure}")?;
            }
        }
        Ok(())
    }
}

// === impl Tally ===

impl Tally {
    pub(super) fn new(name: String, rate: f64, start: Instant) -> Self {
        let counts = Mutex::new(KindReport {
            name,
            rate,
            ..KindReport::default()
        });
        Self { start, counts }
    }

    /// Counts a request, and returns when it is sent: now.
    pub(super) fn record_sent(&self) -> Instant {
        let now = Instant::now();
        let at = now.saturating_duration_since(self.start);
        let mut counts = self.counts();
        counts.sent += 1;
        counts.second(at).sent += 1;
        now
    }

    /// Counts the result of a request that was sent at this time.
    pub(super) fn record_result(&self, sent_at: Instant, result: Result<(), Failure>) {
        let failed_at = match &result {
            // A timeout tells late what happened when the request was sent.
            Err(failure) if failure.kind.is_of_sending() => sent_at,
            _ => Instant::now(),
        };
        let at = failed_at.saturating_duration_since(self.start);
        let mut counts = self.counts();
        match result {
            Ok(()) => counts.answered += 1,
            Err(failure) => {
                *counts.failed.entry(failure.kind).or_default() += 1;
                counts.second(at).failed += 1;
                if counts.failed_at.len() < MAX_FAILURE_TIMES {
                    // A millisecond is as exact as the times of pods.
                    counts.failed_at.push(at.as_millis() as f64 / 1e3);
                }
                if counts.details.len() < MAX_DETAILS {
                    let at = at.as_secs_f64();
                    counts.details.push(FailureSample { at, failure });
                }
            }
        }
    }

    pub(super) fn report(&self, elapsed: Duration) -> KindReport {
        let mut report = self.counts().clone();
        let requested = (report.rate * elapsed.as_secs_f64()).max(1.0);
        report.reached = report.sent as f64 / requested;
        report
    }

    fn counts(&self) -> MutexGuard<'_, KindReport> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl KindReport ===

impl KindReport {
    /// The counts of the second at this time since the start.
    fn second(&mut self, at: Duration) -> &mut SecondReport {
        let second = at.as_secs() as usize;
        if self.seconds.len() <= second {
            self.seconds.resize(second + 1, SecondReport::default());
        }
        &mut self.seconds[second]
    }
}
