//! Tests of the state machine in paused time, against a fake Envoy whose behaviour is a function of the second.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use tempfile::TempDir;
use tokio::task::LocalSet;
use tokio::time::sleep_until;

use super::*;
use crate::admin_address::AdminAddress;
use crate::client_activity::{Counters, RequestCounters};
use crate::envoy::hidden_stats::HiddenStats;
use crate::envoy::listeners::{self, EnvoyListeners};
use crate::envoy::server_info::ServerInfo;
use crate::envoy::snapshot::{Counts, HttpCounts, OpenConnections, Snapshot};
use crate::envoy::{AdminCall, Setup};
use crate::health_failure::HealthFailureDelay;
use crate::http_client::CallError;
use crate::termination::{Hook, hold};
use crate::timing::{Durations, Timing};

/// How Envoy behaves at a moment.
#[derive(Clone)]
enum Behaviour {
    /// Responds, with this many active requests.
    Busy(u64),
    /// Accepts connections and does not respond, until the client gives up.
    Hung,
    /// Returns 500.
    Failing,
    /// Returns 404.
    Rejecting,
    /// Refuses connections. Then it is another Envoy, and live, perhaps at another address.
    Gone,
    /// Its admin interface is searched for, and not found.
    Unknown(AdminAbsence),
}

/// What happens to the drainer.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Event {
    /// Envoy's hook is called.
    Envoy,
    /// Envoy's hook is called, and its connection is closed at this second.
    EnvoyUntil(f64),
    /// The drainer's own hook is called.
    Drainer,
    Sigterm,
}

struct FakeEnvoy {
    started: Instant,
    behaviour: fn(f64) -> Behaviour,
    log: Log,
    /// Its health is not failed.
    live: Cell<bool>,
    /// The second of its last start.
    restarted_at: Cell<f64>,
    /// When it was last called, in seconds.
    last_call_at: Cell<f64>,
    http3: Option<Http3Connections>,
    /// The port of its admin interface at a second.
    port: fn(f64) -> u16,
    /// The address that a search has found.
    address: Option<AdminAddress>,
}

/// How many HTTP/3 connections are open at a second; Envoy then has a QUIC listener, and the immediate drain strategy.
type Http3Connections = fn(f64) -> u64;

const QUIC_DUMP: &[u8] =
    br#"{"configs":[{"listener":{"name":"web","udp_listener_config":{"quic_options":{}},
    "address":{"socket_address":{"address":"0.0.0.0","port_value":443}}}}]}"#;

/// Events by the second of the scenario.
type Log = Rc<RefCell<Vec<(f64, String)>>>;

struct Scenario {
    behaviour: fn(f64) -> Behaviour,
    timing: Timing,
    grace_period: Duration,
    events: Vec<(f64, Event)>,
    /// Whether Envoy is live at the start.
    live: bool,
    /// The port of the admin interface at a second.
    port: fn(f64) -> u16,
    http3: Option<Http3Connections>,
    health_failure_delay: HealthFailureDelay,
    dir: TempDir,
}

// === impl FakeEnvoy ===

impl FakeEnvoy {
    fn second(&self) -> f64 {
        (Instant::now() - self.started).as_secs_f64()
    }

    fn record(&self, event: &str) {
        let second = (self.second() * 100.0).round() / 100.0;
        self.log.borrow_mut().push((second, event.to_owned()));
    }

    async fn call(&self) -> Result<u64, CallError> {
        let now = self.second();
        let mut since = self.last_call_at.replace(now);
        while since < now {
            if let Behaviour::Gone = (self.behaviour)(since) {
                self.live.set(true);
                self.restarted_at.set(since);
            }
            since += 0.1;
        }
        let is_known = |it: &AdminAddress| *it == self.current_address();
        if !self.address.as_ref().is_none_or(is_known) {
            return Err(CallError::ConnectionRefused);
        }
        match (self.behaviour)(now) {
            Behaviour::Busy(requests) => Ok(requests),
            Behaviour::Hung => {
                sleep(Duration::from_secs(5)).await;
                Err(CallError::NoResponse("timeout".into()))
            }
            Behaviour::Failing => Err(CallError::NoResponse("500".into())),
            Behaviour::Rejecting => Err(CallError::Rejected("404".into())),
            Behaviour::Gone => Err(CallError::ConnectionRefused),
            Behaviour::Unknown(absence) => Err(absence.into()),
        }
    }

