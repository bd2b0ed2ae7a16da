//! The drain in paused time, against an Envoy whose mood is a function of the second.

use std::cell::RefCell;
use std::future::pending;
use std::rc::Rc;

use tempfile::TempDir;
use tokio::task::LocalSet;
use tokio::time::sleep_until;

use super::*;
use crate::flush_interval::FlushInterval;
use crate::listeners::Listeners;
use crate::progress::released;
use crate::server_info::ServerInfo;
use crate::stats::{Http, Open};
use crate::timing::Durations;
use crate::traffic::{Counters, Requests};

/// How Envoy behaves for the moment.
#[derive(Clone, Copy)]
enum Mood {
    /// Answers, with so many requests under way.
    Busy(u64),
    /// Accepts connections and never answers.
    Hung,
    /// Answers 500.
    Failing,
    /// Answers 404.
    Declining,
    /// Refuses connections.
    Gone,
}

/// Who comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Who {
    Envoy,
    Drainer,
    Sigterm,
}

struct Fake {
    started: Instant,
    mood: fn(f64) -> Mood,
    log: Log,
    live: bool,
}

/// What happened, in seconds.
type Log = Rc<RefCell<Vec<(f64, String)>>>;

struct Scene {
    mood: fn(f64) -> Mood,
    timing: Timing,
    came: Vec<(f64, Who)>,
    marked: bool,
    dir: TempDir,
}

// === impl Fake ===

impl Fake {
    fn note(&self, what: &str) {
        let second = (Instant::now() - self.started).as_secs_f64();
        let second = (second * 100.0).round() / 100.0;
        self.log.borrow_mut().push((second, what.to_owned()));
    }

    async fn call(&self) -> Result<u64, CallFailed> {
        match (self.mood)((Instant::now() - self.started).as_secs_f64()) {
            Mood::Busy(requests) => Ok(requests),
            Mood::Hung => pending().await,
            Mood::Failing => Err(CallFailed::Unanswered("500".into())),
            Mood::Declining => Err(CallFailed::Declined("404".into())),
            Mood::Gone => Err(CallFailed::Refused),
        }
    }
}

impl Envoy for Fake {
    async fn fail_health(&mut self) -> Result<(), CallFailed> {
        self.call().await?;
        self.live = false;
        self.note("fail");
        Ok(())
    }

    async fn restore_health(&mut self) -> Result<(), CallFailed> {
        self.call().await?;
        self.live = true;
        self.note("ok");
        Ok(())
    }

    async fn drain_listeners(&mut self) -> Result<(), CallFailed> {
        self.call().await?;
        self.note("listeners");
        Ok(())
    }

    async fn look(&mut self) -> Seen {
        match self.call().await {
            Ok(requests) => Seen::Counted(Count::Listeners(Open {
                connections: requests,
                counters: Some(Counters {
                    requests: Some(Requests::default()),
                    ..Counters::default()
                }),
                http: Some(Http {
                    requests,
                    ..Http::default()
                }),
                live: Some(self.live),
                ..Open::default()
            })),
            Err(CallFailed::Refused) => Seen::Refused,
            Err(CallFailed::Unanswered(why)) => Seen::Unknown(why),
            Err(CallFailed::Declined(why)) => Seen::Unreadable(why),
        }
    }

    async fn inspect(&mut self) -> Result<Setup, CallFailed> {
        self.call().await.map(|_| Setup {
            server: ServerInfo::default(),
            listeners: Ok(Listeners::default()),
            flush_interval: FlushInterval::default(),
        })
    }
}

// === impl Scene ===

impl Scene {
    fn new(mood: fn(f64) -> Mood, came: &[(f64, Who)]) -> Self {
        Self {
            mood,
            timing: Timing::default(),
            came: came.to_vec(),
            marked: false,
            dir: tempfile::tempdir().unwrap(),
        }
    }

    fn with(mut self, change: impl FnOnce(&mut Durations)) -> Self {
        let mut durations = *self.timing;
        change(&mut durations);
        self.timing = Timing::try_new(durations).unwrap();
        self
    }

    fn marked(mut self) -> Self {
        self.marked = true;
        self
    }

