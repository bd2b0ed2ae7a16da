//! An exploration of the state machine in paused time: all short sequences of events, and longer ones from a seed, each with
//! the machine as it ships, beside an Envoy that is always busy.
//!
//! `make test` explores all of up to four events, and `make explore` all of up to five.

use std::cell::RefCell;
use std::env;
use std::iter::once;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use bytes::Bytes;
use fake_envoy::{Behaviour, FakeEnvoy, Fault};
use fastrand::Rng;
use hyper::{Method, Response};
use tokio::runtime;
use tokio::task::{AbortHandle, LocalSet, spawn_local};

use super::termination::{Hook, hold};
use super::*;
use crate::http_client::{HttpError, RESPONSES};
use crate::settings::admin_address::AdminAddress;
use crate::settings::timing::Timing;

/// What happens around the drainer. Of events at one time, the order is that of this list: another one makes no difference,
/// or is that of a sequence with fewer events.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    /// The drainer is killed, and another process of it starts: what waited for it sees a closed connection.
    DrainerRestarts,
    /// Envoy has exited, and another process of it has started.
    EnvoyRestarts,
    EnvoyHookCloses,
    EnvoyHookOpens,
    DrainerHookCloses,
    DrainerHookOpens,
    Sigterm,
    /// The admin interface accepts connections, and does not respond.
    AdminSilent,
    AdminRefuses,
    /// It responds again: after refusals at another port, as that of an Envoy with another configuration.
    AdminBack,
}

/// Events by the index of their time in [`TIMES`].
type Sequence = Vec<(usize, Event)>;

/// In seconds.
const TIMES: [u32; 7] = [0, 1, 5, 10, 15, 25, 31];

/// How much later each time is than the one before it would be, in seconds: no event coincides with a deadline of the
/// machine.
const OFFSET: f64 = 0.007;

/// In seconds: `drain-delay`, `min-drain-duration`, `drain-timeout` and the pod's grace period.
const DELAY: f64 = 2.0;
const MINIMUM: f64 = 10.0;
const TIMEOUT: f64 = 20.0;
const GRACE: f64 = DELAY + TIMEOUT + 15.0;
const LIMIT: f64 = DELAY + TIMEOUT;

/// How late what has a time may be, in seconds: a call without a response may be in flight, and is the last one.
const LATE: f64 = 2.0;

/// How long a container takes to start again, in seconds.
const RESTART: f64 = 1.0;

/// One in so many sequences that end with a drain is run until the pod would be gone, for the most part of its time: how
/// long that is follows from the drain.
const WHOLE_END: usize = 8;

/// The longest time after which a search asks an address again that has not answered yet, in seconds.
const SEARCH_PAUSE: f64 = 10.0;

/// The longest time without a hook in which an Envoy that responds may be DRAINING, in seconds: a retry of its restoration.
const RESTORED_WITHIN: f64 = 45.0;

const ADMIN_PORTS: [u16; 2] = [9901, 9902];

/// What the sequence is, so far as it decides which events may follow.
#[derive(Clone, Copy, Default)]
struct Before {
    envoy_hook: bool,
    drainer_hook: bool,
    sigterm: bool,
    admin: Option<Event>,
    last: Option<(usize, Event)>,
}

/// A call of a hook.
#[derive(Clone, Debug)]
struct Call {
    hook: Hook,
    opened: f64,
    closed: f64,
}

/// One process of the drainer.
#[derive(Clone, Debug, Default)]
struct Process {
    started: f64,
    /// Killed, or exited.
    ended: Option<f64>,
    sigterm: Option<f64>,
    calls: Vec<Call>,
    phases: Vec<(f64, DrainPhase)>,
}

/// What has happened in a sequence, in seconds.
#[derive(Clone, Debug, Default)]
struct Record {
    processes: Vec<Process>,
    envoy_restarts: Vec<f64>,
    /// When the admin interface changed, and whether it responds then.
    admin: Vec<(f64, bool)>,
    /// The calls that changed Envoy.
    changes: Vec<(f64, String)>,
    /// The pod's containers have been stopped.
    is_pod_gone: bool,
    /// It ends with the drain.
    is_cut_short: bool,
    end: f64,
}

