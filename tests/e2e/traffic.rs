//! The load generator, which runs in a pod, since Services can be reached from pods only.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;
use tests::load::Report;
use tokio::time::sleep;

use crate::cluster_fixture::ClusterFixture;
use crate::eventually::eventually;
use crate::images;
use crate::namespace::Namespace;
use crate::restricted;
use crate::scenario::Inconclusive;

/// Flags for all kinds of clients at once.
pub(crate) const MIXED: &str =
    "--keep-alive 200 --connection-each 50 --slow 8 --slow-takes 2s --http2 100";

/// Flags for sparse traffic: between two requests no connection is open.
pub(crate) const SPARSE: &str = "--connection-each 10";

/// Below this share of the configured rate a run is inconclusive.
pub(crate) const MIN_RATE_RATIO: f64 = 0.95;

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
    /// Starts the load generator with `flags` against a Service.
    pub(crate) async fn start(
        namespace: &'a Namespace,
        name: &'static str,
        target: SocketAddr,
        flags: &str,
    ) -> Result<Self> {
        let mut args = vec!["run".to_owned(), target.to_string()];
        args.extend(flags.split_whitespace().map(str::to_owned));
        namespace
            .apply(json!({
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": { "name": name },
                "spec": {
                    "restartPolicy": "Never",
                    "automountServiceAccountToken": false,
                    "securityContext": restricted::pod(),
                    "containers": [{
                        "name": "load",
                        "image": images::LOAD_IMAGE,
                        "imagePullPolicy": "IfNotPresent",
                        "args": args,
                        "securityContext": restricted::container(),
                    }],
                },
            }))
            .await?;
        // Listed, since the API server may not find a pod by name that was only just created.
        let selector = format!("metadata.name={name}");
        eventually("the load is running", || async {
            let pods = ["get", "pods", "--field-selector", &selector];
            let pods = namespace.json(&pods).await?;
            Ok(pods["items"][0]["status"]["phase"] == "Running")
        })
        .await?;
        sleep(MARGIN).await;
        Ok(Self { namespace, name })
    }

    /// Stops the load once its last responses have arrived, and returns its report.
    ///
    /// # Errors
    /// [`Inconclusive`] if it did not reach [`MIN_RATE_RATIO`].
    pub(crate) async fn stop(self) -> Result<Report> {
        sleep(MARGIN).await;
        let Self { namespace, name } = self;
        // The command may be killed with process 1, which it terminates; the phase is checked below.
        let stop = ["exec", name, "--", "/load", "stop"];
        let stop_result = namespace.kubectl(&stop).await;
        let succeeded = "--for=jsonpath={.status.phase}=Succeeded";
        let wait = format!("wait {succeeded} pod/{name} --timeout=60s");
        let wait_result = namespace.run(&wait).await;
        wait_result.with_context(|| format!("the result of `load stop` is {stop_result:?}"))?;
        let logs = async || namespace.kubectl(&["logs", name]).await;
        // The last lines of a container may appear late in its logs.
        let is_complete = || async { Ok(serde_json::from_str::<Report>(&logs().await?).is_ok()) };
        eventually("the logs contain the load's report", is_complete).await?;
        let report: Report = serde_json::from_str(&logs().await?)?;
        if report.reached() < MIN_RATE_RATIO {
            bail!(Inconclusive(report.to_string()));
        }
        Ok(report)
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

/// Ensures that no request of a load failed.
pub(crate) fn ensure_no_failure(report: &Report) -> Result<()> {
    ensure!(report.failed() == 0, "requests failed:\n{report}");
    Ok(())
}
