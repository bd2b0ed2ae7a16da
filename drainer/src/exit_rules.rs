//! When a drain ends: the exit rules, decided on what the looks at Envoy have shown.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::client_activity::{Counters, Traffic, TrafficDelta};
use crate::envoy::Snapshot;
use crate::envoy::stats::{Count, HttpCounts, OpenConnections};
use crate::quiet::{ConnectionArrivals, QuietWindow};
use crate::timing::Timing;

/// Why a drain ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DrainOutcome {
    /// Nothing was left, or no more than was allowed to.
    Drained,
    /// Only idle HTTP connections were left, which no call to Envoy closes.
    Idle,
    /// Envoy itself ended.
    Gone,
    /// Time was up.
    Deadline,
}

/// What to do after a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExitDecision {
    /// The drain ends.
    Exit(DrainOutcome),
    /// Look again then.
    PollAt(Instant),
}

/// The rules of one drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ExitRules {
    /// Its timings.
    pub timing: Timing,
    /// So many connections may remain.
    pub exit_at_connections: u64,
    /// What counts as quiet.
    pub quiet: QuietWindow,
    /// Envoy has answered in this process's life, so that a refusal means its end.
    pub has_responded: bool,
}

/// What the looks at Envoy have shown.
#[derive(Debug, Default)]
pub(crate) struct DrainHistory {
    /// When Envoy's health was failed and, where that was later, the pod's end was proven: from then
    /// the minimum counts.
    started_at: Option<Instant>,
    last_snapshot: Option<Snapshot>,
    /// Since when every look has shown few enough connections.
    below_threshold_since: Option<Instant>,
    /// `server.uptime` then or, if that was later, at the end of the minimum, where only the server's
    /// total shows them.
    below_threshold_uptime: Option<u64>,
    /// Since when every look has shown nothing but idle HTTP connections, of which none was used
    /// between two looks.
    idle_since: Option<Instant>,
    traffic: Traffic,
    arrivals: ConnectionArrivals,
    /// How many looks in a row were refused.
    refusals: u32,
    /// The most connections seen at once.
    pub peak: u64,
    /// The last look that told what is open.
    pub last_open: Option<OpenConnections>,
}

/// Zero must be seen twice: a connection may hang between two counters for a moment.
const CONFIRM_AFTER: Duration = Duration::from_millis(50);

/// Endpoints that are still used so long after the minimum will not become quiet.
pub const MAX_QUIET_WAIT: Duration = Duration::from_secs(20);

/// Refused so often, in looks so far apart, is gone: three times within a second.
const MAX_REFUSALS: u32 = 3;
const REFUSAL_POLL_PAUSE: Duration = Duration::from_millis(300);

// === impl DrainOutcome ===

impl fmt::Display for DrainOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Drained => "drained",
            Self::Idle => "idle",
            Self::Gone => "gone",
            Self::Deadline => "deadline",
        })
    }
}

// === impl DrainHistory ===

impl DrainHistory {
    /// Notes that Envoy's health was failed at `at`: the drain has started.
    pub(crate) fn start(&mut self, at: Instant) {
        self.started_at.get_or_insert(at);
    }

    /// Notes that the pod's end was proven only now, at `at`.
    pub(crate) fn restart(&mut self, at: Instant) {
        self.started_at = self.started_at.map(|_| at);
    }

    /// Adds what a look at `at` has shown.
    pub(crate) fn add(&mut self, at: Instant, snapshot: Snapshot, rules: &ExitRules) {
        let few = match &snapshot {
            Snapshot::Counted(Count::Listeners(open)) => {
                let contradicts = open.http.is_some_and(|http| http.is_inconsistent);
                open.connections <= rules.exit_at_connections && !contradicts
            }
            Snapshot::Counted(Count::Server { connections, .. }) => {
                *connections <= rules.exit_at_connections
            }
            Snapshot::Counted(Count::Hidden)
            | Snapshot::InvalidResponse(_)
            | Snapshot::NoResponse(_)
            | Snapshot::ConnectionRefused => false,
        };
        self.below_threshold_since = few.then(|| self.below_threshold_since.unwrap_or(at));
        let is_early = self
            .started_at
            .is_none_or(|started| at < started + rules.timing.min_drain_duration);
        self.below_threshold_uptime = match snapshot {
            Snapshot::Counted(Count::Server { uptime, .. }) if few && is_early => uptime,
            Snapshot::Counted(Count::Server { uptime, .. }) if few => {
                self.below_threshold_uptime.or(uptime)
            }
            _ => None,
        };
        let interval = self.traffic_delta(at, &snapshot, rules);
        let idle = matches!(
            &snapshot,
            Snapshot::Counted(Count::Listeners(OpenConnections {
                http: Some(HttpCounts {
                    requests: 0,
                    upgrades: 0,
                    non_http: 0,
                    buffered_bytes: 0,
                    is_inconsistent: false,
                }),
                counters: Some(Counters {
                    requests: Some(_),
                    ..
                }),
                ..
            }))
        );
        let unused = interval.is_some_and(|interval| !interval.connections_reused);
        let idle_before = self.idle_since.filter(|_| unused);
        self.idle_since = idle.then(|| idle_before.unwrap_or(at));
        self.refusals = match snapshot {
            Snapshot::ConnectionRefused => self.refusals + 1,
            Snapshot::Counted(_) | Snapshot::InvalidResponse(_) | Snapshot::NoResponse(_) => 0,
        };
        match &snapshot {
            Snapshot::Counted(Count::Listeners(open)) => {
                self.peak = self.peak.max(open.connections);
                self.last_open = Some(open.clone());
            }
            Snapshot::Counted(Count::Server { connections, .. }) => {
                self.peak = self.peak.max(*connections)
            }
            Snapshot::Counted(Count::Hidden)
            | Snapshot::InvalidResponse(_)
            | Snapshot::NoResponse(_)
            | Snapshot::ConnectionRefused => {}
        }
        self.last_snapshot = Some(snapshot);
    }

