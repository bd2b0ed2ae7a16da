//! The load of a drill while it runs, in a Job or in this process.

use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use ctl::pod_status::UnreadyPod;
use futures_util::TryStreamExt;
use futures_util::stream::{self, LocalBoxStream, StreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use load::job::{JobLine, LoadJob};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_util::codec::{FramedRead, LinesCodec};
use tokio_util::compat::FuturesAsyncReadCompatExt;

use crate::job::job;
use crate::workload_client::WorkloadClient;

/// How long the Job's pod may take to start: to pull the image.
const START_TIMEOUT: Duration = Duration::from_secs(120);

const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Lines that are not read yet: one a second is written.
const MAX_LINES: usize = 64;

/// The longest line, in bytes: the last one has the times of at most 10,000 failures of each kind of clients.
const MAX_LINE: usize = 4 << 20;

/// A load, and the lines that it writes.
pub(super) struct LoadRun {
    lines: LocalBoxStream<'static, anyhow::Result<JobLine>>,
    /// Runs the load in this process.
    _task: JoinSet<()>,
}

/// How a load is stopped.
#[derive(Debug)]
pub(super) enum StopLoad {
    /// Its Job is deleted.
    Job(String),
    /// This is dropped.
    Here(oneshot::Sender<()>),
}

// === impl LoadRun ===

impl LoadRun {
    /// Starts the load in this process.
    pub(super) fn start_here(job: LoadJob) -> (Self, StopLoad) {
        let (sender, mut lines) = mpsc::channel(MAX_LINES);
        let (stop, stopped) = oneshot::channel();
        let mut task = JoinSet::new();
        task.spawn(async move {
            let stopped = async { drop(stopped.await) };
            // A line that is not read in a minute is of a drill that has ended.
            let emit = |line: &JobLine| drop(sender.try_send(line.clone()));
            job.run(stopped, emit).await;
        });
        let lines = stream::poll_fn(move |context| lines.poll_recv(context));
        let lines = lines.map(Ok).boxed_local();
        (Self { lines, _task: task }, StopLoad::Here(stop))
    }

    /// Creates a Job, whose name is set for the caller, and waits until its pod runs.
    ///
    /// # Errors
    /// If it does not start in time, with the reason that its pod gives.
    pub(super) async fn start_in_cluster(
        client: &WorkloadClient,
        job_name: &mut Option<String>,
        image: &str,
        load: &LoadJob,
        limit: Duration,
    ) -> anyhow::Result<(Self, StopLoad)> {
        let job = job(image, load, limit.as_secs());
        let (name, uid) = client.create_job(&job).await?;
        *job_name = Some(name.clone());
        let pod = wait_for_pod(client, &name, &uid).await?;
        let logs = client.follow_logs(&pod).await?.compat();
        let lines = FramedRead::new(logs, LinesCodec::new_with_max_length(MAX_LINE));
        let lines = lines.map(|line| parse(&line.context("the logs of the load")?));
        let load = Self {
            lines: lines.boxed_local(),
            _task: JoinSet::new(),
        };
        Ok((load, StopLoad::Job(name)))
    }

    /// The next line; `None` at the end of the load. Cancel safe.
    pub(super) async fn next(&mut self) -> anyhow::Result<Option<JobLine>> {
        self.lines.try_next().await
    }
}

// === impl StopLoad ===

impl StopLoad {
    pub(super) async fn stop(self, client: &WorkloadClient) -> anyhow::Result<()> {
        match self {
            Self::Job(name) => client.delete_job(&name).await?,
            Self::Here(stop) => drop(stop),
        }
        Ok(())
    }
}

fn parse(line: &str) -> anyhow::Result<JobLine> {
    // Of another program, the parser's error says nothing.
    serde_json::from_str(line)
        .map_err(|_| anyhow!("the load wrote `{line}`: is its image of this version?"))
}

async fn wait_for_pod(client: &WorkloadClient, job: &str, uid: &str) -> anyhow::Result<String> {
    let deadline = Instant::now() + START_TIMEOUT;
    loop {
        let pods = client.job_pods(uid).await?;
        ensure!(
            pods.len() < 2,
            "several pods claim to be that of the Job `{job}`: one is forged"
        );
        if let Some(pod) = pods.first().filter(|pod| has_started(pod)) {
            return Ok(pod.name_any());
        }
        let unready = UnreadyPod::first(&pods);
        if unready.as_ref().is_some_and(UnreadyPod::is_stuck) || Instant::now() >= deadline {
            let reason = unready.map_or_else(|| "it has no pod".to_owned(), |it| it.to_string());
            bail!("the Job `{job}` does not start: {reason}");
        }
        sleep(POLL_INTERVAL).await;
    }
}

/// Whether the container of a pod runs, or has run.
fn has_started(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|it| it.phase.as_deref());
    phase.is_some_and(|phase| phase != "Pending")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::fake_api;

    /// A pod with the labels of the Job `drill-1`, and this owner.
    fn pod(name: &str, owner: &Value) -> Value {
        let labels =
            json!({"app.kubernetes.io/name": "envoy-drainer-drill", "job-name": "drill-1"});
        let metadata = json!({"name": name, "labels": labels, "ownerReferences": [owner]});
        json!({"metadata": metadata, "status": {"phase": "Running"}})
    }

    fn owner(name: &str, uid: &str, is_controller: bool) -> Value {
        json!({
            "apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": is_controller,
        })
    }

    /// Starts a load in a Job of the uid `1`, among these pods. Returns its first line, and the pods whose logs were read.
    async fn first_line(pods: Value) -> (anyhow::Result<Option<JobLine>>, Vec<String>) {
        let (client, requests) = fake_api::start("deploy/edge", move |request| {
            let body = match request {
                _ if request.starts_with("POST ") => {
                    json!({"metadata": {"name": "drill-1", "uid": "1"}})
                }
                _ if request.contains("/log?") => json!({"probed": ["of its own pod"]}),
                _ => json!({"metadata": {}, "items": pods}),
            };
            (200, body.to_string())
        });
        let load = json!({
            "load": {
                "requests": {"headers": [], "body": null, "expected": "success"},
                "clients": [],
                "requestTimeout": {"secs": 1, "nanos": 0},
            },
            "connectTo": null, "duration": null, "skipsFailing": true,
        });
        let load = serde_json::from_value(load).unwrap();
        let limit = Duration::from_secs(1);
        let mut name = None;
        let started = LoadRun::start_in_cluster(&client, &mut name, "a", &load, limit).await;
        assert_eq!(name.as_deref(), Some("drill-1"));
        let line = match started {
            Ok((mut load, _)) => load.next().await,
            Err(error) => Err(error),
        };
        let logs = requests.try_iter().filter_map(|request| {
            let (path, _) = request.split_once("/log?")?;
            Some(path.rsplit('/').next()?.to_owned())
        });
        (line, logs.collect())
    }

    #[tokio::test]
    async fn forged_pod_does_not_speak_for_a_drill() {
        let forged = [
            json!(null),
            owner("drill-1", "2", true),
            owner("drill-1", "1", false),
        ];
        let own = pod("own", &owner("drill-1", "1", true));
        for owner in forged {
            let mut forged = pod("forged", &owner);
            if owner.is_null() {
                forged["metadata"]["ownerReferences"] = owner;
            }
            for pods in [json!([forged, own]), json!([own, forged])] {
                let (line, logs) = first_line(pods).await;
                let JobLine::Probed(failures) = line.unwrap().unwrap() else {
                    panic!("another line");
                };
                assert_eq!(
                    (failures, logs),
                    (vec!["of its own pod".to_owned()], vec!["own".to_owned()])
                );
            }
        }
    }

    #[tokio::test]
    async fn two_pods_that_claim_a_job_are_an_error() {
        let owner = owner("drill-1", "1", true);
        let (line, logs) = first_line(json!([pod("own", &owner), pod("forged", &owner)])).await;
        let error = line.unwrap_err().to_string();
        assert_eq!(
            error,
            "several pods claim to be that of the Job `drill-1`: one is forged"
        );
        assert_eq!(logs, Vec::<String>::new());
    }
}
