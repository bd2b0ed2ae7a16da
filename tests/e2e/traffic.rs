//! The load generator, which runs in a pod, since Services can be reached from pods only.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use futures_util::future::try_join;
use load::job::{JobLine, LoadJob, Progress};
use serde_json::{Value, json};
use tests::load::{EchoLoad, Report, load};
use tokio::time::sleep;

use crate::cluster_fixture::ClusterFixture;
use crate::edge::EnvoyDeployment;
use crate::eventually::eventually;
use crate::images;
use crate::namespace::Namespace;
use crate::outcome::{Inconclusive, MIN_RATE_RATIO};
use crate::restricted;

/// Whether requests of a load fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Requests {
    /// None fails.
    Survive,
    /// Some fail.
    Fail,
}

/// All kinds of clients at once.
pub(crate) fn mixed() -> EchoLoad {
    load()
        .keep_alive(200.0)
        .connection_per_request(50.0)
        .slow(8.0, Duration::from_secs(2))
        .http2(100.0)
}

/// All kinds of clients at once, at rates for scenarios that run beside others.
pub(crate) fn light() -> EchoLoad {
    load()
        .keep_alive(50.0)
        .connection_per_request(20.0)
        .slow(4.0, Duration::from_secs(2))
        .http2(20.0)
}

/// Sparse traffic: between two requests no connection is open.
pub(crate) fn sparse() -> EchoLoad {
    load().connection_per_request(10.0)
}

/// How long the load runs before and after the observed change.
const MARGIN: Duration = Duration::from_secs(3);

/// A running load.
#[derive(Debug)]
pub(crate) struct Traffic<'a> {
    namespace: &'a Namespace,
    name: &'static str,
}

// === impl Traffic ===

impl<'a> Traffic<'a> {
    /// Starts a load of a Service.
    pub(crate) async fn start(
        namespace: &'a Namespace,
        name: &'static str,
        target: SocketAddr,
        load: EchoLoad,
    ) -> Result<Self> {
        let args = args(load, target, None)?;
        let pod = client(name, images::WEBHOOK_IMAGE, &args);
        namespace.apply(pod).await?;
        eventually("the load is running", || async {
            let logs = namespace.kubectl(&["logs", name]).await;
            Ok(logs.is_ok_and(|logs| logs.lines().count() > 1))
        })
        .await?;
        sleep(MARGIN).await;
        Ok(Self { namespace, name })
    }

    /// Returns the counts so far.
    pub(crate) async fn progress(&self) -> Result<Progress> {
        let logs = format!("logs {} --tail=1", self.name);
        let line = self.namespace.run(&logs).await?;
        match serde_json::from_str(&line) {
            Ok(JobLine::Progress(progress)) => Ok(progress),
            _ => bail!("not the progress of a load: {line}"),
        }
    }

    /// Stops the load once its last responses have arrived, and returns its report.
    ///
    /// # Errors
    /// [`Inconclusive`] if it did not reach [`MIN_RATE_RATIO`].
    pub(crate) async fn stop(self) -> Result<Report> {
        let report = self.stop_at_any_rate().await?;
        if report.reached() < MIN_RATE_RATIO {
            bail!(Inconclusive(report.to_string()));
        }
        Ok(report)
    }

    /// As [`Self::stop`], whatever rate it has reached.
    pub(crate) async fn stop_at_any_rate(self) -> Result<Report> {
        let Self { namespace, name } = self;
        // The logs end with the pod, after which kubectl may print an error of the container runtime.
        let logs = ["logs", "--follow", name];
        let delete = async {
            sleep(MARGIN).await;
            let delete = ["delete", "pod", name, "--wait=false"];
            namespace.kubectl(&delete).await
        };
        let (logs, _) = try_join(namespace.kubectl(&logs), delete).await?;
        let report = logs.lines().rev().find_map(parse_report);
        report.with_context(|| format!("no report of the load: {logs}"))
    }

    /// As [`Self::stop`], and adds the load and the drains to the scenario's report.
    pub(crate) async fn stop_and_report(self, fixture: &ClusterFixture<'_>) -> Result<Report> {
        let namespace = self.namespace;
        let report = self.stop().await?;
        fixture.report_load(&report);
        fixture.report_drains(namespace)?;
        Ok(report)
    }
}

/// Returns a container that runs a program of the tests.
pub(crate) fn container(name: &str, image: &str, args: &[String]) -> Value {
    json!({
        "name": name,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "args": args,
        "securityContext": restricted::container(),
    })
}

/// Returns the pod of a client, whose container has the pod's name.
pub(crate) fn client(name: &str, image: &str, args: &[String]) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name },
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": false,
            "securityContext": restricted::pod(),
            "containers": [container(name, image, args)],
        },
    })
}

/// Returns the arguments of a container of the webhook's image that sends a load, for a time or until SIGTERM.
pub(crate) fn args(
    load: EchoLoad,
    target: SocketAddr,
    duration: Option<Duration>,
) -> Result<Vec<String>> {
    let job = LoadJob {
        load: load.into_load(),
        connect_to: Some(target.into()),
        duration,
        skips_failing: false,
    };
    Ok(vec!["load".to_owned(), serde_json::to_string(&job)?])
}

/// Returns the report in a line of the load's output.
fn parse_report(line: &str) -> Option<Report> {
    match serde_json::from_str(line).ok()? {
        JobLine::Ended(report) => Some(report),
        _ => None,
    }
}

/// Disrupts Envoys under a load, and adds the load and the drains to the scenario's report.
pub(crate) async fn disrupt_under_load(
    fixture: &ClusterFixture<'_>,
    edge: &EnvoyDeployment,
    load: EchoLoad,
    disrupt: impl AsyncFnOnce() -> Result<()>,
) -> Result<Report> {
    let traffic = Traffic::start(&edge.namespace, "load", edge.address, load).await?;
    disrupt().await?;
    traffic.stop_and_report(fixture).await
}

/// As [`disrupt_under_load`], by a number of rollouts.
pub(crate) async fn roll_under_load(
    fixture: &ClusterFixture<'_>,
    edge: &EnvoyDeployment,
    load: EchoLoad,
    rollouts: usize,
) -> Result<Report> {
    disrupt_under_load(fixture, edge, load, async || {
        for _ in 0..rollouts {
            edge.rollout_restart().await?;
        }
        Ok(())
    })
    .await
}

// === impl Requests ===

impl Requests {
    /// Returns an error unless this has become of the requests of a load.
    pub(crate) fn ensure(self, report: &Report) -> Result<()> {
        match self {
            Self::Survive => ensure!(report.failed() == 0, "requests failed:\n{report}"),
            Self::Fail => ensure!(report.failed() > 0, "no request failed:\n{report}"),
        }
        Ok(())
    }
}
