//! A drill from the start of its load to its report.

use std::convert::Infallible;
use std::future::pending;
use std::ops::ControlFlow;
use std::time::Duration;

use anyhow::{Context, bail};
use ctl::cli::terminal::report;
use ctl::text::plural;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::SignedDuration;
use kube::api::ListParams;
use kubernetes::{Change, ObjectSelector, now};
use load::Report;
use load::job::{JobLine, LoadJob, Progress};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use crate::disrupt::Disrupter;
use crate::disruption::Disruption;
use crate::load_run::{LoadRun, StopLoad};
use crate::pods::{PodEnd, PodLog};
use crate::report::{DrillReport, DrillSubject, DrillTimes};
use crate::workload::Workload;
use crate::workload_client::WorkloadClient;

/// How long requests are sent before the disruption, which shows whether some fail without it.
const BASELINE: Duration = Duration::from_secs(5);

/// How long requests are sent after the last pod is gone.
const TAIL: Duration = Duration::from_secs(5);

/// The interval between two lines of progress.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);

/// How long a Job may run beyond the disruption's timeout: for its start, the baseline and the tail.
const JOB_MARGIN: Duration = Duration::from_secs(180);

/// A drill.
pub(super) struct Session<'a> {
    pub(super) client: &'a WorkloadClient,
    pub(super) disruption: Disruption,
    /// How long the disruption may take.
    pub(super) timeout: Duration,
    /// How long requests are sent at least.
    pub(super) min_duration: Duration,
    pub(super) subject: DrillSubject,
    pub(super) phase: watch::Sender<Phase>,
    pub(super) pods: watch::Sender<PodLog>,
}

/// The phase of a drill.
#[derive(Debug, Clone, Copy, Default)]
pub(super) enum Phase {
    /// The first requests are sent, before the load starts.
    #[default]
    Probing,
    /// The load runs, and nothing is disrupted.
    Baseline { started_at: Instant },
    /// Pods are disrupted, or were.
    Disruption(DrillTimes),
}

// === impl Session ===

