//! A Job whose pod has an Envoy: it must end when its work is done.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::echo;
use crate::edge::{DRAINER, deployment};
use crate::images;
use crate::restricted;
use crate::stage::Stage;

/// The work, and so the Job.
const WORK: &str = "work";

/// Drainer and Envoy, as native sidecars, end within 3 s of a Job's work. The Job completes when the
/// kubelet and the Job controller have noticed, each in its own time, which is told as well.
///
/// # Errors
/// When they take longer, or the Job does not complete.
pub(crate) async fn end_within_3_s_of_their_work(stage: &Stage<'_>) -> Result<()> {
    let namespace = stage.namespace().await?;
    let upstream = echo::start(&namespace).await?;
    let mut template = deployment(1, upstream)?["spec"]["template"].take();
    let mut envoy = template["spec"]["containers"].take();
    envoy[0]["restartPolicy"] = json!("Always");
    template["spec"]["initContainers"] = envoy;
    template["spec"]["restartPolicy"] = json!("Never");
    template["spec"]["containers"] = json!([{
        "name": WORK,
        "image": images::LOAD,
        "imagePullPolicy": "IfNotPresent",
        "args": ["run", "127.0.0.1:8080", "--keep-alive", "20", "--for", "5s"],
        "securityContext": restricted::container(),
    }]);
    let job = json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": { "name": WORK },
        "spec": { "backoffLimit": 0, "template": template },
    });
    namespace.apply(job).await?;
    let complete = [
        "wait",
        "--for=condition=Complete",
        "job/work",
        "--timeout=120s",
    ];
    namespace.kubectl(&complete).await?;
    let job = namespace.json(&["get", "job", WORK]).await?;
    let pods = namespace.pods(&format!("job-name={WORK}")).await?;
    let pod = pods.first().context("the Job has a pod")?;
    let pod = pod["metadata"]["name"].as_str().context("it has a name")?;
    let ended = async |name| {
        let status = namespace.container(pod, name).await?;
        time(&status["state"]["terminated"]["finishedAt"])
    };
    let done = ended(WORK).await?;
    let mut took = Duration::ZERO;
    for sidecar in ["envoy", DRAINER] {
        took = took.max(ended(sidecar).await?.saturating_sub(done));
    }
    let complete = time(&job["status"]["completionTime"])?.saturating_sub(done);
    let seconds = |time: Duration| format!("{} s", time.as_secs());
    stage.row("last sidecar ended after the work", seconds(took));
    stage.row("Job complete after the work", seconds(complete));
    ensure!(took <= Duration::from_secs(3), "the sidecars took {took:?}");
    Ok(())
}

/// The seconds of a day that an API time such as `2026-01-31T12:34:56Z` names: the test does not run
/// for a day.
fn time(of: &Value) -> Result<Duration> {
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