/// A pod with a drainer.
struct Pod {
    started: Instant,
    envoy: FakeEnvoy,
    port: Rc<RefCell<u16>>,
    config: Config,
    record: RefCell<Record>,
    drainer: RefCell<Drainer>,
}

/// The process of the drainer that runs.
struct Drainer {
    signals: watch::Sender<TerminationSignals>,
    tasks: Vec<AbortHandle>,
    /// The open calls of hooks, by their index in [`Process::calls`].
    calls: Vec<(usize, AbortHandle)>,
}

/// What an exploration of sequences has shown.
#[derive(Default)]
struct Explored {
    /// How many sequences were run.
    runs: usize,
    /// Those that more events may follow.
    next: Vec<Sequence>,
    /// Those in which something happened that must not, and what.
    failures: Vec<(Sequence, String)>,
}

#[test]
#[ignore = "takes minutes: run by `make explore`, which `make test` runs in part"]
fn what_must_hold_holds_in_each_sequence() {
    let number = |name: &str| env::var(name).expect(name).parse::<usize>().unwrap();
    let [events, sample, threads] =
        ["EXPLORE_EVENTS", "EXPLORE_SAMPLE", "EXPLORE_THREADS"].map(number);
    let started = Instant::now();
    let (mut all, mut failures, mut parents) = (0, Vec::new(), vec![Sequence::new()]);
    for _ in 0..events {
        let explored = in_parallel(threads, parents.len(), |index, explored| {
            explored.extend(&parents[index]);
        });
        all += explored.runs;
        failures.extend(explored.failures);
        parents = explored.next;
    }
    let all_took = started.elapsed();
    let sampled = in_parallel(threads, sample, |seed, explored| {
        explored.run(random_sequence(seed as u64));
    });
    failures.extend(sampled.failures);
    let (count, took) = (failures.len(), started.elapsed());
    println!(
        "{all} different sequences of up to {events} events in {all_took:.0?}, and {sample} of five and six, in {took:.0?} \
        by {threads} threads: {count} sequences fail"
    );
    failures.sort_by_key(|(sequence, _)| sequence.len());
    failures.truncate(3);
    for (sequence, error) in &failures {
        println!("{sequence:?}: {error}");
    }
    assert!(failures.is_empty());
}

/// Explores by each index in turn, in so many threads.
fn in_parallel(
    threads: usize,
    count: usize,
    explore: impl Fn(usize, &mut Explored) + Sync,
) -> Explored {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut explored = Explored::default();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                return explored;
            }
            explore(index, &mut explored);
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let explored = workers.into_iter().map(|worker| worker.join().unwrap());
        let all = explored.reduce(|mut all, explored| {
            all.runs += explored.runs;
            all.next.extend(explored.next);
            all.failures.extend(explored.failures);
            all
        });
        all.unwrap_or_default()
    })
}

/// A sequence of five or six events.
fn random_sequence(seed: u64) -> Sequence {
    let mut rng = Rng::with_seed(seed);
    loop {
        let mut times: Vec<_> = (0..rng.usize(5..=6))
            .map(|_| rng.usize(0..TIMES.len()))
            .collect();
        times.sort_unstable();
        let mut sequence = Sequence::new();
        for at in &times {
            let next: Vec<_> = Before::of(&sequence).next(*at).collect();
            let Some(event) = rng.choice(next) else { break };
            sequence.push((*at, event));
        }
        if sequence.len() == times.len() && has_signal(&sequence) {
            return sequence;
        }
    }
}

/// Returns true if the machine does more than to stand by.
fn has_signal(sequence: &[(usize, Event)]) -> bool {
    use Event::{DrainerHookOpens, EnvoyHookOpens, Sigterm};
    let is_signal = |event| matches!(event, EnvoyHookOpens | DrainerHookOpens | Sigterm);
    sequence.iter().any(|(_, event)| is_signal(*event))
}

