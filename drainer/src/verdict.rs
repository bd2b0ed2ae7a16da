//! When a drain ends: the exit rules, decided on what the looks at Envoy have shown.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::envoy::Seen;
use crate::quiet::{Newcomers, Quiet};
use crate::stats::{Count, Http, Open};
use crate::timing::Timing;
use crate::traffic::{Counters, Interval, Traffic};

/// Why a drain ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
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
pub(crate) enum Verdict {
    /// The drain ends.
    Leave(Outcome),
    /// Look again then.
    LookAt(Instant),
}

/// The rules of one drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rules {
    /// Its timings.
    pub timing: Timing,
    /// So many connections may remain.
    pub exit_at_connections: u64,
    /// What counts as quiet.
    pub quiet: Quiet,
    /// Envoy has answered in this process's life, so that a refusal means its end.
    pub has_answered: bool,
}

/// What the looks at Envoy have shown.
#[derive(Debug, Default)]
pub(crate) struct Record {
    /// When Envoy's health was failed and, where that was later, the pod's end was proven: from then
    /// the minimum counts.
    started: Option<Instant>,
    last: Option<Seen>,
    /// Since when every look has shown few enough connections.
    few_since: Option<Instant>,
    /// `server.uptime` then or, if that was later, at the end of the minimum, where only the server's
    /// total shows them.
    few_uptime: Option<u64>,
    /// Since when every look has shown nothing but idle HTTP connections, of which none was used
    /// between two looks.
    idle_since: Option<Instant>,
    traffic: Traffic,
    newcomers: Newcomers,
    /// How many looks in a row were refused.
    refusals: u32,
    /// The most connections seen at once.
    pub peak: u64,
    /// The last look that told what is open.
    pub last_open: Option<Open>,
}

/// Zero must be seen twice: a connection may hang between two counters for a moment.
const SECOND_LOOK: Duration = Duration::from_millis(50);

/// Endpoints that are still used so long after the minimum will not become quiet.
pub const QUIET_CAP: Duration = Duration::from_secs(20);

/// Refused so often, in looks so far apart, is gone: three times within a second.
const REFUSALS: u32 = 3;
const REFUSAL_PAUSE: Duration = Duration::from_millis(300);

// === impl Outcome ===

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Drained => "drained",
            Self::Idle => "idle",
            Self::Gone => "gone",
            Self::Deadline => "deadline",
        })
    }
}

// === impl Record ===

impl Record {
    /// Notes that Envoy's health was failed at `at`: the drain has started.
    pub(crate) fn start(&mut self, at: Instant) {
        self.started.get_or_insert(at);
    }

    /// Notes that the pod's end was proven only now, at `at`.
    pub(crate) fn restart(&mut self, at: Instant) {
        self.started = self.started.map(|_| at);
    }

    /// Adds what a look at `at` has shown.
    pub(crate) fn add(&mut self, at: Instant, seen: Seen, rules: &Rules) {
        let few = match &seen {
            Seen::Counted(Count::Listeners(open)) => {
                let contradicts = open.http.is_some_and(|http| http.contradicts);
                open.connections <= rules.exit_at_connections && !contradicts
            }
            Seen::Counted(Count::Server { connections, .. }) => {
                *connections <= rules.exit_at_connections
            }
            Seen::Counted(Count::Hidden)
            | Seen::Unreadable(_)
            | Seen::Unknown(_)
            | Seen::Refused => false,
        };
        self.few_since = few.then(|| self.few_since.unwrap_or(at));
        let is_early = self
            .started
            .is_none_or(|started| at < started + rules.timing.min_drain_duration);
        self.few_uptime = match seen {
            Seen::Counted(Count::Server { uptime, .. }) if few && is_early => uptime,
            Seen::Counted(Count::Server { uptime, .. }) if few => self.few_uptime.or(uptime),
            _ => None,
        };
        let interval = self.interval(at, &seen, rules);
        let idle = matches!(
            &seen,
            Seen::Counted(Count::Listeners(Open {
                http: Some(Http {
                    requests: 0,
                    upgrades: 0,
                    outside: 0,
                    unsent: 0,
                    contradicts: false,
                }),
                counters: Some(Counters {
                    requests: Some(_),
                    ..
                }),
                ..
            }))
        );
        let unused = interval.is_some_and(|interval| !interval.used);
        let idle_before = self.idle_since.filter(|_| unused);
        self.idle_since = idle.then(|| idle_before.unwrap_or(at));
        self.refusals = match seen {
            Seen::Refused => self.refusals + 1,
            Seen::Counted(_) | Seen::Unreadable(_) | Seen::Unknown(_) => 0,
        };
        match &seen {
            Seen::Counted(Count::Listeners(open)) => {
                self.peak = self.peak.max(open.connections);
                self.last_open = Some(open.clone());
            }
            Seen::Counted(Count::Server { connections, .. }) => {
                self.peak = self.peak.max(*connections)
            }
            Seen::Counted(Count::Hidden)
            | Seen::Unreadable(_)
            | Seen::Unknown(_)
            | Seen::Refused => {}
        }
        self.last = Some(seen);
    }

