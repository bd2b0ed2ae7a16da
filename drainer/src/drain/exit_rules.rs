//! The exit rules: whether a drain ends, and why, decided from the history of polls.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use strum::{Display, IntoStaticStr, VariantNames};
use tokio::time::Instant;

use super::client_activity::{ConnectionArrivals, QuietWindow, Traffic};
use crate::envoy::admin_call::CallError;
use crate::envoy::snapshot::{OpenConnections, Snapshot};
use crate::http_client::HttpError::ConnectionRefused;
use crate::kernel::witness::{Disagreement, SoleWitness};
use crate::settings::timing::{MAX_QUIET_WAIT, Timing};

/// Why a drain ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[derive(Display, VariantNames, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum DrainOutcome {
    /// No connection was left, or at most `exit-at-connections`.
    Drained,
    /// Only idle HTTP connections were left, which no call to Envoy closes.
    Idle,
    /// Of a server that is no Envoy, only connections were left that were silent for `idle-exit`, as a stream may be.
    Silent,
    /// Envoy has exited.
    Gone,
    /// The deadline was reached.
    Deadline,
    /// No admin interface was found, so that Envoy was not drained.
    Unreachable,
    /// A call of the drain was rejected, whatever ended it: by `admin.allow_paths`, or by another server at the address.
    CallsForbidden,
    /// Envoy has ended without a call of its hook, and without a drain.
    HookMissed,
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
    /// Health is kept to the end, which is then the first poll without anything in flight.
    pub keeps_health: bool,
}

/// What the polls of one drain have shown so far.
#[derive(Debug, Default)]
pub(crate) struct DrainHistory {
    /// When Envoy was told to drain.
    started_at: Option<Instant>,
    /// Start of the minimum: the same, or the end of the time in which health is kept until no client connects.
    minimum_since: Option<Instant>,
    polled_at: Option<Instant>,
    /// What the last poll counted; `None` if it failed.
    last_snapshot: Option<Snapshot>,
    /// Since when every poll has shown at most `exit-at-connections` connections.
    pub below_threshold_since: Option<Instant>,
    /// Since when every poll has shown only idle HTTP connections, none of them used between two polls.
    idle_since: Option<Instant>,
    /// Since when every poll has shown that no HTTP/3 connection is open; `None` if the last one did not.
    pub no_http3_since: Option<Instant>,
    traffic: Traffic,
    pub arrivals: ConnectionArrivals,
    /// How many polls in a row were refused.
    refusals: u32,
    /// The last poll found no admin interface, and no address is left to ask.
    is_unreachable: bool,
    /// The highest number of connections in one poll.
    pub peak: u64,
    /// The last counts with a number of connections.
    pub last_open: Option<OpenConnections>,
    /// The last epoch of Envoy, by which the new process of a hot restart is recognized.
    pub epoch: Option<u64>,
    /// What the kernel knew beyond the last poll, if that showed nothing in flight.
    pub disagreement: Option<Disagreement>,
    /// The only witness of what is left; `None` if Envoy and the kernel were compared, or before the first count.
    pub witness: Option<SoleWitness>,
}

/// Two polls this far apart must both show zero: for a moment a connection may be in neither of two
/// gauges.
const CONFIRM_AFTER: Duration = Duration::from_millis(50);

/// At the deadline, an older poll tells nothing of what is open.
const MAX_POLL_AGE: Duration = Duration::from_secs(1);

/// Envoy counts as gone after three refused connections at least this far apart, within a second.
pub(crate) const MAX_REFUSALS: u32 = 3;
pub(crate) const REFUSAL_POLL_PAUSE: Duration = Duration::from_millis(300);

// === impl DrainHistory ===

impl DrainHistory {
    /// Starts the drain at `at`, when Envoy was told to drain, and the minimum unless it `counts_later`; each unless it has
    /// started.
    pub(crate) fn start(&mut self, at: Instant, counts_later: bool) {
        self.started_at.get_or_insert(at);
        if !counts_later {
            self.minimum_since.get_or_insert(at);
        }
    }