impl Session<'_> {
    /// Runs the drill. Sets the name of the Job that is to be deleted, however it ends.
    ///
    /// # Errors
    /// If the load does not start or ends early, or the cluster cannot be reached or read. A disruption that is not
    /// complete in time is part of the report.
    pub(super) async fn run(
        &self,
        workload: &Workload,
        job: LoadJob,
        image: Option<String>,
        job_name: &mut Option<String>,
    ) -> anyhow::Result<DrillReport> {
        let selector = workload.selector()?;
        let pods = ObjectSelector {
            namespace: Some(self.client.namespace.clone()),
            params: ListParams::default().labels_from(&selector),
        };
        let observe = |pod| {
            self.observe(&Change::Applied(pod));
        };
        let version = self.client.reader.select(&pods, observe).await?;
        let terminating = self.pods.borrow().terminating();
        if terminating > 0 {
            let terminating = plural(terminating, "pod");
            bail!("{terminating} of an earlier change must terminate first: try again after that");
        }
        report("starting the load");
        let (mut load, stop) = match image {
            None => LoadRun::start_here(job),
            Some(image) => {
                let limit = self.timeout + self.min_duration + JOB_MARGIN;
                LoadRun::start_in_cluster(self.client, job_name, &image, &job, limit).await?
            }
        };
        report("sending the first requests, which may take up to 30 s");
        let on_change = |change| {
            if let Some(text) = self.observe(&change) {
                self.say(&text);
            }
            ControlFlow::Continue(())
        };
        let watch = self.client.reader.watch(&pods, version, on_change);
        let disrupter = Disrupter {
            client: self.client,
            selector: &pods,
            pods: &self.pods,
        };
        let (load_report, left_out) = tokio::select! {
            ended = watch => {
                ended?;
                bail!("the watch of the pods has ended")
            }
            failed = self.direct(&disrupter, stop) => match failed? {},
            ended = self.follow(&mut load) => ended?,
        };
        let Phase::Disruption(times) = *self.phase.borrow() else {
            bail!("the load ended before the disruption");
        };
        let elapsed = SignedDuration::try_from(times.started_at.elapsed())?;
        let ends = self.pods.borrow().ends();
        let (subject, started_at) = (self.subject.clone(), Time(now() - elapsed));
        let mut drill = DrillReport::new(subject, started_at, &times, &load_report, &ends);
        drill.left_out = left_out;
        Ok(drill)
    }

    /// Disrupts the pods once the load runs, and stops the load afterwards. Returns only with an error.
    async fn direct(
        &self,
        disrupter: &Disrupter<'_>,
        stop: StopLoad,
    ) -> anyhow::Result<Infallible> {
        let mut phase = self.phase.subscribe();
        let has_started = |phase: &Phase| phase.started_at().is_some();
        let started_at = phase.wait_for(has_started).await?.started_at();
        let started_at = started_at.context("the load has not started")?;
        sleep_until(started_at + BASELINE).await;
        self.phase.send_modify(|phase| {
            *phase = Phase::Disruption(DrillTimes {
                started_at: phase.started_at().unwrap_or(started_at),
                disrupted_at: Instant::now(),
                settled_at: None,
            });
        });
        self.say(&format!("{} of {}", self.disruption, self.subject.workload));
        let disrupted = disrupter.run(self.disruption);
        match timeout(self.timeout, disrupted).await {
            Ok(disrupted) => {
                disrupted?;
                self.phase.send_modify(|phase| {
                    if let Phase::Disruption(times) = phase {
                        times.settled_at = Some(Instant::now());
                    }
                });
                let tail = TAIL.as_secs();
                self.say(&format!("complete; the load goes on for {tail} s"));
            }
            Err(_) => self.say(&format!("warning: not complete within {:?}", self.timeout)),
        }
        sleep_until((Instant::now() + TAIL).max(started_at + self.min_duration)).await;
        self.say("waiting for the requests in flight");
        stop.stop(self.client).await?;
        // The load ends by itself now.
        pending().await
    }

    /// Reads the lines of the load up to its report. Returns also the kinds of clients that are left out.
    async fn follow(&self, load: &mut LoadRun) -> anyhow::Result<(Report, Vec<String>)> {
        let mut failures = Vec::new();
        let mut reported_at: Option<Instant> = None;
        while let Some(line) = load.next().await? {
            match line {
                JobLine::Probed(failed) => failures = failed,
                JobLine::Progress(progress) => {
                    if self.record_start(progress.elapsed) {
                        for failure in &failures {
                            report(format_args!("left out: {failure}"));
                        }
                    }
                    if reported_at.is_none_or(|at| at.elapsed() >= PROGRESS_INTERVAL) {
                        reported_at = Some(Instant::now());
                        let Progress { sent, failed, .. } = progress;
                        let terminating = plural(self.pods.borrow().terminating(), "pod");
                        self.say(&format!(
                            "{sent} requests, {failed} failed; {terminating} terminating"
                        ));
                    }
                }
                JobLine::Ended(report) => return Ok((report, failures)),
            }
        }
        if self.phase.borrow().started_at().is_none() {
            bail!(
                "nothing was disrupted, since the first requests failed: {}",
                failures.join("; ")
            );
        }
        bail!("the load ended without a report");
    }

    /// Takes in a pod. Returns what has happened to it, if that is news.
    fn observe(&self, change: &Change<Pod>) -> Option<String> {
        let mut news = None;
        let (now, wall_clock) = (Instant::now(), now());
        self.pods.send_modify(|pods| {
            news = match change {
                Change::Applied(pod) => {
                    let end = pods.observe(pod, now, wall_clock);
                    end.map(|end| format!("{} is terminating", end.name))
                }
                Change::Deleted(pod) => pods.observe_gone(pod, now, wall_clock).map(describe_end),
            };
        });
        news
    }

    /// Records that the load has run for so long. Returns whether it was not known to run.
    fn record_start(&self, elapsed: Duration) -> bool {
        let now = Instant::now();
        let seen = now.checked_sub(elapsed).unwrap_or(now);
        self.phase.send_if_modified(|phase| match phase {
            Phase::Probing => {
                *phase = Phase::Baseline { started_at: seen };
                true
            }
            Phase::Baseline { started_at } | Phase::Disruption(DrillTimes { started_at, .. }) => {
                // A line may arrive late, and none early.
                *started_at = seen.min(*started_at);
                false
            }
        })
    }

    /// Reports an event with its time.
    fn say(&self, text: &str) {
        let started_at = self.phase.borrow().started_at();
        let seconds = started_at.map(|at| format!("{:6.1} s", at.elapsed().as_secs_f64()));
        report(format_args!("{:8}  {text}", seconds.unwrap_or_default()));
    }
}

fn describe_end(end: &PodEnd) -> String {
    let drain = end.drain.as_ref();
    let drain = drain.map(|drain| format!(", drain: {}", drain.outcome));
    format!("{} is gone{}", end.name, drain.unwrap_or_default())
}

// === impl Phase ===

impl Phase {
    /// The start of the load, once it is known.
    fn started_at(self) -> Option<Instant> {
        match self {
            Self::Probing => None,
            Self::Baseline { started_at } | Self::Disruption(DrillTimes { started_at, .. }) => {
                Some(started_at)
            }
        }
    }
}
