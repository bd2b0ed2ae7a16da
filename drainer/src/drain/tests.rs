//! The drain in paused time, against an Envoy whose mood is a function of the second.

use std::cell::{Cell, RefCell};
use std::future::pending;
use std::rc::Rc;

use tempfile::TempDir;
use tokio::task::LocalSet;
use tokio::time::{sleep, sleep_until};

use super::*;
use crate::client_activity::{Counters, RequestCounters};
use crate::envoy::hidden_stats::HiddenStats;
use crate::envoy::listeners::EnvoyListeners;
use crate::envoy::server_info::{ServerInfo, ServerState};
use crate::envoy::stats::{HttpCounts, OpenConnections};
use crate::progress::released;
use crate::timing::Durations;

/// How Envoy behaves for the moment.
#[derive(Clone, Copy)]
enum Behaviour {
    /// Answers, with so many requests under way.
    Busy(u64),
    /// Accepts connections and never answers.
    Hung,
    /// Answers 500.
    Failing,
    /// Answers 404.
    Rejecting,
    /// Refuses connections.
    Gone,
}

/// Who comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Event {
    Envoy,
    Drainer,
    Sigterm,
    /// Nobody: the port may have failed a connection.
    Flood,
}

struct FakeEnvoy {
    started: Instant,
    behaviour: fn(f64) -> Behaviour,
    log: Log,
    /// Its health is not failed. One that was gone is another Envoy afterwards, and live.
    live: Cell<bool>,
    /// When it was last called, in seconds.
    last_call_at: Cell<f64>,
    /// How long it takes to answer.
    latency: Duration,
}

/// What happened, in seconds.
type Log = Rc<RefCell<Vec<(f64, String)>>>;

struct Scenario {
    behaviour: fn(f64) -> Behaviour,
    timing: Timing,
    signals: Vec<(f64, Event)>,
    marker_reason: Option<MarkerReason>,
    /// Whether Envoy is live at first.
    live: bool,
    duration: Duration,
    /// How long Envoy takes to answer.
    latency: Duration,
    dir: TempDir,
}

// === impl FakeEnvoy ===

impl FakeEnvoy {
    fn record(&self, what: &str) {
        let second = (Instant::now() - self.started).as_secs_f64();
        let second = (second * 100.0).round() / 100.0;
        self.log.borrow_mut().push((second, what.to_owned()));
    }