    /// What happened since the last look that counted; `None` if that cannot be said.
    fn traffic_delta(
        &mut self,
        at: Instant,
        snapshot: &Snapshot,
        rules: &ExitRules,
    ) -> Option<TrafficDelta> {
        let Snapshot::Counted(Count::Listeners(open)) = snapshot else {
            return None;
        };
        let interval = self.traffic.add(open.counters?);
        self.arrivals.add(at, interval, rules.quiet);
        interval
    }

    /// Returns true if the last look has shown that Envoy's health is not failed.
    #[must_use]
    pub(crate) fn is_live(&self) -> bool {
        self.last_snapshot.as_ref().and_then(Snapshot::live) == Some(true)
    }

    /// Returns true if the last look has shown statistics, but not those of listeners.
    #[must_use]
    pub(crate) fn are_listeners_hidden(&self) -> bool {
        matches!(
            &self.last_snapshot,
            Some(Snapshot::Counted(Count::Server { .. } | Count::Hidden))
        )
    }

    /// How long after the start few enough connections were left for good; `None` if more are.
    #[must_use]
    pub(crate) fn time_to_zero(&self) -> Option<Duration> {
        Some(
            self.below_threshold_since?
                .saturating_duration_since(self.started_at?),
        )
    }

    /// Decides what to do after the last look, which was at `now` or a moment before, where looks
    /// are a `pause` apart if nothing asks for one sooner. The deadline is not decided here: whoever
    /// waits for Envoy waits no longer than that.
    #[must_use]
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
                Some(sure) if now >= sure => ExitDecision::Exit(DrainOutcome::Drained),
                Some(sure) => ExitDecision::PollAt(next.min(sure)),
                None => ExitDecision::PollAt(next),
            };
        }
        match (self.idle_since, rules.timing.idle_exit) {
            (Some(since), Some(span)) if now >= since + span => {
                ExitDecision::Exit(DrainOutcome::Idle)
            }
            _ => ExitDecision::PollAt(next),
        }
    }

    /// When few enough connections, seen `since` then, are no chance; `None` if that is not known. The
    /// server's total may be as old as Envoy's flush interval, which may be hidden: another flush must
    /// have shown the same, after the minimum, when clients have had time to learn of the end.
    fn confirmed_at(&self, since: Instant) -> Option<Instant> {
        match &self.last_snapshot {
            Some(Snapshot::Counted(Count::Server { uptime, .. })) => {
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
    use crate::client_activity::RequestCounters;
    use crate::timing::Durations;

    /// A drain looked at each 250 ms of paused time, at a poll interval of the same length.
    struct SimulatedDrain {
        rules: ExitRules,
        /// What is seen at a second of the drain.
        snapshot_at: Box<dyn Fn(f64) -> Snapshot>,
    }

    // === impl SimulatedDrain ===

    impl SimulatedDrain {
        fn new(seen: impl Fn(f64) -> Snapshot + 'static) -> Self {
            let timing = Timing::default();
            let rules = ExitRules {
                timing,
                exit_at_connections: 0,
                quiet: QuietWindow::new(timing.quiet_period, []),
                has_responded: true,
            };
            let seen = Box::new(seen);
            Self {
                rules,
                snapshot_at: seen,
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

        /// When and why the drain ends, in seconds; `None` if not within two minutes.
        fn end(&self) -> Option<(f64, DrainOutcome)> {
            let started = Instant::now();
            let mut now = started;
            let mut record = DrainHistory::default();
            record.start(started);
            loop {
                let second = (now - started).as_secs_f64();
                if second > 120.0 {
                    return None;
                }
                record.add(now, (self.snapshot_at)(second), &self.rules);
                match record.decide(&self.rules, now, self.rules.timing.poll_interval) {
                    ExitDecision::Exit(outcome) => {
                        return Some(((second * 1000.0).round() / 1000.0, outcome));
                    }
                    ExitDecision::PollAt(at) => {
                        assert!(at > now, "a pause between two looks");
                        now = at;
                    }
                }
            }
        }
    }

    fn snapshot(connections: u64, http: HttpCounts, accepted: u64) -> Snapshot {
        let counters = Counters {
            accepted,
            requests: Some(RequestCounters::default()),
            ..Counters::default()
        };
        Snapshot::Counted(Count::Listeners(OpenConnections {
            connections,
            counters: Some(counters),
            http: Some(http),
            live: Some(false),
            ..OpenConnections::default()
        }))
    }

    /// Three idle connections at each look, and what clients did between the looks.
    fn idle_snapshot(counters: Counters) -> Snapshot {
        Snapshot::Counted(Count::Listeners(OpenConnections {
            connections: 3,
            counters: Some(counters),
            http: Some(HttpCounts::default()),
            live: Some(false),
            ..OpenConnections::default()
        }))
    }

    /// So many have come by a second, if one comes each `period` from `first` on.
    fn arrivals_by(period: f64, first: f64, second: f64) -> u64 {
        ((second + period - first) / period) as u64
    }

    /// Requests on kept connections.
    fn on_reused(completed: u64) -> Counters {
        Counters {
            requests: Some(RequestCounters {
                completed,
                connections: 0,
            }),
            ..Counters::default()
        }
    }

    /// Connections with a request each: health checks, which Envoy answers, and others.
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

    fn idle(connections: u64) -> Snapshot {
        snapshot(connections, HttpCounts::default(), 100)
    }

    fn busy(connections: u64) -> Snapshot {
        snapshot(
            connections,
            HttpCounts {
                requests: 1,
                ..HttpCounts::default()
            },
            100,
        )
    }

    fn no_response() -> Snapshot {
        Snapshot::NoResponse("500".into())
    }

    #[tokio::test(start_paused = true)]
    async fn each_rule_ends_a_drain_when_it_holds_and_not_before() {
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
                "nothing open: the minimum",
                SimulatedDrain::new(|_| idle(0)),
                Some((10.0, Drained)),
            ),
            (
                "the last one leaves at 20 s",
                SimulatedDrain::new(|s| busy((s < 20.0).into())),
                Some((20.05, Drained)),
            ),
            (
                "no minimum, no quiet: two looks",
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
                "a response that its client has read at 15 s",
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
                "a stream of TCP",
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
                "no connection, and yet one of HTTP or a request, until 15 s",
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
                "zero, but unknown between two looks, until 30 s",
                SimulatedDrain::new(|s| match s {
                    30.0.. => idle(0),
                    _ if ((s * 1000.0) as u64).is_multiple_of(500) => no_response(),
                    _ => idle(1),
                }),
                Some((30.05, Drained)),
            ),
            (
                "gone at 2 s",
                SimulatedDrain::new(|s| {
                    if s < 2.0 {
                        busy(1)
                    } else {
                        Snapshot::ConnectionRefused
                    }
                }),
                Some((2.6, Gone)),
            ),
            (
                "refused twice, then back",
                SimulatedDrain::new(|s| {
                    if (2.0..2.4).contains(&s) {
                        Snapshot::ConnectionRefused
                    } else {
                        idle(0)
                    }
                }),
                Some((10.0, Drained)),
            ),
        ];
        for (case, looks, want) in table {
            assert_eq!(looks.end(), want, "{case}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_admin_that_never_answered_is_not_gone() {
        let mut looks = SimulatedDrain::new(|_| Snapshot::ConnectionRefused);
        looks.rules.has_responded = false;
        assert_eq!(looks.end(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn so_many_connections_may_remain() {
        let mut looks = SimulatedDrain::new(|s| busy(if s < 15.0 { 3 } else { 2 }));
        assert_eq!(looks.end(), None);
        looks.rules.exit_at_connections = 2;
        assert_eq!(looks.end(), Some((15.05, DrainOutcome::Drained)));
    }

    #[tokio::test(start_paused = true)]
    async fn quiet_waits_for_the_last_newcomer_but_not_for_ever() {
        // A new connection each second, answered at once, until `last`.
        let sparse = |last: f64| {
            SimulatedDrain::new(move |s| snapshot(0, HttpCounts::default(), s.min(last) as u64))
        };
        let table = [
            (5.0, 10.0),
            (8.0, 11.0),
            (13.0, 16.0),
            (1000.0, 30.05), // the cap; zero had been seen all along
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
            let Snapshot::Counted(Count::Listeners(open)) = idle(0) else {
                panic!()
            };
            Snapshot::Counted(Count::Listeners(OpenConnections {
                counters: None,
                ..open
            }))
        });
        assert_eq!(hidden.end(), Some((30.0, DrainOutcome::Drained)));
    }

    #[tokio::test(start_paused = true)]
    async fn readiness_probes_are_no_newcomers() {
        let probes = |period: f64, first: f64| {
            SimulatedDrain::new(move |s| {
                snapshot(0, HttpCounts::default(), arrivals_by(period, first, s))
            })
        };
        for phase in [0.0, 0.1, 0.9, 1.7] {
            let (second, _) = probes(2.0, phase).with_probes(&["80/2s"]).end().unwrap();
            assert!(second <= 10.6, "phase {phase}: {second}");
            let (second, _) = probes(2.0, phase).end().unwrap();
            assert!(second >= 29.0, "untold, phase {phase}: {second}");
            let (second, _) = probes(1.0, phase).with_probes(&["80/2s"]).end().unwrap();
            assert!(
                second >= 29.0,
                "clients among them, phase {phase}: {second}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn idle_connections_are_unused_ones() {
        let table: [(&str, SimulatedDrain, Option<f64>); 9] = [
            (
                "ten with a request a second, which no look sees",
                SimulatedDrain::new(|s| idle_snapshot(on_reused(10 * arrivals_by(1.0, 0.1, s)))),
                None,
            ),
            (
                "one with a request a second",
                SimulatedDrain::new(|s| idle_snapshot(on_reused(arrivals_by(1.0, 0.1, s)))),
                None,
            ),
            (
                "a request each 6 s",
                SimulatedDrain::new(|s| idle_snapshot(on_reused(arrivals_by(6.0, 0.1, s)))),
                None,
            ),
            (
                "a request each 8 s: idle-exit passes between two",
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
                "health checks of two, each on its connection",
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
        for (case, looks, want) in table {
            let want = want.map(|second| (second, DrainOutcome::Idle));
            assert_eq!(looks.end(), want, "{case}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn health_checks_are_no_newcomers_and_hide_none() {
        // A readiness probe each second and a health checker each two, both answered by Envoy, and
        // a client each second until 15 s.
        let crowd = |phase: f64| {
            move |s: f64| {
                let checks = arrivals_by(1.0, phase, s) + arrivals_by(2.0, 0.3, s);
                idle_snapshot(on_new(checks, arrivals_by(1.0, 0.6, s.min(15.0))))
            }
        };
        for phase in [0.0, 0.3, 0.6, 0.9] {
            for probes in [&[][..], &["80/1s"]] {
                let (second, _) = SimulatedDrain::new(crowd(phase))
                    .with_probes(probes)
                    .end()
                    .unwrap();
                let late = (17.5..18.1).contains(&second);
                assert!(late, "phase {phase}, told of {probes:?}: {second}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_servers_total_counts_when_another_flush_confirms_it() {
        // Flushed each so many seconds, as of then.
        let server = |until: f64, interval: f64| {
            SimulatedDrain::new(move |s| {
                let flushed = (s / interval).floor() * interval;
                Snapshot::Counted(Count::Server {
                    connections: (flushed < until).into(),
                    uptime: Some(100 + flushed as u64),
                    live: None,
                })
            })
        };
        let drained = |second| Some((second, DrainOutcome::Drained));
        // Quiet cannot be seen, hence the cap.
        assert_eq!(server(0.0, 5.0).end(), drained(30.0));
        assert_eq!(server(28.0, 5.0).end(), drained(35.0));
        assert_eq!(server(0.0, 50.0).end(), drained(50.0));
        let at_once = server(0.0, 8.0).with(|d| d.quiet_period = Duration::ZERO);
        assert_eq!(at_once.end(), drained(16.0), "a flush after the minimum");
        assert_eq!(server(0.0, 1000.0).end(), None);
        assert_eq!(server(1000.0, 5.0).end(), None);
        let hidden = SimulatedDrain::new(|_| {
            Snapshot::Counted(Count::Server {
                connections: 0,
                uptime: None,
                live: None,
            })
        });
        assert_eq!(hidden.end(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn counters_that_are_reset_begin_a_new_window() {
        let reset = |at: f64| {
            SimulatedDrain::new(move |s| idle_snapshot(on_new(0, if s < at { 9 } else { 0 })))
        };
        for (at, end) in [(2.0, 10.0), (8.0, 15.0), (9.5, 16.5)] {
            assert_eq!(reset(at).end(), Some((end, DrainOutcome::Idle)), "{at}");
        }
    }
}
