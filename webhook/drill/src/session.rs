//! A drill from the start of its load to its report.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use ctl::cli::terminal::report;
use ctl::kubernetes::{Change, ClusterReader, ObjectSelector};
use ctl::text::plural;
use futures_util::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::SignedDuration;
use kube::api::ListParams;
use load::Report;
use load::job::{JobLine, LoadJob};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};

use crate::clean_up::CleanUp;
use crate::disrupt::{Disrupter, now};
use crate::disruption::Disruption;
use crate::load_run::{LoadRun, StopLoad};
use crate::pods::{PodEnd, PodLog};
use crate::report::{ConnectionCount, DrillReport, DrillSubject, DrillTimes, seconds_between};
use crate::workload::Workload;
use crate::workload_client::WorkloadClient;

/// How long requests are sent before the disruption, which shows whether some fail without it.
const BASELINE: Duration = Duration::from_secs(5);

/// How long requests are sent after the last pod is gone.
const TAIL: Duration = Duration::from_secs(5);

/// The interval between two lines of progress.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);

/// The interval between two reads of open connections.
const CONNECTIONS_INTERVAL: Duration = Duration::from_secs(1);

/// How long a Job may run beyond the disruption's timeout: for its start, the baseline and the tail.
const JOB_MARGIN: Duration = Duration::from_secs(180);

/// A drill.
pub(super) struct Session<'a> {
    pub(super) reader: &'a ClusterReader,
    pub(super) client: &'a WorkloadClient,
    pub(super) clean_up: &'a CleanUp,
    pub(super) namespace: String,
    pub(super) disruption: Disruption,
    /// The port of Envoy's admin interface; `None` if open connections are not read.
    pub(super) admin_port: Option<u16>,
    /// How long the disruption may take.
    pub(super) timeout: Duration,
    /// How long requests are sent at least.
    pub(super) min_duration: Duration,
    pub(super) subject: DrillSubject,
}

/// What is known so far.
#[derive(Debug, Default)]
struct Progress {
    started_at: Option<Instant>,
    disrupted_at: Option<Instant>,
    settled_at: Option<Instant>,
    reported_at: Option<Instant>,
    /// The kinds of clients that are left out, each with the reason.
    left_out: Vec<String>,
    /// Open connections by pod.
    connections: BTreeMap<String, Vec<(Instant, u64)>>,
}

// === impl Session ===