    fn current_address(&self) -> AdminAddress {
        AdminAddress::Tcp(([127, 0, 0, 1], (self.port)(self.second())).into())
    }
}

impl Envoy for FakeEnvoy {
    async fn post(&mut self, call: AdminCall) -> Result<(), CallError> {
        self.call().await?;
        let (live, event) = match call {
            AdminCall::FailHealth => (false, "fail"),
            AdminCall::RestoreHealth => (true, "ok"),
            AdminCall::DrainListeners => (self.live.get(), "listeners"),
        };
        self.live.set(live);
        self.record(event);
        Ok(())
    }

    async fn poll(&mut self) -> Result<Snapshot, CallError> {
        let requests = self.call().await?;
        let open = OpenConnections {
            connections: requests,
            counters: Some(Counters {
                requests: Some(RequestCounters::default()),
                ..Counters::default()
            }),
            http: Some(HttpCounts {
                requests,
                http3: self.http3.map_or(0, |open| open(self.second())),
                ..HttpCounts::default()
            }),
            ..OpenConnections::default()
        };
        Ok(Snapshot {
            live: Some(self.live.get()),
            counts: Counts::Exact(open),
            ..Snapshot::default()
        })
    }

    async fn server_info(&mut self) -> Result<ServerInfo, CallError> {
        self.call().await?;
        let state = if self.live.get() { "LIVE" } else { "DRAINING" };
        let strategy = self.http3.map_or("Gradual", |_| "Immediate");
        let uptime = (self.second() - self.restarted_at.get()).floor();
        let body = format!(
            r#"{{"version": "", "state": "{state}", "uptime_current_epoch": "{uptime}s",
                "command_line_options": {{"drain_strategy": "{strategy}"}}}}"#
        );
        Ok(ServerInfo::read(body.as_bytes()).unwrap())
    }

    fn address(&self) -> Option<&AdminAddress> {
        self.address.as_ref()
    }

    async fn find_again(&mut self, _: bool) {
        if !matches!((self.behaviour)(self.second()), Behaviour::Gone) {
            self.address = Some(self.current_address());
        }
    }

    async fn inspect(&mut self) -> Result<Setup, CallError> {
        let listeners = match self.http3 {
            Some(_) => EnvoyListeners::new(listeners::read(QUIC_DUMP).unwrap(), Default::default()),
            None => EnvoyListeners::default(),
        };
        Ok(Setup {
            server: self.server_info().await?,
            listeners: Ok(listeners),
            hidden_stats: Ok(HiddenStats::default()),
        })
    }
}

// === impl Scenario ===

impl Scenario {
    fn new(behaviour: fn(f64) -> Behaviour, events: &[(f64, Event)]) -> Self {
        Self {
            behaviour,
            timing: Timing::default(),
            grace_period: Duration::ZERO,
            events: events.to_vec(),
            live: true,
            port: |_| 9901,
            http3: None,
            health_failure_delay: HealthFailureDelay::Auto,
            dir: tempfile::tempdir().unwrap(),
        }
    }

    fn with(mut self, change: impl FnOnce(&mut Durations)) -> Self {
        let mut durations = *self.timing;
        change(&mut durations);
        self.timing = Timing::try_new(durations).unwrap();
        self
    }

    fn with_http3(mut self, http3: Http3Connections) -> Self {
        self.http3 = Some(http3);
        self
    }