    /// Plays the scene for five minutes, and tells what happened: calls to Envoy, hooks that
    /// returned, the end of the drain's task.
    async fn play(&self) -> Vec<(f64, String)> {
        let started = Instant::now();
        let log = Log::default();
        let config = Config {
            timing: self.timing,
            run_dir: self.dir.path().into(),
            termination_log: self.dir.path().join("log"),
            ..Config::new("127.0.0.1:1".parse().unwrap(), crate::Token::new(0))
        };
        if self.marked {
            Marker::new(self.dir.path()).write().unwrap();
        }
        let came = watch::Sender::new(Came::default());
        let progress = watch::Sender::new(Progress::default());
        let fake = |log: &Log| Fake {
            started,
            mood: self.mood,
            log: log.clone(),
            live: true,
        };
        let drain = Drain::new(fake(&log), &config, came.clone(), progress.clone());
        let tasks = LocalSet::new();
        let clock = fake(&log);
        tasks.spawn_local(async move {
            drain.run().await;
            clock.note("end");
        });
        for (second, who) in self.came.clone() {
            let (came, mut progress) = (came.clone(), progress.subscribe());
            let clock = fake(&log);
            tasks.spawn_local(async move {
                sleep_until(started + Duration::from_secs_f64(second)).await;
                progress.mark_unchanged();
                came.send_modify(|came| {
                    let now = Instant::now();
                    match who {
                        Who::Envoy => came.envoy_hook.get_or_insert(now),
                        Who::Drainer => came.drainer_hook.get_or_insert(now),
                        Who::Sigterm => came.sigterm.get_or_insert(now),
                    };
                });
                if who != Who::Sigterm {
                    released(&mut progress).await;
                    clock.note(&format!("{who:?} returns"));
                }
            });
        }
        let over = started + Duration::from_secs(300);
        tasks.run_until(sleep_until(over)).await;
        let mut log = log.borrow().clone();
        log.sort_by(|a, b| a.0.total_cmp(&b.0));
        log
    }

    fn is_marked(&self) -> bool {
        Marker::new(self.dir.path()).is_present()
    }
}