/// Runs a sequence until nothing more would happen; unless it `has_whole_end`, only until the end of a drain after which
/// nothing happens until the pod would be gone. Returns whether its last event had an effect, and what has happened.
fn run(sequence: &[(usize, Event)], has_whole_end: bool) -> (bool, Record) {
    let mut runtime = runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().unwrap();
    LocalSet::new().block_on(&runtime, async {
        let (pod, mut has_effect) = (Pod::start(), false);
        for group in sequence.chunk_by(|(a, _), (b, _)| a == b) {
            let (at, _) = group[0];
            pod.sleep_until(f64::from(TIMES[at]) + OFFSET * at as f64)
                .await;
            for (_, event) in group {
                has_effect = pod.happen(*event);
            }
        }
        // Longer than anything that the machine waits for.
        let limit = pod.second() + GRACE + 30.0 + 2.0 * RESTORED_WITHIN;
        while pod.second() < limit && !pod.is_settled() && (has_whole_end || !pod.is_released()) {
            let next = pod.second() + 2.0;
            pod.sleep_until(next).await;
        }
        let is_cut_short = !has_whole_end && pod.is_released();
        let record = Record {
            is_cut_short,
            ..pod.record()
        };
        (has_effect, record)
    })
}

// === impl Explored ===

impl Explored {
    /// Runs each sequence that is this one and an event more. Where that has no effect, what follows it would be a sequence of
    /// fewer events.
    fn extend(&mut self, parent: &[(usize, Event)]) {
        let first = parent.last().map_or(0, |(at, _)| *at);
        for at in first..TIMES.len() {
            for event in Before::of(parent).next(at) {
                let sequence = [parent, &[(at, event)]].concat();
                if !has_signal(&sequence) || self.run(sequence.clone()) {
                    self.next.push(sequence);
                }
            }
        }
    }

    /// Runs a sequence. Returns true if its last event had an effect.
    fn run(&mut self, sequence: Sequence) -> bool {
        self.runs += 1;
        let (has_effect, record) = run(&sequence, self.runs.is_multiple_of(WHOLE_END));
        if let Err(error) = record.check() {
            let failure = (sequence, format!("{error}: {record:#?}"));
            self.failures.push(failure);
        }
        has_effect
    }
}

// === impl Event ===

impl Event {
    const ALL: [Self; 10] = [
        Self::DrainerRestarts,
        Self::EnvoyRestarts,
        Self::EnvoyHookCloses,
        Self::EnvoyHookOpens,
        Self::DrainerHookCloses,
        Self::DrainerHookOpens,
        Self::Sigterm,
        Self::AdminSilent,
        Self::AdminRefuses,
        Self::AdminBack,
    ];

    fn is_of_admin(self) -> bool {
        self >= Self::AdminSilent
    }
}

// === impl Before ===

impl Before {
    fn of(sequence: &[(usize, Event)]) -> Self {
        sequence.iter().copied().fold(Self::default(), Self::after)
    }

    /// The events that may follow at a time.
    fn next(self, at: usize) -> impl Iterator<Item = Event> {
        let same = self.last.filter(|(last_at, _)| *last_at == at);
        let same = same.map(|(_, event)| event);
        Event::ALL.into_iter().filter(move |event| {
            let is_in_order = same.is_none_or(|last| *event > last)
                && !(event.is_of_admin() && same.is_some_and(Event::is_of_admin));
            is_in_order
                && match event {
                    // The first process is not told from the second.
                    Event::DrainerRestarts => self.last.is_some(),
                    Event::EnvoyHookCloses => self.envoy_hook,
                    Event::DrainerHookCloses => self.drainer_hook,
                    Event::Sigterm => !self.sigterm,
                    Event::AdminSilent | Event::AdminRefuses => self.admin != Some(*event),
                    Event::AdminBack => self.admin.is_some(),
                    Event::EnvoyRestarts | Event::EnvoyHookOpens | Event::DrainerHookOpens => true,
                }
        })
    }

