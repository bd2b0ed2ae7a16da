//! A Job whose pod has an Envoy: it must end when its work is done.

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

/// The same without.
const WITHOUT_DRAINER: &str = "bare";

/// More than drainer and Envoy may add to a Job.
const MAX_OVERHEAD: Duration = Duration::from_secs(3);

/// Drainer and Envoy, as native sidecars, end within 3 s of a Job's work. The Job completes when the
/// kubelet and the Job controller have noticed, each in its own time: at most so much later than one
/// without a drainer.
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
        "last sidecar ended after the work",
        seconds(drained.sidecars),
    );
    fixture.add_row("Job complete after the work", seconds(drained.job));
    fixture.add_row("the same without a drainer", seconds(bare.job));
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

/// A pod that calls its Envoy for a while, and is done.
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

/// How long after its work something ended.
#[derive(Debug)]
struct EndDelays {
    /// The last of the pod's sidecars.
    sidecars: Duration,
    /// The Job.
    job: Duration,
}

/// Waits for a Job's end.
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
    let pod = pods.first().context("the Job has a pod")?;
    let pod = pod["metadata"]["name"].as_str().context("it has a name")?;
    let ended = async |name| {
        let status = namespace.container_status(pod, name).await?;
        time_of_day(&status["state"]["terminated"]["finishedAt"])
    };
    let done = ended(WORK).await?;
    let mut sidecars = ended("envoy").await?;
    if name == WITH_DRAINER {
        sidecars = sidecars.max(ended(DRAINER_CONTAINER).await?);
    }
    Ok(EndDelays {
        sidecars: sidecars.saturating_sub(done),
        job: time_of_day(&job["status"]["completionTime"])?.saturating_sub(done),
    })
}

/// The seconds of a day that an API time such as `2026-01-31T12:34:56Z` names: the test does not run
/// for a day.
fn time_of_day(of: &Value) -> Result<Duration> {
    let text = of.as_str().context("a time")?;
    let clock = text
        .split_once('T')
        .and_then(|(_, clock)| clock.strip_suffix('Z'));
    let numbers = clock.context("an API time")?.split(':');
    let seconds = numbers
        .map(str::parse::<u64>)
        .try_fold(0, |sum, number| number.map(|number| sum * 60 + number))?;
    Ok(Duration::from_secs(seconds))
}