fn story(log: &[(f64, String)]) -> Vec<String> {
    log.iter()
        .map(|(second, what)| format!("{second} {what}"))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn both_hooks_are_the_whole_drain() {
    use Who::{Drainer, Envoy, Sigterm};
    for came in [
        [(1.0, Envoy), (1.0, Drainer)],
        [(1.0, Drainer), (1.0, Envoy)],
    ] {
        let scene = Scene::new(|s| Mood::Busy((s < 20.0).into()), &came);
        let log = scene.play().await;
        let told = story(&log);
        assert_eq!(told[..2], ["1 fail", "1 listeners"]);
        assert!((20.0..20.4).contains(&log[2].0), "{told:?}");
        assert_eq!(told.len(), 5, "{told:?}");
        assert!(scene.is_marked());
    }
    let late = Scene::new(|_| Mood::Busy(0), &[(1.0, Envoy), (2.9, Sigterm)])
        .play()
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
    let mut told = story(log);
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
    let scene = Scene::new(|_| Mood::Busy(0), &[(0.0, Who::Envoy), (0.5, Who::Drainer)])
        .with(|d| d.drain_delay = Duration::from_secs(30));
    let log = scene.play().await;
    assert_eq!(story(&log)[..2], ["30 fail", "30 listeners"]);
    assert_eq!(log.last().map(|(second, _)| *second), Some(40.0));
}

#[tokio::test(start_paused = true)]
async fn the_deadline_counts_from_the_first_hook_and_holds_to_the_moment() {
    let came = [(1.0, Who::Drainer), (3.0, Who::Envoy)];
    let moods: [fn(f64) -> Mood; 4] = [
        |_| Mood::Busy(1),
        |s| if s < 5.0 { Mood::Busy(1) } else { Mood::Hung },
        |s| {
            if s < 2.0 {
                Mood::Busy(1)
            } else {
                Mood::Failing
            }
        },
        // A wrong address: it waits like a sleep.
        |_| Mood::Gone,
    ];
    for mood in moods {
        let scene = Scene::new(mood, &came).with(|d| d.drain_delay = Duration::from_secs(5));
        let log = scene.play().await;
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
    let both = [(1.0, Who::Drainer), (1.0, Who::Envoy)];
    let mood = |s| if s < 5.0 { Mood::Busy(1) } else { Mood::Gone };
    let log = Scene::new(mood, &both).play().await;
    assert!((5.0..6.2).contains(&log.last().unwrap().0), "{log:?}");
    let delayed = Scene::new(mood, &both).with(|d| d.drain_delay = Duration::from_secs(30));
    let log = delayed.play().await;
    assert!((5.0..6.2).contains(&log.last().unwrap().0), "{log:?}");
    assert!(!delayed.is_marked(), "nothing was touched");
}

#[tokio::test(start_paused = true)]
async fn envoys_hook_alone_fails_its_health_and_returns() {
    let scene = Scene::new(|_| Mood::Busy(1), &[(1.0, Who::Envoy)]);
    let told = story(&scene.play().await);
    // The kubelet now restarts it. This one lives on, so its health is restored.
    assert_eq!(told, ["4 fail", "14 Envoy returns", "24 ok"]);
    assert!(!scene.is_marked());
}

#[tokio::test(start_paused = true)]
async fn after_envoys_restart_a_pods_end_is_drained_as_ever() {
    let came = [(1.0, Who::Envoy), (40.0, Who::Envoy), (40.0, Who::Drainer)];
    let told = story(&Scene::new(|_| Mood::Busy(0), &came).play().await);
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
    for late in [Who::Drainer, Who::Sigterm] {
        let came = [(1.0, Who::Envoy), (9.0, late)];
        let scene =
            Scene::new(|_| Mood::Busy(0), &came).with(|d| d.drain_delay = Duration::from_secs(30));
        let told = story(&scene.play().await);
        // Its health has failed already: no delay any more, and the minimum counts from there.
        assert_eq!(told[..2], ["4 fail", "9 listeners"], "{late:?}");
        assert!(
            told[2..].iter().all(|line| line.starts_with("14 ")),
            "{told:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_hung_envoys_hook_returns_before_three_seconds() {
    let moods: [fn(f64) -> Mood; 3] = [|_| Mood::Hung, |_| Mood::Gone, |_| Mood::Failing];
    for mood in moods {
        let log = Scene::new(mood, &[(1.0, Who::Envoy)]).play().await;
        assert_eq!(log.len(), 1, "{log:?}");
        assert!((3.4..=3.75).contains(&log[0].0), "{log:?}");
    }
    // One that hangs later on is let go then.
    let mood = |s| if s < 6.0 { Mood::Busy(1) } else { Mood::Hung };
    let log = Scene::new(mood, &[(1.0, Who::Envoy)]).play().await;
    assert_eq!(log[0], (4.0, "fail".into()));
    assert!((8.0..11.6).contains(&log[1].0), "{log:?}");
}

#[tokio::test(start_paused = true)]
async fn an_envoy_that_declines_or_stumbles_once_still_answers() {
    let declines = Scene::new(|_| Mood::Declining, &[(1.0, Who::Envoy)]);
    assert_eq!(story(&declines.play().await), ["14 Envoy returns"]);
    // One bad answer while its hook waits alone.
    let mood = |s| match s {
        4.5..5.2 => Mood::Failing,
        _ => Mood::Busy(0),
    };
    let came = [(1.0, Who::Envoy), (7.5, Who::Drainer)];
    let told = story(&Scene::new(mood, &came).play().await);
    assert_eq!(told[..2], ["4 fail", "7.5 listeners"]);
    assert!(
        told[2..].iter().all(|line| line.starts_with("14 ")),
        "{told:?}"
    );
}

/// While both signs are there, no hook returns but by an exit rule of the whole drain.
#[tokio::test(start_paused = true)]
async fn the_second_sign_counts_whatever_is_under_way() {
    let moods: [fn(f64) -> Mood; 3] = [
        // Silent while health is failed; silent later on; silent all along but for a moment.
        |s| {
            if (3.9..8.5).contains(&s) {
                Mood::Hung
            } else {
                Mood::Busy(0)
            }
        },
        |s| {
            if (6.0..8.5).contains(&s) {
                Mood::Hung
            } else {
                Mood::Busy(0)
            }
        },
        |s| {
            if (1.0..2.0).contains(&s) {
                Mood::Busy(0)
            } else {
                Mood::Failing
            }
        },
    ];
    for mood in moods {
        for late in [Who::Drainer, Who::Sigterm] {
            for second in [1.2, 3.4, 3.95, 4.2, 5.0, 5.9] {
                let came = [(1.0, Who::Envoy), (second, late)];
                let log = Scene::new(mood, &came).play().await;
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
    let came = [(1.0, Who::Envoy), (20.0, Who::Sigterm), (21.5, Who::Envoy)];
    let told = story(&Scene::new(|_| Mood::Busy(0), &came).play().await);
    assert_eq!(told[..2], ["4 fail", "14 Envoy returns"]);
    assert_eq!(told[2..4], ["21.5 fail", "21.5 listeners"], "{told:?}");
    assert!(
        told[4..].iter().all(|line| line.starts_with("31.5 ")),
        "{told:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_drainer_alone_touches_nothing() {
    use Who::{Drainer, Sigterm};
    let busy = |_| Mood::Busy(1);
    type Row<'a> = (fn(f64) -> Mood, &'a [(f64, Who)], &'a [&'a str]);
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
        (|_| Mood::Gone, &[(1.0, Sigterm)], &["2 end"]),
        (
            |_| Mood::Gone,
            &[(1.0, Drainer), (11.1, Sigterm)],
            &["11 Drainer returns", "12.1 end"],
        ),
        (|_| Mood::Hung, &[(1.0, Sigterm)], &["3.25 end"]),
    ];
    for (mood, came, want) in table {
        let scene = Scene::new(mood, came);
        assert_eq!(story(&scene.play().await), want, "{came:?}");
        assert!(!scene.is_marked());
    }
}

#[tokio::test(start_paused = true)]
async fn what_an_earlier_life_did_is_undone_until_envoy_hears_it() {
    let mood = |s| if s < 7.0 { Mood::Gone } else { Mood::Busy(1) };
    let scene = Scene::new(mood, &[]).marked();
    assert_eq!(story(&scene.play().await), ["7 ok"]);
    assert!(!scene.is_marked());
    let deaf = Scene::new(|_| Mood::Failing, &[]).marked();
    assert!(deaf.play().await.is_empty());
    assert!(deaf.is_marked());
    // Who declined may have been another than Envoy.
    let mood = |s| match s {
        20.0.. => Mood::Busy(1),
        _ => Mood::Declining,
    };
    let scene = Scene::new(mood, &[]).marked();
    assert_eq!(story(&scene.play().await), ["20 ok"]);
    assert!(!scene.is_marked());
    let unmarked = Scene::new(|_| Mood::Busy(1), &[]);
    assert!(
        unmarked.play().await.is_empty(),
        "a drain asked for by somebody else is not ours to undo"
    );
}

#[tokio::test(start_paused = true)]
async fn calls_that_get_no_answer_are_repeated() {
    let both = [(1.0, Who::Drainer), (1.0, Who::Envoy)];
    let mood = |s| match s {
        1.0..4.0 => Mood::Failing,
        _ => Mood::Busy(0),
    };
    let log = Scene::new(mood, &both).play().await;
    let fails: Vec<_> = log.iter().filter(|(_, what)| what == "fail").collect();
    assert_eq!(fails.len(), 1);
    assert!((4.0..4.3).contains(&fails[0].0), "{log:?}");
    // The minimum counts from there.
    assert!((14.0..14.4).contains(&log.last().unwrap().0), "{log:?}");
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_comes_when_all_is_over_returns_at_once() {
    let came = [(1.0, Who::Drainer), (1.0, Who::Envoy), (100.0, Who::Envoy)];
    let log = Scene::new(|_| Mood::Busy(0), &came).play().await;
    assert_eq!(log.last().unwrap(), &(100.0, "Envoy returns".into()));
}

#[tokio::test(start_paused = true)]
async fn a_thousand_hooks_share_one_drain() {
    let mut came = vec![(1.0, Who::Drainer)];
    came.extend(vec![(1.5, Who::Envoy); 1000]);
    let log = Scene::new(|_| Mood::Busy(0), &came).play().await;
    let count = |what: &str| log.iter().filter(|(_, happened)| happened == what).count();
    assert_eq!((count("fail"), count("listeners")), (1, 1));
    assert_eq!(
        (count("Envoy returns"), count("Drainer returns")),
        (1000, 1)
    );
}