    fn after(mut self, (at, event): (usize, Event)) -> Self {
        match event {
            Event::DrainerRestarts => {
                (self.envoy_hook, self.drainer_hook, self.sigterm) = (false, false, false);
            }
            Event::EnvoyRestarts => {}
            Event::EnvoyHookCloses => self.envoy_hook = false,
            Event::EnvoyHookOpens => self.envoy_hook = true,
            Event::DrainerHookCloses => self.drainer_hook = false,
            Event::DrainerHookOpens => self.drainer_hook = true,
            Event::Sigterm => self.sigterm = true,
            Event::AdminSilent | Event::AdminRefuses => self.admin = Some(event),
            Event::AdminBack => self.admin = None,
        }
        self.last = Some((at, event));
        self
    }
}

// === impl Pod ===

impl Pod {
    /// A pod whose containers run.
    fn start() -> Rc<Self> {
        let second = Duration::from_secs_f64;
        let timing = Timing {
            drain_delay: second(DELAY),
            min_drain_duration: second(MINIMUM),
            drain_timeout: second(TIMEOUT),
            poll_interval: second(1.0),
            ..Timing::default()
        };
        assert_eq!(timing.errors(), [""; 0]);
        let mut config = Config {
            admin_hints: ADMIN_PORTS.map(address).to_vec(),
            // Only hints are asked, and no sockets of this machine.
            host_network: true,
            grace_period: second(GRACE),
            termination_log: "/dev/null".into(),
            ..Config::new(crate::Token(0))
        };
        config.settings.timing = timing;
        let pod = Rc::new(Self {
            started: Instant::now(),
            envoy: FakeEnvoy::new(|_| Behaviour::open(1)),
            port: Rc::new(RefCell::new(ADMIN_PORTS[0])),
            config,
            record: RefCell::default(),
            drainer: RefCell::new(Drainer {
                signals: watch::Sender::default(),
                tasks: Vec::new(),
                calls: Vec::new(),
            }),
        });
        pod.start_drainer();
        pod
    }