    /// What happened since the last look that counted; `None` if that cannot be said.
    fn interval(&mut self, at: Instant, seen: &Seen, rules: &Rules) -> Option<Interval> {
        let Seen::Counted(Count::Listeners(open)) = seen else {
            return None;
        };
        let interval = self.traffic.add(open.counters?);
        self.newcomers.add(at, interval, rules.quiet);
        interval
    }

    /// Returns true if the last look has shown that Envoy's health is not failed.
    #[must_use]
    pub(crate) fn is_live(&self) -> bool {
        self.last.as_ref().and_then(Seen::live) == Some(true)
    }

    /// Returns true if the last look has shown statistics, but not those of listeners.
    #[must_use]
    pub(crate) fn is_hidden(&self) -> bool {
        matches!(
            &self.last,
            Some(Seen::Counted(Count::Server { .. } | Count::Hidden))
        )
    }

    /// How long after the start few enough connections were left for good; `None` if more are.
    #[must_use]
    pub(crate) fn time_to_zero(&self) -> Option<Duration> {
        Some(self.few_since?.saturating_duration_since(self.started?))
    }

    /// Decides what to do after the last look, which was at `now` or a moment before, where looks
    /// are a `pause` apart if nothing asks for one sooner. The deadline is not decided here: whoever
    /// waits for Envoy waits no longer than that.
    #[must_use]
    pub(crate) fn verdict(&self, rules: &Rules, now: Instant, pause: Duration) -> Verdict {
        if rules.has_answered && self.refusals > 0 {
            return match self.refusals {
                REFUSALS.. => Verdict::Leave(Outcome::Gone),
                _ => Verdict::LookAt(now + REFUSAL_PAUSE),
            };
        }
        let next = now + pause;
        let Some(started) = self.started else {
            return Verdict::LookAt(next);
        };
        let earliest = started + rules.timing.min_drain_duration;
        if now < earliest {
            return Verdict::LookAt(next.min(earliest));
        }
        if now < earliest + QUIET_CAP && !self.newcomers.are_few(rules.quiet, now) {
            return Verdict::LookAt(next);
        }
        if let Some(since) = self.few_since {
            return match self.few_for_sure_at(since) {
                Some(sure) if now >= sure => Verdict::Leave(Outcome::Drained),
                Some(sure) => Verdict::LookAt(next.min(sure)),
                None => Verdict::LookAt(next),
            };
        }
        match (self.idle_since, rules.timing.idle_exit) {
            (Some(since), Some(span)) if now >= since + span => Verdict::Leave(Outcome::Idle),
            _ => Verdict::LookAt(next),
        }
    }

