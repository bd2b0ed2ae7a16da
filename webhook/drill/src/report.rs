//! The report of a drill. Its JSON is that of `drill -o json`, whose members are stable.

use std::collections::BTreeMap;

use drainer::DrainSummary;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use load::{FailureKind, FailureSample, KindReport, Report, SecondReport};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::disruption::LoadOrigin;
use crate::pods::PodEnd;

/// A failure is counted for a pod until this long after the pod was gone: its client notices it later than the pod.
const ATTRIBUTION_SECONDS: f64 = 1.0;

/// What a drill did, and what was lost. Times are in seconds since the start of the load.
/// docs/json.md describes the members.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DrillReport {
    #[serde(flatten)]
    pub subject: DrillSubject,
    /// The start of the load, by the clock of this machine.
    pub started_at: Time,
    /// When the disruption began, and when all pods were replaced and the old ones gone; `null` if that took too long.
    pub disrupted_at: f64,
    pub settled_at: Option<f64>,
    /// How long requests were sent.
    pub seconds: f64,
    pub sent: u64,
    pub failed: u64,
    /// Requests that failed more than a second after the last pod was gone; 0 if no pod ended.
    pub failed_later: u64,
    /// Whether the disruption was complete in time.
    pub completed: bool,
    pub clients: Vec<ClientReport>,
    /// Kinds of clients that were left out since their first request failed, each with the reason.
    pub left_out: Vec<String>,
    /// Of all clients, by second.
    pub by_second: Vec<SecondReport>,
    pub pods: Vec<PodReport>,
}

/// What a drill was about.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DrillSubject {
    /// What was disrupted, as in `Deployment shop/edge`.
    pub workload: String,
    /// How, as in `rollout`.
    pub disruption: String,
    /// The URL of the requests.
    pub url: String,
    /// The URL of the cluster's API server.
    pub cluster: String,
    /// Where the load ran.
    pub origin: LoadOrigin,
    /// The version of the program.
    pub version: String,
}

/// The requests of one kind of clients.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClientReport {
    pub name: String,
    /// Requests per second.
    pub rate: f64,
    pub sent: u64,
    pub failed: u64,
    /// By kind of failure.
    pub failures: BTreeMap<FailureKind, u64>,
    /// The first failures, ten at most, in the order of their times.
    pub first_failures: Vec<FailureSample>,
    pub by_second: Vec<SecondReport>,
}

/// The end of a pod.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodReport {
    pub name: String,
    /// t0, as the API server showed it.
    pub deleted_at: f64,
    pub unready_at: Option<f64>,
    /// t2, by the drainer's summary.
    pub drained_at: Option<f64>,
    pub gone_at: Option<f64>,
    /// Requests that failed from its deletion to a second after it was gone: those of pods that end at the same time
    /// are counted for each. The first 10,000 failures of each kind of clients are counted.
    pub failed_meanwhile: u64,
    /// The outcome of the drain; `null` without a drainer.
    pub outcome: Option<String>,
    /// The drainer's termination message, if it can be read.
    pub summary: Option<DrainSummary>,
}

/// What happened, and when.
#[derive(Debug, Clone, Copy)]
pub struct DrillTimes {
    /// The start of the load.
    pub started_at: Instant,
    pub disrupted_at: Instant,
    pub settled_at: Option<Instant>,
}

// === impl DrillReport ===

impl DrillReport {
    /// Joins the counts of the load, which started at this time of the wall clock, with the ends of pods.
    pub fn new(
        subject: DrillSubject,
        started_at: Time,
        times: &DrillTimes,
        load: &Report,
        ends: &[PodEnd],
    ) -> Self {
        let since_start = |at: Instant| seconds_between(times.started_at, at);
        let mut by_second = Vec::new();
        for kind in &load.kinds {
            add(&mut by_second, &kind.seconds);
        }
        let clients = load.kinds.iter().map(ClientReport::of);
        let failed_at = load.kinds.iter().flat_map(|kind| &kind.failed_at);
        let failed_at: Vec<_> = failed_at.copied().collect();
        let pods = ends.iter().map(|end| {
            let deleted_at = since_start(end.deleted_at);
            let gone_at = end.gone_at.map(since_start);
            let until = gone_at.map_or(f64::INFINITY, |at| at + ATTRIBUTION_SECONDS);
            let meanwhile = failed_at.iter();
            let meanwhile = meanwhile.filter(|at| (deleted_at..=until).contains(*at));
            PodReport {
                name: end.name.clone(),
                deleted_at,
                unready_at: end.unready_at.map(since_start),
                drained_at: end.drained_at().map(since_start),
                gone_at,
                failed_meanwhile: meanwhile.count() as u64,
                outcome: end.drain.as_ref().map(|drain| drain.outcome.to_string()),
                summary: end.drain.as_ref().and_then(|drain| drain.summary.clone()),
            }
        });
        let gone_at = ends.iter().map(|end| end.gone_at);
        let gone_at = gone_at.map(|at| at.map_or(f64::INFINITY, since_start));
        let last = gone_at.fold(0.0, f64::max);
        let later = failed_at.iter();
        let later = later.filter(|at| !ends.is_empty() && **at > last + ATTRIBUTION_SECONDS);
        Self {
            failed_later: later.count() as u64,
            subject,
            started_at,
            disrupted_at: since_start(times.disrupted_at),
            settled_at: times.settled_at.map(since_start),
            seconds: load.elapsed.as_secs_f64(),
            sent: load.sent(),
            failed: load.failed(),
            completed: times.settled_at.is_some(),
            clients: clients.collect(),
            left_out: Vec::new(),
            pods: pods.collect(),
            by_second,
        }
    }