    fn second(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    async fn sleep_until(&self, second: f64) {
        sleep_until(self.started + Duration::from_secs_f64(second)).await;
    }

    /// Starts a process of the drainer.
    fn start_drainer(self: &Rc<Self>) {
        let signals = watch::Sender::new(TerminationSignals::default());
        let progress = watch::Sender::new(Progress::default());
        let mut phases = progress.subscribe();
        let machine = Machine::new(&self.config, signals.clone(), progress);
        let process = Process {
            started: self.second(),
            ..Process::default()
        };
        self.record.borrow_mut().processes.push(process);
        let (envoy, port) = (self.envoy.clone(), self.port.clone());
        let respond = Box::new(move |called: &AdminAddress, method: &Method, path: &str| {
            let is_there = *called == address(*port.borrow());
            let Some(Ok(called)) = is_there.then(|| envoy.call(method.as_str(), path)) else {
                return Some(Err(HttpError::ConnectionRefused));
            };
            called.map(|(status, body)| {
                let response = Response::builder().status(status).body(Bytes::from(body));
                Ok(response.unwrap())
            })
        });
        let pod = self.clone();
        let machine = spawn_local(async move {
            RESPONSES.scope(respond, machine.run()).await;
            pod.exit();
        });
        let pod = self.clone();
        let watcher = spawn_local(async move {
            while phases.changed().await.is_ok() {
                let phase = phases.borrow_and_update().phase;
                pod.with_process(|it, second| it.note(phase, second));
            }
        });
        let tasks = vec![machine.abort_handle(), watcher.abort_handle()];
        *self.drainer.borrow_mut() = Drainer {
            signals,
            tasks,
            calls: Vec::new(),
        };
    }

    /// Ends the process of the drainer by itself: if the pod lives, its container is started again.
    fn exit(self: &Rc<Self>) {
        let is_pod_gone = self.with_process(|it, _| matches!(it.phase(), DrainPhase::Released(_)));
        let pod = self.clone();
        self.drainer.borrow_mut().tasks.clear();
        self.kill_drainer();
        self.record.borrow_mut().is_pod_gone = is_pod_gone;
        if !is_pod_gone {
            let again = spawn_local(async move {
                sleep(Duration::from_secs_f64(RESTART)).await;
                pod.start_drainer();
            });
            self.drainer.borrow_mut().tasks.push(again.abort_handle());
        }
    }

    fn kill_drainer(&self) {
        let mut drainer = self.drainer.borrow_mut();
        let calls = drainer
            .calls
            .drain(..)
            .map(|(index, call)| (index, Some(call)));
        let tasks = calls.collect::<Vec<_>>();
        for task in drainer
            .tasks
            .drain(..)
            .chain(tasks.iter().filter_map(|(_, call)| call.clone()))
        {
            task.abort();
        }
        self.with_process(|it, second| {
            it.ended.get_or_insert(second);
            for (index, _) in tasks {
                it.calls[index].closed = it.calls[index].closed.min(second);
            }
        });
    }

    fn with_process<T>(&self, act: impl FnOnce(&mut Process, f64) -> T) -> T {
        let second = self.second();
        act(
            self.record.borrow_mut().processes.last_mut().unwrap(),
            second,
        )
    }

    fn runs(&self) -> bool {
        self.with_process(|it, _| it.ended.is_none())
    }

    /// Returns true if the event has an effect.
    fn happen(self: &Rc<Self>, event: Event) -> bool {
        if self.record.borrow().is_pod_gone {
            return false;
        }
        let second = self.second();
        match event {
            Event::DrainerRestarts => {
                self.kill_drainer();
                self.start_drainer();
            }
            Event::EnvoyRestarts => {
                self.envoy.restart();
                self.record.borrow_mut().envoy_restarts.push(second);
            }
            Event::EnvoyHookCloses => return self.close(Hook::Envoy),
            Event::DrainerHookCloses => return self.close(Hook::Drainer),
            Event::EnvoyHookOpens if self.runs() => self.open(Hook::Envoy),
            Event::DrainerHookOpens if self.runs() => self.open(Hook::Drainer),
            Event::Sigterm if self.runs() => {
                let signals = self.drainer.borrow().signals.clone();
                signals.send_modify(|signals| signals.sigterm = Some(Instant::now()));
                self.with_process(|it, second| it.sigterm = Some(second));
            }
            // Nothing listens.
            Event::EnvoyHookOpens | Event::DrainerHookOpens | Event::Sigterm => return false,
            Event::AdminSilent => self.set_admin(Some(Fault::NoResponse)),
            Event::AdminRefuses => self.set_admin(Some(Fault::ConnectionRefused)),
            Event::AdminBack => self.set_admin(None),
        }
        true
    }

    fn set_admin(&self, fault: Option<Fault>) {
        let is_other = self.envoy.is_refusing() && fault.is_none();
        if is_other {
            let mut port = self.port.borrow_mut();
            *port = ADMIN_PORTS[usize::from(*port == ADMIN_PORTS[0])];
        }
        let busy = Behaviour::open(1);
        self.envoy.set_behaviour(Behaviour { fault, ..busy });
        let change = (self.second(), fault.is_none());
        self.record.borrow_mut().admin.push(change);
    }

    /// Calls a hook.
    fn open(self: &Rc<Self>, hook: Hook) {
        let index = self.with_process(|it, opened| {
            let closed = f64::INFINITY;
            it.calls.push(Call {
                hook,
                opened,
                closed,
            });
            it.calls.len() - 1
        });
        let signals = self.drainer.borrow().signals.clone();
        let pod = self.clone();
        let call = spawn_local(async move {
            hold(&signals, hook).await;
            pod.with_process(|it, second| it.calls[index].closed = second);
        });
        self.drainer
            .borrow_mut()
            .calls
            .push((index, call.abort_handle()));
    }

    /// Closes the open calls of a hook by the client. Returns true if there were any.
    fn close(&self, hook: Hook) -> bool {
        self.with_process(|it, second| {
            let mut was_open = false;
            for (index, call) in &self.drainer.borrow().calls {
                let closed = &mut it.calls[*index];
                if closed.hook == hook && closed.closed.is_infinite() {
                    call.abort();
                    closed.closed = second;
                    was_open = true;
                }
            }
            was_open
        })
    }

    /// Returns true if nothing happens any more.
    fn is_settled(&self) -> bool {
        let is_at_rest = self.with_process(|it, _| {
            let is_standby = it.phase() == DrainPhase::Standby && it.ended.is_none();
            is_standby
                && it.sigterm.is_none()
                && it.calls.iter().all(|call| call.closed.is_finite())
        });
        self.record.borrow().is_pod_gone || is_at_rest && self.envoy.is_live()
    }

    /// Returns true if a drain has ended, and Envoy responds.
    fn is_released(&self) -> bool {
        let is_released = self.with_process(|it, _| matches!(it.phase(), DrainPhase::Released(_)));
        let record = self.record.borrow();
        is_released && record.admin.last().is_none_or(|(_, responds)| *responds)
    }

    fn record(&self) -> Record {
        let mut record = self.record.take();
        record.changes = self.envoy.changes();
        record.end = self.second();
        record
    }
}

// === impl Process ===

impl Process {
    fn phase(&self) -> DrainPhase {
        self.phases
            .last()
            .map_or(DrainPhase::Standby, |(_, phase)| *phase)
    }