    /// Starts both again at `at`, when another Envoy is to be told.
    pub(crate) fn restart(&mut self, at: Instant) {
        self.started_at = self.started_at.map(|_| at);
        self.minimum_since = self.minimum_since.map(|_| at);
    }

    /// Returns when the minimum ends; `None` if it has not started.
    pub(crate) fn minimum_end(&self, rules: &ExitRules) -> Option<Instant> {
        Some(self.minimum_since? + rules.timing.min_drain_duration)
    }

    /// Adds the result of the poll at `at`.
    pub(crate) fn add(
        &mut self,
        at: Instant,
        polled: Result<Snapshot, CallError>,
        rules: &ExitRules,
    ) {
        let is_refused = matches!(polled, Err(CallError::Http(ConnectionRefused)));
        self.refusals = if is_refused { self.refusals + 1 } else { 0 };
        self.is_unreachable = polled.as_ref().is_err_and(CallError::is_absence)
            || matches!(&polled, Ok(snapshot) if snapshot.is_unreachable);
        self.polled_at = Some(at);
        self.disagreement = None;
        self.last_snapshot = polled.ok();
        let last = self.last_snapshot.as_ref();
        self.epoch = last.and_then(|last| last.epoch).or(self.epoch);
        let open = last.map(|last| &last.open);
        let connections = open.and_then(|open| open.connections);
        let http = open.and_then(|open| open.http);
        // Whether its connections are counted is not known before it is read.
        let has_new_listener = last.is_some_and(|last| last.has_new_listener);
        let is_below_threshold =
            connections.is_some_and(|n| n <= rules.exit_at_connections) && !has_new_listener;
        self.below_threshold_since =
            is_below_threshold.then(|| self.below_threshold_since.unwrap_or(at));

        let has_no_http3 = http.is_some_and(|http| http.http3 == 0);
        self.no_http3_since = has_no_http3.then(|| self.no_http3_since.unwrap_or(at));

        let counters = open.and_then(|open| open.counters);
        let delta = counters.and_then(|counters| {
            let delta = self.traffic.add(counters);
            self.arrivals.add(at, delta, rules.quiet);
            delta
        });
        let is_idle = open.is_some_and(OpenConnections::are_idle) && !has_new_listener;
        let is_unused = delta.is_some_and(|delta| !delta.connections_reused);
        let idle_before = self.idle_since.filter(|_| is_unused);
        self.idle_since = is_idle.then(|| idle_before.unwrap_or(at));

        self.peak = self.peak.max(connections.unwrap_or(0));
        let counted = open.filter(|open| open.connections.is_some());
        // What an Envoy that runs has had open tells nothing of the end.
        let last = || self.last_open.take().filter(|_| is_refused);
        self.last_open = counted.cloned().or_else(last);
    }

    /// Returns true if Envoy's health was not failed at the last poll.
    pub(crate) fn is_live(&self) -> bool {
        self.last_snapshot.as_ref().and_then(|last| last.live) == Some(true)
    }

    /// Returns the time from the start of the minimum until `at`.
    pub(crate) fn time_to(&self, at: Option<Instant>) -> Option<Duration> {
        Some(at?.saturating_duration_since(self.started_at?))
    }