    /// Runs the scenario for five minutes. Returns the calls that change Envoy, the returns of hooks and the machine's
    /// end, in order.
    async fn run(&self) -> Vec<(f64, String)> {
        let started = Instant::now();
        let log = Log::default();
        let mut config = Config {
            timing: self.timing,
            grace_period: self.grace_period,
            termination_log: self.dir.path().join("log"),
            ..Config::new(crate::Token::new(0))
        };
        config.settings.health_failure_delay = self.health_failure_delay;
        let signals = watch::Sender::new(TerminationSignals::default());
        let progress = watch::Sender::new(Progress::default());
        let fake = |log: &Log| FakeEnvoy {
            started,
            behaviour: self.behaviour,
            log: log.clone(),
            live: Cell::new(self.live),
            restarted_at: Cell::new(-1000.0),
            last_call_at: Cell::new(0.0),
            http3: self.http3,
            port: self.port,
            address: None,
        };
        let machine = Machine::new(fake(&log), &config, signals.clone(), progress.clone());
        let tasks = LocalSet::new();
        let clock = fake(&log);
        tasks.spawn_local(async move {
            machine.run().await;
            clock.record("end");
        });
        for (second, event) in self.events.clone() {
            let signals = signals.clone();
            let clock = fake(&log);
            let at = move |second| started + Duration::from_secs_f64(second);
            tasks.spawn_local(async move {
                sleep_until(at(second)).await;
                let (hook, end) = match event {
                    Event::Envoy => (Hook::Envoy, None),
                    Event::EnvoyUntil(end) => (Hook::Envoy, Some(at(end))),
                    Event::Drainer => (Hook::Drainer, None),
                    Event::Sigterm => {
                        signals.send_modify(|signals| signals.record_sigterm(Instant::now()));
                        return;
                    }
                };
                let end = end.unwrap_or(started + Duration::from_secs(1000));
                tokio::select! {
                    () = hold(&signals, hook) => clock.record(&format!("{hook:?} returns")),
                    () = sleep_until(end) => {}
                }
            });
        }
        let end = started + Duration::from_secs(300);
        tasks.run_until(sleep_until(end)).await;
        let last = progress.borrow();
        let address = fake(&Log::default()).current_address().to_string();
        let is_known = last.admin.as_ref().map(|it| *it == address);
        assert!(is_known.unwrap_or(!self.events.is_empty()), "{last:?}");
        assert!(
            !last.health_kept || last.phase == DrainPhase::Draining,
            "{last:?}"
        );
        let mut log = log.borrow().clone();
        // Hooks that are released together return in any order.
        log.sort_by(|(a, event), (b, other)| {
            let is_any = |event: &str| event.ends_with("returns");
            let by_name = if is_any(event) && is_any(other) {
                event.cmp(other)
            } else {
                std::cmp::Ordering::Equal
            };
            a.total_cmp(b).then(by_name)
        });
        log
    }

    /// The termination message; empty without one.
    fn message(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }
}

/// The events, to the tenth of a second.
fn format_log(log: &[(f64, String)]) -> Vec<String> {
    log.iter()
        .map(|(second, event)| format!("{} {event}", (second * 10.0).round() / 10.0))
        .collect()
}

/// The events but for the returns of hooks.
fn calls(log: &[(f64, String)]) -> Vec<String> {
    let calls = log.iter().filter(|(_, event)| !event.ends_with("returns"));
    let calls: Vec<_> = calls.cloned().collect();
    format_log(&calls)
}

/// The calls of the drain and the return of Envoy's hook, `end`.
fn drain_calls(log: &[(f64, String)]) -> Vec<String> {
    let until_end = log.iter().filter(|(_, event)| event != "Drainer returns");
    let lines = until_end.map(|(second, event)| {
        let event = event.replace("Envoy returns", "end");
        format!("{} {event}", (second * 10.0).round() / 10.0)
    });
    lines.filter(|line| !line.ends_with("ok")).collect()
}

/// Each row: the behaviour of Envoy, what happens, and the events.
type Row<'a> = (fn(f64) -> Behaviour, &'a [(f64, Event)], &'a [&'a str]);