    fn note(&mut self, phase: DrainPhase, second: f64) {
        if self.phase() != phase {
            self.phases.push((second, phase));
        }
    }

    /// Returns true if a call of the hook is open just after this second.
    fn is_open(&self, hook: Hook, second: f64) -> bool {
        let is_open =
            |call: &&Call| call.hook == hook && call.opened <= second && second < call.closed;
        self.calls.iter().any(|call| is_open(&call))
    }

    /// Returns when Envoy's hook and another signal were first open together, while no drain was running or had ended.
    fn proofs(&self) -> Vec<f64> {
        let opened = self.calls.iter().map(|call| call.opened);
        let mut at: Vec<_> = opened.chain(self.sigterm).collect();
        at.sort_by(f64::total_cmp);
        at.dedup();
        at.retain(|second| {
            let is_proven = self.is_open(Hook::Envoy, *second)
                && (self.is_open(Hook::Drainer, *second)
                    || self.sigterm.is_some_and(|at| at <= *second));
            let before = self.phases.iter().rfind(|(at, _)| at < second);
            let is_draining = |phase| {
                use DrainPhase::{Delaying, Draining, Released};
                matches!(phase, Delaying | Draining | Released(_))
            };
            is_proven && !before.is_some_and(|(_, phase)| is_draining(*phase))
        });
        at
    }

    /// Returns when the drain that began then has ended.
    fn released_after(&self, proof: f64) -> Option<f64> {
        let mut phases = self.phases.iter();
        let is_end = |(at, phase): &&(f64, DrainPhase)| {
            *at >= proof && matches!(phase, DrainPhase::Released(_))
        };
        phases.find(is_end).map(|(at, _)| *at)
    }
}

// === impl Record ===

impl Record {
    /// What must hold in each sequence.
    fn check(&self) -> Result<(), String> {
        self.check_health_at_the_end()?;
        for process in &self.processes {
            for proof in process.proofs() {
                self.check_drain(process, proof)?;
            }
            self.check_hooks(process)?;
            self.check_exit(process)?;
            self.check_calls(process)?;
        }
        Ok(())
    }

