//! The exit rules: whether a drain ends, and why, decided from the history of polls.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use strum::{Display, IntoStaticStr, VariantNames};
use tokio::time::Instant;

use crate::client_activity::{ConnectionArrivals, QuietWindow, Traffic};
use crate::envoy::snapshot::{HttpCounts, OpenConnections, Snapshot};
use crate::http_client::CallError;
use crate::timing::Timing;

/// Why a drain ended.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Display, VariantNames, IntoStaticStr,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum DrainOutcome {
    /// No connection was left, or at most `exit-at-connections`.
    Drained,
    /// Only idle HTTP connections were left, which no call to Envoy closes.
    Idle,
    /// Envoy has exited.
    Gone,
    /// The deadline was reached.
    Deadline,
}

/// What to do after a poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExitDecision {
    /// The drain ends.
    Exit(DrainOutcome),
    /// Poll again at this time.
    PollAt(Instant),
}

/// The rules of one drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ExitRules {
    /// Its timings.
    pub timing: Timing,
    /// The drain ends when at most this many connections are left.
    pub exit_at_connections: u64,
    /// The quiet window.
    pub quiet: QuietWindow,
    /// Envoy has responded to this process before, so refused connections mean that it has exited.
    pub has_responded: bool,
}

/// What the polls of one drain have shown so far.
#[derive(Debug, Default)]
pub(crate) struct DrainHistory {
    /// Start of the minimum: when Envoy was told to drain, or when the pod's termination was proven if that was later.
    started_at: Option<Instant>,
    /// When Envoy's health was failed, if the drain kept it at first.
    pub health_failed_at: Option<Instant>,
    /// What the last poll counted; `None` if it failed.
    last_snapshot: Option<Snapshot>,
    /// Since when every poll has shown at most `exit-at-connections` connections.
    below_threshold_since: Option<Instant>,
    /// `server.uptime` at that time, or at the end of the minimum if that was later, where only the
    /// server's total is visible.
    below_threshold_uptime: Option<u64>,
    /// Since when every poll has shown only idle HTTP connections, none of them used between two polls.
    idle_since: Option<Instant>,
    /// Since when every poll has shown that no HTTP/3 connection is open; `None` if the last one did not.
    pub no_http3_since: Option<Instant>,
    traffic: Traffic,
    arrivals: ConnectionArrivals,
    /// How many polls in a row were refused.
    refusals: u32,
    /// The highest number of connections in one poll.
    pub peak: u64,
    /// The last exact counts.
    pub last_open: Option<OpenConnections>,
}

/// Two polls this far apart must both show zero: for a moment a connection may be in neither of two
/// gauges.
const CONFIRM_AFTER: Duration = Duration::from_millis(50);

/// Maximum wait, after the minimum, for new connections to stop: an endpoint still in use by then does
/// not become quiet.
pub const MAX_QUIET_WAIT: Duration = Duration::from_secs(20);

/// Envoy counts as gone after three refused connections at least this far apart, within a second.
pub(crate) const MAX_REFUSALS: u32 = 3;
pub(crate) const REFUSAL_POLL_PAUSE: Duration = Duration::from_millis(300);

// === impl DrainHistory ===

impl DrainHistory {
    /// Starts the minimum at `at`, when Envoy was told to drain, unless it has started.
    pub(crate) fn start(&mut self, at: Instant) {
        self.started_at.get_or_insert(at);
    }

    /// Starts the minimum again at `at`, when the pod's termination was proven.
    pub(crate) fn restart(&mut self, at: Instant) {
        self.started_at = self.started_at.map(|_| at);
    }