    /// The seconds in which requests failed, with their number.
    pub fn failing_seconds(&self) -> impl Iterator<Item = (usize, u64)> {
        let seconds = self.by_second.iter().enumerate();
        let failed = seconds.map(|(second, counts)| (second, counts.failed));
        failed.filter(|(_, failed)| *failed > 0)
    }

    /// The number of failures of each kind that occurred.
    pub fn failures(&self) -> BTreeMap<FailureKind, u64> {
        let mut sum = BTreeMap::new();
        for (kind, count) in self.clients.iter().flat_map(|client| &client.failures) {
            *sum.entry(*kind).or_default() += count;
        }
        sum
    }
}

// === impl ClientReport ===

impl ClientReport {
    fn of(kind: &KindReport) -> Self {
        // A timeout is recorded after later failures.
        let mut first_failures = kind.details.clone();
        first_failures.sort_by(|a, b| a.at.total_cmp(&b.at));
        Self {
            name: kind.name.clone(),
            rate: kind.rate,
            sent: kind.sent,
            failed: kind.failed.values().sum(),
            failures: kind.failed.clone(),
            first_failures,
            by_second: kind.seconds.clone(),
        }
    }
}

/// Seconds from `start` to `at`, negative if it is earlier.
fn seconds_between(start: Instant, at: Instant) -> f64 {
    let after = at.saturating_duration_since(start).as_secs_f64();
    let before = start.saturating_duration_since(at).as_secs_f64();
    after - before
}

fn add(sum: &mut Vec<SecondReport>, seconds: &[SecondReport]) {
    if sum.len() < seconds.len() {
        sum.resize(seconds.len(), SecondReport::default());
    }
    for (sum, second) in sum.iter_mut().zip(seconds) {
        sum.sent += second.sent;
        sum.failed += second.failed;
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use k8s_openapi::jiff::Timestamp;
    use load::Failure;

    use super::*;

    /// A rollout of two pods, the second of which cuts three requests.
    pub(crate) fn sample() -> DrillReport {
        let started_at = Instant::now() + Duration::from_secs(60);
        let at = |seconds: f64| started_at + Duration::from_secs_f64(seconds);
        let second = |failed| SecondReport { sent: 10, failed };
        let sample = FailureSample {
            at: 9.2,
            failure: Failure {
                kind: FailureKind::CutInFlight,
                detail: "connection reset <by> \"peer\"".to_owned(),
            },
        };
        let kind = |name: &str, failed: BTreeMap<_, _>, seconds: Vec<_>| KindReport {
            name: name.to_owned(),
            rate: 10.0,
            reached: 1.0,
            sent: 120,
            answered: 120 - failed.values().sum::<u64>(),
            details: if failed.is_empty() {
                Vec::new()
            } else {
                vec![sample.clone()]
            },
            failed_at: if failed.is_empty() {
                Vec::new()
            } else {
                vec![9.1, 9.2, 10.4]
            },
            failed,
            seconds,
        };
        let mut cut = vec![second(0); 12];
        cut[9] = second(2);
        cut[10] = second(1);
        let failed = [(FailureKind::CutInFlight, 2), (FailureKind::Refused, 1)];
        let load = Report {
            elapsed: Duration::from_secs(12),
            kinds: vec![
                kind("keep-alive", [].into(), vec![second(0); 12]),
                kind("connect", failed.into(), cut),
            ],
        };
        let end = |name: &str, from: f64, to: f64| PodEnd {
            name: name.to_owned(),
            deleted_at: at(from),
            unready_at: Some(at(from + 0.5)),
            gone_at: Some(at(to)),
            drain: None,
        };
        let times = DrillTimes {
            started_at,
            disrupted_at: at(2.0),
            settled_at: Some(at(10.5)),
        };
        let ends = [end("edge-a", 2.1, 5.0), end("edge-b", 6.0, 9.5)];
        let subject = DrillSubject {
            workload: "Deployment shop/edge".to_owned(),
            disruption: "rollout".to_owned(),
            url: "http://edge/".to_owned(),
            cluster: "https://10.0.0.1:6443/".to_owned(),
            origin: LoadOrigin::Cluster,
            version: "0.1.0".to_owned(),
        };
        let started_at = Time(Timestamp::UNIX_EPOCH);
        DrillReport::new(subject, started_at, &times, &load, &ends)
    }

    #[test]
    fn failures_are_counted_by_second_and_for_the_pods_that_ended_then() {
        let report = sample();
        assert_eq!((report.sent, report.failed), (240, 3));
        let failing: Vec<_> = report.failing_seconds().collect();
        assert_eq!(failing, [(9, 2), (10, 1)]);
        let pods = report.pods.iter().map(|pod| pod.failed_meanwhile);
        assert_eq!(pods.collect::<Vec<_>>(), [0, 3]);
        assert_eq!(report.failures()[&FailureKind::CutInFlight], 2);
        assert!((report.disrupted_at - 2.0).abs() < 1e-6);
    }

    #[test]
    fn json_is_read_back() {
        let report = sample();
        let json = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<DrillReport>(&json).unwrap(), report);
    }
}