async fn assert_events(table: &[Row<'_>]) {
    for (behaviour, events, want) in table {
        let log = Scenario::new(*behaviour, events).run().await;
        assert_eq!(format_log(&log), *want, "{events:?}");
    }
}

const IDLE: fn(f64) -> Behaviour = |_| Behaviour::Busy(0);
const BUSY: fn(f64) -> Behaviour = |_| Behaviour::Busy(1);
const HUNG: fn(f64) -> Behaviour = |_| Behaviour::Hung;
const ABSENT: fn(f64) -> Behaviour = |_| Behaviour::Unknown(AdminAbsence::Refused);
const UNKNOWN: fn(f64) -> Behaviour = |_| Behaviour::Unknown(AdminAbsence::NotFound);
const GONE: fn(f64) -> Behaviour = |_| Behaviour::Gone;

/// Envoy is restarted: gone from the second 20.5 to 23.
const RESTARTED: fn(f64) -> Behaviour = |s| match s {
    20.5..23.0 => Behaviour::Gone,
    _ => Behaviour::Busy(0),
};

/// Envoy is restarted: gone from the second 4.9 to 5.3.
const SUCCEEDED: fn(f64) -> Behaviour = |s| match s {
    4.9..5.3 => Behaviour::Gone,
    _ => Behaviour::Busy(0),
};

#[tokio::test(start_paused = true)]
async fn envoy_hook_and_drainer_signal_start_the_full_drain() {
    use Event::{Drainer, Envoy, EnvoyUntil, Sigterm};
    let both = ["fail", "listeners"];
    for (events, start, end) in [
        (vec![(1.0, Envoy), (1.0, Drainer)], 1.0, 11.0),
        (vec![(1.0, Drainer), (1.0, Envoy)], 1.0, 11.0),
        (vec![(1.0, Envoy), (3.0, Drainer)], 3.0, 13.0),
        (vec![(1.0, Envoy), (10.0, Drainer)], 10.0, 20.0),
        (vec![(1.0, Drainer), (30.0, Envoy)], 30.0, 40.0),
        (vec![(1.0, Envoy), (2.9, Sigterm)], 2.9, 12.9),
        (vec![(1.0, Sigterm), (9.0, Envoy)], 9.0, 19.0),
        // The hooks' connections close: the drain goes on.
        (vec![(1.0, EnvoyUntil(2.0)), (1.0, Drainer)], 1.0, 11.0),
    ] {
        let log = Scenario::new(IDLE, &events).run().await;
        let starts = both.map(|call| (start, call.to_owned()));
        assert_eq!(log[..2], starts, "{events:?}");
        let returns = log[2..]
            .iter()
            .filter(|(_, event)| event.ends_with("returns"));
        assert!(
            returns.clone().count() > 0 && returns.clone().all(|(at, _)| *at == end),
            "{log:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn envoy_hook_alone_drains_softly() {
    use Event::{Drainer, Envoy, EnvoyUntil, Sigterm};
    let busy_until_22: fn(f64) -> Behaviour = |s| Behaviour::Busy((s < 22.0).into());
    let hung_later: fn(f64) -> Behaviour = |s| {
        if s < 8.0 {
            Behaviour::Busy(0)
        } else {
            Behaviour::Hung
        }
    };
    assert_events(&[
        // Nothing restarts Envoy, so its health is restored.
        (
            IDLE,
            &[(0.0, Envoy)],
            &["10 fail", "20 Envoy returns", "30 ok"],
        ),
        // A request holds the drain, for 15 s at most.
        (
            busy_until_22,
            &[(0.0, Envoy)],
            &["10 fail", "22.1 Envoy returns", "32.1 ok"],
        ),
        (
            BUSY,
            &[(0.0, Envoy)],
            &["10 fail", "25 Envoy returns", "35 ok"],
        ),
        // The kubelet restarts Envoy.
        (RESTARTED, &[(0.0, Envoy)], &["10 fail", "20 Envoy returns"]),
        // It closes the connection, as when the pod is deleted.
        (IDLE, &[(0.0, EnvoyUntil(8.0))], &[]),
        // It has closed the connection when the drainer is updated.
        (
            IDLE,
            &[(0.0, EnvoyUntil(10.5)), (15.0, Drainer)],
            &["10 fail", "20 Drainer returns", "30 ok"],
        ),
        // Another Envoy serves by then, since the kubelet has not waited for the hook.
        (SUCCEEDED, &[(0.0, Envoy)], &["10 Envoy returns"]),
        // Envoy hangs after its hook was called.
        (hung_later, &[(0.0, Envoy)], &["25 Envoy returns"]),
        // The drainer's hook comes while the soft drain lasts, or when it has ended.
        (
            BUSY,
            &[(0.0, Envoy), (24.0, Drainer)],
            &[
                "10 fail",
                "24 listeners",
                "60 Drainer returns",
                "60 Envoy returns",
                "90 ok",
            ],
        ),
        (
            IDLE,
            &[(0.0, Envoy), (12.0, Drainer)],
            &[
                "10 fail",
                "12 listeners",
                "22 Drainer returns",
                "22 Envoy returns",
                "90 ok",
            ],
        ),
        (
            IDLE,
            &[(0.0, Envoy), (12.0, Sigterm)],
            &["10 fail", "12 listeners", "22 end", "22 Envoy returns"],
        ),
        (
            IDLE,
            &[(0.0, Envoy), (24.0, Drainer)],
            &["10 fail", "20 Envoy returns", "30 ok", "54 Drainer returns"],
        ),
        (
            IDLE,
            &[(0.0, Envoy), (24.0, Sigterm)],
            &["10 fail", "20 Envoy returns", "30 ok", "34 end"],
        ),
        // The pod is deleted while Envoy's hook is held, and the kubelet calls both hooks once it has returned.
        (
            IDLE,
            &[(0.0, Envoy), (20.5, Envoy), (20.5, Drainer)],
            &[
                "10 fail",
                "20 Envoy returns",
                "20.5 fail",
                "20.5 listeners",
                "30.5 Drainer returns",
                "30.5 Envoy returns",
                "110.5 ok",
            ],
        ),
    ])
    .await;
    let short = Scenario::new(BUSY, &[(0.0, Envoy)]).with(|d| {
        d.min_drain_duration = Duration::from_secs(1);
        d.drain_timeout = Duration::from_secs(4);
    });
    assert_eq!(
        format_log(&short.run().await),
        ["10 fail", "14 Envoy returns", "24 ok"]
    );
    assert_eq!(short.message(), "", "the pod does not end");
}

#[tokio::test(start_paused = true)]
async fn soft_drain_that_becomes_full_does_not_wait_again() {
    let events = [(0.0, Event::Envoy), (12.0, Event::Drainer)];
    let scenario = Scenario::new(IDLE, &events).with(|d| {
        d.drain_delay = Duration::from_secs(40);
        d.wait_for_replacement = Duration::from_secs(30);
    });
    // Its minimum starts anew.
    assert_eq!(
        calls(&scenario.run().await)[..2],
        ["10 fail", "12 listeners"]
    );
    assert!(
        scenario.message().contains(r#""seconds":22.0"#),
        "{}",
        scenario.message()
    );
    assert!(!scenario.message().contains("replacement"));
    // Before it, Envoy's health is kept.
    let events = [(0.0, Event::Envoy), (9.0, Event::Drainer)];
    let scenario =
        Scenario::new(IDLE, &events).with(|d| d.wait_for_replacement = Duration::from_secs(30));
    assert_eq!(
        calls(&scenario.run().await)[..2],
        ["30 fail", "30 listeners"]
    );
    assert!(scenario.message().contains(r#""replacement":"#));
}

#[tokio::test(start_paused = true)]
async fn one_envoy_is_drained_softly_once() {
    use Event::{Drainer, Envoy};
    let restarted: fn(f64) -> Behaviour = |s| match s {
        70.0..72.0 => Behaviour::Gone,
        _ => Behaviour::Busy(0),
    };
    assert_events(&[
        (
            restarted,
            &[(0.0, Envoy), (40.0, Envoy), (80.0, Envoy)],
            &[
                "10 fail",
                "20 Envoy returns",
                "30 ok",
                "50 Envoy returns",
                "90 fail",
                "100 Envoy returns",
                "110 ok",
            ],
        ),
        // The pod's end is drained all the same.
        (
            IDLE,
            &[(0.0, Envoy), (40.0, Envoy), (49.0, Drainer)],
            &[
                "10 fail",
                "20 Envoy returns",
                "30 ok",
                "49 fail",
                "49 listeners",
                "59 Drainer returns",
                "59 Envoy returns",
                "130 ok",
            ],
        ),
    ])
    .await;
    // A client that calls the hook without end fails health once.
    let events: Vec<_> = (0..300).map(|second| (f64::from(second), Envoy)).collect();
    let log = calls(&Scenario::new(IDLE, &events).run().await);
    assert_eq!(log, ["10 fail", "30 ok"]);
}

#[tokio::test(start_paused = true)]
async fn drainer_alone_makes_no_call_to_envoy() {
    use Event::{Drainer, Envoy, Sigterm};
    assert_events(&[
        (BUSY, &[(1.0, Drainer)], &["31 Drainer returns"]),
        (
            BUSY,
            &[(1.0, Drainer), (32.0, Sigterm)],
            &["31 Drainer returns", "42 end"],
        ),
        (BUSY, &[(1.0, Sigterm)], &["11 end"]),
        (HUNG, &[(1.0, Drainer)], &["31 Drainer returns"]),
        (HUNG, &[(1.0, Sigterm)], &["11 end"]),
        // Envoy does not run.
        (GONE, &[(1.0, Drainer)], &["1.6 Drainer returns"]),
        (GONE, &[(1.0, Sigterm)], &["2 end"]),
        (
            GONE,
            &[(1.0, Drainer), (1.7, Sigterm)],
            &["1.6 Drainer returns", "2.7 end"],
        ),
        (GONE, &[(1.0, Envoy)], &["1.6 Envoy returns"]),
        // No answer is not a refusal.
        (HUNG, &[(1.0, Envoy)], &["11 Envoy returns"]),
        (
            |_| Behaviour::Failing,
            &[(1.0, Envoy)],
            &["11 Envoy returns"],
        ),
        (
            |_| Behaviour::Rejecting,
            &[(1.0, Envoy)],
            &["26 Envoy returns"],
        ),
        // The search has found no server at all.
        (ABSENT, &[(1.0, Drainer)], &["1.6 Drainer returns"]),
        (ABSENT, &[(1.0, Sigterm)], &["2 end"]),
        (ABSENT, &[(1.0, Envoy)], &["1.6 Envoy returns"]),
        // It has found others.
        (UNKNOWN, &[(1.0, Drainer)], &["31 Drainer returns"]),
        (UNKNOWN, &[(1.0, Sigterm)], &["11 end"]),
        (UNKNOWN, &[(1.0, Envoy)], &["11 Envoy returns"]),
    ])
    .await;
}

#[tokio::test(start_paused = true)]
async fn envoy_that_has_moved_is_drained() {
    use Event::{Drainer, Envoy};
    let port: fn(f64) -> u16 = |s| if s < 5.0 { 9901 } else { 9902 };
    // It is found again in standby, which is seen in the status,
    let standby = Scenario {
        port,
        ..Scenario::new(SUCCEEDED, &[])
    };
    assert!(standby.run().await.is_empty());
    // and at the start of a drain.
    for second in [60.0, 5.5] {
        let events = [(second, Envoy), (second, Drainer)];
        let scenario = Scenario {
            port,
            ..Scenario::new(SUCCEEDED, &events)
        };
        let log = calls(&scenario.run().await);
        let want = ["fail", "listeners"].map(|call| format!("{second} {call}"));
        assert_eq!(log[..2], want, "{log:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn drained_pod_that_lives_on_is_drained_again() {
    use Event::{Drainer, Envoy};
    let mut scenario = Scenario::new(
        IDLE,
        &[
            (0.0, Envoy),
            (0.0, Drainer),
            (50.0, Envoy),
            (170.0, Envoy),
            (170.0, Drainer),
        ],
    );
    scenario.grace_period = Duration::from_secs(120);
    let log = scenario.run().await;
    // Until the pod would be gone, hooks return at once: a native Envoy serves an app that takes long to end.
    assert!(log.contains(&(50.0, "Envoy returns".to_owned())), "{log:?}");
    assert_eq!(
        calls(&log),
        [
            "0 fail",
            "0 listeners",
            "150 ok",
            "170 fail",
            "170 listeners"
        ]
    );
    // All containers are restarted: another Envoy is live, and not touched.
    let events = [(0.0, Envoy), (0.0, Drainer), (40.0, Envoy), (40.0, Drainer)];
    let log = calls(&Scenario::new(RESTARTED, &events).run().await);
    assert_eq!(
        log[..4],
        ["0 fail", "0 listeners", "40 fail", "40 listeners"]
    );
}

#[tokio::test(start_paused = true)]
async fn drainer_that_starts_restores_health() {
    use Event::{Drainer, Envoy};
    let started = |behaviour, events: &[(f64, Event)]| Scenario {
        live: false,
        ..Scenario::new(behaviour, events)
    };
    let behind: fn(f64) -> Behaviour = |s| {
        if s < 6.5 {
            Behaviour::Failing
        } else {
            Behaviour::Busy(0)
        }
    };
    // What rejected the call may not have been Envoy.
    let rejecting: fn(f64) -> Behaviour = |s| {
        if s < 19.5 {
            Behaviour::Rejecting
        } else {
            Behaviour::Busy(0)
        }
    };
    let table: [(Scenario, &[&str]); 5] = [
        (started(IDLE, &[]), &["0 ok"]),
        (started(behind, &[]), &["7 ok"]),
        (started(rejecting, &[]), &["20 ok"]),
        // Envoy's hook is open from the start.
        (
            started(behind, &[(0.0, Envoy)]),
            &["6.6 ok", "10 fail", "20 Envoy returns", "30 ok"],
        ),
        (Scenario::new(IDLE, &[]), &[]),
    ];
    for (scenario, want) in table {
        assert_eq!(
            format_log(&scenario.run().await),
            want,
            "{:?}",
            scenario.events
        );
    }
    // The pod ends: its drain counts.
    let log = started(IDLE, &[(0.0, Envoy), (0.0, Drainer)]).run().await;
    assert_eq!(calls(&log)[..3], ["0 ok", "0 fail", "0 listeners"]);
}

/// After both signals, hooks return only by an exit rule of the full drain.
#[tokio::test(start_paused = true)]
async fn second_signal_counts_during_any_call() {
    let behaviours: [fn(f64) -> Behaviour; 3] = [
        |s| match s {
            9.9..14.5 => Behaviour::Hung,
            _ => Behaviour::Busy(0),
        },
        |s| match s {
            5.0..8.5 => Behaviour::Failing,
            _ => Behaviour::Busy(0),
        },
        |s| match s {
            0.0..2.0 => Behaviour::Busy(0),
            _ => Behaviour::Failing,
        },
    ];
    for behaviour in behaviours {
        for late in [Event::Drainer, Event::Sigterm] {
            for second in [0.2, 2.4, 5.1, 9.95, 10.2, 14.0] {
                let events = [(0.0, Event::Envoy), (second, late)];
                let log = Scenario::new(behaviour, &events).run().await;
                let mut returned = log.iter().filter(|(_, event)| event.ends_with("returns"));
                assert!(
                    returned.all(|(at, _)| *at >= second + 9.9),
                    "{late:?} at {second}: {log:?}"
                );
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_thousand_hooks_share_one_drain() {
    let mut events = vec![(1.0, Event::Drainer)];
    events.extend(vec![(1.5, Event::Envoy); 1000]);
    let log = Scenario::new(IDLE, &events).run().await;
    let count = |name: &str| log.iter().filter(|(_, event)| event == name).count();
    assert_eq!((count("fail"), count("listeners")), (1, 1));
    let returned = (count("Envoy returns"), count("Drainer returns"));
    assert_eq!(returned, (1000, 1));
}

#[tokio::test(start_paused = true)]
async fn drain_delay_precedes_all_calls_to_envoy() {
    let scenario = Scenario::new(
        |_| Behaviour::Busy(0),
        &[(0.0, Event::Envoy), (0.5, Event::Drainer)],
    )
    .with(|d| d.drain_delay = Duration::from_secs(30));
    let log = scenario.run().await;
    assert_eq!(drain_calls(&log), ["30 fail", "30 listeners", "40 end"]);
}

#[tokio::test(start_paused = true)]
async fn deadline_counts_from_the_first_hook_and_is_exact() {
    let events = [(1.0, Event::Drainer), (1.4, Event::Envoy)];
    let behaviours: [fn(f64) -> Behaviour; 4] = [
        |_| Behaviour::Busy(1),
        |s| {
            if s < 5.0 {
                Behaviour::Busy(1)
            } else {
                Behaviour::Hung
            }
        },
        |s| {
            if s < 2.0 {
                Behaviour::Busy(1)
            } else {
                Behaviour::Failing
            }
        },
        // A wrong address: a wait until the deadline.
        |_| Behaviour::Gone,
    ];
    for behaviour in behaviours {
        let scenario =
            Scenario::new(behaviour, &events).with(|d| d.drain_delay = Duration::from_secs(5));
        let log = scenario.run().await;
        let end = |hook: &str| (66.0, format!("{hook} returns"));
        assert!(
            log.contains(&end("Envoy")) && log.contains(&end("Drainer")),
            "{log:?}"
        );
        let message = scenario.message();
        assert!(message.contains(r#""outcome":"deadline""#), "{message}");
    }
}

#[tokio::test(start_paused = true)]
async fn late_second_signal_has_time_of_the_grace_period() {
    for (grace, end) in [(0, 10.0), (25, 18.0), (20, 15.0)] {
        let events = [(0.0, Event::Drainer), (8.0, Event::Envoy)];
        let mut scenario =
            Scenario::new(BUSY, &events).with(|d| d.drain_timeout = Duration::from_secs(10));
        scenario.grace_period = Duration::from_secs(grace);
        let log = scenario.run().await;
        assert!(log.contains(&(end, "Envoy returns".to_owned())), "{log:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn exited_envoy_ends_the_drain() {
    let both = [(1.0, Event::Drainer), (1.0, Event::Envoy)];
    let behaviour = |s| {
        if s < 5.0 {
            Behaviour::Busy(1)
        } else {
            Behaviour::Gone
        }
    };
    let log = Scenario::new(behaviour, &both).run().await;
    let end = |log: &[(f64, String)]| {
        log.iter()
            .find(|(_, event)| event == "Envoy returns")
            .map(|(at, _)| *at)
    };
    assert!(end(&log).is_some_and(|at| at < 6.2), "{log:?}");
    let delayed = Scenario::new(behaviour, &both).with(|d| d.drain_delay = Duration::from_secs(30));
    let log = delayed.run().await;
    assert!(end(&log).is_some_and(|at| at < 6.2), "{log:?}");
    assert_eq!(log.len(), 2, "no call was made: {log:?}");
}

#[tokio::test(start_paused = true)]
async fn calls_without_a_response_are_retried() {
    let both = [(1.0, Event::Drainer), (1.0, Event::Envoy)];
    let behaviour = |s| match s {
        1.0..4.0 => Behaviour::Failing,
        _ => Behaviour::Busy(0),
    };
    let log = Scenario::new(behaviour, &both).run().await;
    let fails: Vec<_> = log.iter().filter(|(_, event)| event == "fail").collect();
    assert_eq!(fails.len(), 1);
    assert!((4.0..4.3).contains(&fails[0].0), "{log:?}");
    // The minimum starts then.
    let end = log.iter().find(|(_, event)| event == "Envoy returns");
    assert!(
        end.is_some_and(|(at, _)| (14.0..14.4).contains(at)),
        "{log:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn health_is_kept_for_http3_clients_or_for_the_delay() {
    use Event::{Drainer, Envoy};
    let both = [(1.0, Drainer), (1.0, Envoy)];
    let busy: fn(f64) -> Behaviour = |s| Behaviour::Busy((s < 30.0).into());
    let until_10_s: Http3Connections = |s| (s < 10.0).into();
    let until_40_s: Http3Connections = |s| (s < 40.0).into();
    let always: Http3Connections = |_| 1;
    let auto = HealthFailureDelay::Auto;
    let after = |seconds| HealthFailureDelay::After(Duration::from_secs(seconds));
    type Row<'a> = (Option<Http3Connections>, HealthFailureDelay, &'a [&'a str]);
    let table: [Row<'_>; 9] = [
        (None, auto, &["1 fail", "1 listeners", "30 end"]),
        (None, after(0), &["1 fail", "1 listeners", "30 end"]),
        (None, after(5), &["1 listeners", "6 fail", "30 end"]),
        // The last HTTP/3 connection closes, and none is opened for the quiet period.
        (
            Some(until_10_s),
            auto,
            &["1 listeners", "13 fail", "30 end"],
        ),
        (Some(|_| 0), auto, &["1 listeners", "4 fail", "30 end"]),
        // The drain ends before.
        (
            Some(until_40_s),
            auto,
            &["1 listeners", "30 fail", "30 end"],
        ),
        (
            Some(always),
            after(40),
            &["1 listeners", "30 fail", "30 end"],
        ),
        (Some(always), after(5), &["1 listeners", "6 fail", "30 end"]),
        (Some(always), after(0), &["1 fail", "1 listeners", "30 end"]),
    ];
    for (http3, health_failure_delay, want) in table {
        let scenario = Scenario {
            http3,
            health_failure_delay,
            ..Scenario::new(busy, &both)
        };
        let log = scenario.run().await;
        let in_seconds = |(second, event): &(f64, String)| (second.round(), event.clone());
        let log: Vec<_> = log.iter().map(in_seconds).collect();
        assert_eq!(drain_calls(&log), want, "{health_failure_delay}");
    }
}

#[tokio::test(start_paused = true)]
async fn kept_health_is_failed_at_the_deadline_and_not_where_envoy_is_gone() {
    let both = [(1.0, Event::Drainer), (1.0, Event::Envoy)];
    let delayed = Scenario::new(|_| Behaviour::Busy(1), &both)
        .with_http3(|_| 1)
        .with(|d| d.drain_delay = Duration::from_secs(20));
    let want = ["21 listeners", "81 fail", "81 end"];
    assert_eq!(drain_calls(&delayed.run().await), want);
    let message = delayed.message();
    assert!(
        message.contains(r#""secondsToFailedHealth":60.0"#),
        "{message}"
    );
    assert!(message.contains(r#""http3":1"#), "{message}");

    // The deadline is a bound for the hooks also where Envoy hangs.
    let hung = |s| match s {
        50.0.. => Behaviour::Hung,
        _ => Behaviour::Busy(1),
    };
    let log = Scenario::new(hung, &both).with_http3(|_| 1).run().await;
    assert_eq!(drain_calls(&log), ["1 listeners", "62 end"]);

    let behaviour = |s| match s {
        20.0.. => Behaviour::Gone,
        _ => Behaviour::Busy(1),
    };
    let exited = Scenario::new(behaviour, &both).with_http3(|_| 1);
    let log = drain_calls(&exited.run().await);
    assert!(
        log[0] == "1 listeners" && log[1].ends_with(" end"),
        "{log:?}"
    );
}
