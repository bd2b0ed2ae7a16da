//! A load as a program of its own, which a Job runs beside the gateway: what it is given, and the lines that it prints.

use std::pin::pin;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use crate::failure::{Failure, FailureKind};
use crate::load::{Clients, Load};
use crate::report::Report;
use crate::target::Target;
use crate::url::HostPort;

/// How long the target may take to answer a first request: kube-proxy and network policies serve a new pod late.
const FIRST_RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

/// The interval between two probes of the target.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// The interval between two lines of progress.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// A load, and what it is sent to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LoadJob {
    /// The load.
    pub load: Load,
    /// The address of all connections, instead of the hosts of the URLs.
    pub connect_to: Option<HostPort>,
    /// How long requests are sent; `None` for as long as the program runs.
    pub duration: Option<Duration>,
    /// Whether kinds of clients whose first request fails are left out. Otherwise nothing is sent then.
    pub skips_failing: bool,
}

/// A line of the program's output, in JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum JobLine {
    /// The kinds of clients whose first request failed, each with the failure; the failure alone if it is that of all
    /// kinds. Nothing follows if the load does not start.
    Probed(Vec<String>),
    /// The counts so far, each second.
    Progress(Progress),
    /// The counts of the whole load.
    Ended(Report),
}

/// The counts so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// The time since the start of the load.
    pub elapsed: Duration,
    /// Requests sent.
    pub sent: u64,
    /// Requests that failed.
    pub failed: u64,
}

// === impl LoadJob ===

impl LoadJob {
    /// Probes the target and then sends requests, for the job's duration or until `stop`. Passes each line to `emit`.
    pub async fn run(self, stop: impl Future<Output = ()>, mut emit: impl FnMut(&JobLine)) {
        let target = self.connect_to.map(Target::Host);
        let mut load = self.load;
        let results = probe(&load, target.as_ref()).await;
        let failures = describe_failures(&load.clients, &results);
        let mut passed = results.iter().map(Result::is_ok);
        load.clients.retain(|_| passed.next().unwrap_or_default());
        let has_failed = !failures.is_empty();
        emit(&JobLine::Probed(failures));
        if load.clients.is_empty() || has_failed && !self.skips_failing {
            return;
        }
        let running = load.start(target.as_ref());
        let mut ticks = interval(PROGRESS_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut stop = pin!(stop);
        let mut ended = pin!(sleep(self.duration.unwrap_or(Duration::MAX)));
        loop {
            tokio::select! {
                biased;
                () = &mut stop => break,
                () = &mut ended => break,
                _ = ticks.tick() => emit(&JobLine::Progress(Progress::of(&running.report()))),
            }
        }
        emit(&JobLine::Ended(running.stop().await));
    }
}

/// Sends a request of each kind of clients, until all are answered. Once there is a response, whatever it is, a few
/// more seconds only.
async fn probe(load: &Load, target: Option<&Target>) -> Vec<Result<(), Failure>> {
    let mut deadline = Instant::now() + FIRST_RESPONSE_TIMEOUT;
    loop {
        let results = load.probe(target).await;
        let passed = results.iter().filter(|result| result.is_ok()).count();
        if results.iter().any(is_answered) {
            deadline = deadline.min(Instant::now() + 3 * PROBE_INTERVAL);
        }
        if passed == results.len() || Instant::now() >= deadline {
            return results;
        }
        sleep(PROBE_INTERVAL).await;
    }
}

/// The first requests that failed, each with its kind of clients; once if all of them failed in the same way.
fn describe_failures(clients: &[Clients], results: &[Result<(), Failure>]) -> Vec<String> {
    if let [Err(first), ..] = results
        && results.iter().all(|result| result.as_ref() == Err(first))
    {
        return vec![first.to_string()];
    }
    let failed = clients.iter().zip(results).filter_map(|(clients, result)| {
        let failure = result.as_ref().err()?;
        Some(format!("{}: {failure}", clients.name))
    });
    failed.collect()
}

/// Whether the target has responded, even if not as expected.
fn is_answered(result: &Result<(), Failure>) -> bool {
    let failure = result.as_ref().err();
    failure.is_none_or(|failure| failure.kind == FailureKind::BadResponse)
}

// === impl Progress ===

impl Progress {
    fn of(report: &Report) -> Self {
        Self {
            elapsed: report.elapsed,
            sent: report.sent(),
            failed: report.failed(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::ClientKind;
    use crate::request::RequestOptions;

    fn clients(kind: ClientKind, scheme: &str, host: &str) -> Clients {
        Clients {
            name: format!("{kind:?}"),
            kind,
            url: format!("{scheme}://{host}/").parse().unwrap(),
            rate: 1.0,
        }
    }

    /// The failures of the first requests of these clients.
    async fn failures(clients: Vec<Clients>) -> Vec<String> {
        let load = Load {
            requests: RequestOptions::default(),
            clients,
            request_timeout: Duration::from_secs(15),
        };
        let results = load.probe(None).await;
        describe_failures(&load.clients, &results)
    }

    #[tokio::test]
    async fn failure_of_all_kinds_of_clients_is_said_once() {
        // No resolver asks for a name with an empty label.
        let host = "no..host";
        let session = Duration::from_secs(1);
        let all = vec![
            clients(ClientKind::KeepAlive, "http", host),
            clients(ClientKind::ConnectionPerRequest, "https", host),
            clients(ClientKind::Idle, "http", host),
            clients(ClientKind::Http2, "http", host),
            clients(ClientKind::WebSocket { session }, "http", host),
            #[cfg(feature = "h3")]
            clients(ClientKind::Http3, "https", host),
        ];
        let failures = failures(all).await;
        let [failure] = &failures[..] else {
            panic!("{failures:?}");
        };
        let want = "refused: cannot resolve the host `no..host`: failed to lookup address";
        assert!(failure.starts_with(want), "{failure}");
    }

    #[tokio::test]
    async fn failures_that_differ_are_said_of_each_kind_of_clients() {
        let hosts = ["no..host", "nor..this"];
        let failures = failures(hosts.map(|it| clients(ClientKind::Idle, "http", it)).into()).await;
        assert_eq!(failures.len(), 2, "{failures:?}");
        for (failure, host) in failures.iter().zip(hosts) {
            let want = format!("Idle: refused: cannot resolve the host `{host}`: ");
            assert!(failure.starts_with(&want), "{failure}");
        }
    }
}