    /// Adds the result of the poll at `at`.
    pub(crate) fn add(
        &mut self,
        at: Instant,
        polled: Result<Snapshot, CallError>,
        rules: &ExitRules,
    ) {
        self.refusals = match polled {
            Err(CallError::ConnectionRefused) => self.refusals + 1,
            _ => 0,
        };
        self.last_snapshot = polled.ok();
        let open = self.last_snapshot.as_ref().and_then(Snapshot::open);
        let connections = self.last_snapshot.as_ref().and_then(Snapshot::connections);

        let http = open.and_then(|open| open.http);
        let is_below_threshold = connections.is_some_and(|n| n <= rules.exit_at_connections)
            && !http.is_some_and(|http| http.is_inconsistent);
        self.below_threshold_since =
            is_below_threshold.then(|| self.below_threshold_since.unwrap_or(at));
        let is_early = self
            .started_at
            .is_none_or(|started| at < started + rules.timing.min_drain_duration);
        self.below_threshold_uptime = match self.last_snapshot {
            Some(Snapshot::ServerTotal { uptime, .. }) if is_below_threshold => {
                self.below_threshold_uptime.filter(|_| !is_early).or(uptime)
            }
            _ => None,
        };

        let has_no_http3 = open.is_some_and(|open| open.http3 == Some(0));
        self.no_http3_since = has_no_http3.then(|| self.no_http3_since.unwrap_or(at));

        let counters = open.and_then(|open| open.counters);
        let delta = counters.and_then(|counters| {
            let delta = self.traffic.add(counters);
            self.arrivals.add(at, delta, rules.quiet);
            delta
        });
        let is_idle = http == Some(HttpCounts::default())
            && counters.is_some_and(|counters| counters.requests.is_some());
        let is_unused = delta.is_some_and(|delta| !delta.connections_reused);
        let idle_before = self.idle_since.filter(|_| is_unused);
        self.idle_since = is_idle.then(|| idle_before.unwrap_or(at));

        self.peak = self.peak.max(connections.unwrap_or(0));
        self.last_open = open.cloned().or_else(|| self.last_open.take());
    }

    /// Returns true if Envoy's health was not failed at the last poll.
    pub(crate) fn is_live(&self) -> bool {
        self.last_snapshot.as_ref().and_then(Snapshot::live) == Some(true)
    }

    /// Returns the time from the start of the minimum until Envoy's health was failed, if the drain kept it at first.
    pub(crate) fn time_to_failed_health(&self) -> Option<Duration> {
        let (failed, started) = self.health_failed_at.zip(self.started_at)?;
        Some(failed.saturating_duration_since(started))
    }

    /// Returns the time from the start of the minimum until at most `exit-at-connections` connections
    /// were left for good; `None` if more are left.
    pub(crate) fn time_to_zero(&self) -> Option<Duration> {
        let (since, started) = self.below_threshold_since.zip(self.started_at)?;
        Some(since.saturating_duration_since(started))
    }

    /// Decides what to do after the last poll, which was at `now` or just before. Polls are a `pause`
    /// apart unless a rule needs one sooner. The deadline is not decided here: it is the timeout of the
    /// drain as a whole, calls to Envoy included.
    pub(crate) fn decide(&self, rules: &ExitRules, now: Instant, pause: Duration) -> ExitDecision {
        if rules.has_responded && self.refusals > 0 {
            return match self.refusals {
                MAX_REFUSALS.. => ExitDecision::Exit(DrainOutcome::Gone),
                _ => ExitDecision::PollAt(now + REFUSAL_POLL_PAUSE),
            };
        }
        let next = now + pause;
        let Some(started) = self.started_at else {
            return ExitDecision::PollAt(next);
        };
        let earliest = started + rules.timing.min_drain_duration;
        if now < earliest {
            return ExitDecision::PollAt(next.min(earliest));
        }
        if now < earliest + MAX_QUIET_WAIT && !self.arrivals.is_quiet(rules.quiet, now) {
            return ExitDecision::PollAt(next);
        }
        if let Some(since) = self.below_threshold_since {
            return match self.confirmed_at(since) {
                Some(confirmed) if now >= confirmed => ExitDecision::Exit(DrainOutcome::Drained),
                Some(confirmed) => ExitDecision::PollAt(next.min(confirmed)),
                None => ExitDecision::PollAt(next),
            };
        }
        match (self.idle_since, rules.timing.idle_exit) {
            (Some(since), Some(idle_exit)) if now >= since + idle_exit => {
                ExitDecision::Exit(DrainOutcome::Idle)
            }
            _ => ExitDecision::PollAt(next),
        }
    }

