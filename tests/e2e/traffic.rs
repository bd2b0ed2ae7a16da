//! The load, in a pod: Services can be reached from there only.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::json;
use tests::load::Report;
use tokio::time::sleep;

use crate::eventually::eventually;
use crate::images;
use crate::namespace::Namespace;
use crate::restricted;
use crate::scenario::Inconclusive;

/// All kinds of clients at once.
pub(crate) const MIXED: &str =
    "--keep-alive 200 --connection-each 50 --slow 8 --slow-takes 2s --http2 100";

/// Clients that leave pauses in which nothing is open.
pub(crate) const SPARSE: &str = "--connection-each 10";

/// Below this share of the rate asked for, a run shows nothing.
pub(crate) const MIN_RATE_RATIO: f64 = 0.95;

/// Before what is to be observed begins, and after it has ended.
const MARGIN: Duration = Duration::from_secs(3);

/// Clients under way.
#[derive(Debug)]
pub(crate) struct Traffic<'a> {
    namespace: &'a Namespace,
    name: &'static str,
}

// === impl Traffic ===

impl<'a> Traffic<'a> {
    /// Starts clients of this Service, as the load's flags say.
    ///
    /// # Errors
    /// When their pod does not start.
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
        let pod = format!("pod/{name}");
        namespace
            .kubectl(&["wait", "--for=condition=Ready", &pod, "--timeout=60s"])
            .await?;
        sleep(MARGIN).await;
        Ok(Self { namespace, name })
    }

    /// Ends the clients once their last answers are there, and returns what they saw.
    ///
    /// # Errors
    /// When they did not reach their rate: then nothing was shown.
    pub(crate) async fn stop(self) -> Result<Report> {
        sleep(MARGIN).await;
        let Self { namespace, name } = self;
        // It may be killed with the process 1 that it ends; whether that has ended is seen below.
        let stop = ["exec", name, "--", "/load", "stop"];
        let stopped = namespace.kubectl(&stop).await;
        let (ended, pod) = (
            "--for=jsonpath={.status.phase}=Succeeded",
            format!("pod/{name}"),
        );
        let has_ended = namespace
            .kubectl(&["wait", ended, &pod, "--timeout=60s"])
            .await;
        has_ended.with_context(|| format!("the load was told to stop: {stopped:?}"))?;
        let printed = async || namespace.kubectl(&["logs", name]).await;
        // What a container printed last may be a while on its way.
        let whole = || async { Ok(serde_json::from_str::<Report>(&printed().await?).is_ok()) };
        eventually("the load's report is there", whole).await?;
        let report: Report = serde_json::from_str(&printed().await?)?;
        if report.reached() < MIN_RATE_RATIO {
            bail!(Inconclusive(report.to_string()));
        }
        Ok(report)
    }
}
