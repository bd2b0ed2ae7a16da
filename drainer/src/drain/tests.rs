//! Tests of the drain in paused time, against a fake Envoy whose behaviour is a function of the second.

use std::cell::{Cell, RefCell};
use std::future::pending;
use std::rc::Rc;

use tempfile::TempDir;
use tokio::task::LocalSet;
use tokio::time::{sleep, sleep_until};

use super::*;
use crate::client_activity::{Counters, RequestCounters};
use crate::envoy::hidden_stats::HiddenStats;
use crate::envoy::listeners::{self, EnvoyListeners};
use crate::envoy::server_info::{CommandLineOptions, DrainStrategy, ServerInfo, ServerState};
use crate::envoy::snapshot::{HttpCounts, OpenConnections};
use crate::health_failure::HealthFailureDelay;
use crate::progress::wait_for_release;
use crate::timing::{Durations, Timing};

/// How Envoy behaves at a moment.
#[derive(Clone, Copy)]
enum Behaviour {
    /// Responds, with this many active requests.
    Busy(u64),
    /// Accepts connections and never responds.
    Hung,
    /// Returns 500.
    Failing,
    /// Returns 404.
    Rejecting,
    /// Refuses connections.
    Gone,
}

/// What happens to the drainer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Event {
    /// Envoy's hook is called.
    Envoy,
    /// The drainer's own hook is called.
    Drainer,
    Sigterm,
    /// No signal: the port may have failed a connection.
    Flood,
}

struct FakeEnvoy {
    started: Instant,
    behaviour: fn(f64) -> Behaviour,
    log: Log,
    /// Its health is not failed. After `Gone` it is another Envoy, and live.
    live: Cell<bool>,
    /// When it was last called, in seconds.
    last_call_at: Cell<f64>,
    /// How long it takes to respond.
    latency: Duration,
    http3: Option<Http3Connections>,
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
    events: Vec<(f64, Event)>,
    marker_reason: Option<MarkerReason>,
    /// Whether Envoy is live at the start.
    live: bool,
    duration: Duration,
    /// How long Envoy takes to respond.
    latency: Duration,
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
        let second = self.second();
        let second = (second * 100.0).round() / 100.0;
        self.log.borrow_mut().push((second, event.to_owned()));
    }

    async fn call(&self) -> Result<u64, AdminError> {
        let now = self.second();
        let mut since = self.last_call_at.replace(now);
        while since < now {
            if let Behaviour::Gone = (self.behaviour)(since) {
                self.live.set(true);
            }
            since += 0.1;
        }
        if !self.latency.is_zero() {
            let cancelled = OnDrop::new(|| self.record("cancelled"));
            sleep(self.latency).await;
            cancelled.disarm();
        }
        match (self.behaviour)(now) {
            Behaviour::Busy(requests) => Ok(requests),
            Behaviour::Hung => pending().await,
            Behaviour::Failing => Err(AdminError::NoResponse("500".into())),
            Behaviour::Rejecting => Err(AdminError::Rejected("404".into())),
            Behaviour::Gone => Err(AdminError::ConnectionRefused),
        }
    }
}

/// Calls a function when it is dropped, unless it was disarmed.
struct OnDrop<F: FnMut()>(F, bool);

// === impl OnDrop ===

impl<F: FnMut()> OnDrop<F> {
    fn new(call: F) -> Self {
        Self(call, true)
    }

    fn disarm(mut self) {
        self.1 = false;
    }
}

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        if self.1 {
            (self.0)();
        }
    }
}

impl Envoy for FakeEnvoy {
    async fn fail_health(&mut self) -> Result<(), AdminError> {
        self.call().await?;
        self.live.set(false);
        self.record("fail");
        Ok(())
    }

    async fn restore_health(&mut self) -> Result<(), AdminError> {
        self.call().await?;
        self.live.set(true);
        self.record("ok");
        Ok(())
    }

    async fn drain_listeners(&mut self) -> Result<(), AdminError> {
        self.call().await?;
        self.record("listeners");
        Ok(())
    }

    async fn poll(&mut self) -> Result<Snapshot, AdminError> {
        let requests = self.call().await?;
        Ok(Snapshot::Counted(OpenConnections {
            connections: requests,
            counters: Some(Counters {
                requests: Some(RequestCounters::default()),
                ..Counters::default()
            }),
            http: Some(HttpCounts {
                requests,
                ..HttpCounts::default()
            }),
            http3: Some(self.http3.map_or(0, |open| open(self.second()))),
            live: Some(self.live.get()),
            ..OpenConnections::default()
        }))
    }

    async fn inspect(&mut self) -> Result<Setup, AdminError> {
        self.call().await.map(|_| Setup {
            server: ServerInfo {
                state: match self.live.get() {
                    true => ServerState::Live,
                    false => ServerState::Draining,
                },
                command_line_options: CommandLineOptions {
                    drain_strategy: match self.http3 {
                        Some(_) => DrainStrategy::Immediate,
                        None => DrainStrategy::Gradual,
                    },
                    ..CommandLineOptions::default()
                },
                ..ServerInfo::default()
            },
            listeners: Ok(match self.http3 {
                Some(_) => EnvoyListeners::new(listeners::read(QUIC_DUMP).unwrap(), Vec::new()),
                None => EnvoyListeners::default(),
            }),
            hidden_stats: Ok(HiddenStats::default()),
        })
    }

    async fn drains_http3(&mut self) -> Result<bool, AdminError> {
        self.call().await.map(|_| self.http3.is_some())
    }
}

// === impl Scenario ===

