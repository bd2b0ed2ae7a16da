//! Jobs whose pods have an Envoy, which must complete once their work is done.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::cluster_fixture::ClusterFixture;
use crate::echo;
use crate::edge::{DRAINER_CONTAINER, deployment};
use crate::images;
use crate::namespace::Namespace;
use crate::restricted;

/// The container that does the work.
const WORK: &str = "work";

/// The Job whose Envoy has a drainer.
const WITH_DRAINER: &str = "drained";

/// The Job whose Envoy has none.
const WITHOUT_DRAINER: &str = "bare";

/// The most that drainer and Envoy may add to a Job.
const MAX_OVERHEAD: Duration = Duration::from_secs(3);

/// Drainer and Envoy, as native sidecars, exit within 3 s of the end of a Job's work. The Job completes
/// once the kubelet and the Job controller have observed that: at most 3 s later than a Job without a
/// drainer.
pub(crate) async fn complete_within_3_s_of_their_work(fixture: &ClusterFixture<'_>) -> Result<()> {
    let namespace = fixture.namespace().await?;
    let upstream = echo::start(&namespace).await?;
    let drained = template(upstream)?;
    let mut bare = drained.clone();
    bare["metadata"]["annotations"] = json!({});
    namespace.apply(job(WITH_DRAINER, &drained)).await?;
    namespace.apply(job(WITHOUT_DRAINER, &bare)).await?;
    let (drained, bare) = (
        wait_for_end(&namespace, WITH_DRAINER).await?,
        wait_for_end(&namespace, WITHOUT_DRAINER).await?,
    );
    let seconds = |time: Duration| format!("{} s", time.as_secs());
    fixture.add_row(
        "last sidecar's exit after the work",
        seconds(drained.sidecars),
    );
    fixture.add_row("Job completion after the work", seconds(drained.job));
    fixture.add_row("Job completion without a drainer", seconds(bare.job));
    ensure!(
        drained.sidecars <= MAX_OVERHEAD,
        "the sidecars took {drained:?}"
    );
    ensure!(
        drained.job <= bare.job + MAX_OVERHEAD,
        "the Job took {drained:?}"
    );
    Ok(())
}

/// Returns the template of a pod that sends requests to its Envoy for 5 s.
fn template(upstream: SocketAddr) -> Result<Value> {
    let mut template = deployment(1, upstream)?["spec"]["template"].take();
    let mut envoy = template["spec"]["containers"].take();
    envoy[0]["restartPolicy"] = json!("Always");
    template["spec"]["initContainers"] = envoy;
    template["spec"]["restartPolicy"] = json!("Never");
    template["spec"]["containers"] = json!([{
        "name": WORK,
        "image": images::LOAD_IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "args": ["run", "127.0.0.1:8080", "--keep-alive", "20", "--for", "5s"],
        "securityContext": restricted::container(),
    }]);
    Ok(template)
}

fn job(name: &str, template: &Value) -> Value {
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": { "name": name },
        "spec": { "backoffLimit": 0, "template": template },
    })
}

/// Delays after the end of a Job's work.
#[derive(Debug)]
struct EndDelays {
    /// Until the exit of the last sidecar.
    sidecars: Duration,
    /// Until the completion of the Job.
    job: Duration,
}

/// Waits until a Job is complete.
async fn wait_for_end(namespace: &Namespace, name: &str) -> Result<EndDelays> {
    let object = format!("job/{name}");
    let complete = [
        "wait",
        "--for=condition=Complete",
        &object,
        "--timeout=120s",
    ];
    namespace.kubectl(&complete).await?;
    let job = namespace.json(&["get", &object]).await?;
    let pods = namespace.pods(&format!("job-name={name}")).await?;
    let pod = pods.first().context("the Job has no pod")?;
    let pod = pod["metadata"]["name"]
        .as_str()
        .context("the pod has no name")?;
    let finished_at = async |name| {
        let status = namespace.container_status(pod, name).await?;
        time_of_day(&status["state"]["terminated"]["finishedAt"])
    };
    let work = finished_at(WORK).await?;
    let mut sidecars = finished_at("envoy").await?;
    if name == WITH_DRAINER {
        sidecars = sidecars.max(finished_at(DRAINER_CONTAINER).await?);
    }
    Ok(EndDelays {
        sidecars: sidecars.saturating_sub(work),
        job: time_of_day(&job["status"]["completionTime"])?.saturating_sub(work),
    })
}

/// Returns the time since midnight of an API time such as `2026-01-31T12:34:56Z`. The date is ignored: across
/// midnight the differences are wrong, but saturate at zero.
fn time_of_day(time: &Value) -> Result<Duration> {
    let text = time.as_str().context("the time is missing")?;
    let clock = text
        .split_once('T')
        .and_then(|(_, clock)| clock.strip_suffix('Z'));
    let numbers = clock
        .with_context(|| format!("invalid time {text}"))?
        .split(':');
    let seconds = numbers
        .map(str::parse::<u64>)
        .try_fold(0, |sum, number| number.map(|number| sum * 60 + number))?;
    Ok(Duration::from_secs(seconds))
}
