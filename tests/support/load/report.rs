//! What became of the requests.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::failure::{Failure, FailureKind};

/// How many failures of a kind of clients are kept with their details.
const MAX_DETAILS: usize = 10;

/// A load's count; as JSON, its times are seconds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// By kind of clients.
    pub kinds: Vec<KindReport>,
    /// How long requests were sent.
    #[serde(with = "seconds")]
    pub elapsed: Duration,
}

/// The count of one kind of clients.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct KindReport {
    /// What they are called.
    pub name: String,
    /// Requests a second asked for; zero for a client with one request.
    pub rate: f64,
    /// Requests sent as a share of those asked for: 1 is all of them.
    pub reached: f64,
    /// Requests sent, or tried to.
    pub sent: u64,
    /// Requests answered in full, as they should be.
    pub answered: u64,
    /// Requests that failed, by kind.
    pub failed: BTreeMap<FailureKind, u64>,
    /// The first failures.
    pub details: Vec<FailureSample>,
}

/// A failure, and when it was seen.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FailureSample {
    /// Since the load began.
    #[serde(with = "seconds")]
    pub at: Duration,
    /// What was seen.
    #[serde(flatten)]
    pub failure: Failure,
}

/// Counts for one kind of clients while they run.
#[derive(Debug)]
pub(super) struct Tally {
    name: String,
    rate: f64,
    start: Instant,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    sent: u64,
    answered: u64,
    failed: BTreeMap<FailureKind, u64>,
    details: Vec<FailureSample>,
}

// === impl Report ===

impl Report {
    /// All requests sent.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.sent).sum()
    }

    /// All requests that failed.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.kinds
            .iter()
            .flat_map(|kind| kind.failed.values())
            .sum()
    }

    /// All requests that failed so.
    #[must_use]
    pub fn failed_of_kind(&self, kind: FailureKind) -> u64 {
        let counts = self.kinds.iter().filter_map(|of| of.failed.get(&kind));
        counts.sum()
    }

    /// The share of the rate asked for that the slowest kind of clients reached: 1 is all of it.
    #[must_use]
    pub fn reached(&self) -> f64 {
        let reached = self.kinds.iter().map(|kind| kind.reached);
        reached.fold(1.0, f64::min)
    }
}

impl fmt::Display for Report {
    /// A line for each kind of clients, and a line for each of the first failures.
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
                writeln!(f, "    at {:.3} s {failure}", at.as_secs_f64())?;
            }
        }
        Ok(())
    }
}

// === impl Tally ===

impl Tally {
    pub(super) fn new(name: String, rate: f64, start: Instant) -> Self {
        let counts = Mutex::default();
        Self {
            name,
            rate,
            start,
            counts,
        }
    }

    pub(super) fn record_sent(&self) {
        self.counts().sent += 1;
    }

    pub(super) fn record_result(&self, answer: Result<(), Failure>) {
        let at = self.start.elapsed();
        let mut counts = self.counts();
        match answer {
            Ok(()) => counts.answered += 1,
            Err(failure) => {
                *counts.failed.entry(failure.kind).or_default() += 1;
                if counts.details.len() < MAX_DETAILS {
                    counts.details.push(FailureSample { at, failure });
                }
            }
        }
    }

    pub(super) fn report(&self, elapsed: Duration) -> KindReport {
        let counts = self.counts();
        let asked = (self.rate * elapsed.as_secs_f64()).max(1.0);
        KindReport {
            name: self.name.clone(),
            rate: self.rate,
            reached: counts.sent as f64 / asked,
            sent: counts.sent,
            answered: counts.answered,
            failed: counts.failed.clone(),
            details: counts.details.clone(),
        }
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

mod seconds {
    use std::time::Duration;

    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64(time.as_secs_f64())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        Duration::try_from_secs_f64(f64::deserialize(from)?).map_err(Error::custom)
    }
}