impl Scenario {
    fn new(behaviour: fn(f64) -> Behaviour, events: &[(f64, Event)]) -> Self {
        Self {
            behaviour,
            timing: Timing::default(),
            events: events.to_vec(),
            marker_reason: None,
            live: true,
            duration: Duration::from_secs(300),
            latency: Duration::ZERO,
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

    fn with_marker(mut self, reason: MarkerReason) -> Self {
        self.marker_reason = Some(reason);
        self
    }

    /// A pod that was terminating when an earlier process of the drainer failed Envoy's health.
    fn with_terminating_pod(self) -> Self {
        Self {
            live: false,
            ..self.with_marker(MarkerReason::PodTerminating)
        }
    }

    /// Runs the scenario, for five minutes by default. Returns the calls to Envoy, the returns of
    /// hooks and the end of the drain's task.
    async fn run(&self) -> Vec<(f64, String)> {
        let started = Instant::now();
        let log = Log::default();
        let mut config = Config {
            timing: self.timing,
            run_dir: self.dir.path().into(),
            termination_log: self.dir.path().join("log"),
            ..Config::new("127.0.0.1:1".parse().unwrap(), crate::Token::new(0))
        };
        config.settings.health_failure_delay = self.health_failure_delay;
        if let Some(reason) = self.marker_reason {
            Marker::new(self.dir.path()).write(reason).unwrap();
        }
        let signals = watch::Sender::new(TerminationSignals::default());
        let progress = watch::Sender::new(Progress::default());
        let fake = |log: &Log| FakeEnvoy {
            started,
            behaviour: self.behaviour,
            log: log.clone(),
            live: Cell::new(self.live),
            last_call_at: Cell::new(0.0),
            latency: self.latency,
            http3: self.http3,
        };
        let drain = Drain::new(fake(&log), &config, signals.clone(), progress.clone());
        let tasks = LocalSet::new();
        let clock = fake(&log);
        tasks.spawn_local(async move {
            drain.run().await;
            clock.record("end");
        });
        for (second, event) in self.events.clone() {
            let (signals, mut progress) = (signals.clone(), progress.subscribe());
            let clock = fake(&log);
            tasks.spawn_local(async move {
                sleep_until(started + Duration::from_secs_f64(second)).await;
                progress.mark_unchanged();
                if event == Event::Flood {
                    return TerminationSignals::record_port_unavailable(&signals);
                }
                signals.send_modify(|signals| {
                    let now = Instant::now();
                    let at = match event {
                        Event::Envoy => return signals.record_envoy_hook(now),
                        Event::Drainer => &mut signals.drainer_hook,
                        Event::Sigterm => &mut signals.sigterm,
                        Event::Flood => return,
                    };
                    at.get_or_insert(now);
                });
                if event != Event::Sigterm {
                    wait_for_release(&mut progress).await;
                    clock.record(&format!("{event:?} returns"));
                }
            });
        }
        let end = started + self.duration;
        tasks.run_until(sleep_until(end)).await;
        let last = progress.borrow();
        assert!(
            !last.health_kept || last.phase == DrainPhase::Draining,
            "{last:?}"
        );
        let mut log = log.borrow().clone();
        log.sort_by(|a, b| a.0.total_cmp(&b.0));
        log
    }

    fn has_marker(&self) -> bool {
        self.marker().is_some()
    }

    fn marker(&self) -> Option<MarkerReason> {
        Marker::new(self.dir.path()).read()
    }
}

fn format_log(log: &[(f64, String)]) -> Vec<String> {
    log.iter()
        .map(|(second, event)| format!("{second} {event}"))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn both_hooks_start_the_whole_drain() {
    use Event::{Drainer, Envoy, Sigterm};
    for events in [
        [(1.0, Envoy), (1.0, Drainer)],
        [(1.0, Drainer), (1.0, Envoy)],
    ] {
        let scenario = Scenario::new(|s| Behaviour::Busy((s < 20.0).into()), &events);
        let log = scenario.run().await;
        let lines = format_log(&log);
        assert_eq!(lines[..2], ["1 fail", "1 listeners"]);
        assert!((20.0..20.4).contains(&log[2].0), "{lines:?}");
        assert_eq!(lines.len(), 5, "{lines:?}");
        assert!(scenario.has_marker());
    }
    let late = Scenario::new(|_| Behaviour::Busy(0), &[(1.0, Envoy), (2.9, Sigterm)])
        .run()
        .await;
    let want = [
        "2.9 fail",
        "2.9 listeners",
        "12.9 Envoy returns",
        "12.9 end",
    ];
    assert_eq!(sorted(&late), sorted_want(&want));
}

fn sorted(log: &[(f64, String)]) -> Vec<String> {
    let mut lines = format_log(log);
    lines.sort();
    lines
}

fn sorted_want(want: &[&str]) -> Vec<String> {
    let mut want: Vec<_> = want.iter().map(ToString::to_string).collect();
    want.sort();
    want
}

#[tokio::test(start_paused = true)]
async fn drain_delay_precedes_all_calls_to_envoy() {
    let scenario = Scenario::new(
        |_| Behaviour::Busy(0),
        &[(0.0, Event::Envoy), (0.5, Event::Drainer)],
    )
    .with(|d| d.drain_delay = Duration::from_secs(30));
    let log = scenario.run().await;
    assert_eq!(format_log(&log)[..2], ["30 fail", "30 listeners"]);
    assert_eq!(log.last().map(|(second, _)| *second), Some(40.0));
}

#[tokio::test(start_paused = true)]
async fn deadline_counts_from_the_first_hook_and_is_exact() {
    let events = [(1.0, Event::Drainer), (3.0, Event::Envoy)];
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
        let returned: Vec<_> = log
            .iter()
            .filter(|(_, event)| event.ends_with("returns"))
            .collect();
        assert_eq!(returned.len(), 2, "{log:?}");
        assert!(
            returned.iter().all(|(second, _)| *second == 66.0),
            "{log:?}"
        );
        let message = std::fs::read_to_string(scenario.dir.path().join("log")).unwrap();
        assert!(message.contains(r#""outcome":"deadline""#), "{message}");
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
    assert!((5.0..6.2).contains(&log.last().unwrap().0), "{log:?}");
    let delayed = Scenario::new(behaviour, &both).with(|d| d.drain_delay = Duration::from_secs(30));
    let log = delayed.run().await;
    assert!((5.0..6.2).contains(&log.last().unwrap().0), "{log:?}");
    assert!(!delayed.has_marker(), "no call was made");
}

#[tokio::test(start_paused = true)]
async fn envoy_hook_alone_fails_health_and_returns() {
    let scenario = Scenario::new(|_| Behaviour::Busy(1), &[(1.0, Event::Envoy)]);
    let lines = format_log(&scenario.run().await);
    // The kubelet would restart it now. This one is not restarted, so its health is restored.
    assert_eq!(lines, ["4 fail", "14 Envoy returns", "24 ok"]);
    assert!(!scenario.has_marker());
}

#[tokio::test(start_paused = true)]
async fn pod_is_drained_after_an_envoy_restart() {
    let events = [
        (1.0, Event::Envoy),
        (40.0, Event::Envoy),
        (40.0, Event::Drainer),
    ];
    let lines = format_log(&Scenario::new(|_| Behaviour::Busy(0), &events).run().await);
    assert_eq!(lines[..3], ["4 fail", "14 Envoy returns", "24 ok"]);
    assert_eq!(lines[3..5], ["40 fail", "40 listeners"]);
    assert_eq!(lines.len(), 8, "{lines:?}");
    assert!(
        lines[5..].iter().all(|line| line.starts_with("50 ")),
        "{lines:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn late_second_signal_gets_the_rest_of_the_drain() {
    for late in [Event::Drainer, Event::Sigterm] {
        let events = [(1.0, Event::Envoy), (9.0, late)];
        let scenario = Scenario::new(|_| Behaviour::Busy(0), &events)
            .with(|d| d.drain_delay = Duration::from_secs(30));
        let lines = format_log(&scenario.run().await);
        // Health has been failed already, so there is no delay. The minimum starts at the second
        // signal.
        assert_eq!(lines[..2], ["4 fail", "9 listeners"], "{late:?}");
        assert!(
            lines[2..].iter().all(|line| line.starts_with("19 ")),
            "{lines:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn drain_delay_is_only_for_healthy_envoys() {
    let events = [
        (1.0, Event::Envoy),
        (18.0, Event::Envoy),
        (18.0, Event::Drainer),
    ];
    let delayed = |behaviour| {
        let scenario = Scenario::new(behaviour, &events);
        scenario.with(|d| d.drain_delay = Duration::from_secs(30))
    };
    let provisional = ["4 fail", "14 Envoy returns"];
    // Its health has been failed and not been restored.
    let lines = format_log(&delayed(|_| Behaviour::Busy(0)).run().await);
    assert_eq!(lines[..2], provisional);
    assert_eq!(lines[2], "18 fail");
    // It was restarted meanwhile.
    let behaviour = |s| match s {
        14.5..16.0 => Behaviour::Gone,
        _ => Behaviour::Busy(0),
    };
    let lines = format_log(&delayed(behaviour).run().await);
    assert_eq!(lines[..2], provisional);
    assert_eq!(lines[2], "48 fail");
}

#[tokio::test(start_paused = true)]
async fn drainer_hook_may_be_late_where_the_pod_waits_for_a_replacement() {
    let run = async |late: &[(f64, Event)]| {
        let events: Vec<_> = [(1.0, Event::Envoy)].iter().chain(late).copied().collect();
        let scenario = Scenario::new(|_| Behaviour::Busy(0), &events)
            .with(|d| d.wait_for_replacement = Duration::from_secs(30));
        let log = scenario.run().await;
        let message = std::fs::read_to_string(scenario.dir.path().join("log"));
        let has_waited = message.is_ok_and(|message| message.contains(r#""replacement":"#));
        (calls(&log), has_waited)
    };
    // Nothing answers, so the wait lasts to its limit.
    let (log, has_waited) = run(&[(9.0, Event::Drainer)]).await;
    assert_eq!(log, ["31 fail", "31 listeners", "41 end"]);
    assert!(has_waited);
    let (log, has_waited) = run(&[(12.0, Event::Drainer)]).await;
    assert_eq!(log, ["11 fail", "12 listeners", "22 end"]);
    assert!(!has_waited);
    let (log, has_waited) = run(&[]).await;
    assert_eq!(log, ["11 fail", "31 ok"]);
    assert!(!has_waited);
}

#[tokio::test(start_paused = true)]
async fn hung_envoy_hook_returns_within_three_seconds() {
    let behaviours: [fn(f64) -> Behaviour; 3] = [
        |_| Behaviour::Hung,
        |_| Behaviour::Gone,
        |_| Behaviour::Failing,
    ];
    for behaviour in behaviours {
        let log = Scenario::new(behaviour, &[(1.0, Event::Envoy)]).run().await;
        assert_eq!(log.len(), 1, "{log:?}");
        assert!((3.4..=3.75).contains(&log[0].0), "{log:?}");
    }
    // If Envoy hangs later, its hook returns then.
    let behaviour = |s| {
        if s < 6.0 {
            Behaviour::Busy(1)
        } else {
            Behaviour::Hung
        }
    };
    let log = Scenario::new(behaviour, &[(1.0, Event::Envoy)]).run().await;
    assert_eq!(log[0], (4.0, "fail".into()));
    assert!((8.0..11.6).contains(&log[1].0), "{log:?}");
}

#[tokio::test(start_paused = true)]
async fn rejections_and_one_failure_count_as_responding() {
    let rejecting = Scenario::new(|_| Behaviour::Rejecting, &[(1.0, Event::Envoy)]);
    assert_eq!(format_log(&rejecting.run().await), ["14 Envoy returns"]);
    // One failure while its hook waits alone.
    let behaviour = |s| match s {
        4.5..5.2 => Behaviour::Failing,
        _ => Behaviour::Busy(0),
    };
    let events = [(1.0, Event::Envoy), (7.5, Event::Drainer)];
    let lines = format_log(&Scenario::new(behaviour, &events).run().await);
    assert_eq!(lines[..2], ["4 fail", "7.5 listeners"]);
    assert!(
        lines[2..].iter().all(|line| line.starts_with("17.5 ")),
        "{lines:?}"
    );
}

/// After both signals, hooks return only by an exit rule of the whole drain.
#[tokio::test(start_paused = true)]
async fn second_signal_counts_during_any_call() {
    let behaviours: [fn(f64) -> Behaviour; 3] = [
        // Hangs while health is failed; hangs later; fails always but for a moment.
        |s| {
            if (3.9..8.5).contains(&s) {
                Behaviour::Hung
            } else {
                Behaviour::Busy(0)
            }
        },
        |s| {
            if (6.0..8.5).contains(&s) {
                Behaviour::Hung
            } else {
                Behaviour::Busy(0)
            }
        },
        |s| {
            if (1.0..2.0).contains(&s) {
                Behaviour::Busy(0)
            } else {
                Behaviour::Failing
            }
        },
    ];
    for behaviour in behaviours {
        for late in [Event::Drainer, Event::Sigterm] {
            for second in [1.2, 3.4, 3.95, 4.2, 5.0, 5.9] {
                let events = [(1.0, Event::Envoy), (second, late)];
                let log = Scenario::new(behaviour, &events).run().await;
                let returned = log.iter().filter(|(_, event)| event.ends_with("returns"));
                for (at, event) in returned.filter(|(at, _)| *at >= second) {
                    assert!(
                        *at >= 11.2,
                        "{event} at {at}, {late:?} at {second}: {log:?}"
                    );
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn earlier_round_does_not_shorten_the_sigterm_grace() {
    let events = [
        (1.0, Event::Envoy),
        (20.0, Event::Sigterm),
        (21.5, Event::Envoy),
    ];
    let lines = format_log(&Scenario::new(|_| Behaviour::Busy(0), &events).run().await);
    assert_eq!(lines[..2], ["4 fail", "14 Envoy returns"]);
    assert_eq!(lines[2], "21.5 fail", "{lines:?}");
    assert!(
        lines[3..].iter().all(|line| line.starts_with("31.5 ")),
        "{lines:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn drainer_alone_makes_no_call_to_envoy() {
    use Event::{Drainer, Sigterm};
    let busy = |_| Behaviour::Busy(1);
    type Row<'a> = (fn(f64) -> Behaviour, &'a [(f64, Event)], &'a [&'a str]);
    let table: [Row<'_>; 6] = [
        (busy, &[(1.0, Drainer)], &["11 Drainer returns"]),
        // A new image: the drainer's hook, then SIGTERM.
        (
            busy,
            &[(1.0, Drainer), (11.1, Sigterm)],
            &["11 Drainer returns", "12.1 end"],
        ),
        (busy, &[(1.0, Sigterm)], &["11 end"]),
        // Envoy is not running.
        (|_| Behaviour::Gone, &[(1.0, Sigterm)], &["2 end"]),
        (
            |_| Behaviour::Gone,
            &[(1.0, Drainer), (11.1, Sigterm)],
            &["11 Drainer returns", "12.1 end"],
        ),
        (|_| Behaviour::Hung, &[(1.0, Sigterm)], &["3.25 end"]),
    ];
    for (behaviour, events, want) in table {
        let scenario = Scenario::new(behaviour, events);
        assert_eq!(format_log(&scenario.run().await), want, "{events:?}");
        assert!(!scenario.has_marker());
    }
}

#[tokio::test(start_paused = true)]
async fn health_failed_by_an_earlier_process_is_restored() {
    let behaviour = |s| {
        if s < 7.0 {
            Behaviour::Gone
        } else {
            Behaviour::Busy(1)
        }
    };
    let scenario = Scenario::new(behaviour, &[]).with_marker(MarkerReason::Provisional);
    assert_eq!(format_log(&scenario.run().await), ["7 ok"]);
    assert!(!scenario.has_marker());
    let failing = Scenario::new(|_| Behaviour::Failing, &[]).with_marker(MarkerReason::Provisional);
    assert!(failing.run().await.is_empty());
    assert!(failing.has_marker());
    // What rejected the call may not have been Envoy.
    let behaviour = |s| match s {
        20.0.. => Behaviour::Busy(1),
        _ => Behaviour::Rejecting,
    };
    let scenario = Scenario::new(behaviour, &[]).with_marker(MarkerReason::Provisional);
    assert_eq!(format_log(&scenario.run().await), ["20 ok"]);
    assert!(!scenario.has_marker());
    let unmarked = Scenario::new(|_| Behaviour::Busy(1), &[]);
    assert!(
        unmarked.run().await.is_empty(),
        "health failed by another program must not be restored"
    );
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
    assert!((14.0..14.4).contains(&log.last().unwrap().0), "{log:?}");
}

#[tokio::test(start_paused = true)]
async fn hook_after_the_drain_returns_at_once() {
    let events = [
        (1.0, Event::Drainer),
        (1.0, Event::Envoy),
        (100.0, Event::Envoy),
    ];
    let log = Scenario::new(|_| Behaviour::Busy(0), &events).run().await;
    assert_eq!(log.last().unwrap(), &(100.0, "Envoy returns".into()));
}

#[tokio::test(start_paused = true)]
async fn a_thousand_hooks_share_one_drain() {
    let mut events = vec![(1.0, Event::Drainer)];
    events.extend(vec![(1.5, Event::Envoy); 1000]);
    let log = Scenario::new(|_| Behaviour::Busy(0), &events).run().await;
    let count = |name: &str| log.iter().filter(|(_, event)| event == name).count();
    assert_eq!((count("fail"), count("listeners")), (1, 1));
    assert_eq!(
        (count("Envoy returns"), count("Drainer returns")),
        (1000, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn hook_at_a_round_end_waits_for_the_other_signal() {
    use Event::{Drainer, Envoy, Sigterm};
    for second_call in [11.6, 13.8, 13.95] {
        for late in [Drainer, Sigterm] {
            let events = [(1.0, Envoy), (second_call, Envoy), (14.2, late)];
            let lines = format_log(&Scenario::new(|_| Behaviour::Busy(0), &events).run().await);
            let want = ["4 fail", "14 Envoy returns", "14.2 fail"];
            assert_eq!(lines[..3], want, "{second_call}");
            let hook_returns = lines.contains(&"24.2 Envoy returns".to_owned());
            let is_whole = lines[3..].iter().all(|line| line.starts_with("24.2 "));
            assert!(hook_returns && is_whole, "{lines:?}");
        }
        // Without another signal it is a round of its own.
        let events = [(1.0, Envoy), (second_call, Envoy)];
        let lines = format_log(&Scenario::new(|_| Behaviour::Busy(0), &events).run().await);
        let returned = format!("{} Envoy returns", second_call + 13.0);
        assert_eq!(lines[..2], ["4 fail", "14 Envoy returns"]);
        assert!(lines[2].ends_with(" ok") && *lines[2] < *"25", "{lines:?}");
        assert_eq!(lines[3..], [returned]);
    }
    // The same at the end of a resumed drain.
    for late in [Drainer, Sigterm] {
        let events = [(9.0, Envoy), (10.2, late)];
        let log = Scenario::new(|_| Behaviour::Busy(0), &events)
            .with_terminating_pod()
            .run()
            .await;
        let returned = log.iter().find(|(_, event)| event == "Envoy returns");
        assert_eq!(returned.map(|(at, _)| *at), Some(20.2), "{log:?}");
    }
}

/// Returns for how long Envoy's health was failed in a log of ten minutes.
fn failed_duration(log: &[(f64, String)]) -> f64 {
    let calls = log
        .iter()
        .filter(|(_, event)| ["fail", "ok"].contains(&&**event));
    let (mut failed, mut since) = (0.0, None);
    for (second, event) in calls {
        match (&**event, since) {
            ("fail", None) => since = Some(*second),
            ("ok", Some(start)) => {
                failed += second - start;
                since = None;
            }
            _ => {}
        }
    }
    failed + since.map_or(0.0, |start| 600.0 - start)
}

#[tokio::test(start_paused = true)]
async fn endless_hook_calls_leave_envoy_live() {
    for every in [1.0, 7.0, 15.0, 61.0] {
        let calls = (0..).map(|call| 1.0 + every * f64::from(call));
        let calls = calls.take_while(|second| *second < 600.0);
        let mut events: Vec<_> = calls.map(|second| (second, Event::Envoy)).collect();
        let mut scenario = Scenario::new(|_| Behaviour::Busy(0), &events);
        scenario.duration = Duration::from_secs(600);
        let log = scenario.run().await;
        let failed = failed_duration(&log);
        assert!(failed <= 90.0, "every {every} s: failed for {failed} s");
        // A terminating pod is drained at once all the same; reversibly if calls are so frequent
        // that the kubelet's own proves nothing.
        events.retain(|(second, _)| *second < 300.0);
        events.extend([(300.5, Event::Drainer), (300.6, Event::Envoy)]);
        scenario.events = events;
        let lines = format_log(&scenario.run().await);
        let starts = ["300.5 fail", "300.6 fail"].map(str::to_owned);
        assert!(
            starts.iter().any(|start| lines.contains(start)),
            "{lines:?}"
        );
        let is_proven = lines.iter().any(|line| line.ends_with(" listeners"));
        assert_eq!(is_proven, every > 60.0, "{lines:?}");
        assert!(lines.last().unwrap().starts_with("310."), "{lines:?}");
    }
    // Those calls do not shorten the drain either.
    let mut events: Vec<_> = (1..100)
        .map(|second| (f64::from(second), Event::Envoy))
        .collect();
    events.extend([(66.5, Event::Drainer)]);
    let scenario = Scenario::new(|_| Behaviour::Busy(1), &events).with(|d| {
        d.drain_delay = Duration::from_secs(20);
        d.drain_timeout = Duration::from_secs(30);
    });
    let lines = format_log(&scenario.run().await);
    assert!(lines.contains(&"86.5 fail".into()), "{lines:?}");
    assert!(lines.contains(&"116.5 Drainer returns".into()), "{lines:?}");
}

#[tokio::test(start_paused = true)]
async fn drainer_restart_during_hook_calls_is_reversible() {
    use Event::{Drainer, Envoy, Sigterm};
    for every in [1, 5, 15, 25] {
        for restart in [65.2, 70.9, 77.0] {
            let calls = (0..20).map(|call| (1.0 + f64::from(call * every), Envoy));
            let mut events: Vec<_> = calls.collect();
            events.extend([(restart, Drainer), (restart + 12.0, Sigterm)]);
            let scenario = Scenario::new(|_| Behaviour::Busy(0), &events);
            let lines = format_log(&scenario.run().await);
            let is_irreversible = lines.iter().any(|line| line.ends_with(" listeners"));
            assert!(!is_irreversible, "every {every} s, {restart}: {lines:?}");
            // The next process restores health at once.
            assert_ne!(
                scenario.marker(),
                Some(MarkerReason::PodTerminating),
                "{lines:?}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn second_envoy_hook_waits_like_the_first() {
    let first = [(1.0, Event::Envoy), (30.0, Event::Envoy)];
    let lines = format_log(&Scenario::new(|_| Behaviour::Busy(0), &first).run().await);
    let want = ["4 fail", "14 Envoy returns", "24 ok", "43 Envoy returns"];
    assert_eq!(lines, want);
    for late in [Event::Drainer, Event::Sigterm] {
        let events = [first[0], first[1], (35.0, late)];
        let lines = format_log(&Scenario::new(|_| Behaviour::Busy(0), &events).run().await);
        assert_eq!(lines[3], "35 fail", "{late:?}");
        assert!(lines[4..].iter().all(|line| line.starts_with("45 ")));
    }
    // Envoy hangs: its hook returns early, so that the kubelet can restart it.
    let behaviour = |s| {
        if s < 36.0 {
            Behaviour::Busy(0)
        } else {
            Behaviour::Hung
        }
    };
    let log = Scenario::new(behaviour, &first).run().await;
    let (returned, _) = log[3];
    assert!((38.0..42.0).contains(&returned), "{log:?}");
}

#[tokio::test(start_paused = true)]
async fn restarted_envoy_has_its_health_failed_again() {
    let behaviour = |s| match s {
        14.5..16.0 => Behaviour::Gone,
        _ => Behaviour::Busy(0),
    };
    let events = [(1.0, Event::Envoy), (30.0, Event::Envoy)];
    let lines = format_log(&Scenario::new(behaviour, &events).run().await);
    let want = ["4 fail", "14 Envoy returns", "24 ok", "33 fail"];
    assert_eq!(lines[..4], want);
}

#[tokio::test(start_paused = true)]
async fn drainer_hook_in_a_flood_drains_reversibly() {
    use Event::{Drainer, Envoy, Flood, Sigterm};
    let idle = |_| Behaviour::Busy(0);
    type Row<'a> = (&'a [(f64, Event)], &'a [&'a str], Option<MarkerReason>);
    let provisional = Some(MarkerReason::Provisional);
    let pod_terminating = Some(MarkerReason::PodTerminating);
    let table: [Row<'_>; 6] = [
        // Envoy's hook is never called: the drain is undone.
        (
            &[(1.0, Drainer), (1.1, Flood)],
            &["1.5 fail", "11.5 Drainer returns", "21.5 ok"],
            None,
        ),
        // It is called: the irreversible call follows.
        (
            &[(1.0, Drainer), (1.1, Flood), (3.0, Envoy)],
            &[
                "1.5 fail",
                "3 listeners",
                "13 Drainer returns",
                "13 Envoy returns",
                "13 end",
            ],
            pod_terminating,
        ),
        // It is called when Envoy has drained.
        (
            &[(1.0, Drainer), (1.1, Flood), (15.0, Envoy)],
            &[
                "1.5 fail",
                "11.5 Drainer returns",
                "15 Envoy returns",
                "15 end",
            ],
            provisional,
        ),
        // A plain container: SIGTERM follows its hook.
        (
            &[(1.0, Drainer), (1.1, Flood), (11.6, Sigterm)],
            &["1.5 fail", "11.5 Drainer returns", "11.6 end"],
            provisional,
        ),
        (
            &[(1.0, Sigterm), (1.1, Flood)],
            &["1.5 fail", "11.5 end"],
            provisional,
        ),
        // The flood starts later, and continues.
        (
            &[(1.0, Drainer), (6.0, Flood), (8.0, Flood)],
            &["6 fail", "16 Drainer returns", "26 ok"],
            None,
        ),
    ];
    for (events, want, marker) in table {
        let scenario = Scenario::new(idle, events);
        let lines = format_log(&scenario.run().await);
        let matches = |(line, want): (&String, &&str)| {
            let (second, event) = line.split_once(' ').unwrap();
            let (due, want) = want.split_once(' ').unwrap();
            let delay = second.parse::<f64>().unwrap() - due.parse::<f64>().unwrap();
            event == want && (0.0..0.5).contains(&delay)
        };
        let has = |want| lines.iter().any(|line| matches((line, want)));
        let is_as_wanted = lines.len() == want.len() && want.iter().all(has);
        assert!(is_as_wanted, "{events:?}: {lines:?}");
        assert_eq!(scenario.marker(), marker, "{events:?}");
    }
    let delayed = Scenario::new(idle, &[(1.0, Drainer), (1.1, Flood), (20.0, Envoy)])
        .with(|d| d.drain_delay = Duration::from_secs(30));
    let lines = format_log(&delayed.run().await);
    assert_eq!(lines[..2], ["31 fail", "31 listeners"]);
}

#[tokio::test(start_paused = true)]
async fn restarted_drainer_resumes_the_drain_of_a_terminating_pod() {
    // No hook is called again. Health is restored when a pod that terminated then would be gone.
    let scenario = Scenario::new(|_| Behaviour::Busy(0), &[]).with_terminating_pod();
    assert_eq!(format_log(&scenario.run().await), ["0 listeners", "90 ok"]);
    assert!(!scenario.has_marker());
    let message = std::fs::read_to_string(scenario.dir.path().join("log")).unwrap();
    assert!(message.contains(r#""outcome":"drained""#), "{message}");
    // Envoy exits.
    let behaviour = |s| {
        if s < 5.0 {
            Behaviour::Busy(1)
        } else {
            Behaviour::Gone
        }
    };
    let exiting = Scenario::new(behaviour, &[]).with_terminating_pod();
    assert_eq!(format_log(&exiting.run().await), ["0 listeners"]);
    assert_eq!(exiting.marker(), Some(MarkerReason::PodTerminating));
    // The drainer is terminated too.
    let events = [(20.0, Event::Sigterm)];
    let terminated = Scenario::new(|_| Behaviour::Busy(1), &events).with_terminating_pod();
    assert_eq!(
        format_log(&terminated.run().await),
        ["0 listeners", "60 end"]
    );
    assert_eq!(terminated.marker(), Some(MarkerReason::PodTerminating));
}

#[tokio::test(start_paused = true)]
async fn termination_during_a_resumed_drain_gets_the_whole_drain() {
    for second in [3.0, 40.0] {
        let events = [(second, Event::Drainer), (second, Event::Envoy)];
        let scenario = Scenario::new(|_| Behaviour::Busy(0), &events).with_terminating_pod();
        let log = scenario.run().await;
        let returned: Vec<_> = log
            .iter()
            .filter(|(_, event)| event.ends_with("returns"))
            .collect();
        assert_eq!(returned.len(), 2, "{log:?}");
        for (at, _) in returned {
            assert!((second + 10.0..second + 10.5).contains(at), "{log:?}");
        }
        assert!(log.iter().all(|(_, event)| event != "ok"), "{log:?}");
        assert_eq!(scenario.marker(), Some(MarkerReason::PodTerminating));
    }
}

#[tokio::test(start_paused = true)]
async fn another_envoy_than_the_drained_one_stays_live() {
    // RestartAllContainers: no hooks run, and the marker is kept.
    let behaviours: [fn(f64) -> Behaviour; 2] = [
        |_| Behaviour::Busy(1),
        |s| {
            if s < 5.0 {
                Behaviour::Gone
            } else {
                Behaviour::Busy(1)
            }
        },
    ];
    for behaviour in behaviours {
        let scenario = Scenario::new(behaviour, &[]).with_marker(MarkerReason::PodTerminating);
        assert!(scenario.run().await.is_empty());
        assert!(!scenario.has_marker());
    }
    // The drained Envoy is still running at first.
    let behaviour = |s| match s {
        5.0..7.0 => Behaviour::Gone,
        _ => Behaviour::Busy(1),
    };
    let slow = Scenario::new(behaviour, &[]).with_terminating_pod();
    let behaviour = |s| match s {
        5.0..5.1 => Behaviour::Gone,
        _ => Behaviour::Busy(1),
    };
    let quick = Scenario::new(behaviour, &[]).with_terminating_pod();
    for scenario in [slow, quick] {
        let log = scenario.run().await;
        let calls: Vec<_> = log.iter().map(|(_, event)| &**event).collect();
        assert_eq!(calls, ["listeners", "ok"], "{log:?}");
        assert!(!scenario.has_marker());
    }
}

#[tokio::test(start_paused = true)]
async fn envoy_of_unknown_state_is_left_until_the_pod_would_be_gone() {
    let behaviour = |s| {
        if s < 50.0 {
            Behaviour::Rejecting
        } else {
            Behaviour::Busy(1)
        }
    };
    let scenario = Scenario::new(behaviour, &[]).with_terminating_pod();
    assert_eq!(format_log(&scenario.run().await), ["90 ok"]);
    assert!(!scenario.has_marker());
}

#[tokio::test(start_paused = true)]
async fn flood_cancels_no_call_to_envoy() {
    let flood = (0..1000).map(|n| (0.1 + 0.25 * f64::from(n), Event::Flood));
    let run = async |reason: Option<MarkerReason>, events: &[(f64, Event)]| {
        let events: Vec<_> = flood.clone().chain(events.iter().copied()).collect();
        let mut scenario = Scenario::new(|_| Behaviour::Busy(0), &events);
        (scenario.marker_reason, scenario.latency) = (reason, Duration::from_millis(500));
        scenario.duration = Duration::from_secs(60);
        format_log(&scenario.run().await)
    };
    let restored = run(Some(MarkerReason::Provisional), &[]).await;
    assert_eq!(restored, ["1 ok"]);

    let drained = run(None, &[(5.0, Event::Drainer)]).await;
    assert_eq!(drained[..1], ["6 fail"], "{drained:?}");
    assert!(
        drained.iter().all(|line| !line.ends_with(" cancelled")),
        "{drained:?}"
    );
    assert!(drained[1].ends_with(" Drainer returns"), "{drained:?}");
}

/// The events but for the returns of hooks.
fn calls(log: &[(f64, String)]) -> Vec<String> {
    let calls = log.iter().filter(|(_, event)| !event.ends_with("returns"));
    let calls: Vec<_> = calls.cloned().collect();
    format_log(&calls)
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
        assert_eq!(calls(&log), want, "{health_failure_delay}");
        assert_eq!(scenario.marker(), Some(MarkerReason::PodTerminating));
    }
}

#[tokio::test(start_paused = true)]
async fn kept_health_is_failed_at_the_deadline_and_not_where_envoy_is_gone() {
    let both = [(1.0, Event::Drainer), (1.0, Event::Envoy)];
    let delayed = Scenario::new(|_| Behaviour::Busy(1), &both)
        .with_http3(|_| 1)
        .with(|d| d.drain_delay = Duration::from_secs(20));
    let want = ["21 listeners", "81 fail", "81 end"];
    assert_eq!(calls(&delayed.run().await), want);
    let message = std::fs::read_to_string(delayed.dir.path().join("log")).unwrap();
    assert!(
        message.contains(r#""secondsToFailedHealth":60.0"#),
        "{message}"
    );
    assert!(message.contains(r#""http3":1"#), "{message}");

    // The deadline is a bound for the hooks also where Envoy hangs. The call is repeated until it gets a response,
    // until SIGTERM, or for a while.
    let hung = |s| match s {
        50.0.. => Behaviour::Hung,
        _ => Behaviour::Busy(1),
    };
    let hung_for_a_while = |s| match s {
        50.0..65.0 => Behaviour::Hung,
        _ => Behaviour::Busy(1),
    };
    let sigterm = [both[0], both[1], (64.5, Event::Sigterm)];
    type Row<'a> = (fn(f64) -> Behaviour, &'a [(f64, Event)], &'a [&'a str]);
    let table: [Row<'_>; 3] = [
        (hung, &both, &["1 listeners", "77 end"]),
        (hung, &sigterm, &["1 listeners", "64.5 end"]),
        (
            hung_for_a_while,
            &both,
            &["1 listeners", "65 fail", "65 end"],
        ),
    ];
    for (behaviour, events, want) in table {
        let scenario = Scenario::new(behaviour, events).with_http3(|_| 1);
        let log = scenario.run().await;
        assert_eq!(calls(&log), want);
        for hook in ["Envoy returns", "Drainer returns"] {
            assert!(log.contains(&(62.0, hook.to_owned())), "{log:?}");
        }
        assert!(scenario.has_marker());
    }

    let behaviour = |s| match s {
        20.0.. => Behaviour::Gone,
        _ => Behaviour::Busy(1),
    };
    let exited = Scenario::new(behaviour, &both).with_http3(|_| 1);
    let log = calls(&exited.run().await);
    assert!(
        log[0] == "1 listeners" && log[1].ends_with(" end"),
        "{log:?}"
    );
    // Nothing is to be restored, since health was not failed.
    assert!(!exited.has_marker());
}

#[tokio::test(start_paused = true)]
async fn health_is_kept_only_in_a_pod_that_is_known_to_terminate() {
    use Event::{Drainer, Envoy, Flood};
    let run = async |events: &[(f64, Event)]| {
        let scenario = Scenario::new(|_| Behaviour::Busy(0), events).with_http3(|_| 1);
        (calls(&scenario.run().await), scenario.has_marker())
    };
    assert_eq!(run(&[(1.0, Envoy)]).await.0, ["4 fail", "24 ok"]);
    assert_eq!(run(&[(1.0, Drainer)]).await.0, [""; 0]);
    // Health has been failed, provisionally.
    let (log, has_marker) = run(&[(1.0, Envoy), (9.0, Drainer)]).await;
    assert_eq!(log, ["4 fail", "9 listeners", "19 end"]);
    assert!(has_marker);
    let (log, _) = run(&[(1.0, Drainer), (1.1, Flood)]).await;
    assert!(
        log[0].ends_with(" fail") && log[1].ends_with(" ok"),
        "{log:?}"
    );
    // Envoy was not restarted after its hook was called, so that a call of it proves nothing.
    let events = [(1.0, Envoy), (20.0, Envoy), (20.0, Drainer)];
    assert_eq!(run(&events).await.0, ["4 fail", "20 fail", "30 end"]);
}

#[tokio::test(start_paused = true)]
async fn slow_read_delays_failed_health_by_half_a_second_at_most() {
    let both = [(3.0, Event::Drainer), (3.0, Event::Envoy)];
    // Hangs when the drain starts.
    let behaviour = |s| match s {
        2.9..3.4 => Behaviour::Hung,
        _ => Behaviour::Busy(0),
    };
    let log = Scenario::new(behaviour, &both).run().await;
    assert_eq!(calls(&log)[..2], ["3.5 fail", "3.5 listeners"]);
    // What was read at the drainer's start counts.
    let log = Scenario::new(behaviour, &both)
        .with_http3(|_| 1)
        .run()
        .await;
    assert_eq!(calls(&log)[..1], ["3.5 listeners"]);
    // Without that, health is failed.
    let behaviour = |s| match s {
        ..3.5 => Behaviour::Failing,
        _ => Behaviour::Busy(0),
    };
    let log = Scenario::new(behaviour, &both)
        .with_http3(|_| 1)
        .run()
        .await;
    let log = calls(&log);
    assert!(
        log[0].ends_with(" fail") && log[1].ends_with(" listeners"),
        "{log:?}"
    );
}