    /// Returns true if no client is known to have connected for the quiet period, all of it since the start of the minimum,
    /// or else of the drain.
    pub(crate) fn is_quiet(&self, rules: &ExitRules, now: Instant) -> bool {
        let since = self.minimum_since.or(self.started_at);
        since.is_some_and(|since| now >= since + rules.quiet.length)
            && self.arrivals.is_quiet(rules.quiet, now)
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
        let Some(earliest) = self.minimum_end(rules) else {
            return ExitDecision::PollAt(next);
        };
        if now < earliest {
            return ExitDecision::PollAt(next.min(earliest));
        }
        let server = (self.last_snapshot.as_ref()).and_then(|last| last.open.server);
        if self.is_unreachable {
            let waits = server.is_some_and(|it| it.in_flight > 0);
            if waits && now < earliest + MAX_QUIET_WAIT {
                return ExitDecision::PollAt(next);
            }
            return ExitDecision::Exit(DrainOutcome::Unreachable);
        }
        if rules.keeps_health && self.idle_since.is_some() {
            return ExitDecision::Exit(DrainOutcome::Idle);
        }
        if now < earliest + MAX_QUIET_WAIT && !self.is_quiet(rules, now) {
            return ExitDecision::PollAt(next);
        }
        let confirmed = self.below_threshold_since.map(|it| it + CONFIRM_AFTER);
        match (confirmed, self.idle_since, rules.timing.idle_exit) {
            (Some(at), ..) if now >= at => ExitDecision::Exit(DrainOutcome::Drained),
            (Some(at), ..) => ExitDecision::PollAt(next.min(at)),
            // Its connections have been silent for so long already.
            (None, Some(_), _) if server.is_some() => ExitDecision::Exit(DrainOutcome::Silent),
            (None, Some(since), Some(idle_exit)) if now >= since + idle_exit => {
                ExitDecision::Exit(DrainOutcome::Idle)
            }
            _ => ExitDecision::PollAt(next),
        }
    }