impl Session<'_> {
    /// Runs the drill.
    ///
    /// # Errors
    /// If the load does not start or ends early, or the cluster cannot be reached or read. A disruption that is not
    /// complete in time is part of the report.
    pub(super) async fn run(
        &self,
        workload: &Workload,
        job: LoadJob,
        image: Option<String>,
    ) -> anyhow::Result<DrillReport> {
        let selector = workload
            .selector()
            .map_err(|error| anyhow!("the selector: {error}"))?;
        let pods = ObjectSelector {
            namespace: Some(self.namespace.clone()),
            params: ListParams::default().labels_from(&selector),
        };
        let log = RefCell::new(PodLog::default());
        let progress = RefCell::new(Progress::default());
        let observe = |pod: Pod| {
            log.borrow_mut().observe(&pod, Instant::now(), now());
        };
        let version = self.reader.select(&pods, observe).await?;
        let terminating = log.borrow().terminating();
        if terminating > 0 {
            let terminating = plural(terminating, "pod");
            bail!("{terminating} of an earlier change must terminate first: try again after that");
        }
        if self.admin_port.is_none() {
            let namespace = &self.namespace;
            report(format_args!(
                "open connections are left out: you may not create pods/portforward in the namespace `{namespace}`"
            ));
        }
        report("starting the load");
        let (mut load, stop) = match image {
            None => LoadRun::start_here(job),
            Some(image) => {
                let limit = self.timeout + self.min_duration + JOB_MARGIN;
                let (client, clean_up) = (self.client, self.clean_up);
                LoadRun::start_in_cluster(client, clean_up, &image, &job, limit).await?
            }
        };
        report("sending the first requests, which may take up to 30 s");
        let on_change = |change| {
            self.observe_change(change, &log, &progress);
            ControlFlow::Continue(())
        };
        let warn = |error: &_| report(format_args!("warning: {error}"));
        let disrupter = Disrupter {
            reader: self.reader,
            client: self.client,
            pods: &pods,
            log: &log,
            clean_up: self.clean_up,
        };
        let watch = self.reader.watch(&pods, version, on_change, warn);
        let load_report = tokio::select! {
            ended = watch => {
                ended?;
                bail!("the watch of the pods has ended")
            }
            failed = self.direct(&disrupter, workload, stop, &progress) => return Err(failed),
            never = self.poll_connections(&pods, &progress) => match never {},
            ended = self.follow(&mut load, &log, &progress) => ended?,
        };
        let progress = progress.into_inner();
        if let Some(port) = self.admin_port
            && progress.connections.is_empty()
        {
            report(format_args!(
                "open connections are left out: no Envoy's admin interface answers on port {port}; set --admin-port"
            ));
        }
        let started_at = progress.started_at.context("the load has not started")?;
        let elapsed = SignedDuration::try_from(started_at.elapsed())?;
        let times = DrillTimes {
            started_at,
            started_at_wall_clock: Time(now() - elapsed),
            disrupted_at: progress
                .disrupted_at
                .context("the load ended before the disruption")?,
            settled_at: progress.settled_at,
        };
        let ends = log.into_inner().ends();
        let mut drill = DrillReport::new(self.subject.clone(), &times, &load_report, &ends);
        drill.left_out = progress.left_out;
        for pod in &mut drill.pods {
            let counts = progress.connections.get(&pod.name).into_iter().flatten();
            let counts = counts
                .filter(|(at, _)| *at >= times.started_at)
                .map(|(at, open)| ConnectionCount {
                    at: seconds_between(times.started_at, *at),
                    open: *open,
                });
            pod.connections = counts.collect();
        }
        Ok(drill)
    }

    /// Disrupts the pods once the load runs, and stops the load afterwards. Returns only with an error.
    async fn direct(
        &self,
        disrupter: &Disrupter<'_>,
        workload: &Workload,
        stop: StopLoad,
        progress: &RefCell<Progress>,
    ) -> anyhow::Error {
        let run = async {
            let started_at = loop {
                let started_at = progress.borrow().started_at;
                match started_at {
                    Some(at) => break at,
                    None => sleep(Duration::from_millis(50)).await,
                }
            };
            sleep_until(started_at + BASELINE).await;
            progress.borrow_mut().disrupted_at = Some(Instant::now());
            self.say(
                progress,
                &format!("{} of {}", self.disruption, self.subject.workload),
            );
            let disrupted = disrupter.run(self.disruption, workload);
            match timeout(self.timeout, disrupted).await {
                Ok(disrupted) => {
                    disrupted?;
                    progress.borrow_mut().settled_at = Some(Instant::now());
                    let tail = TAIL.as_secs();
                    self.say(
                        progress,
                        &format!("complete; the load goes on for {tail} s"),
                    );
                }
                Err(_) => {
                    let text = format!("warning: not complete within {:?}", self.timeout);
                    self.say(progress, &text);
                }
            }
            sleep_until((Instant::now() + TAIL).max(started_at + self.min_duration)).await;
            self.say(progress, "waiting for the requests in flight");
            stop.stop(self.client).await
        };
        match run.await {
            Err(error) => error,
            // The load ends by itself now.
            Ok(()) => std::future::pending().await,
        }
    }

    /// Reads the lines of the load up to its report.
    async fn follow(
        &self,
        load: &mut LoadRun,
        log: &RefCell<PodLog>,
        progress: &RefCell<Progress>,
    ) -> anyhow::Result<Report> {
        let mut failures = Vec::new();
        while let Some(line) = load.next().await? {
            match line {
                JobLine::Probed(failed) => failures = failed,
                JobLine::Progress(counts) => {
                    let started_at = Instant::now().checked_sub(counts.elapsed);
                    let is_first = {
                        let mut progress = progress.borrow_mut();
                        let is_first = progress.started_at.is_none();
                        // A line may arrive late, and none early.
                        progress.started_at = progress.started_at.min(started_at).or(started_at);
                        is_first
                    };
                    if is_first {
                        for failure in &failures {
                            report(format_args!("left out: {failure}"));
                        }
                        progress.borrow_mut().left_out.clone_from(&failures);
                    }
                    self.say_counts(progress, &counts, log.borrow().terminating());
                }
                JobLine::Ended(report) => return Ok(report),
            }
        }
        if progress.borrow().started_at.is_none() {
            bail!(
                "nothing was disrupted, since the first requests failed: {}",
                failures.join("; ")
            );
        }
        bail!("the load ended without a report");
    }

    /// Reads the open connections of the pods, as long as the admin interface of each answers.
    async fn poll_connections(
        &self,
        pods: &ObjectSelector,
        progress: &RefCell<Progress>,
    ) -> std::convert::Infallible {
        let Some(port) = self.admin_port else {
            return std::future::pending().await;
        };
        let mut ticks = interval(CONNECTIONS_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let mut names = Vec::new();
            let add = |pod: Pod| names.extend(pod.metadata.name);
            if self.reader.select(pods, add).await.is_err() {
                continue;
            }
            let read = async |name: String| {
                let open = self.client.open_connections(&name, port).await;
                if let Ok(open) = open {
                    let mut progress = progress.borrow_mut();
                    let counts = progress.connections.entry(name).or_default();
                    counts.push((Instant::now(), open));
                }
            };
            join_all(names.into_iter().map(read)).await;
        }
    }

    fn observe_change(
        &self,
        change: Change<Pod>,
        log: &RefCell<PodLog>,
        progress: &RefCell<Progress>,
    ) {
        let mut log = log.borrow_mut();
        let (now, wall_clock) = (Instant::now(), now());
        let text = match change {
            Change::Applied(pod) => log
                .observe(&pod, now, wall_clock)
                .map(|end| format!("{} is terminating", end.name)),
            Change::Deleted(pod) => log.observe_gone(&pod, now, wall_clock).map(describe_end),
        };
        if let Some(text) = text {
            self.say(progress, &text);
        }
    }

    /// Reports an event with its time.
    fn say(&self, progress: &RefCell<Progress>, text: &str) {
        let started_at = progress.borrow().started_at;
        match started_at {
            Some(at) => {
                let seconds = at.elapsed().as_secs_f64();
                report(format_args!("{seconds:6.1} s  {text}"));
            }
            None => report(format_args!("          {text}")),
        }
    }

    /// Reports the counts, if the last report is some time ago.
    fn say_counts(
        &self,
        progress: &RefCell<Progress>,
        counts: &load::job::Progress,
        terminating: usize,
    ) {
        let is_due = {
            let mut progress = progress.borrow_mut();
            let last = progress.reported_at;
            let is_due = last.is_none_or(|at| at.elapsed() >= PROGRESS_INTERVAL);
            if is_due {
                progress.reported_at = Some(Instant::now());
            }
            is_due
        };
        if is_due {
            let load::job::Progress { sent, failed, .. } = counts;
            let terminating = plural(terminating, "pod");
            let text = format!("{sent} requests, {failed} failed; {terminating} terminating");
            self.say(progress, &text);
        }
    }
}

fn describe_end(end: &PodEnd) -> String {
    let drain = end
        .drain
        .as_ref()
        .map(|drain| format!(", drain: {}", drain.outcome));
    format!("{} is gone{}", end.name, drain.unwrap_or_default())
}