    /// Returns when a count that has been below the threshold `since` then is confirmed; `None` if that
    /// is unknown. The server's total may be as old as Envoy's flush interval, which may be hidden, so
    /// another flush must show it too, after the minimum, when clients have had time to notice.
    fn confirmed_at(&self, since: Instant) -> Option<Instant> {
        match &self.last_snapshot {
            Some(Snapshot::ServerTotal { uptime, .. }) => {
                let is_flushed = uptime.is_some() && *uptime != self.below_threshold_uptime;
                is_flushed.then_some(since)
            }
            _ => Some(since + CONFIRM_AFTER),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client_activity::{Counters, RequestCounters};
    use crate::timing::Durations;

    type Polled = Result<Snapshot, CallError>;

    /// A drain polled every 250 ms of paused time, the default poll interval.
    struct SimulatedDrain {
        rules: ExitRules,
        /// The result of a poll at a second of the drain.
        polled_at: Box<dyn Fn(f64) -> Polled>,
    }

    // === impl SimulatedDrain ===

    impl SimulatedDrain {
        fn new(polled_at: impl Fn(f64) -> Polled + 'static) -> Self {
            let timing = Timing::default();
            let rules = ExitRules {
                timing,
                exit_at_connections: 0,
                quiet: QuietWindow::new(timing.quiet_period, []),
                has_responded: true,
            };
            Self {
                rules,
                polled_at: Box::new(polled_at),
            }
        }

        fn with(mut self, change: impl FnOnce(&mut Durations)) -> Self {
            let mut durations = *self.rules.timing;
            change(&mut durations);
            self.rules.timing = Timing::try_new(durations).unwrap();
            self.rules.quiet = QuietWindow::new(durations.quiet_period, []);
            self
        }

        fn with_probes(mut self, probes: &[&str]) -> Self {
            let probes = probes.iter().map(|probe| probe.parse().unwrap());
            self.rules.quiet = QuietWindow::new(self.rules.timing.quiet_period, probes);
            self
        }

        /// Returns when, in seconds, and why the drain ends; `None` if not within two minutes.
        fn end(&self) -> Option<(f64, DrainOutcome)> {
            let started = Instant::now();
            let mut now = started;
            let mut history = DrainHistory::default();
            history.start(started);
            loop {
                let second = (now - started).as_secs_f64();
                if second > 120.0 {
                    return None;
                }
                history.add(now, (self.polled_at)(second), &self.rules);
                match history.decide(&self.rules, now, self.rules.timing.poll_interval) {
                    ExitDecision::Exit(outcome) => {
                        return Some(((second * 1000.0).round() / 1000.0, outcome));
                    }
                    ExitDecision::PollAt(at) => {
                        assert!(at > now, "no pause between two polls");
                        now = at;
                    }
                }
            }
        }
    }

    fn snapshot(connections: u64, http: HttpCounts, accepted: u64) -> Polled {
        let counters = Counters {
            accepted,
            requests: Some(RequestCounters::default()),
            ..Counters::default()
        };
        Ok(Snapshot::Counted(OpenConnections {
            connections,
            counters: Some(counters),
            http: Some(http),
            live: Some(false),
            ..OpenConnections::default()
        }))
    }

    /// Three idle connections at each poll, and the counters of what clients did between polls.
    fn idle_snapshot(counters: Counters) -> Polled {
        Ok(Snapshot::Counted(OpenConnections {
            connections: 3,
            counters: Some(counters),
            http: Some(HttpCounts::default()),
            live: Some(false),
            ..OpenConnections::default()
        }))
    }

    /// How many arrive until `second`, one each `period` from `first` on.
    fn arrivals_by(period: f64, first: f64, second: f64) -> u64 {
        ((second + period - first) / period) as u64
    }

    /// Requests on keep-alive connections.
    fn on_reused(completed: u64) -> Counters {
        Counters {
            requests: Some(RequestCounters {
                completed,
                connections: 0,
            }),
            ..Counters::default()
        }
    }

    /// Connections with one request each: health checks, which Envoy answers, and others.
    fn on_new(health_checks: u64, others: u64) -> Counters {
        Counters {
            accepted: health_checks + others,
            health_checks,
            requests: Some(RequestCounters {
                completed: others,
                connections: health_checks + others,
            }),
            ..Counters::default()
        }
    }

    fn idle(connections: u64) -> Polled {
        snapshot(connections, HttpCounts::default(), 100)
    }

    fn busy(connections: u64) -> Polled {
        snapshot(
            connections,
            HttpCounts {
                requests: 1,
                ..HttpCounts::default()
            },
            100,
        )
    }

    fn no_response() -> Polled {
        Err(CallError::NoResponse("500".into()))
    }

    #[tokio::test(start_paused = true)]
    async fn each_exit_rule_ends_the_drain_when_it_holds() {
        use DrainOutcome::{Drained, Gone, Idle};
        let tcp = HttpCounts {
            non_http: 1,
            ..HttpCounts::default()
        };
        let unsent = HttpCounts {
            buffered_bytes: 1,
            ..HttpCounts::default()
        };
        let upgrade = HttpCounts {
            requests: 1,
            upgrades: 1,
            ..HttpCounts::default()
        };
        let table = [
            (
                "no connection: the minimum",
                SimulatedDrain::new(|_| idle(0)),
                Some((10.0, Drained)),
            ),
            (
                "the last connection closes at 20 s",
                SimulatedDrain::new(|s| busy((s < 20.0).into())),
                Some((20.05, Drained)),
            ),
            (
                "no minimum, no quiet period: two polls",
                SimulatedDrain::new(|_| idle(0)).with(|d| {
                    d.min_drain_duration = Duration::ZERO;
                    d.quiet_period = Duration::ZERO;
                }),
                Some((0.05, Drained)),
            ),
            (
                "only idle connections: idle-exit is within the minimum",
                SimulatedDrain::new(|_| idle(3)),
                Some((10.0, Idle)),
            ),
            (
                "a request until 12 s, then idle",
                SimulatedDrain::new(|s| if s < 12.0 { busy(3) } else { idle(3) }),
                Some((19.0, Idle)),
            ),
            (
                "idle-exit is off",
                SimulatedDrain::new(|_| idle(3)).with(|d| d.idle_exit = None),
                None,
            ),
            (
                "a request never ends",
                SimulatedDrain::new(|_| busy(1)),
                None,
            ),
            (
                "a response that its client finishes reading at 15 s",
                SimulatedDrain::new(move |s| {
                    if s < 15.0 {
                        snapshot(1, unsent, 9)
                    } else {
                        idle(1)
                    }
                }),
                Some((22.0, Idle)),
            ),
            (
                "a TCP stream",
                SimulatedDrain::new(move |_| snapshot(1, tcp, 9)),
                None,
            ),
            (
                "a WebSocket",
                SimulatedDrain::new(move |_| snapshot(1, upgrade, 9)),
                None,
            ),
            (
                "nothing is known",
                SimulatedDrain::new(|_| no_response()),
                None,
            ),
            (
                "no connection, but an HTTP connection or a request, until 15 s",
                SimulatedDrain::new(|s| {
                    let http = HttpCounts {
                        is_inconsistent: s < 15.0,
                        ..HttpCounts::default()
                    };
                    snapshot(0, http, 9)
                }),
                Some((15.05, Drained)),
            ),
            (
                "zero, but unknown between two polls, until 30 s",
                SimulatedDrain::new(|s| match s {
                    30.0.. => idle(0),
                    _ if ((s * 1000.0) as u64).is_multiple_of(500) => no_response(),
                    _ => idle(1),
                }),
                Some((30.05, Drained)),
            ),
            (
                "Envoy exits at 2 s",
                SimulatedDrain::new(|s| {
                    if s < 2.0 {
                        busy(1)
                    } else {
                        Err(CallError::ConnectionRefused)
                    }
                }),
                Some((2.6, Gone)),
            ),
            (
                "refused twice, then accepted",
                SimulatedDrain::new(|s| {
                    if (2.0..2.4).contains(&s) {
                        Err(CallError::ConnectionRefused)
                    } else {
                        idle(0)
                    }
                }),
                Some((10.0, Drained)),
            ),
        ];
        for (case, drain, want) in table {
            assert_eq!(drain.end(), want, "{case}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn admin_without_any_response_is_not_gone() {
        let mut drain = SimulatedDrain::new(|_| Err(CallError::ConnectionRefused));
        drain.rules.has_responded = false;
        assert_eq!(drain.end(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn threshold_allows_remaining_connections() {
        let mut drain = SimulatedDrain::new(|s| busy(if s < 15.0 { 3 } else { 2 }));
        assert_eq!(drain.end(), None);
        drain.rules.exit_at_connections = 2;
        assert_eq!(drain.end(), Some((15.05, DrainOutcome::Drained)));
    }

    #[tokio::test(start_paused = true)]
    async fn quiet_window_follows_the_last_arrival_up_to_cap() {
        // A new connection each second until `last`, its request answered at once.
        let sparse = |last: f64| {
            SimulatedDrain::new(move |s| snapshot(0, HttpCounts::default(), s.min(last) as u64))
        };
        let table = [
            (5.0, 10.0),
            (8.0, 11.0),
            (13.0, 16.0),
            (1000.0, 30.05), // the cap; the count has been zero all along
        ];
        for (last, end) in table {
            let (second, outcome) = sparse(last).end().unwrap();
            assert_eq!(outcome, DrainOutcome::Drained);
            assert!(
                (end - 0.06..end + 0.01).contains(&second),
                "last {last}: {second}"
            );
        }
        let hidden = SimulatedDrain::new(|_| {
            let Ok(Snapshot::Counted(open)) = idle(0) else {
                panic!()
            };
            Ok(Snapshot::Counted(OpenConnections {
                counters: None,
                ..open
            }))
        });
        assert_eq!(hidden.end(), Some((30.0, DrainOutcome::Drained)));
    }

    #[tokio::test(start_paused = true)]
    async fn readiness_probes_are_not_clients() {
        let probes = |period: f64, first: f64| {
            SimulatedDrain::new(move |s| {
                snapshot(0, HttpCounts::default(), arrivals_by(period, first, s))
            })
        };
        for phase in [0.0, 0.1, 0.9, 1.7] {
            let (second, _) = probes(2.0, phase).with_probes(&["80/2s"]).end().unwrap();
            assert!(second <= 10.6, "phase {phase}: {second}");
            let (second, _) = probes(2.0, phase).end().unwrap();
            assert!(second >= 29.0, "undeclared, phase {phase}: {second}");
            let (second, _) = probes(1.0, phase).with_probes(&["80/2s"]).end().unwrap();
            assert!(
                second >= 29.0,
                "clients among them, phase {phase}: {second}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn idle_exit_requires_unused_connections() {
        let table: [(&str, SimulatedDrain, Option<f64>); 9] = [
            (
                "ten with a request per second, which no poll shows",
                SimulatedDrain::new(|s| idle_snapshot(on_reused(10 * arrivals_by(1.0, 0.1, s)))),
                None,
            ),
            (
                "one with a request per second",
                SimulatedDrain::new(|s| idle_snapshot(on_reused(arrivals_by(1.0, 0.1, s)))),
                None,
            ),
            (
                "a request every 6 s",
                SimulatedDrain::new(|s| idle_snapshot(on_reused(arrivals_by(6.0, 0.1, s)))),
                None,
            ),
            (
                "a request every 8 s: idle-exit is between two",
                SimulatedDrain::new(|s| idle_snapshot(on_reused(arrivals_by(8.0, 0.1, s)))),
                Some(15.25),
            ),
            (
                "the last request at 12 s",
                SimulatedDrain::new(|s| {
                    idle_snapshot(on_reused(arrivals_by(1.0, 0.0, s.min(12.0))))
                }),
                Some(19.0),
            ),
            (
                "health checks of two clients, each on a new connection",
                SimulatedDrain::new(|s| {
                    idle_snapshot(on_new(
                        arrivals_by(1.0, 0.1, s) + arrivals_by(2.0, 0.3, s),
                        0,
                    ))
                }),
                Some(10.0),
            ),
            (
                "a probe that the upstream answers",
                SimulatedDrain::new(|s| idle_snapshot(on_new(0, arrivals_by(1.0, 0.1, s))))
                    .with_probes(&["80/1s"]),
                Some(10.0),
            ),
            (
                "a listener is removed at 8 s",
                SimulatedDrain::new(|s| idle_snapshot(on_new(0, if s < 8.0 { 9 } else { 5 }))),
                Some(15.0),
            ),
            (
                "requests are hidden",
                SimulatedDrain::new(|_| idle_snapshot(Counters::default())),
                None,
            ),
        ];
        for (case, drain, want) in table {
            let want = want.map(|second| (second, DrainOutcome::Idle));
            assert_eq!(drain.end(), want, "{case}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn health_checks_neither_count_as_nor_hide_clients() {
        // A readiness probe every second and a health checker every two, both answered by Envoy, and a
        // client every second until 15 s.
        let mixed = |phase: f64| {
            move |s: f64| {
                let checks = arrivals_by(1.0, phase, s) + arrivals_by(2.0, 0.3, s);
                idle_snapshot(on_new(checks, arrivals_by(1.0, 0.6, s.min(15.0))))
            }
        };
        for phase in [0.0, 0.3, 0.6, 0.9] {
            for probes in [&[][..], &["80/1s"]] {
                let (second, _) = SimulatedDrain::new(mixed(phase))
                    .with_probes(probes)
                    .end()
                    .unwrap();
                let is_in_time = (17.5..18.1).contains(&second);
                assert!(is_in_time, "phase {phase}, probes {probes:?}: {second}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn server_total_needs_another_flush_to_confirm() {
        // Open until `until`, as of the last flush, one each `interval`.
        let server = |until: f64, interval: f64| {
            SimulatedDrain::new(move |s| {
                let flushed = (s / interval).floor() * interval;
                Ok(Snapshot::ServerTotal {
                    connections: (flushed < until).into(),
                    uptime: Some(100 + flushed as u64),
                    live: None,
                })
            })
        };
        let drained = |second| Some((second, DrainOutcome::Drained));
        // New connections are unknown, hence the cap.
        assert_eq!(server(0.0, 5.0).end(), drained(30.0));
        assert_eq!(server(28.0, 5.0).end(), drained(35.0));
        assert_eq!(server(0.0, 50.0).end(), drained(50.0));
        let at_once = server(0.0, 8.0).with(|d| d.quiet_period = Duration::ZERO);
        assert_eq!(at_once.end(), drained(16.0), "a flush after the minimum");
        assert_eq!(server(0.0, 1000.0).end(), None);
        assert_eq!(server(1000.0, 5.0).end(), None);
        let hidden = SimulatedDrain::new(|_| {
            Ok(Snapshot::ServerTotal {
                connections: 0,
                uptime: None,
                live: None,
            })
        });
        assert_eq!(hidden.end(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn reset_counters_start_a_new_window() {
        let reset = |at: f64| {
            SimulatedDrain::new(move |s| idle_snapshot(on_new(0, if s < at { 9 } else { 0 })))
        };
        for (at, end) in [(2.0, 10.0), (8.0, 15.0), (9.5, 16.5)] {
            assert_eq!(reset(at).end(), Some((end, DrainOutcome::Idle)), "{at}");
        }
    }
}