    /// A living pod is not left DRAINING.
    fn check_health_at_the_end(&self) -> Result<(), String> {
        let responding = self.responds_since(self.end);
        let has_time = responding.is_some_and(|since| since + RESTORED_WITHIN <= self.end);
        let is_over = self.is_pod_gone || self.is_cut_short;
        if !is_over && has_time && !self.is_live_at(self.end) {
            return Err("a living pod is DRAINING at the end".to_owned());
        }
        Ok(())
    }

    /// The end of a pod gets both calls and its time, if Envoy responds.
    fn check_drain(&self, process: &Process, proof: f64) -> Result<(), String> {
        let phase = process.phases.iter().rfind(|(at, _)| *at <= proof + 0.001);
        if !matches!(
            phase,
            Some((_, DrainPhase::Delaying | DrainPhase::Draining))
        ) {
            return Err(format!("no drain begins at {proof}, but {phase:?}"));
        }
        let released = process.released_after(proof);
        let end = process.ended.unwrap_or(self.end);
        let Some(released) = released else {
            let is_late = end > proof + LIMIT + LATE;
            return if is_late {
                Err(format!("the drain of {proof} does not end"))
            } else {
                Ok(())
            };
        };
        let is_same_envoy = !self
            .envoy_restarts
            .iter()
            .any(|at| (proof..=released).contains(at));
        let Some(since) = self.responds_since(released).filter(|_| is_same_envoy) else {
            return Ok(());
        };
        let is_found = self.responds_since(process.started).is_some();
        let is_prompt = since <= proof && (is_found || since + SEARCH_PAUSE <= proof);
        if !is_prompt && since + SEARCH_PAUSE > released {
            return Ok(());
        }
        // The machine learns within a second that Envoy is another one, which is live.
        let is_new = self
            .envoy_restarts
            .iter()
            .any(|at| (proof - 1.5..=proof).contains(at));
        let was_live = self.is_live_at(proof - 0.001) && !is_new;
        let mut changes = self.changes.iter();
        let called =
            changes.find(|(at, path)| *at >= proof && path.starts_with("/drain_listeners"));
        let Some((t1, _)) = called.filter(|(at, _)| *at <= released) else {
            return Err(format!(
                "the drain of {proof} has not drained the listeners"
            ));
        };
        if self.is_live_at(released) {
            return Err(format!("the drain of {proof} has not failed health"));
        }
        if !is_prompt {
            return Ok(());
        }
        let is_near = |a: f64, b: f64| (a - b).abs() < 0.4;
        // Health has failed, or may have, by a call without a response.
        let before = |is_it: fn(DrainPhase) -> bool| {
            let mut phases = process.phases.iter();
            phases.rfind(|(at, phase)| *at < proof && is_it(*phase))
        };
        let soft = before(|phase| phase == DrainPhase::SoftDraining);
        let is_soft = soft.is_some() && soft == before(|_| true);
        let is_silent = |second| self.responds_since(second).is_none();
        // Or has, and Envoy has restarted in a silence that lasts.
        let silence = self.admin.iter().rfind(|(at, _)| *at < proof);
        let is_unseen = |at: &f64| *at < proof && silence.is_some_and(|(since, _)| since <= at);
        let is_restarted = self.envoy_restarts.iter().any(is_unseen);
        let is_unknown = soft
            .is_some_and(|(at, _)| (is_silent(*at) || is_restarted) && is_silent(proof - 0.001));
        let may_have_failed = is_soft || is_unknown || !was_live;
        if !(is_near(*t1, proof + DELAY) || may_have_failed && is_near(*t1, proof)) {
            return Err(format!("the drain of {proof} makes its calls at {t1}"));
        }
        let open = process
            .calls
            .iter()
            .filter(|call| call.hook == Hook::Envoy && call.opened <= proof && proof < call.closed);
        let oldest = open.map(|call| call.opened).fold(proof, f64::min);
        let deadline = (proof + LIMIT).min((oldest + GRACE - 5.0).max(t1 + MINIMUM));
        if !is_near(released, deadline) {
            return Err(format!(
                "the drain of {proof} ends at {released}, not at {deadline}"
            ));
        }
        Ok(())
    }