    async fn call(&self) -> Result<u64, AdminError> {
        let now = (Instant::now() - self.started).as_secs_f64();
        let mut since = self.last_call_at.replace(now);
        while since < now {
            if let Behaviour::Gone = (self.behaviour)(since) {
                self.live.set(true);
            }
            since += 0.1;
        }
        if !self.latency.is_zero() {
            let cut = OnDrop::new(|| self.record("cut"));
            sleep(self.latency).await;
            cut.disarm();
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

    async fn poll(&mut self) -> Snapshot {
        match self.call().await {
            Ok(requests) => Snapshot::Counted(Count::Listeners(OpenConnections {
                connections: requests,
                counters: Some(Counters {
                    requests: Some(RequestCounters::default()),
                    ..Counters::default()
                }),
                http: Some(HttpCounts {
                    requests,
                    ..HttpCounts::default()
                }),
                live: Some(self.live.get()),
                ..OpenConnections::default()
            })),
            Err(AdminError::ConnectionRefused) => Snapshot::ConnectionRefused,
            Err(AdminError::NoResponse(why)) => Snapshot::NoResponse(why),
            Err(AdminError::Rejected(why)) => Snapshot::InvalidResponse(why),
        }
    }

    async fn inspect(&mut self) -> Result<Setup, AdminError> {
        self.call().await.map(|_| Setup {
            server: ServerInfo {
                state: match self.live.get() {
                    true => ServerState::Live,
                    false => ServerState::Draining,
                },
                ..ServerInfo::default()
            },
            listeners: Ok(EnvoyListeners::default()),
            hidden_stats: Ok(HiddenStats::default()),
        })
    }
}

// === impl Scenario ===

impl Scenario {
    fn new(mood: fn(f64) -> Behaviour, came: &[(f64, Event)]) -> Self {
        Self {
            behaviour: mood,
            timing: Timing::default(),
            signals: came.to_vec(),
            marker_reason: None,
            live: true,
            duration: Duration::from_secs(300),
            latency: Duration::ZERO,
            dir: tempfile::tempdir().unwrap(),
        }
    }

    fn with(mut self, change: impl FnOnce(&mut Durations)) -> Self {
        let mut durations = *self.timing;
        change(&mut durations);
        self.timing = Timing::try_new(durations).unwrap();
        self
    }

    fn with_marker(mut self, reason: MarkerReason) -> Self {
        self.marker_reason = Some(reason);
        self
    }

    /// A pod's end that an earlier process of the drainer saw, which failed Envoy's health.
    fn with_terminating_pod(self) -> Self {
        Self {
            live: false,
            ..self.with_marker(MarkerReason::PodTerminating)
        }
    }

    /// Plays the scene, for five minutes unless said otherwise, and tells what happened: calls to Envoy, hooks that
    /// returned, the end of the drain's task.
    async fn run(&self) -> Vec<(f64, String)> {
        let started = Instant::now();
        let log = Log::default();
        let config = Config {
            timing: self.timing,
            run_dir: self.dir.path().into(),
            termination_log: self.dir.path().join("log"),
            ..Config::new("127.0.0.1:1".parse().unwrap(), crate::Token::new(0))
        };
        if let Some(reason) = self.marker_reason {
            Marker::new(self.dir.path()).write(reason).unwrap();
        }
        let came = watch::Sender::new(TerminationSignals::default());
        let progress = watch::Sender::new(Progress::default());
        let fake = |log: &Log| FakeEnvoy {
            started,
            behaviour: self.behaviour,
            log: log.clone(),
            live: Cell::new(self.live),
            last_call_at: Cell::new(0.0),
            latency: self.latency,
        };
        let drain = Drain::new(fake(&log), &config, came.clone(), progress.clone());
        let tasks = LocalSet::new();
        let clock = fake(&log);
        tasks.spawn_local(async move {
            drain.run().await;
            clock.record("end");
        });
        for (second, who) in self.signals.clone() {
            let (came, mut progress) = (came.clone(), progress.subscribe());
            let clock = fake(&log);
            tasks.spawn_local(async move {
                sleep_until(started + Duration::from_secs_f64(second)).await;
                progress.mark_unchanged();
                if who == Event::Flood {
                    return TerminationSignals::record_port_unavailable(&came);
                }
                came.send_modify(|came| {
                    let now = Instant::now();
                    let when = match who {
                        Event::Envoy => return came.record_envoy_hook(now),
                        Event::Drainer => &mut came.drainer_hook,
                        Event::Sigterm => &mut came.sigterm,
                        Event::Flood => return,
                    };
                    when.get_or_insert(now);
                });
                if who != Event::Sigterm {
                    released(&mut progress).await;
                    clock.record(&format!("{who:?} returns"));
                }
            });
        }
        let over = started + self.duration;
        tasks.run_until(sleep_until(over)).await;
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
        .map(|(second, what)| format!("{second} {what}"))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn both_hooks_are_the_whole_drain() {
    use Event::{Drainer, Envoy, Sigterm};
    for came in [
        [(1.0, Envoy), (1.0, Drainer)],
        [(1.0, Drainer), (1.0, Envoy)],
    ] {
        let scene = Scenario::new(|s| Behaviour::Busy((s < 20.0).into()), &came);
        let log = scene.run().await;
        let told = format_log(&log);
        assert_eq!(told[..2], ["1 fail", "1 listeners"]);
        assert!((20.0..20.4).contains(&log[2].0), "{told:?}");
        assert_eq!(told.len(), 5, "{told:?}");
        assert!(scene.has_marker());
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
    let mut told = format_log(log);
    told.sort();
    told
}

fn sorted_want(want: &[&str]) -> Vec<String> {
    let mut want: Vec<_> = want.iter().map(ToString::to_string).collect();
    want.sort();
    want
}

#[tokio::test(start_paused = true)]
async fn the_drain_delay_comes_before_anything_is_touched() {
    let scene = Scenario::new(
        |_| Behaviour::Busy(0),
        &[(0.0, Event::Envoy), (0.5, Event::Drainer)],
    )
    .with(|d| d.drain_delay = Duration::from_secs(30));
    let log = scene.run().await;
    assert_eq!(format_log(&log)[..2], ["30 fail", "30 listeners"]);
    assert_eq!(log.last().map(|(second, _)| *second), Some(40.0));
}

#[tokio::test(start_paused = true)]
async fn the_deadline_counts_from_the_first_hook_and_holds_to_the_moment() {
    let came = [(1.0, Event::Drainer), (3.0, Event::Envoy)];
    let moods: [fn(f64) -> Behaviour; 4] = [
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
        // A wrong address: it waits like a sleep.
        |_| Behaviour::Gone,
    ];
    for mood in moods {
        let scene = Scenario::new(mood, &came).with(|d| d.drain_delay = Duration::from_secs(5));
        let log = scene.run().await;
        let returned: Vec<_> = log
            .iter()
            .filter(|(_, what)| what.ends_with("returns"))
            .collect();
        assert_eq!(returned.len(), 2, "{log:?}");
        assert!(
            returned.iter().all(|(second, _)| *second == 66.0),
            "{log:?}"
        );
        let last_words = std::fs::read_to_string(scene.dir.path().join("log")).unwrap();
        assert!(
            last_words.contains(r#""outcome":"deadline""#),
            "{last_words}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_envoy_that_ends_by_itself_is_not_waited_for() {
    let both = [(1.0, Event::Drainer), (1.0, Event::Envoy)];
    let mood = |s| {
        if s < 5.0 {
            Behaviour::Busy(1)
        } else {
            Behaviour::Gone
        }
    };
    let log = Scenario::new(mood, &both).run().await;
    assert!((5.0..6.2).contains(&log.last().unwrap().0), "{log:?}");
    let delayed = Scenario::new(mood, &both).with(|d| d.drain_delay = Duration::from_secs(30));
    let log = delayed.run().await;
    assert!((5.0..6.2).contains(&log.last().unwrap().0), "{log:?}");
    assert!(!delayed.has_marker(), "nothing was touched");
}

#[tokio::test(start_paused = true)]
async fn envoys_hook_alone_fails_its_health_and_returns() {
    let scene = Scenario::new(|_| Behaviour::Busy(1), &[(1.0, Event::Envoy)]);
    let told = format_log(&scene.run().await);
    // The kubelet now restarts it. This one lives on, so its health is restored.
    assert_eq!(told, ["4 fail", "14 Envoy returns", "24 ok"]);
    assert!(!scene.has_marker());
}

#[tokio::test(start_paused = true)]
async fn after_envoys_restart_a_pods_end_is_drained_as_ever() {
    let came = [
        (1.0, Event::Envoy),
        (40.0, Event::Envoy),
        (40.0, Event::Drainer),
    ];
    let told = format_log(&Scenario::new(|_| Behaviour::Busy(0), &came).run().await);
    assert_eq!(told[..3], ["4 fail", "14 Envoy returns", "24 ok"]);
    assert_eq!(told[3..5], ["40 fail", "40 listeners"]);
    assert_eq!(told.len(), 8, "{told:?}");
    assert!(
        told[5..].iter().all(|line| line.starts_with("50 ")),
        "{told:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_late_second_hook_gets_the_rest_of_the_drain() {
    for late in [Event::Drainer, Event::Sigterm] {
        let came = [(1.0, Event::Envoy), (9.0, late)];
        let scene = Scenario::new(|_| Behaviour::Busy(0), &came)
            .with(|d| d.drain_delay = Duration::from_secs(30));
        let told = format_log(&scene.run().await);
        // Its health has failed already: no delay any more. The minimum counts from the second.
        assert_eq!(told[..2], ["4 fail", "9 listeners"], "{late:?}");
        assert!(
            told[2..].iter().all(|line| line.starts_with("19 ")),
            "{told:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_hung_envoys_hook_returns_before_three_seconds() {
    let moods: [fn(f64) -> Behaviour; 3] = [
        |_| Behaviour::Hung,
        |_| Behaviour::Gone,
        |_| Behaviour::Failing,
    ];
    for mood in moods {
        let log = Scenario::new(mood, &[(1.0, Event::Envoy)]).run().await;
        assert_eq!(log.len(), 1, "{log:?}");
        assert!((3.4..=3.75).contains(&log[0].0), "{log:?}");
    }
    // One that hangs later on is let go then.
    let mood = |s| {
        if s < 6.0 {
            Behaviour::Busy(1)
        } else {
            Behaviour::Hung
        }
    };
    let log = Scenario::new(mood, &[(1.0, Event::Envoy)]).run().await;
    assert_eq!(log[0], (4.0, "fail".into()));
    assert!((8.0..11.6).contains(&log[1].0), "{log:?}");
}

#[tokio::test(start_paused = true)]
async fn an_envoy_that_declines_or_stumbles_once_still_answers() {
    let declines = Scenario::new(|_| Behaviour::Rejecting, &[(1.0, Event::Envoy)]);
    assert_eq!(format_log(&declines.run().await), ["14 Envoy returns"]);
    // One bad answer while its hook waits alone.
    let mood = |s| match s {
        4.5..5.2 => Behaviour::Failing,
        _ => Behaviour::Busy(0),
    };
    let came = [(1.0, Event::Envoy), (7.5, Event::Drainer)];
    let told = format_log(&Scenario::new(mood, &came).run().await);
    assert_eq!(told[..2], ["4 fail", "7.5 listeners"]);
    assert!(
        told[2..].iter().all(|line| line.starts_with("17.5 ")),
        "{told:?}"
    );
}

/// While both signs are there, no hook returns but by an exit rule of the whole drain.
#[tokio::test(start_paused = true)]
async fn the_second_sign_counts_whatever_is_under_way() {
    let moods: [fn(f64) -> Behaviour; 3] = [
        // Silent while health is failed; silent later on; silent all along but for a moment.
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
    for mood in moods {
        for late in [Event::Drainer, Event::Sigterm] {
            for second in [1.2, 3.4, 3.95, 4.2, 5.0, 5.9] {
                let came = [(1.0, Event::Envoy), (second, late)];
                let log = Scenario::new(mood, &came).run().await;
                let returned = log.iter().filter(|(_, what)| what.ends_with("returns"));
                for (at, what) in returned.filter(|(at, _)| *at >= second) {
                    assert!(*at >= 11.2, "{what} at {at}, {late:?} at {second}: {log:?}");
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn envoys_lone_round_does_not_shorten_the_wait_after_sigterm() {
    let came = [
        (1.0, Event::Envoy),
        (20.0, Event::Sigterm),
        (21.5, Event::Envoy),
    ];
    let told = format_log(&Scenario::new(|_| Behaviour::Busy(0), &came).run().await);
    assert_eq!(told[..2], ["4 fail", "14 Envoy returns"]);
    assert_eq!(told[2], "21.5 fail", "{told:?}");
    assert!(
        told[3..].iter().all(|line| line.starts_with("31.5 ")),
        "{told:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_drainer_alone_touches_nothing() {
    use Event::{Drainer, Sigterm};
    let busy = |_| Behaviour::Busy(1);
    type Row<'a> = (fn(f64) -> Behaviour, &'a [(f64, Event)], &'a [&'a str]);
    let table: [Row<'_>; 6] = [
        (busy, &[(1.0, Drainer)], &["11 Drainer returns"]),
        // A new image: its hook, then SIGTERM.
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
    for (mood, came, want) in table {
        let scene = Scenario::new(mood, came);
        assert_eq!(format_log(&scene.run().await), want, "{came:?}");
        assert!(!scene.has_marker());
    }
}

#[tokio::test(start_paused = true)]
async fn what_an_earlier_life_did_is_undone_until_envoy_hears_it() {
    let mood = |s| {
        if s < 7.0 {
            Behaviour::Gone
        } else {
            Behaviour::Busy(1)
        }
    };
    let scene = Scenario::new(mood, &[]).with_marker(MarkerReason::Provisional);
    assert_eq!(format_log(&scene.run().await), ["7 ok"]);
    assert!(!scene.has_marker());
    let deaf = Scenario::new(|_| Behaviour::Failing, &[]).with_marker(MarkerReason::Provisional);
    assert!(deaf.run().await.is_empty());
    assert!(deaf.has_marker());
    // Who declined may have been another than Envoy.
    let mood = |s| match s {
        20.0.. => Behaviour::Busy(1),
        _ => Behaviour::Rejecting,
    };
    let scene = Scenario::new(mood, &[]).with_marker(MarkerReason::Provisional);
    assert_eq!(format_log(&scene.run().await), ["20 ok"]);
    assert!(!scene.has_marker());
    let unmarked = Scenario::new(|_| Behaviour::Busy(1), &[]);
    assert!(
        unmarked.run().await.is_empty(),
        "a drain asked for by somebody else is not ours to undo"
    );
}

#[tokio::test(start_paused = true)]
async fn calls_that_get_no_answer_are_repeated() {
    let both = [(1.0, Event::Drainer), (1.0, Event::Envoy)];
    let mood = |s| match s {
        1.0..4.0 => Behaviour::Failing,
        _ => Behaviour::Busy(0),
    };
    let log = Scenario::new(mood, &both).run().await;
    let fails: Vec<_> = log.iter().filter(|(_, what)| what == "fail").collect();
    assert_eq!(fails.len(), 1);
    assert!((4.0..4.3).contains(&fails[0].0), "{log:?}");
    // The minimum counts from there.
    assert!((14.0..14.4).contains(&log.last().unwrap().0), "{log:?}");
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_comes_when_all_is_over_returns_at_once() {
    let came = [
        (1.0, Event::Drainer),
        (1.0, Event::Envoy),
        (100.0, Event::Envoy),
    ];
    let log = Scenario::new(|_| Behaviour::Busy(0), &came).run().await;
    assert_eq!(log.last().unwrap(), &(100.0, "Envoy returns".into()));
}

#[tokio::test(start_paused = true)]
async fn a_thousand_hooks_share_one_drain() {
    let mut came = vec![(1.0, Event::Drainer)];
    came.extend(vec![(1.5, Event::Envoy); 1000]);
    let log = Scenario::new(|_| Behaviour::Busy(0), &came).run().await;
    let count = |what: &str| log.iter().filter(|(_, happened)| happened == what).count();
    assert_eq!((count("fail"), count("listeners")), (1, 1));
    assert_eq!(
        (count("Envoy returns"), count("Drainer returns")),
        (1000, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn a_hook_at_the_end_of_a_lone_round_waits_for_the_other_signal() {
    use Event::{Drainer, Envoy, Sigterm};
    for call in [11.6, 13.8, 13.95] {
        for late in [Drainer, Sigterm] {
            let came = [(1.0, Envoy), (call, Envoy), (14.2, late)];
            let told = format_log(&Scenario::new(|_| Behaviour::Busy(0), &came).run().await);
            let want = ["4 fail", "14 Envoy returns", "14.2 fail"];
            assert_eq!(told[..3], want, "{call}");
            let hook_returns = told.contains(&"24.2 Envoy returns".to_owned());
            let is_whole = told[3..].iter().all(|line| line.starts_with("24.2 "));
            assert!(hook_returns && is_whole, "{told:?}");
        }
        // Without another signal it is a lone round of its own.
        let came = [(1.0, Envoy), (call, Envoy)];
        let told = format_log(&Scenario::new(|_| Behaviour::Busy(0), &came).run().await);
        let returned = format!("{} Envoy returns", call + 13.0);
        assert_eq!(told[..2], ["4 fail", "14 Envoy returns"]);
        assert!(told[2].ends_with(" ok") && *told[2] < *"25", "{told:?}");
        assert_eq!(told[3..], [returned]);
    }
    // So it is at the end of a resumed drain.
    for late in [Drainer, Sigterm] {
        let came = [(9.0, Envoy), (10.2, late)];
        let log = Scenario::new(|_| Behaviour::Busy(0), &came)
            .with_terminating_pod()
            .run()
            .await;
        let returned = log.iter().find(|(_, what)| what == "Envoy returns");
        assert_eq!(returned.map(|(at, _)| *at), Some(20.2), "{log:?}");
    }
}

/// Of a log of ten minutes, how long Envoy's health was failed.
fn failed_duration(log: &[(f64, String)]) -> f64 {
    let calls = log
        .iter()
        .filter(|(_, what)| ["fail", "ok"].contains(&&**what));
    let (mut failed, mut since) = (0.0, None);
    for (second, what) in calls {
        match (&**what, since) {
            ("fail", None) => since = Some(*second),
            ("ok", Some(began)) => {
                failed += second - began;
                since = None;
            }
            _ => {}
        }
    }
    failed + since.map_or(0.0, |began| 600.0 - began)
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_never_stops_leaves_envoy_live() {
    for every in [1.0, 7.0, 15.0, 61.0] {
        let calls = (0..).map(|call| 1.0 + every * f64::from(call));
        let calls = calls.take_while(|second| *second < 600.0);
        let mut came: Vec<_> = calls.map(|second| (second, Event::Envoy)).collect();
        let mut scene = Scenario::new(|_| Behaviour::Busy(0), &came);
        scene.duration = Duration::from_secs(600);
        let log = scene.run().await;
        let failed = failed_duration(&log);
        assert!(failed <= 90.0, "every {every} s: failed for {failed} s");
        // The pod's end is drained at once all the same, with what can be undone where calls are so
        // frequent that the pod's own proves nothing.
        came.retain(|(second, _)| *second < 300.0);
        came.extend([(300.5, Event::Drainer), (300.6, Event::Envoy)]);
        scene.signals = came;
        let told = format_log(&scene.run().await);
        let starts = ["300.5 fail", "300.6 fail"].map(str::to_owned);
        assert!(starts.iter().any(|start| told.contains(start)), "{told:?}");
        let is_proven = told.iter().any(|line| line.ends_with(" listeners"));
        assert_eq!(is_proven, every > 60.0, "{told:?}");
        assert!(told.last().unwrap().starts_with("310."), "{told:?}");
    }
    // Nor do those calls shorten what the drain has.
    let mut came: Vec<_> = (1..100)
        .map(|second| (f64::from(second), Event::Envoy))
        .collect();
    came.extend([(66.5, Event::Drainer)]);
    let scene = Scenario::new(|_| Behaviour::Busy(1), &came).with(|d| {
        d.drain_delay = Duration::from_secs(20);
        d.drain_timeout = Duration::from_secs(30);
    });
    let told = format_log(&scene.run().await);
    assert!(told.contains(&"86.5 fail".into()), "{told:?}");
    assert!(told.contains(&"116.5 Drainer returns".into()), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_drainers_restart_among_lone_hooks_can_be_undone() {
    use Event::{Drainer, Envoy, Sigterm};
    for every in [1, 5, 15, 25] {
        for restart in [65.2, 70.9, 77.0] {
            let calls = (0..20).map(|call| (1.0 + f64::from(call * every), Envoy));
            let mut came: Vec<_> = calls.collect();
            came.extend([(restart, Drainer), (restart + 12.0, Sigterm)]);
            let scene = Scenario::new(|_| Behaviour::Busy(0), &came);
            let told = format_log(&scene.run().await);
            let is_irrevocable = told.iter().any(|line| line.ends_with(" listeners"));
            assert!(!is_irrevocable, "every {every} s, {restart}: {told:?}");
            // The next process restores health at once.
            assert_ne!(
                scene.marker(),
                Some(MarkerReason::PodTerminating),
                "{told:?}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_lone_hook_waits_for_the_other_signal_as_the_first() {
    let first = [(1.0, Event::Envoy), (30.0, Event::Envoy)];
    let told = format_log(&Scenario::new(|_| Behaviour::Busy(0), &first).run().await);
    let want = ["4 fail", "14 Envoy returns", "24 ok", "43 Envoy returns"];
    assert_eq!(told, want);
    for late in [Event::Drainer, Event::Sigterm] {
        let came = [first[0], first[1], (35.0, late)];
        let told = format_log(&Scenario::new(|_| Behaviour::Busy(0), &came).run().await);
        assert_eq!(told[3], "35 fail", "{late:?}");
        assert!(told[4..].iter().all(|line| line.starts_with("45 ")));
    }
    // Envoy hangs: the kubelet is to restart it soon.
    let mood = |s| {
        if s < 36.0 {
            Behaviour::Busy(0)
        } else {
            Behaviour::Hung
        }
    };
    let log = Scenario::new(mood, &first).run().await;
    let (returned, _) = log[3];
    assert!((38.0..42.0).contains(&returned), "{log:?}");
}

#[tokio::test(start_paused = true)]
async fn an_envoy_that_was_restarted_has_its_health_failed_again() {
    let mood = |s| match s {
        14.5..16.0 => Behaviour::Gone,
        _ => Behaviour::Busy(0),
    };
    let came = [(1.0, Event::Envoy), (30.0, Event::Envoy)];
    let told = format_log(&Scenario::new(mood, &came).run().await);
    let want = ["4 fail", "14 Envoy returns", "24 ok", "33 fail"];
    assert_eq!(told[..4], want);
}

#[tokio::test(start_paused = true)]
async fn the_drainers_hook_in_a_flood_returns_drained() {
    use Event::{Drainer, Envoy, Flood, Sigterm};
    let idle = |_| Behaviour::Busy(0);
    type Row<'a> = (&'a [(f64, Event)], &'a [&'a str], Option<MarkerReason>);
    let provisional = Some(MarkerReason::Provisional);
    let pod_ends = Some(MarkerReason::PodTerminating);
    let table: [Row<'_>; 6] = [
        // Envoy's hook never comes: it is undone.
        (
            &[(1.0, Drainer), (1.1, Flood)],
            &["1.5 fail", "11.5 Drainer returns", "21.5 ok"],
            None,
        ),
        // It comes: what cannot be undone follows.
        (
            &[(1.0, Drainer), (1.1, Flood), (3.0, Envoy)],
            &[
                "1.5 fail",
                "3 listeners",
                "13 Drainer returns",
                "13 Envoy returns",
                "13 end",
            ],
            pod_ends,
        ),
        // It comes when Envoy has drained.
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
        // A plain container: SIGTERM follows on its hook.
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
        // The flood comes later, and goes on.
        (
            &[(1.0, Drainer), (6.0, Flood), (8.0, Flood)],
            &["6 fail", "16 Drainer returns", "26 ok"],
            None,
        ),
    ];
    for (came, want, marker) in table {
        let scene = Scenario::new(idle, came);
        let told = format_log(&scene.run().await);
        let looks_like = |(told, want): (&String, &&str)| {
            let (second, what) = told.split_once(' ').unwrap();
            let (due, wanted) = want.split_once(' ').unwrap();
            let late = second.parse::<f64>().unwrap() - due.parse::<f64>().unwrap();
            what == wanted && (0.0..0.5).contains(&late)
        };
        let has = |want| told.iter().any(|told| looks_like((told, want)));
        let is_as_wanted = told.len() == want.len() && want.iter().all(has);
        assert!(is_as_wanted, "{came:?}: {told:?}");
        assert_eq!(scene.marker(), marker, "{came:?}");
    }
    let delayed = Scenario::new(idle, &[(1.0, Drainer), (1.1, Flood), (20.0, Envoy)])
        .with(|d| d.drain_delay = Duration::from_secs(30));
    let told = format_log(&delayed.run().await);
    assert_eq!(told[..2], ["31 fail", "31 listeners"]);
}

#[tokio::test(start_paused = true)]
async fn a_restarted_drainer_resumes_the_drain_of_a_pod_that_ends() {
    // No hook comes again. Health is restored when any pod that ended then would be gone.
    let scene = Scenario::new(|_| Behaviour::Busy(0), &[]).with_terminating_pod();
    assert_eq!(format_log(&scene.run().await), ["0 listeners", "90 ok"]);
    assert!(!scene.has_marker());
    let last_words = std::fs::read_to_string(scene.dir.path().join("log")).unwrap();
    assert!(
        last_words.contains(r#""outcome":"drained""#),
        "{last_words}"
    );
    // Envoy ends.
    let mood = |s| {
        if s < 5.0 {
            Behaviour::Busy(1)
        } else {
            Behaviour::Gone
        }
    };
    let ending = Scenario::new(mood, &[]).with_terminating_pod();
    assert_eq!(format_log(&ending.run().await), ["0 listeners"]);
    assert_eq!(ending.marker(), Some(MarkerReason::PodTerminating));
    // So does the drainer.
    let came = [(20.0, Event::Sigterm)];
    let ended = Scenario::new(|_| Behaviour::Busy(1), &came).with_terminating_pod();
    assert_eq!(format_log(&ended.run().await), ["0 listeners", "60 end"]);
    assert_eq!(ended.marker(), Some(MarkerReason::PodTerminating));
}

#[tokio::test(start_paused = true)]
async fn a_pods_end_during_a_resumed_drain_is_drained_whole() {
    for second in [3.0, 40.0] {
        let came = [(second, Event::Drainer), (second, Event::Envoy)];
        let scene = Scenario::new(|_| Behaviour::Busy(0), &came).with_terminating_pod();
        let log = scene.run().await;
        let returned: Vec<_> = log
            .iter()
            .filter(|(_, what)| what.ends_with("returns"))
            .collect();
        assert_eq!(returned.len(), 2, "{log:?}");
        for (at, _) in returned {
            assert!((second + 10.0..second + 10.5).contains(at), "{log:?}");
        }
        assert!(log.iter().all(|(_, what)| what != "ok"), "{log:?}");
        assert_eq!(scene.marker(), Some(MarkerReason::PodTerminating));
    }
}

#[tokio::test(start_paused = true)]
async fn another_envoy_than_the_drained_one_is_left_alone() {
    // RestartAllContainers, with a marker of either reason: hooks do not run, the marker stays.
    let moods: [fn(f64) -> Behaviour; 2] = [
        |_| Behaviour::Busy(1),
        |s| {
            if s < 5.0 {
                Behaviour::Gone
            } else {
                Behaviour::Busy(1)
            }
        },
    ];
    for mood in moods {
        let scene = Scenario::new(mood, &[]).with_marker(MarkerReason::PodTerminating);
        assert!(scene.run().await.is_empty());
        assert!(!scene.has_marker());
    }
    // The drained one is still there at first.
    let mood = |s| match s {
        5.0..7.0 => Behaviour::Gone,
        _ => Behaviour::Busy(1),
    };
    let slow = Scenario::new(mood, &[]).with_terminating_pod();
    let mood = |s| match s {
        5.0..5.1 => Behaviour::Gone,
        _ => Behaviour::Busy(1),
    };
    let quick = Scenario::new(mood, &[]).with_terminating_pod();
    for scene in [slow, quick] {
        let log = scene.run().await;
        let calls: Vec<_> = log.iter().map(|(_, what)| &**what).collect();
        assert_eq!(calls, ["listeners", "ok"], "{log:?}");
        assert!(!scene.has_marker());
    }
}

#[tokio::test(start_paused = true)]
async fn an_envoy_that_does_not_say_its_state_is_left_until_a_pod_would_be_gone() {
    let mood = |s| {
        if s < 50.0 {
            Behaviour::Rejecting
        } else {
            Behaviour::Busy(1)
        }
    };
    let scene = Scenario::new(mood, &[]).with_terminating_pod();
    assert_eq!(format_log(&scene.run().await), ["90 ok"]);
    assert!(!scene.has_marker());
}

#[tokio::test(start_paused = true)]
async fn a_flood_cuts_no_call_to_envoy() {
    let flood = (0..1000).map(|note| (0.1 + 0.25 * f64::from(note), Event::Flood));
    let play = async |marked: Option<MarkerReason>, came: &[(f64, Event)]| {
        let came: Vec<_> = flood.clone().chain(came.iter().copied()).collect();
        let mut scene = Scenario::new(|_| Behaviour::Busy(0), &came);
        (scene.marker_reason, scene.latency) = (marked, Duration::from_millis(500));
        scene.duration = Duration::from_secs(60);
        format_log(&scene.run().await)
    };
    let restored = play(Some(MarkerReason::Provisional), &[]).await;
    assert_eq!(restored, ["1 ok"]);

    let drained = play(None, &[(5.0, Event::Drainer)]).await;
    assert_eq!(drained[..1], ["6 fail"], "{drained:?}");
    assert!(
        drained.iter().all(|line| !line.ends_with(" cut")),
        "{drained:?}"
    );
    assert!(drained[1].ends_with(" Drainer returns"), "{drained:?}");
}