    /// When few enough connections, seen `since` then, are no chance; `None` if that is not known. The
    /// server's total may be as old as Envoy's flush interval, which may be hidden: another flush must
    /// have shown the same, after the minimum, when clients have had time to learn of the end.
    fn few_for_sure_at(&self, since: Instant) -> Option<Instant> {
        match &self.last {
            Some(Seen::Counted(Count::Server { uptime, .. })) => {
                let is_flushed = uptime.is_some() && *uptime != self.few_uptime;
                is_flushed.then_some(since)
            }
            _ => Some(since + SECOND_LOOK),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timing::Durations;
    use crate::traffic::Requests;

    /// A drain looked at each 250 ms of paused time, at a poll interval of the same length.
    struct Looks {
        rules: Rules,
        /// What is seen at a second of the drain.
        seen: Box<dyn Fn(f64) -> Seen>,
    }

    // === impl Looks ===

    impl Looks {
        fn new(seen: impl Fn(f64) -> Seen + 'static) -> Self {
            let timing = Timing::default();
            let rules = Rules {
                timing,
                exit_at_connections: 0,
                quiet: Quiet::new(timing.quiet_period, []),
                has_answered: true,
            };
            let seen = Box::new(seen);
            Self { rules, seen }
        }

        fn with(mut self, change: impl FnOnce(&mut Durations)) -> Self {
            let mut durations = *self.rules.timing;
            change(&mut durations);
            self.rules.timing = Timing::try_new(durations).unwrap();
            self.rules.quiet = Quiet::new(durations.quiet_period, []);
            self
        }

        fn probed(mut self, probes: &[&str]) -> Self {
            let probes = probes.iter().map(|probe| probe.parse().unwrap());
            self.rules.quiet = Quiet::new(self.rules.timing.quiet_period, probes);
            self
        }

        /// When and why the drain ends, in seconds; `None` if not within two minutes.
        fn end(&self) -> Option<(f64, Outcome)> {
            let started = Instant::now();
            let mut now = started;
            let mut record = Record::default();
            record.start(started);
            loop {
                let second = (now - started).as_secs_f64();
                if second > 120.0 {
                    return None;
                }
                record.add(now, (self.seen)(second), &self.rules);
                match record.verdict(&self.rules, now, self.rules.timing.poll_interval) {
                    Verdict::Leave(outcome) => {
                        return Some(((second * 1000.0).round() / 1000.0, outcome));
                    }
                    Verdict::LookAt(at) => {
                        assert!(at > now, "a pause between two looks");
                        now = at;
                    }
                }
            }
        }
    }

    fn seen(connections: u64, http: Http, accepted: u64) -> Seen {
        let counters = Counters {
            accepted,
            requests: Some(Requests::default()),
            ..Counters::default()
        };
        Seen::Counted(Count::Listeners(Open {
            connections,
            counters: Some(counters),
            http: Some(http),
            live: Some(false),
            ..Open::default()
        }))
    }

    /// Three idle connections at each look, and what clients did between the looks.
    fn between(counters: Counters) -> Seen {
        Seen::Counted(Count::Listeners(Open {
            connections: 3,
            counters: Some(counters),
            http: Some(Http::default()),
            live: Some(false),
            ..Open::default()
        }))
    }

    /// So many have come by a second, if one comes each `period` from `first` on.
    fn each(period: f64, first: f64, second: f64) -> u64 {
        ((second + period - first) / period) as u64
    }

    /// Requests on kept connections.
    fn on_kept(completed: u64) -> Counters {
        Counters {
            requests: Some(Requests {
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
            requests: Some(Requests {
                completed: others,
                connections: health_checks + others,
            }),
            ..Counters::default()
        }
    }

    fn idle(connections: u64) -> Seen {
        seen(connections, Http::default(), 100)
    }

    fn busy(connections: u64) -> Seen {
        seen(
            connections,
            Http {
                requests: 1,
                ..Http::default()
            },
            100,
        )
    }

    fn unknown() -> Seen {
        Seen::Unknown("500".into())
    }

    #[tokio::test(start_paused = true)]
    async fn each_rule_ends_a_drain_when_it_holds_and_not_before() {
        use Outcome::{Drained, Gone, Idle};
        let tcp = Http {
            outside: 1,
            ..Http::default()
        };
        let unsent = Http {
            unsent: 1,
            ..Http::default()
        };
        let upgrade = Http {
            requests: 1,
            upgrades: 1,
            ..Http::default()
        };
        let table = [
            (
                "nothing open: the minimum",
                Looks::new(|_| idle(0)),
                Some((10.0, Drained)),
            ),
            (
                "the last one leaves at 20 s",
                Looks::new(|s| busy((s < 20.0).into())),
                Some((20.05, Drained)),
            ),
            (
                "no minimum, no quiet: two looks",
                Looks::new(|_| idle(0)).with(|d| {
                    d.min_drain_duration = Duration::ZERO;
                    d.quiet_period = Duration::ZERO;
                }),
                Some((0.05, Drained)),
            ),
            (
                "only idle connections: idle-exit is within the minimum",
                Looks::new(|_| idle(3)),
                Some((10.0, Idle)),
            ),
            (
                "a request until 12 s, then idle",
                Looks::new(|s| if s < 12.0 { busy(3) } else { idle(3) }),
                Some((19.0, Idle)),
            ),
            (
                "idle-exit is off",
                Looks::new(|_| idle(3)).with(|d| d.idle_exit = None),
                None,
            ),
            ("a request never ends", Looks::new(|_| busy(1)), None),
            (
                "a response that its client has read at 15 s",
                Looks::new(move |s| {
                    if s < 15.0 {
                        seen(1, unsent, 9)
                    } else {
                        idle(1)
                    }
                }),
                Some((22.0, Idle)),
            ),
            (
                "a stream of TCP",
                Looks::new(move |_| seen(1, tcp, 9)),
                None,
            ),
            (
                "a WebSocket",
                Looks::new(move |_| seen(1, upgrade, 9)),
                None,
            ),
            ("nothing is known", Looks::new(|_| unknown()), None),
            (
                "no connection, and yet one of HTTP or a request, until 15 s",
                Looks::new(|s| {
                    let http = Http {
                        contradicts: s < 15.0,
                        ..Http::default()
                    };
                    seen(0, http, 9)
                }),
                Some((15.05, Drained)),
            ),
            (
                "zero, but unknown between two looks, until 30 s",
                Looks::new(|s| match s {
                    30.0.. => idle(0),
                    _ if ((s * 1000.0) as u64).is_multiple_of(500) => unknown(),
                    _ => idle(1),
                }),
                Some((30.05, Drained)),
            ),
            (
                "gone at 2 s",
                Looks::new(|s| if s < 2.0 { busy(1) } else { Seen::Refused }),
                Some((2.6, Gone)),
            ),
            (
                "refused twice, then back",
                Looks::new(|s| {
                    if (2.0..2.4).contains(&s) {
                        Seen::Refused
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
        let mut looks = Looks::new(|_| Seen::Refused);
        looks.rules.has_answered = false;
        assert_eq!(looks.end(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn so_many_connections_may_remain() {
        let mut looks = Looks::new(|s| busy(if s < 15.0 { 3 } else { 2 }));
        assert_eq!(looks.end(), None);
        looks.rules.exit_at_connections = 2;
        assert_eq!(looks.end(), Some((15.05, Outcome::Drained)));
    }

    #[tokio::test(start_paused = true)]
    async fn quiet_waits_for_the_last_newcomer_but_not_for_ever() {
        // A new connection each second, answered at once, until `last`.
        let sparse = |last: f64| Looks::new(move |s| seen(0, Http::default(), s.min(last) as u64));
        let table = [
            (5.0, 10.0),
            (8.0, 11.0),
            (13.0, 16.0),
            (1000.0, 30.05), // the cap; zero had been seen all along
        ];
        for (last, end) in table {
            let (second, outcome) = sparse(last).end().unwrap();
            assert_eq!(outcome, Outcome::Drained);
            assert!(
                (end - 0.06..end + 0.01).contains(&second),
                "last {last}: {second}"
            );
        }
        let hidden = Looks::new(|_| {
            let Seen::Counted(Count::Listeners(open)) = idle(0) else {
                panic!()
            };
            Seen::Counted(Count::Listeners(Open {
                counters: None,
                ..open
            }))
        });
        assert_eq!(hidden.end(), Some((30.0, Outcome::Drained)));
    }

    #[tokio::test(start_paused = true)]
    async fn readiness_probes_are_no_newcomers() {
        let probes = |period: f64, first: f64| {
            Looks::new(move |s| seen(0, Http::default(), each(period, first, s)))
        };
        for phase in [0.0, 0.1, 0.9, 1.7] {
            let (second, _) = probes(2.0, phase).probed(&["80/2s"]).end().unwrap();
            assert!(second <= 10.6, "phase {phase}: {second}");
            let (second, _) = probes(2.0, phase).end().unwrap();
            assert!(second >= 29.0, "untold, phase {phase}: {second}");
            let (second, _) = probes(1.0, phase).probed(&["80/2s"]).end().unwrap();
            assert!(
                second >= 29.0,
                "clients among them, phase {phase}: {second}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn idle_connections_are_unused_ones() {
        let table: [(&str, Looks, Option<f64>); 9] = [
            (
                "ten with a request a second, which no look sees",
                Looks::new(|s| between(on_kept(10 * each(1.0, 0.1, s)))),
                None,
            ),
            (
                "one with a request a second",
                Looks::new(|s| between(on_kept(each(1.0, 0.1, s)))),
                None,
            ),
            (
                "a request each 6 s",
                Looks::new(|s| between(on_kept(each(6.0, 0.1, s)))),
                None,
            ),
            (
                "a request each 8 s: idle-exit passes between two",
                Looks::new(|s| between(on_kept(each(8.0, 0.1, s)))),
                Some(15.25),
            ),
            (
                "the last request at 12 s",
                Looks::new(|s| between(on_kept(each(1.0, 0.0, s.min(12.0))))),
                Some(19.0),
            ),
            (
                "health checks of two, each on its connection",
                Looks::new(|s| between(on_new(each(1.0, 0.1, s) + each(2.0, 0.3, s), 0))),
                Some(10.0),
            ),
            (
                "a probe that the upstream answers",
                Looks::new(|s| between(on_new(0, each(1.0, 0.1, s)))).probed(&["80/1s"]),
                Some(10.0),
            ),
            (
                "a listener is removed at 8 s",
                Looks::new(|s| between(on_new(0, if s < 8.0 { 9 } else { 5 }))),
                Some(15.0),
            ),
            (
                "requests are hidden",
                Looks::new(|_| between(Counters::default())),
                None,
            ),
        ];
        for (case, looks, want) in table {
            let want = want.map(|second| (second, Outcome::Idle));
            assert_eq!(looks.end(), want, "{case}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn health_checks_are_no_newcomers_and_hide_none() {
        // A readiness probe each second and a health checker each two, both answered by Envoy, and
        // a client each second until 15 s.
        let crowd = |phase: f64| {
            move |s: f64| {
                let checks = each(1.0, phase, s) + each(2.0, 0.3, s);
                between(on_new(checks, each(1.0, 0.6, s.min(15.0))))
            }
        };
        for phase in [0.0, 0.3, 0.6, 0.9] {
            for probes in [&[][..], &["80/1s"]] {
                let (second, _) = Looks::new(crowd(phase)).probed(probes).end().unwrap();
                let late = (17.5..18.1).contains(&second);
                assert!(late, "phase {phase}, told of {probes:?}: {second}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_servers_total_counts_when_another_flush_confirms_it() {
        // Flushed each so many seconds, as of then.
        let server = |until: f64, interval: f64| {
            Looks::new(move |s| {
                let flushed = (s / interval).floor() * interval;
                Seen::Counted(Count::Server {
                    connections: (flushed < until).into(),
                    uptime: Some(100 + flushed as u64),
                    live: None,
                })
            })
        };
        let drained = |second| Some((second, Outcome::Drained));
        // Quiet cannot be seen, hence the cap.
        assert_eq!(server(0.0, 5.0).end(), drained(30.0));
        assert_eq!(server(28.0, 5.0).end(), drained(35.0));
        assert_eq!(server(0.0, 50.0).end(), drained(50.0));
        let at_once = server(0.0, 8.0).with(|d| d.quiet_period = Duration::ZERO);
        assert_eq!(at_once.end(), drained(16.0), "a flush after the minimum");
        assert_eq!(server(0.0, 1000.0).end(), None);
        assert_eq!(server(1000.0, 5.0).end(), None);
        let hidden = Looks::new(|_| {
            Seen::Counted(Count::Server {
                connections: 0,
                uptime: None,
                live: None,
            })
        });
        assert_eq!(hidden.end(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn counters_that_are_reset_begin_a_new_window() {
        let reset = |at: f64| Looks::new(move |s| between(on_new(0, if s < at { 9 } else { 0 })));
        for (at, end) in [(2.0, 10.0), (8.0, 15.0), (9.5, 16.5)] {
            assert_eq!(reset(at).end(), Some((end, Outcome::Idle)), "{at}");
        }
    }
}