    /// No hook is held longer than its bound.
    fn check_hooks(&self, process: &Process) -> Result<(), String> {
        let proofs = process.proofs();
        for call in &process.calls {
            let alone = match call.hook {
                Hook::Envoy => 10.0 + 15.0,
                Hook::Drainer => 30.0,
            };
            let drains = proofs.iter().filter(|proof| **proof <= call.closed);
            let limits = drains
                .map(|proof| proof + LIMIT)
                .chain(once(call.opened + alone));
            let bound = limits.fold(0.0, f64::max) + LATE;
            let closed = call.closed.min(process.ended.unwrap_or(self.end));
            if closed > bound {
                return Err(format!("{call:?} is held beyond {bound}"));
            }
        }
        Ok(())
    }

    /// SIGTERM ends the drainer.
    fn check_exit(&self, process: &Process) -> Result<(), String> {
        let Some(sigterm) = process.sigterm else {
            return Ok(());
        };
        let drains = process.proofs().into_iter().map(|proof| proof + LIMIT);
        let bound = drains.chain(once(sigterm + 10.0)).fold(0.0, f64::max) + LATE;
        if process.ended.unwrap_or(self.end) > bound {
            return Err(format!("no exit until {bound}"));
        }
        Ok(())
    }

    /// Envoy is told nothing without a reason, and a reader of the token fails its health once.
    fn check_calls(&self, process: &Process) -> Result<(), String> {
        let drains = process.proofs().into_iter();
        let drains = drains.map(|proof| (proof, process.released_after(proof).unwrap_or(self.end)));
        let drains: Vec<_> = drains.collect();
        let end = process.ended.unwrap_or(self.end);
        let (mut last, mut count) = (None, 0);
        for (at, path) in self
            .changes
            .iter()
            .filter(|(at, _)| (process.started..end).contains(at))
        {
            let is_in_drain = drains
                .iter()
                .any(|(from, to)| (*from..=to + 1.0).contains(at));
            if is_in_drain || path == "/healthcheck/ok" {
                continue;
            }
            if path != "/healthcheck/fail" {
                return Err(format!("{path} at {at} without a proof"));
            }
            // Of calls of which one opens as another closes, the first counts.
            let mut since = *at;
            for call in process.calls.iter().rev() {
                if call.hook == Hook::Envoy && call.closed >= since {
                    since = since.min(call.opened);
                }
            }
            if since + 9.9 > *at {
                return Err(format!("health is failed at {at} without a reason"));
            }
            let envoy = self
                .envoy_restarts
                .iter()
                .filter(|restart| *restart <= at)
                .count();
            count = if last == Some(envoy) { count + 1 } else { 1 };
            last = Some(envoy);
            if count > 1 && drains.is_empty() {
                return Err(format!("health is failed again at {at}"));
            }
        }
        Ok(())
    }

    /// Since when the admin interface has responded until `second`; `None` if it does not then.
    fn responds_since(&self, second: f64) -> Option<f64> {
        let before = self.admin.iter().rfind(|(at, _)| *at <= second);
        before.map_or(Some(-1.0), |(at, responds)| responds.then_some(*at))
    }

    fn is_live_at(&self, second: f64) -> bool {
        let mut changes = self.changes.iter().filter(|(at, _)| *at <= second);
        let health = changes.rfind(|(_, path)| path.starts_with("/healthcheck"));
        let restarted = self.envoy_restarts.iter().rfind(|at| **at <= second);
        health.is_none_or(|(at, path)| {
            path == "/healthcheck/ok" || restarted.is_some_and(|it| it >= at)
        })
    }
}

fn address(port: u16) -> AdminAddress {
    AdminAddress::Tcp(([127, 0, 0, 1], port).into())
}