    /// Decides why the drain ends at its `deadline`, which may be where the minimum ends, if a poll is recent.
    pub(crate) fn outcome_at(&self, deadline: Instant, rules: &ExitRules) -> DrainOutcome {
        let mut rules = *rules;
        rules.timing.min_drain_duration = Duration::ZERO;
        let recent = self.polled_at.filter(|at| deadline <= *at + MAX_POLL_AGE);
        match recent.map(|at| self.decide(&rules, at, Duration::ZERO)) {
            Some(ExitDecision::Exit(outcome)) => outcome,
            _ => DrainOutcome::Deadline,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envoy::counters::{Counters, RequestCounters};
    use crate::envoy::snapshot::{HttpCounts, ServerCounts};
    use crate::http_client::HttpError;
    use crate::settings::duration::seconds;

    type Polled = Result<Snapshot, CallError>;

    /// A drain polled every 250 ms of paused time, the default poll interval.
    struct SimulatedDrain {
        rules: ExitRules,
        /// The result of a poll at a second of the drain.
        polled_at: Box<dyn Fn(f64) -> Polled>,
    }

    fn drain(polled_at: impl Fn(f64) -> Polled + 'static) -> SimulatedDrain {
        let timing = Timing::default();
        let rules = ExitRules {
            timing,
            exit_at_connections: 0,
            quiet: QuietWindow::new(timing.quiet_period, []),
            has_responded: true,
            keeps_health: false,
        };
        let polled_at = Box::new(polled_at);
        SimulatedDrain { rules, polled_at }
    }

    /// A drain whose polls change once, at this second.
    fn until(second: f64, before: Polled, after: Polled) -> SimulatedDrain {
        drain(move |s| if s < second { &before } else { &after }.clone())
    }

    // === impl SimulatedDrain ===

    impl SimulatedDrain {
        fn with(mut self, change: impl FnOnce(&mut Timing)) -> Self {
            change(&mut self.rules.timing);
            assert_eq!(self.rules.timing.errors(), [""; 0]);
            self.rules.quiet = QuietWindow::new(self.rules.timing.quiet_period, []);
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
            history.start(started, false);
            while now <= started + Duration::from_secs(120) {
                let polled = (self.polled_at)((now - started).as_secs_f64());
                history.add(now, polled, &self.rules);
                match history.decide(&self.rules, now, self.rules.timing.poll_interval) {
                    ExitDecision::Exit(outcome) => return Some((seconds(now - started), outcome)),
                    ExitDecision::PollAt(at) => {
                        assert!(at > now, "no pause between two polls");
                        now = at;
                    }
                }
            }
            None
        }
    }

    /// The outcome of a drain whose deadline ends its minimum, just after the last of these polls.
    fn outcome_at_deadline(polls: impl IntoIterator<Item = Polled>) -> DrainOutcome {
        outcome_after(0.25, polls)
    }

    /// The same so many seconds after the last poll.
    fn outcome_after(age: f64, polls: impl IntoIterator<Item = Polled>) -> DrainOutcome {
        let minimum = Duration::from_secs(60);
        let drain = drain(|_| idle(0)).with(|t| t.min_drain_duration = minimum);
        let mut history = DrainHistory::default();
        let started = Instant::now();
        history.start(started, false);
        for (second, polled) in (0..).zip(polls) {
            history.add(started + Duration::from_secs(second), polled, &drain.rules);
        }
        let last = history.polled_at.unwrap_or(started);
        history.outcome_at(last + Duration::from_secs_f64(age), &drain.rules)
    }

    /// What is open of a server, of whose connections so many have come so far.
    fn server(connections: u64, in_flight: u64, in_use: u64, accepted: u64) -> Polled {
        polled(OpenConnections {
            connections: Some(connections),
            counters: Some(Counters::of_connections(accepted)),
            server: Some(ServerCounts { in_flight, in_use }),
            ..OpenConnections::default()
        })
    }

    #[test]
    fn server_is_drained_without_a_connection_and_silent_once_all_rest() {
        let end = |polled_at: fn(f64) -> Polled| drain(polled_at).end();
        let silent = |second| Some((second, DrainOutcome::Silent));
        assert_eq!(end(|_| server(0, 0, 0, 7)), drained(10.0));
        assert_eq!(end(|_| server(3, 0, 0, 7)), silent(10.0));
        assert_eq!(end(|s| server(3, u64::from(s < 20.0), 0, 7)), silent(20.0));
        assert_eq!(end(|s| server(3, 0, u64::from(s < 40.0), 7)), silent(40.0));
        // A client connects each second until then.
        assert_eq!(end(|s| server(0, 0, 0, s.min(15.0) as u64)), drained(18.0));
        // One that connects at each second is waited for no longer than that.
        assert_eq!(end(|s| server(1, 0, 0, s as u64)), silent(30.0));
        let polls = [server(1, 1, 0, 1), server(1, 0, 1, 1)];
        assert_eq!(outcome_at_deadline(polls), DrainOutcome::Deadline);
    }

    #[test]
    fn envoy_without_admin_is_left_once_the_kernel_knows_nothing_in_flight() {
        let end = |until: f64| {
            let drain = drain(move |s| {
                let polled = server(3, u64::from(s < until), 1, s as u64);
                polled.map(|snapshot| Snapshot {
                    is_unreachable: true,
                    ..snapshot
                })
            });
            drain.end()
        };
        let unreachable = |second| Some((second, DrainOutcome::Unreachable));
        assert_eq!(end(0.0), unreachable(10.0));
        assert_eq!(end(15.0), unreachable(15.0));
        assert_eq!(end(60.0), unreachable(30.0));
    }

    #[test]
    fn kept_health_is_no_reason_to_wait_for_quiet() {
        // A client connects each second.
        let mut drain = drain(|s| {
            let requests = u64::from(s < 12.0);
            let http = HttpCounts {
                requests,
                ..HttpCounts::default()
            };
            counted(1, Some(on_new(0, s as u64)), http)
        });
        assert_eq!(drain.end(), idled(30.0));
        drain.rules.keeps_health = true;
        assert_eq!(drain.end(), idled(12.0));
    }

    #[test]
    fn quiet_and_the_minimum_count_from_when_they_start() {
        let drain = drain(|_| idle(0)).with(|t| t.min_drain_duration = Duration::ZERO);
        let (start, mut history) = (Instant::now(), DrainHistory::default());
        let at = |second| start + Duration::from_secs(second);
        history.start(start, true);
        for second in 0..9 {
            history.add(at(second), idle(0), &drain.rules);
            let is_quiet = history.is_quiet(&drain.rules, at(second));
            assert_eq!(is_quiet, matches!(second, 3 | 4 | 7..), "{second}");
            if second == 4 {
                history.start(at(4), false);
            }
            let decision = history.decide(&drain.rules, at(second), Duration::from_secs(1));
            let ends = matches!(decision, ExitDecision::Exit(_));
            assert_eq!(ends, second >= 7, "{second}");
        }
        assert_eq!(history.time_to(Some(at(4))), Some(Duration::from_secs(4)));
    }

    fn drained(second: f64) -> Option<(f64, DrainOutcome)> {
        Some((second, DrainOutcome::Drained))
    }

    fn idled(second: f64) -> Option<(f64, DrainOutcome)> {
        Some((second, DrainOutcome::Idle))
    }

    fn counters([accepted, health_checks, completed, connections]: [u64; 4]) -> Counters {
        let requests = Some(RequestCounters {
            completed,
            connections,
            ..RequestCounters::default()
        });
        Counters {
            accepted,
            health_checks,
            requests,
            ..Counters::default()
        }
    }

    /// Requests on keep-alive connections.
    fn on_reused(completed: u64) -> Counters {
        counters([0, 0, completed, 0])
    }

    /// Connections with one request each: health checks, which Envoy answers, and others.
    fn on_new(health_checks: u64, others: u64) -> Counters {
        let all = health_checks + others;
        counters([all, health_checks, others, all])
    }

    /// How many arrive until `second`, one each `period` from `first` on.
    fn arrivals_by(period: f64, first: f64, second: f64) -> u64 {
        ((second + period - first) / period) as u64
    }

    fn counted(connections: u64, counters: Option<Counters>, http: HttpCounts) -> Polled {
        polled(OpenConnections {
            connections: Some(connections),
            counters,
            http: Some(http),
            ..OpenConnections::default()
        })
    }

    fn polled(open: OpenConnections) -> Polled {
        let live = Some(false);
        Ok(Snapshot {
            live,
            open,
            ..Snapshot::default()
        })
    }

    /// Open connections of which this is in flight, while no client does anything new.
    fn in_flight(connections: u64, set: impl FnOnce(&mut HttpCounts)) -> Polled {
        let mut http = HttpCounts::default();
        set(&mut http);
        counted(connections, Some(on_new(0, 100)), http)
    }

    fn idle(connections: u64) -> Polled {
        in_flight(connections, |_| ())
    }

    fn busy(connections: u64) -> Polled {
        in_flight(connections, |http| http.requests = 1)
    }

    /// Three idle connections at each poll, and the counters of what clients did between polls.
    fn idle_at_polls(counters: Counters) -> Polled {
        counted(3, Some(counters), HttpCounts::default())
    }

    /// No open connection, and this many that were accepted so far.
    fn closed(accepted: u64) -> Polled {
        let counters = counters([accepted, 0, 0, 0]);
        counted(0, Some(counters), HttpCounts::default())
    }

    fn no_response() -> Polled {
        Err(HttpError::NoResponse("500".into()).into())
    }

    fn refused() -> Polled {
        Err(ConnectionRefused.into())
    }

    #[tokio::test(start_paused = true)]
    async fn drain_ends_without_connections() {
        // After the minimum, or when the last connection closes: two polls confirm that.
        assert_eq!(drain(|_| idle(0)).end(), drained(10.0));
        assert_eq!(until(20.0, busy(1), idle(0)).end(), drained(20.05));
        let without_wait = drain(|_| idle(0)).with(|durations| {
            durations.min_drain_duration = Duration::ZERO;
            durations.quiet_period = Duration::ZERO;
        });
        assert_eq!(without_wait.end(), drained(0.05));
        // Not while nothing is known.
        let unknown = polled(OpenConnections {
            counters: Some(on_new(0, 100)),
            ..OpenConnections::default()
        });
        assert_eq!(until(15.0, unknown.clone(), idle(0)).end(), drained(15.05));
        assert_eq!(drain(move |_| unknown.clone()).end(), None);
        assert_eq!(drain(|_| no_response()).end(), None);
        // As many connections may remain as the threshold allows.
        let mut two_remain = until(15.0, busy(3), busy(2));
        assert_eq!(two_remain.end(), None);
        two_remain.rules.exit_at_connections = 2;
        assert_eq!(two_remain.end(), drained(15.05));
    }

    #[test]
    fn nothing_is_cut_at_the_deadline_where_nothing_is_left() {
        use DrainOutcome::{Deadline, Drained, Idle};
        use std::iter::repeat_n;
        assert_eq!(outcome_at_deadline(repeat_n(idle(0), 59)), Drained);
        assert_eq!(outcome_at_deadline(repeat_n(idle(1), 59)), Idle);
        assert_eq!(outcome_at_deadline(repeat_n(busy(1), 59)), Deadline);
        assert_eq!(outcome_at_deadline([]), Deadline);
        // One poll does not confirm that nothing is left, nor does one before the last.
        let last = |polled| repeat_n(busy(1), 59).chain([polled]);
        assert_eq!(outcome_at_deadline(last(idle(0))), Deadline);
        let lost = repeat_n(idle(0), 59).chain([no_response()]);
        assert_eq!(outcome_at_deadline(lost), Deadline);
        // Nor does one that is old, since the next has no response yet.
        assert_eq!(outcome_after(1.0, repeat_n(idle(0), 59)), Drained);
        assert_eq!(outcome_after(1.1, repeat_n(idle(0), 59)), Deadline);
        // Endpoints still route to the pod.
        let arrivals = (0..10).map(closed);
        assert_eq!(outcome_at_deadline(arrivals), Deadline);
    }

    #[test]
    fn new_listener_is_read_before_a_drain_ends() {
        let with_new = |polled: Polled| {
            polled.map(|snapshot| Snapshot {
                has_new_listener: true,
                ..snapshot
            })
        };
        assert_eq!(
            until(15.0, with_new(idle(0)), idle(0)).end(),
            drained(15.05)
        );
        assert_eq!(until(15.0, with_new(idle(1)), idle(1)).end(), idled(22.0));
    }

    #[tokio::test(start_paused = true)]
    async fn drain_ends_when_envoy_is_gone() {
        let gone = Some((2.6, DrainOutcome::Gone));
        assert_eq!(until(2.0, busy(1), refused()).end(), gone);
        let refused_twice = drain(|s| match s {
            2.0..2.4 => refused(),
            _ => idle(0),
        });
        assert_eq!(refused_twice.end(), drained(10.0));
        let mut never_responded = drain(|_| refused());
        never_responded.rules.has_responded = false;
        assert_eq!(never_responded.end(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn drain_ends_when_only_idle_connections_are_left() {
        // For as long as idle-exit, which may be within the minimum.
        assert_eq!(drain(|_| idle(3)).end(), idled(10.0));
        assert_eq!(until(12.0, busy(3), idle(3)).end(), idled(19.0));
        let off = drain(|_| idle(3)).with(|durations| durations.idle_exit = None);
        assert_eq!(off.end(), None);
        // A request, a TCP stream and a WebSocket are not idle, nor is a response that its client still reads.
        assert_eq!(drain(|_| busy(1)).end(), None);
        let tcp = drain(|_| in_flight(1, |http| http.non_http = 1));
        assert_eq!(tcp.end(), None);
        let upgrade = drain(|_| in_flight(1, |http| (http.requests, http.upgrades) = (1, 1)));
        assert_eq!(upgrade.end(), None);
        let unsent = in_flight(1, |http| http.buffered_bytes = 1);
        assert_eq!(until(15.0, unsent, idle(1)).end(), idled(22.0));
        // Every other poll fails, so what is between is unknown.
        let unknown_between = drain(|s| match s {
            30.0.. => idle(0),
            _ if (s * 2.0).fract() == 0.0 => no_response(),
            _ => idle(1),
        });
        assert_eq!(unknown_between.end(), drained(30.05));
    }

    #[tokio::test(start_paused = true)]
    async fn quiet_window_follows_the_last_arrival_up_to_cap() {
        // The cap is 30 s; the count has been zero all along.
        for (last, end) in [(5.0, 10.0), (8.0, 11.0), (13.0, 16.0), (1000.0, 30.05)] {
            // A new connection each second until `last`.
            let sparse = drain(move |s| closed(s.min(last) as u64));
            let (second, outcome) = sparse.end().unwrap();
            assert_eq!(outcome, DrainOutcome::Drained);
            let is_in_time = (end - 0.06..end + 0.01).contains(&second);
            assert!(is_in_time, "last {last}: {second}");
        }
        let hidden = drain(|_| counted(0, None, HttpCounts::default()));
        assert_eq!(hidden.end(), drained(30.0));
    }

    #[tokio::test(start_paused = true)]
    async fn readiness_probes_are_not_clients() {
        for phase in [0.0, 0.1, 0.9, 1.7] {
            let end = |period: f64, probes: &[&str]| {
                let arrivals = drain(move |s| closed(arrivals_by(period, phase, s)));
                arrivals.with_probes(probes).end().unwrap().0
            };
            assert!(end(2.0, &["80/2s"]) <= 10.6, "phase {phase}");
            assert!(end(2.0, &[]) >= 29.0, "undeclared, phase {phase}");
            let with_clients = end(1.0, &["80/2s"]);
            assert!(with_clients >= 29.0, "clients among them, phase {phase}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn idle_exit_requires_unused_connections() {
        let requests =
            |period| drain(move |s| idle_at_polls(on_reused(arrivals_by(period, 0.1, s))));
        assert_eq!(requests(0.1).end(), None);
        assert_eq!(requests(6.0).end(), None);
        assert_eq!(requests(8.0).end(), idled(15.25), "between two requests");
        let last_at_12 = drain(|s| idle_at_polls(on_reused(arrivals_by(1.0, 0.0, s.min(12.0)))));
        assert_eq!(last_at_12.end(), idled(19.0));
        // Health checks of two clients, each on a new connection, do not use the idle ones.
        let checks = |s| arrivals_by(1.0, 0.1, s) + arrivals_by(2.0, 0.3, s);
        let health_checks = drain(move |s| idle_at_polls(on_new(checks(s), 0)));
        assert_eq!(health_checks.end(), idled(10.0));
        // Nor does a probe that the upstream answers.
        let probe = drain(|s| idle_at_polls(on_new(0, arrivals_by(1.0, 0.1, s))));
        assert_eq!(probe.with_probes(&["80/1s"]).end(), idled(10.0));
        let hidden = drain(|_| idle_at_polls(Counters::default()));
        assert_eq!(hidden.end(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn health_checks_neither_count_as_nor_hide_clients() {
        for phase in [0.0, 0.3, 0.6, 0.9] {
            for probes in [&[][..], &["80/1s"]] {
                // A readiness probe every second and a health checker every two, both answered by Envoy, and a
                // client every second until 15 s.
                let mixed = drain(move |s| {
                    let checks = arrivals_by(1.0, phase, s) + arrivals_by(2.0, 0.3, s);
                    idle_at_polls(on_new(checks, arrivals_by(1.0, 0.6, s.min(15.0))))
                });
                let (second, _) = mixed.with_probes(probes).end().unwrap();
                let is_in_time = (17.5..18.1).contains(&second);
                assert!(is_in_time, "phase {phase}, probes {probes:?}: {second}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn lower_counters_start_a_new_window() {
        for (at, end) in [(2.0, 10.0), (8.0, 15.0), (9.5, 16.5)] {
            // A listener is removed, or the counters are reset.
            for remaining in [5, 0] {
                let before = idle_at_polls(on_new(0, 9));
                let lower = until(at, before, idle_at_polls(on_new(0, remaining)));
                assert_eq!(lower.end(), idled(end), "{remaining} at {at}");
            }
        }
    }
}
