//! Tests of the state machine in paused time, against a fake Envoy whose behaviour is a function of the second.

use std::cell::RefCell;
use std::io::{self, ErrorKind};
use std::rc::Rc;

use fake_envoy::{Behaviour, FakeEnvoy, Fault};
use serde_json::Value;
use tempfile::TempDir;
use tokio::task::LocalSet;
use tokio::time::sleep_until;

use super::termination::{Hook, hold};
use super::*;
use crate::http_client::IN_MEMORY;
use crate::settings::admin_address::AdminAddress;
use crate::settings::health_failure_delay::HealthFailureDelay;
use crate::settings::timing::Timing;
use crate::shutdown_manager::{ENVOY_GATEWAY, ShutdownManager};

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

/// How Envoy behaves at a second.
type Script = fn(f64) -> Behaviour;

/// Appends to what this thread has logged.
struct ThreadLog;

/// Events by the second of the scenario.
type Log = Vec<(f64, String)>;

thread_local! {
    static LOGGED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

struct Scenario {
    behaviour: Script,
    timing: Timing,
    grace_period: Duration,
    events: Vec<(f64, Event)>,
    /// Whether Envoy is live at the start.
    live: bool,
    /// The port of the admin interface at a second.
    port: fn(f64) -> u16,
    /// The ports at which the admin interface is searched for; none if its address is annotated.
    hints: &'static [u16],
    health_failure_delay: HealthFailureDelay,
    manager: Option<&'static ShutdownManager>,
    /// The flags of the drainer's hook.
    flags: &'static str,
    dir: TempDir,
}

// === impl ThreadLog ===

impl io::Write for ThreadLog {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        LOGGED.with_borrow_mut(|logged| logged.write(line))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the log of the scenario that this thread ran last.
fn logged() -> String {
    String::from_utf8(LOGGED.take()).unwrap()
}

// === impl Scenario ===

impl Scenario {
    fn new(behaviour: Script, events: &[(f64, Event)]) -> Self {
        Self {
            behaviour,
            timing: Timing::default(),
            grace_period: Duration::ZERO,
            events: events.to_vec(),
            live: true,
            port: |_| 9901,
            hints: &[],
            health_failure_delay: HealthFailureDelay::Auto,
            manager: None,
            flags: "",
            dir: tempfile::tempdir().unwrap(),
        }
    }

    fn with(mut self, change: impl FnOnce(&mut Timing)) -> Self {
        change(&mut self.timing);
        assert_eq!(self.timing.errors(), [""; 0]);
        self
    }

    async fn run(&self) -> Log {
        self.run_on(&FakeEnvoy::new(self.behaviour)).await
    }

    /// Runs the scenario for five minutes. Returns the calls that change Envoy, the returns of hooks and the machine's
    /// end, in order.
    async fn run_on(&self, envoy: &FakeEnvoy) -> Log {
        // One for all threads: with one for each of them, tracing may skip a line that another thread reaches first.
        let subscriber = tracing_subscriber::fmt().json().flatten_event(true);
        let _ = subscriber.with_writer(|| ThreadLog).try_init();
        LOGGED.take();
        let started = Instant::now();
        let at = move |second| started + Duration::from_secs_f64(second);
        let log = Rc::new(RefCell::new(Log::new()));
        let recorder = || {
            let log = log.clone();
            move |event: &str| {
                log.borrow_mut()
                    .push((started.elapsed().as_secs_f64(), event.to_owned()))
            }
        };
        envoy.set_live(self.live);
        let (envoy_in_memory, port) = (envoy.clone(), self.port);
        let address = move || address(port(started.elapsed().as_secs_f64()));
        let connect = move |called: &_| {
            if *called == address() {
                envoy_in_memory.connect()
            } else {
                Err(ErrorKind::ConnectionRefused.into())
            }
        };
        let mut config = Config {
            admin_address: self.hints.is_empty().then(address),
            admin_hints: self.hints.iter().copied().map(self::address).collect(),
            // Only hints are asked, and no sockets of this machine.
            host_network: true,
            grace_period: self.grace_period,
            termination_log: self.dir.path().join("log"),
            manager: self.manager,
            ..Config::new(crate::Token(0))
        };
        config.settings.timing = self.timing;
        config.settings.health_failure_delay = self.health_failure_delay;
        let signals = watch::Sender::new(TerminationSignals::default());
        let progress = watch::Sender::new(Progress::default());
        let machine = Machine::new(&config, signals.clone(), progress.clone());
        let tasks = LocalSet::new();
        let record = recorder();
        tasks.spawn_local(IN_MEMORY.scope(Box::new(connect), async move {
            machine.run().await;
            record("end");
        }));
        for (second, event) in self.events.clone() {
            let (signals, record) = (signals.clone(), recorder());
            let flags: Vec<_> = self.flags.split_whitespace().map(str::to_owned).collect();
            tasks.spawn_local(async move {
                sleep_until(at(second)).await;
                let (hook, end) = match event {
                    Event::Envoy => (Hook::Envoy, 1000.0),
                    Event::EnvoyUntil(end) => (Hook::Envoy, end),
                    Event::Drainer => {
                        signals.send_modify(|signals| signals.flags = flags);
                        (Hook::Drainer, 1000.0)
                    }
                    Event::Sigterm => {
                        signals.send_modify(|signals| signals.sigterm = Some(Instant::now()));
                        return;
                    }
                };
                tokio::select! {
                    () = hold(&signals, hook) => record(&format!("{hook:?} returns")),
                    () = sleep_until(at(end)) => {}
                }
            });
        }
        tasks.run_until(sleep_until(at(300.0))).await;
        let last = progress.borrow();
        let is_known = last.admin.as_ref().map(|it| *it == address().to_string());
        assert!(is_known.unwrap_or(!self.events.is_empty()), "{last:?}");
        assert!(
            !last.health_kept || last.phase == DrainPhase::Draining,
            "{last:?}"
        );
        let changes = envoy.changes().into_iter().map(|(second, path)| {
            let call = path
                .trim_start_matches("/healthcheck/")
                .trim_start_matches("/drain_");
            (second, call.split('?').next().unwrap().to_owned())
        });
        let mut all: Log = changes.chain(log.take()).collect();
        for (second, _) in &mut all {
            *second = (*second * 100.0).round() / 100.0;
        }
        // Hooks that are released together return in any order.
        all.sort_by(|(a, event), (b, other)| {
            let is_any = |event: &str| event.ends_with("returns");
            let by_name = if is_any(event) && is_any(other) {
                event.cmp(other)
            } else {
                std::cmp::Ordering::Equal
            };
            a.total_cmp(b).then(by_name)
        });
        all
    }

    /// The termination message; empty without one.
    fn message(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }
}

fn address(port: u16) -> AdminAddress {
    AdminAddress::Tcp(([127, 0, 0, 1], port).into())
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
type Row<'a> = (Script, &'a [(f64, Event)], &'a [&'a str]);

async fn assert_events(table: &[Row<'_>]) {
    for (behaviour, events, want) in table {
        let log = Scenario::new(*behaviour, events).run().await;
        assert_eq!(format_log(&log), *want, "{events:?}");
    }
}

const IDLE: Behaviour = Behaviour::open(0);
const BUSY: Behaviour = Behaviour::open(1);
const HUNG: Behaviour = IDLE.with(Fault::NoResponse);
const FAILING: Behaviour = IDLE.with(Fault::Status(500));
const REJECTING: Behaviour = IDLE.with(Fault::Status(404));
const GONE: Behaviour = IDLE.with(Fault::Exited);

/// Envoy is restarted: gone from the second 20.5 to 23.
const RESTARTED: Script = |s| match s {
    20.5..23.0 => GONE,
    _ => IDLE,
};

/// Envoy is restarted: gone from the second 4.9 to 5.3.
const SUCCEEDED: Script = |s| match s {
    4.9..5.3 => GONE,
    _ => IDLE,
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
        let log = Scenario::new(|_| IDLE, &events).run().await;
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
    let busy_until_22: Script = |s| Behaviour::open((s < 22.0).into());
    let hung_later: Script = |s| {
        if s < 8.0 { IDLE } else { HUNG }
    };
    assert_events(&[
        // Nothing restarts Envoy, so its health is restored.
        (
            |_| IDLE,
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
            |_| BUSY,
            &[(0.0, Envoy)],
            &["10 fail", "25 Envoy returns", "35 ok"],
        ),
        // The kubelet restarts Envoy.
        (RESTARTED, &[(0.0, Envoy)], &["10 fail", "20 Envoy returns"]),
        // It closes the connection, as when the pod is deleted.
        (|_| IDLE, &[(0.0, EnvoyUntil(8.0))], &[]),
        // It closes the connection in the soft drain, which ends.
        (
            |_| IDLE,
            &[(0.0, EnvoyUntil(10.5)), (15.0, Drainer)],
            &["10 fail", "21 ok", "45 Drainer returns"],
        ),
        // Another Envoy serves by then, since the kubelet has not waited for the hook.
        (SUCCEEDED, &[(0.0, Envoy)], &["10 Envoy returns"]),
        // Envoy hangs after its hook was called.
        (hung_later, &[(0.0, Envoy)], &["25 Envoy returns"]),
        // The drainer's hook comes while the soft drain lasts, or when it has ended.
        (
            |_| BUSY,
            &[(0.0, Envoy), (24.0, Drainer)],
            &[
                "10 fail",
                "24 listeners",
                "84 Drainer returns",
                "84 Envoy returns",
                "90 ok",
            ],
        ),
        (
            |_| IDLE,
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
            |_| IDLE,
            &[(0.0, Envoy), (12.0, Sigterm)],
            &["10 fail", "12 listeners", "22 end", "22 Envoy returns"],
        ),
        (
            |_| IDLE,
            &[(0.0, Envoy), (24.0, Drainer)],
            &["10 fail", "20 Envoy returns", "30 ok", "54 Drainer returns"],
        ),
        (
            |_| IDLE,
            &[(0.0, Envoy), (24.0, Sigterm)],
            &["10 fail", "20 Envoy returns", "30 ok", "34 end"],
        ),
        // The pod is deleted while Envoy's hook is held, and the kubelet calls both hooks once it has returned.
        (
            |_| IDLE,
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
    let short = Scenario::new(|_| BUSY, &[(0.0, Envoy)]).with(|d| {
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
    let scenario = Scenario::new(|_| IDLE, &events).with(|d| {
        d.drain_delay = Duration::from_secs(40);
        d.wait_for_replacement = Duration::from_secs(30);
    });
    // Its minimum starts anew.
    assert_eq!(
        calls(&scenario.run().await)[..2],
        ["10 fail", "12 listeners"]
    );
    assert!(
        scenario.message().contains(r#""seconds":10.0"#),
        "{}",
        scenario.message()
    );
    assert!(!scenario.message().contains("replacement"));
    // Before it, Envoy's health is kept.
    let events = [(0.0, Event::Envoy), (9.0, Event::Drainer)];
    let scenario =
        Scenario::new(|_| IDLE, &events).with(|d| d.wait_for_replacement = Duration::from_secs(30));
    assert_eq!(
        calls(&scenario.run().await)[..2],
        ["39 fail", "39 listeners"]
    );
    assert!(scenario.message().contains(r#""replacement":"#));
}

#[tokio::test(start_paused = true)]
async fn one_envoy_is_drained_softly_once() {
    use Event::{Drainer, Envoy};
    let restarted: Script = |s| match s {
        70.0..72.0 => GONE,
        _ => IDLE,
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
            |_| IDLE,
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
    // The pod ends just before the call of another client is released.
    let events = [(0.0, Envoy), (24.9, Envoy), (25.1, Drainer)];
    let log = Scenario::new(|_| BUSY, &events).run().await;
    let want = ["10 fail", "25 Envoy returns", "25.1 fail", "25.1 listeners"];
    assert_eq!(format_log(&log)[..4], want);
    // A client that calls the hook without end fails health once.
    let events: Vec<_> = (0..300).map(|second| (f64::from(second), Envoy)).collect();
    let log = calls(&Scenario::new(|_| IDLE, &events).run().await);
    assert_eq!(log, ["10 fail", "30 ok"]);
}

#[tokio::test(start_paused = true)]
async fn hooks_without_a_token_drain_only_together() {
    use Event::{Drainer, Envoy, EnvoyUntil, Sigterm};
    let run = async |events: &[(f64, Event)], flags| {
        let scenario = Scenario {
            manager: Some(&ENVOY_GATEWAY),
            flags,
            ..Scenario::new(|_| BUSY, events)
        };
        format_log(&scenario.run().await)
    };
    let drained = |end| {
        [
            "1 fail".to_owned(),
            "1 listeners".to_owned(),
            format!("{end} Drainer returns"),
            format!("{end} Envoy returns"),
        ]
    };
    // A client that calls Envoy's hook without end.
    let calls: Vec<_> = (0..20)
        .map(|n| (f64::from(n) * 5.0, EnvoyUntil(60.0)))
        .collect();
    let log = run(&calls, "").await;
    assert!(
        log.iter().all(|event| event.ends_with("Envoy returns")),
        "{log:?}"
    );
    assert_eq!(run(&[(1.0, Drainer)], "").await, ["31 Drainer returns"]);
    assert_eq!(run(&[(1.0, Sigterm)], "").await, ["11 end"]);
    // The pod ends just before such a call is released.
    let log = run(&[(1.0, Envoy), (10.9, Envoy), (11.1, Drainer)], "").await;
    assert_eq!(log[0], "11 Envoy returns");
    assert_eq!(log[1..3], ["11.1 fail", "11.1 listeners"]);
    // The pod ends: until the time-out, which a flag of the hook may set.
    let both = [(0.5, Envoy), (1.0, Drainer)];
    assert_eq!(run(&both, "").await[..4], drained(61));
    let flags = "--drain-timeout=90s --unknown";
    assert_eq!(run(&both, flags).await[..4], drained(91));
    let flags = "--drain-timeout=90s --exit-at-connections=1";
    assert_eq!(run(&both, flags).await[..4], drained(11));
}

#[tokio::test(start_paused = true)]
async fn drainer_alone_makes_no_call_to_envoy() {
    use Event::{Drainer, Envoy, Sigterm};
    let hung_later: Script = |s| if s < 8.0 { IDLE } else { HUNG };
    let exited_later: Script = |s| if s < 8.0 { IDLE } else { GONE };
    assert_events(&[
        (|_| BUSY, &[(1.0, Drainer)], &["31 Drainer returns"]),
        (
            |_| BUSY,
            &[(1.0, Drainer), (32.0, Sigterm)],
            &["31 Drainer returns", "42 end"],
        ),
        (|_| BUSY, &[(1.0, Sigterm)], &["11 end"]),
        (|_| HUNG, &[(1.0, Drainer)], &["2 Drainer returns"]),
        (|_| HUNG, &[(1.0, Sigterm)], &["11 end"]),
        // It has responded before.
        (hung_later, &[(9.0, Drainer)], &["39 Drainer returns"]),
        // Envoy does not run.
        (|_| GONE, &[(1.0, Drainer)], &["2 Drainer returns"]),
        (|_| GONE, &[(1.0, Sigterm)], &["2 end"]),
        (exited_later, &[(1.0, Drainer)], &["8.6 Drainer returns"]),
        // SIGTERM follows, or something else.
        (
            |_| GONE,
            &[(1.0, Drainer), (2.1, Sigterm)],
            &["2 Drainer returns", "2.1 end"],
        ),
        (
            |_| GONE,
            &[(1.0, Drainer), (3.1, Sigterm)],
            &["2 Drainer returns", "4.1 end"],
        ),
        (
            |_| GONE,
            &[(1.0, Drainer), (2.1, Drainer), (2.5, Sigterm)],
            &["2 Drainer returns", "3.5 end", "3.5 Drainer returns"],
        ),
        (|_| GONE, &[(1.0, Envoy)], &["1.6 Envoy returns"]),
        // No answer is not a refusal.
        (|_| HUNG, &[(1.0, Envoy)], &["11 Envoy returns"]),
        (|_| FAILING, &[(1.0, Envoy)], &["11 Envoy returns"]),
        (|_| REJECTING, &[(1.0, Envoy)], &["26 Envoy returns"]),
    ])
    .await;
    let searched: [Row<'_>; 10] = [
        // The search has found no server at all.
        (|_| GONE, &[(1.0, Drainer)], &["2 Drainer returns"]),
        (|_| GONE, &[(1.0, Sigterm)], &["2 end"]),
        // Envoy runs, or its hook would not have come.
        (|_| GONE, &[(1.0, Envoy)], &["11 Envoy returns"]),
        // It has found others.
        (|_| REJECTING, &[(1.0, Drainer)], &["2 Drainer returns"]),
        (
            |_| REJECTING,
            &[(1.0, Drainer), (2.1, Sigterm)],
            &["2 Drainer returns", "2.1 end"],
        ),
        (|_| REJECTING, &[(1.0, Sigterm)], &["11 end"]),
        // What is silent has been asked once, or is asked.
        (|_| HUNG, &[(9.0, Drainer)], &["10 Drainer returns"]),
        (|_| HUNG, &[(0.0, Drainer)], &["1 Drainer returns"]),
        (|_| HUNG, &[(1.0, Envoy)], &["11 Envoy returns"]),
        (|_| REJECTING, &[(1.0, Envoy)], &["11 Envoy returns"]),
    ];
    for (behaviour, events, want) in searched {
        let scenario = Scenario {
            hints: &[9901],
            ..Scenario::new(behaviour, events)
        };
        assert_eq!(format_log(&scenario.run().await), want, "{events:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn envoy_that_has_moved_is_drained() {
    use Event::{Drainer, Envoy};
    let port: fn(f64) -> u16 = |s| if s < 5.0 { 9901 } else { 9902 };
    // It is found again in standby, which is seen in the status,
    let standby = Scenario {
        port,
        hints: &[9901, 9902],
        ..Scenario::new(SUCCEEDED, &[])
    };
    assert!(standby.run().await.is_empty());
    // and at the start of a drain.
    for second in [60.0, 5.5] {
        let events = [(second, Envoy), (second, Drainer)];
        let scenario = Scenario {
            port,
            hints: &[9901, 9902],
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
        |_| IDLE,
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
    // The proof comes while a soft drain asks Envoy: what was called in the drain before is called anew, though
    // statistics do not tell that another Envoy is live.
    let behaviour = |s| match s {
        0.0..49.0 => RESTARTED(s),
        49.0..52.0 => HUNG,
        _ => Behaviour {
            stats: Some(r#"{"stats":[]}"#.to_owned()),
            ..IDLE
        },
    };
    let events = [(0.0, Envoy), (0.0, Drainer), (40.0, Envoy), (51.0, Drainer)];
    let log = calls(&Scenario::new(behaviour, &events).run().await);
    assert_eq!(log[2..4], ["56 fail", "56 listeners"], "{log:?}");
}

#[tokio::test(start_paused = true)]
async fn drainer_that_starts_restores_health() {
    use Event::{Drainer, Envoy};
    let started = |behaviour, events: &[(f64, Event)]| Scenario {
        live: false,
        ..Scenario::new(behaviour, events)
    };
    let behind: Script = |s| {
        if s < 6.5 { FAILING } else { IDLE }
    };
    // What rejected the call may not have been Envoy.
    let rejecting: Script = |s| {
        if s < 19.5 { REJECTING } else { IDLE }
    };
    let table: [(Scenario, &[&str]); 5] = [
        (started(|_| IDLE, &[]), &["0 ok"]),
        (started(behind, &[]), &["7 ok"]),
        (started(rejecting, &[]), &["20 ok"]),
        // Envoy's hook is open from the start.
        (
            started(behind, &[(0.0, Envoy)]),
            &["6.6 ok", "10 fail", "20 Envoy returns", "30 ok"],
        ),
        (Scenario::new(|_| IDLE, &[]), &[]),
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
    let log = started(|_| IDLE, &[(0.1, Envoy), (0.1, Drainer)])
        .run()
        .await;
    assert_eq!(calls(&log)[..3], ["0 ok", "0.1 fail", "0.1 listeners"]);
}

/// After both signals, hooks return only by an exit rule of the full drain.
#[tokio::test(start_paused = true)]
async fn second_signal_counts_during_any_call() {
    let behaviours: [Script; 3] = [
        |s| match s {
            9.9..14.5 => HUNG,
            _ => IDLE,
        },
        |s| match s {
            5.0..8.5 => FAILING,
            _ => IDLE,
        },
        |s| match s {
            0.0..2.0 => IDLE,
            _ => FAILING,
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
    let log = Scenario::new(|_| IDLE, &events).run().await;
    let count = |name: &str| log.iter().filter(|(_, event)| event == name).count();
    assert_eq!((count("fail"), count("listeners")), (1, 1));
    let returned = (count("Envoy returns"), count("Drainer returns"));
    assert_eq!(returned, (1000, 1));
}

#[tokio::test(start_paused = true)]
async fn drain_delay_precedes_all_calls_to_envoy() {
    let scenario = Scenario::new(|_| IDLE, &[(0.0, Event::Envoy), (0.5, Event::Drainer)])
        .with(|d| d.drain_delay = Duration::from_secs(30));
    let log = scenario.run().await;
    let want = ["30.5 fail", "30.5 listeners", "40.5 end"];
    assert_eq!(drain_calls(&log), want);
}

#[tokio::test(start_paused = true)]
async fn deadline_counts_from_the_proof_and_is_exact() {
    let events = [(1.0, Event::Drainer), (1.4, Event::Envoy)];
    let behaviours: [Script; 4] = [
        |_| BUSY,
        |s| {
            if s < 5.0 { BUSY } else { HUNG }
        },
        |s| {
            if s < 2.0 { BUSY } else { FAILING }
        },
        // A wrong address: a wait until the deadline.
        |_| GONE,
    ];
    for behaviour in behaviours {
        let scenario =
            Scenario::new(behaviour, &events).with(|d| d.drain_delay = Duration::from_secs(5));
        let log = scenario.run().await;
        let end = |hook: &str| (66.4, format!("{hook} returns"));
        assert!(
            log.contains(&end("Envoy")) && log.contains(&end("Drainer")),
            "{log:?}"
        );
        let message = scenario.message();
        assert!(message.contains(r#""outcome":"deadline""#), "{message}");
    }
}

#[tokio::test(start_paused = true)]
async fn drain_has_its_whole_time_from_the_proof() {
    use Event::{Drainer, Envoy, EnvoyUntil, Sigterm};
    // What happens, drain-delay, drain-timeout, grace period, when the calls are made and the hooks return.
    type Row<'a> = (&'a [(f64, Event)], u64, u64, u64, [f64; 3]);
    let late_envoy = [(0.0, Drainer), (27.0, Envoy)];
    let table: [Row<'_>; 11] = [
        // The drainer's hook or SIGTERM alone has proven nothing.
        (&late_envoy, 0, 60, 75, [27.0, 27.0, 87.0]),
        (&late_envoy, 0, 20, 35, [27.0, 27.0, 47.0]),
        (&late_envoy, 15, 20, 50, [42.0, 42.0, 62.0]),
        (
            &[(0.0, Sigterm), (9.0, Envoy)],
            5,
            20,
            40,
            [14.0, 14.0, 34.0],
        ),
        // Of two calls of Envoy's hook the first has closed.
        (
            &[(0.0, EnvoyUntil(9.0)), (8.0, Envoy), (12.0, Drainer)],
            0,
            20,
            35,
            [12.0, 12.0, 32.0],
        ),
        // The grace period counts from Envoy's hook.
        (&[(0.0, Envoy), (9.0, Drainer)], 0, 20, 30, [9.0, 9.0, 25.0]),
        // After a soft drain, health has failed already; the minimum starts anew.
        (
            &[(0.0, Envoy), (24.0, Drainer)],
            30,
            60,
            105,
            [10.0, 24.0, 100.0],
        ),
        (
            &[(0.0, Envoy), (24.0, Drainer)],
            0,
            15,
            30,
            [10.0, 24.0, 34.0],
        ),
        // The grace period would end before the delay, or before the drain.
        (
            &[(0.0, Envoy), (0.0, Drainer)],
            10,
            20,
            8,
            [10.0, 10.0, 20.0],
        ),
        (&[(0.0, Envoy), (0.0, Drainer)], 0, 20, 1, [0.0, 0.0, 10.0]),
        // Unknown.
        (&late_envoy, 0, 60, 0, [27.0, 27.0, 87.0]),
    ];
    for (events, delay, limit, grace, [health, listeners, end]) in table {
        let mut scenario = Scenario::new(|_| BUSY, events).with(|d| {
            d.drain_delay = Duration::from_secs(delay);
            d.drain_timeout = Duration::from_secs(limit);
        });
        scenario.grace_period = Duration::from_secs(grace);
        let log = scenario.run().await;
        let of = |wanted: &str| log.iter().find(|(_, event)| event == wanted).unwrap().0;
        let got = [of("fail"), of("listeners"), of("Envoy returns")];
        let row = (events, delay, limit, grace);
        assert_eq!(got, [health, listeners, end], "{row:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn both_calls_precede_any_deadline() {
    let both = [(0.0, Event::Drainer), (1.0, Event::Envoy)];
    for delay in [0, 4] {
        let mut scenario = Scenario::new(|_| BUSY, &both).with(|d| {
            d.drain_delay = Duration::from_secs(delay);
            (d.min_drain_duration, d.drain_timeout) = (Duration::ZERO, Duration::ZERO);
        });
        let t1 = 1 + delay;
        let want = [
            format!("{t1} fail"),
            format!("{t1} listeners"),
            format!("{t1} end"),
        ];
        assert_eq!(drain_calls(&scenario.run().await), want);
        scenario.grace_period = Duration::from_secs(1);
        assert_eq!(drain_calls(&scenario.run().await), want);
        // An Envoy that hangs is not waited for.
        scenario.behaviour = |_| HUNG;
        assert_eq!(
            drain_calls(&scenario.run().await),
            [format!("{} end", t1 + 1)]
        );
    }
}

#[tokio::test(start_paused = true)]
async fn exited_envoy_ends_the_drain() {
    let both = [(1.0, Event::Drainer), (1.0, Event::Envoy)];
    let behaviour = |s| {
        if s < 5.0 { BUSY } else { GONE }
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
        1.0..4.0 => FAILING,
        _ => IDLE,
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

/// An Envoy with a QUIC listener, and an HTTP/3 connection or another one.
fn http3(has_http3: bool, is_busy: bool) -> Behaviour {
    Behaviour {
        http3: Some(has_http3.into()),
        ..Behaviour::open(is_busy.into())
    }
}

/// An Envoy with an INBOUND listener beside an OUTBOUND one.
fn beside_outbound(is_busy: bool) -> Behaviour {
    Behaviour {
        has_outbound: true,
        ..Behaviour::open(is_busy.into())
    }
}

#[tokio::test(start_paused = true)]
async fn health_is_kept_for_http3_clients_or_for_the_delay() {
    use Event::{Drainer, Envoy};
    let both = [(1.0, Drainer), (1.0, Envoy)];
    let busy: Script = |s| Behaviour::open((s < 30.0).into());
    let until_10_s: Script = |s| http3(s < 10.0, s < 30.0);
    let until_40_s: Script = |s| http3(s < 40.0, s < 30.0);
    let never: Script = |s| http3(false, s < 30.0);
    let always: Script = |s| http3(true, s < 30.0);
    let auto = HealthFailureDelay::Auto;
    let after = |seconds| HealthFailureDelay::After(Duration::from_secs(seconds));
    let until_20_s: Script = |s| Behaviour::open((s < 20.0).into());
    let (end, sidecar): (_, Script) = (HealthFailureDelay::End, |s| beside_outbound(s < 30.0));
    let table: [(Script, HealthFailureDelay, &[&str]); 14] = [
        (busy, auto, &["1 fail", "1 listeners", "30 end"]),
        (busy, after(0), &["1 fail", "1 listeners", "30 end"]),
        (busy, after(5), &["1 listeners", "6 fail", "30 end"]),
        // The last HTTP/3 connection closes, and none is opened for the quiet period.
        (until_10_s, auto, &["1 listeners", "13 fail", "30 end"]),
        (never, auto, &["1 listeners", "4 fail", "30 end"]),
        // The drain ends before.
        (until_40_s, auto, &["1 listeners", "30 fail", "30 end"]),
        (always, after(40), &["1 listeners", "30 fail", "30 end"]),
        (always, after(5), &["1 listeners", "6 fail", "30 end"]),
        (always, after(0), &["1 fail", "1 listeners", "30 end"]),
        // To the end, which needs no quiet.
        (until_20_s, end, &["1 listeners", "20 fail", "20 end"]),
        (|_| IDLE, end, &["1 listeners", "11 fail", "11 end"]),
        // Until it is quiet. The minimum follows.
        (sidecar, auto, &["1 listeners", "4 fail", "30 end"]),
        (
            |_| beside_outbound(false),
            auto,
            &["1 listeners", "4 fail", "14 end"],
        ),
        (sidecar, after(0), &["1 fail", "1 listeners", "30 end"]),
    ];
    for (behaviour, health_failure_delay, want) in table {
        let scenario = Scenario {
            health_failure_delay,
            ..Scenario::new(behaviour, &both)
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
    let delayed = Scenario::new(|_| http3(true, true), &both)
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
        50.0.. => HUNG,
        _ => http3(true, true),
    };
    let log = Scenario::new(hung, &both).run().await;
    assert_eq!(drain_calls(&log), ["1 listeners", "62 end"]);

    let behaviour = |s| match s {
        20.0.. => GONE,
        _ => http3(true, true),
    };
    let exited = Scenario::new(behaviour, &both);
    let log = drain_calls(&exited.run().await);
    assert!(
        log[0] == "1 listeners" && log[1].ends_with(" end"),
        "{log:?}"
    );
}

/// Ends the pod of an Envoy at the second 5. Its drain ends as soon as no connection is open, at the latest at the second
/// 17. Returns when the hooks return, and the termination message.
async fn end_pod(envoy: &FakeEnvoy) -> (f64, Value) {
    use Event::{Drainer, Envoy, Sigterm};
    let events = [(5.0, Envoy), (5.0, Drainer), (20.0, Sigterm)];
    let scenario = Scenario::new(|_| IDLE, &events).with(|d| {
        (d.min_drain_duration, d.quiet_period) = (Duration::ZERO, Duration::ZERO);
        d.drain_timeout = Duration::from_secs(12);
    });
    let log = scenario.run_on(envoy).await;
    let returned = log.iter().find(|(_, event)| event == "Envoy returns");
    let message = serde_json::from_str(&scenario.message()).unwrap();
    (returned.unwrap().0, message)
}

#[tokio::test(start_paused = true)]
async fn permanent_fault_holds_drain_until_deadline() {
    for fault in [
        Fault::Status(500),
        Fault::Status(503),
        Fault::Status(404),
        Fault::Status(403),
        Fault::NoResponse,
        Fault::Slow(Duration::from_secs(8)),
        Fault::TruncatedResponse,
        Fault::TruncatedDocument,
        Fault::UnrelatedPage,
    ] {
        // Envoy has no connection any more, but the drainer cannot know that.
        let envoy = FakeEnvoy::new(move |s| if s < 6.0 { BUSY } else { IDLE.with(fault) });
        let (end, message) = end_pod(&envoy).await;
        assert_eq!(end, 17.0, "{fault:?}");
        assert_eq!(message["outcome"], "deadline", "{fault:?}: {message}");
        // What it had open eleven seconds ago says nothing of what is cut.
        assert!(message["remaining"].is_null(), "{fault:?}: {message}");
        let calls = envoy.calls("/").into_iter();
        let polls = calls.filter(|at| (5.0..17.0).contains(at)).count();
        assert!(polls < 80, "{fault:?}: {polls}");
        assert_eq!(envoy.max_concurrent_requests(), 1, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn poll_before_a_fault_does_not_decide_the_outcome() {
    // The deadline ends the minimum, and the last poll is four seconds old.
    let envoy = FakeEnvoy::new(|s| if s < 13.0 { IDLE } else { HUNG });
    let both = [(5.0, Event::Envoy), (5.0, Event::Drainer)];
    let scenario = Scenario::new(|_| IDLE, &both).with(|d| {
        (d.min_drain_duration, d.drain_timeout) = (Duration::from_secs(12), Duration::from_secs(12))
    });
    scenario.run_on(&envoy).await;
    let message = scenario.message();
    assert!(message.contains(r#""outcome":"deadline""#), "{message}");
}

#[tokio::test(start_paused = true)]
async fn drain_started_during_fault_ends_after_it() {
    // How long after the fault the drainer may still wait for a response to an earlier call.
    for (fault, wait) in [
        (Fault::Status(500), 0.0),
        (Fault::NoResponse, 4.0),
        (Fault::Slow(Duration::from_secs(8)), 4.0),
        (Fault::TruncatedResponse, 0.0),
        (Fault::TruncatedDocument, 0.0),
        (Fault::UnrelatedPage, 0.0),
        (Fault::ConnectionRefused, 0.0),
    ] {
        let envoy = FakeEnvoy::new(move |s| if s < 8.0 { IDLE.with(fault) } else { IDLE });
        let (end, message) = end_pod(&envoy).await;
        assert!((8.0..8.3 + wait).contains(&end), "{fault:?}: {end}");
        assert_eq!(message["outcome"], "drained", "{fault:?}: {message}");
        for call in ["/healthcheck/fail", "/drain_listeners"] {
            // Where documents alone are broken, Envoy has accepted it before.
            let since = if fault == Fault::TruncatedDocument {
                5.0
            } else {
                8.0
            };
            let mut changes = envoy.changes().into_iter();
            let is_accepted =
                changes.any(|(at, path)| at >= since && at <= end && path.starts_with(call));
            assert!(is_accepted, "{fault:?}: {call}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn transient_fault_does_not_end_drain() {
    for fault in [
        Fault::Status(500),
        Fault::TruncatedResponse,
        Fault::TruncatedDocument,
        Fault::UnrelatedPage,
        // One refused poll: Envoy is gone only after three.
        Fault::ConnectionRefused,
    ] {
        let envoy = FakeEnvoy::new(move |s| match s {
            6.0..6.3 => IDLE.with(fault),
            ..8.5 => BUSY,
            _ => IDLE,
        });
        let (end, message) = end_pod(&envoy).await;
        assert!((8.5..8.8).contains(&end), "{fault:?}: {end}");
        assert_eq!(message["outcome"], "drained", "{fault:?}: {message}");
    }
}

#[tokio::test(start_paused = true)]
async fn repeated_connection_refusals_end_the_drain() {
    let refusing = IDLE.with(Fault::ConnectionRefused);
    let envoy = FakeEnvoy::new(move |s| if s < 8.0 { BUSY } else { refusing.clone() });
    let (end, message) = end_pod(&envoy).await;
    assert!((8.6..9.0).contains(&end), "{end}");
    assert_eq!(message["outcome"], "gone", "{message}");
}

#[tokio::test(start_paused = true)]
async fn drain_works_with_slow_or_few_responses() {
    // How many seconds after the last connection the drain may end.
    for (fault, limit) in [
        // After a slow poll the drainer pauses ten times as long.
        (Fault::Slow(Duration::from_millis(100)), 3.0),
        (Fault::StatsOnly, 0.3),
    ] {
        let open = |s| Behaviour::open((s < 9.0).into());
        let envoy = FakeEnvoy::new(move |s| open(s).with(fault));
        let (end, message) = end_pod(&envoy).await;
        assert!((9.0..9.0 + limit).contains(&end), "{fault:?}: {end}");
        let forbidden = (fault == Fault::StatsOnly).then_some("calls-forbidden");
        let outcome = forbidden.unwrap_or("drained");
        assert_eq!(message["outcome"], outcome, "{fault:?}: {message}");
        assert_eq!(message["peak"], 1, "{fault:?}: {message}");
        let log = logged();
        for call in ["/healthcheck/fail", "/drain_listeners"] {
            let calls = envoy.calls(call);
            assert_eq!(calls.len(), 1, "{fault:?}: {calls:?}");
            let is_rejection = |line: &&str| {
                line.contains("ERROR") && line.contains(&format!("\"call\":\"{call}\""))
            };
            let rejections = log.lines().filter(is_rejection).count();
            assert_eq!(rejections, usize::from(fault == Fault::StatsOnly), "{log}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn unknown_connections_hold_a_drain_to_its_deadline() {
    // Nor does the kernel know them: the fake listens nowhere.
    let envoy = FakeEnvoy::new(|_| IDLE.with(Fault::Long("pre_cx_active", 5 << 20)));
    let (_, message) = end_pod(&envoy).await;
    assert_eq!(message["outcome"], "deadline", "{message}");
    assert_eq!(message.get("remaining"), None, "{message}");
}

#[tokio::test(start_paused = true)]
async fn what_envoy_does_not_tell_is_logged_with_the_reason() {
    let (forbidden, large) = ("admin.allow_paths", "more than 4194304 bytes");
    for (fault, request, reason) in [
        (Fault::StatsOnly, "/config_dump", forbidden),
        (Fault::Long("_listeners", 5 << 20), "/config_dump", large),
        (Fault::Long("pre_cx_active", 5 << 20), "/stats", large),
    ] {
        let envoy = FakeEnvoy::new(move |_| IDLE.with(fault));
        Scenario::new(|_| IDLE, &[]).run_on(&envoy).await;
        let log = logged();
        let warning = format!("Cannot read Envoy's {request}");
        let line = log
            .lines()
            .find(|line| line.contains(&warning))
            .expect(&log);
        for other in [forbidden, large] {
            assert_eq!(line.contains(other), other == reason, "{line}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn other_service_at_admin_address_is_logged() {
    for (fault, outcome) in [
        (Fault::UnrelatedPage, "deadline"),
        (Fault::Status(404), "calls-forbidden"),
    ] {
        let envoy = FakeEnvoy::new(move |_| IDLE.with(fault));
        let (end, message) = end_pod(&envoy).await;
        assert_eq!(end, 17.0, "{fault:?}");
        assert_eq!(message["outcome"], outcome, "{fault:?}");
        for call in ["/healthcheck", "GET /healthcheck"] {
            let before = envoy.calls(call).into_iter().find(|at| *at < 5.0);
            assert_eq!(before, None, "another service was called");
        }
        let log = logged();
        let (standby, _) = log.split_once("Pod is terminating").unwrap();
        let is_error =
            |line: &str| line.contains("ERROR") && line.contains("admin interface cannot be read");
        assert!(standby.lines().any(is_error), "{log}");
    }
}

#[tokio::test(start_paused = true)]
async fn impossible_counts_are_never_few_connections() {
    for (value, outcome) in [
        ("0", "drained"),
        ("9223372036854775808", "deadline"),
        ("18446744073709551616", "deadline"),
        ("1e400", "deadline"),
        ("-1", "deadline"),
        ("0.5", "deadline"),
        (r#""0""#, "deadline"),
        ("null", "deadline"),
    ] {
        let stat = |name, value| {
            format!(r#"{{"name":"listener.{name}.downstream_cx_active","value":{value}}}"#)
        };
        let admin = ["admin", "admin.main_thread"].map(|name| stat(name, "1"));
        let listeners = ["0.0.0.0_80", "0.0.0.0_81"].map(|name| stat(name, value));
        let stats = [admin, listeners].concat().join(",");
        let behaviour = Behaviour {
            stats: Some(format!(r#"{{"stats":[{stats}]}}"#)),
            ..IDLE
        };
        let (_, message) = end_pod(&FakeEnvoy::new(move |_| behaviour.clone())).await;
        assert_eq!(message["outcome"], outcome, "{value}");
    }
}

#[tokio::test(start_paused = true)]
async fn health_is_restored_after_any_fault() {
    for fault in [
        Fault::Status(500),
        Fault::Status(404),
        Fault::NoResponse,
        Fault::TruncatedResponse,
        Fault::ConnectionRefused,
        // It rejects the call.
        Fault::StatsOnly,
    ] {
        let envoy = FakeEnvoy::new(move |s| if s < 2.5 { IDLE.with(fault) } else { IDLE });
        // A drainer that ended in a drain has failed it.
        let scenario = Scenario {
            live: false,
            ..Scenario::new(|_| IDLE, &[])
        };
        let log = scenario.run_on(&envoy).await;
        let [(at, call)] = &log[..] else {
            panic!("{fault:?}: {log:?}")
        };
        assert!(
            call == "ok" && (2.5..7.0).contains(at),
            "{fault:?}: {log:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn calls_are_tested_once_for_each_start_of_envoy() {
    for (behaviour, starts) in [
        ((|_| IDLE) as Script, &[0.0][..]),
        // No ping is refused.
        (SUCCEEDED, &[0.0, 8.0]),
        (RESTARTED, &[0.0, 24.0]),
    ] {
        let envoy = FakeEnvoy::new(behaviour);
        let log = Scenario::new(behaviour, &[]).run_on(&envoy).await;
        assert!(log.is_empty(), "{log:?}");
        for call in [
            "healthcheck/fail",
            "healthcheck/ok",
            "drain_listeners?graceful&skip_exit",
        ] {
            let tests = envoy.calls(&format!("GET /{call}"));
            let mut rounded: Vec<_> = tests.iter().map(|at| at.round()).collect();
            // There are two calls for listeners.
            rounded.dedup();
            assert_eq!(rounded, starts, "{call}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn released_drainer_asks_for_no_statistics() {
    use Event::{Drainer, Envoy};
    let envoy = FakeEnvoy::new(|_| IDLE);
    let events = [(1.0, Envoy), (1.0, Drainer)];
    Scenario::new(|_| IDLE, &events).run_on(&envoy).await;
    let released = envoy.calls("/stats").into_iter();
    assert_eq!(released.filter(|at| (20.0..80.0).contains(at)).count(), 0);
}

#[tokio::test(start_paused = true)]
async fn envoy_that_ends_without_its_hook_is_reported() {
    use Event::{Drainer, Envoy, Sigterm};
    let exits: Script = |s| if s < 20.0 { IDLE } else { GONE };
    type Case<'a> = (Script, &'a [(f64, Event)], &'a str);
    let missed = r#"{"outcome":"hook-missed","#;
    let table: [Case<'_>; 5] = [
        (exits, &[(20.1, Drainer)], missed),
        (exits, &[(20.1, Drainer), (21.5, Sigterm)], missed),
        // It has exited long before.
        (exits, &[(26.0, Drainer)], ""),
        (
            exits,
            &[(19.0, Envoy), (20.1, Drainer)],
            r#"{"outcome":"gone","#,
        ),
        (|_| IDLE, &[(20.1, Drainer)], ""),
    ];
    for (behaviour, events, want) in table {
        let scenario = Scenario::new(behaviour, events);
        scenario.run().await;
        let message = scenario.message();
        assert!(message.starts_with(want), "{events:?}: {message}");
        assert_eq!(message.is_empty(), want.is_empty(), "{events:?}: {message}");
        let log = logged();
        let errors = log.lines().filter(|line| line.contains("was never called"));
        assert_eq!(
            errors.count(),
            usize::from(want == missed),
            "{events:?}: {log}"
        );
    }
    // Envoy is told to exit first, as in a Job.
    let scenario = Scenario::new(exits, &[(20.1, Drainer)]);
    let scenario = scenario.with(|timing| timing.min_drain_duration = Duration::ZERO);
    scenario.run().await;
    assert_eq!(scenario.message(), "");
}
