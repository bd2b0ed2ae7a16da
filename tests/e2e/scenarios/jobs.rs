//! Jobs whose pods have an Envoy, which must complete once their work is done.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use tests::load::load;
use tokio::time::sleep;

use crate::cluster_fixture::ClusterFixture;
use crate::echo;
use crate::edge::{containers, deployment};
use crate::eventually::eventually;
use crate::images;
use crate::namespace::Namespace;
use crate::restricted;
use crate::termination_message::DRAINER_CONTAINER;
use crate::traffic;

/// The container that does the work.
const WORK: &str = "work";

/// The Job whose Envoy has a drainer.
const WITH_DRAINER: &str = "drained";

/// The Job whose Envoy has none.
const WITHOUT_DRAINER: &str = "bare";

/// The Job without an Envoy.
const WITHOUT_ENVOY: &str = "alone";

/// The most that drainer and Envoy may add to a Job.
const MAX_OVERHEAD: Duration = Duration::from_secs(3);

/// How long a Job that does not complete is observed.
const OBSERVATION: Duration = Duration::from_secs(30);

/// Where the work sends its requests: to Envoy.
const ENVOY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);

/// Drainer and Envoy, as native sidecars, exit within 3 s of the end of a Job's work. The Job completes
/// once the kubelet and the Job controller have observed that: at most 3 s later than a Job without a
/// drainer.
pub(crate) async fn complete_within_3_s_of_their_work(fixture: &ClusterFixture<'_>) -> Result<()> {
    let namespace = fixture.namespace().await?;
    let upstream = echo::start(&namespace).await?;
    let drained = with_native_envoy(template(upstream)?)?;
    let mut bare = drained.clone();
    bare["metadata"]["annotations"] = json!({});
    run_both(fixture, &namespace, &drained, (WITHOUT_DRAINER, &bare)).await
}

/// An Envoy among the containers that the annotation makes a native sidecar delays a Job by at most 3 s,
/// compared with a Job without an Envoy.
pub(crate) async fn with_annotation_complete_like_those_without_envoy(
    fixture: &ClusterFixture<'_>,
) -> Result<()> {
    let namespace = fixture.namespace().await?;
    let upstream = echo::start(&namespace).await?;
    let mut drained = template(upstream)?;
    drained["metadata"]["annotations"]["envoy-drainer.dev/envoy-native-sidecar"] = json!("true");
    let mut alone = template(upstream)?;
    alone["metadata"]["annotations"] = json!({});
    alone["spec"]["containers"] = json!([work(upstream)?]);
    run_both(fixture, &namespace, &drained, (WITHOUT_ENVOY, &alone)).await
}

/// Without the annotation, an Envoy among the containers keeps a Job from completing: otherwise
/// [`with_annotation_complete_like_those_without_envoy`] would prove nothing.
pub(crate) async fn without_annotation_never_complete(fixture: &ClusterFixture<'_>) -> Result<()> {
    let namespace = fixture.namespace().await?;
    let template = template(echo::start(&namespace).await?)?;
    namespace.apply(job(WITH_DRAINER, &template)).await?;
    let selector = format!("job-name={WITH_DRAINER}");
    let is_done = |state: &Value| !state["terminated"].is_null();
    eventually("the work is done", || async {
        match namespace.pods(&selector).await?.first() {
            Some(pod) => Ok(is_done(container_state(pod, WORK))),
            None => Ok(false),
        }
    })
    .await?;
    sleep(OBSERVATION).await;
    let pods = namespace.pods(&selector).await?;
    let pod = pods.first().context("the Job has no pod")?;
    let envoy = container_state(pod, "envoy");
    ensure!(!envoy["running"].is_null(), "Envoy does not run: {envoy}");
    let job = format!("job/{WITH_DRAINER}");
    let job = namespace.json(&["get", &job]).await?;
    let completion = &job["status"]["completionTime"];
    fixture.add_row(
        "Job completion after the work",
        format!("none in {}", seconds(OBSERVATION)),
    );
    ensure!(completion.is_null(), "the Job completed at {completion}");
    Ok(())
}

/// Returns the state of a container in the status of a pod; null without one.
fn container_state<'p>(pod: &'p Value, container: &str) -> &'p Value {
    let statuses = pod["status"]["containerStatuses"].as_array();
    let mut statuses = statuses.into_iter().flatten();
    let status = statuses.find(|status| status["name"] == container);
    status.map_or(&Value::Null, |status| &status["state"])
}

/// Returns the template of a pod whose work sends requests to Envoy, which is one of its containers, for
/// 5 s.
fn template(upstream: SocketAddr) -> Result<Value> {
    let mut template = deployment(1, upstream)?["spec"]["template"].take();
    template["spec"]["restartPolicy"] = json!("Never");
    containers(&mut template)?.push(work(ENVOY)?);
    Ok(template)
}

/// Returns the container that does the work.
fn work(target: SocketAddr) -> Result<Value> {
    Ok(json!({
        "name": WORK,
        "image": images::WEBHOOK_IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "args": traffic::args(load().keep_alive(20.0), target, Some(Duration::from_secs(5)))?,
        "securityContext": restricted::container(),
    }))
}

/// Makes Envoy a native sidecar in the template itself.
fn with_native_envoy(mut template: Value) -> Result<Value> {
    let mut envoy = template["spec"]["containers"][0].take();
    envoy["restartPolicy"] = json!("Always");
    template["spec"]["initContainers"] = json!([envoy]);
    template["spec"]["containers"] = json!([work(ENVOY)?]);
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
    /// Until the exit of the last sidecar; zero without one.
    sidecars: Duration,
    /// Until the completion of the Job.
    job: Duration,
}

/// Runs a Job with a drainer and another one, reports their ends, and ensures that drainer and Envoy add little.
async fn run_both(
    fixture: &ClusterFixture<'_>,
    namespace: &Namespace,
    drained: &Value,
    (other_name, other): (&str, &Value),
) -> Result<()> {
    namespace.apply(job(WITH_DRAINER, drained)).await?;
    namespace.apply(job(other_name, other)).await?;
    let drained = wait_for_end(namespace, WITH_DRAINER).await?;
    let baseline = wait_for_end(namespace, other_name).await?;
    let label = format!("completion of the Job `{other_name}`");
    fixture.add_row(&label, seconds(baseline.job));
    fixture.add_row(
        "last sidecar's exit after the work",
        seconds(drained.sidecars),
    );
    fixture.add_row("Job completion after the work", seconds(drained.job));
    ensure!(
        drained.sidecars <= MAX_OVERHEAD,
        "the sidecars took {drained:?}"
    );
    ensure!(
        drained.job <= baseline.job + MAX_OVERHEAD,
        "the Job took {drained:?}"
    );
    Ok(())
}

/// Waits until a Job is complete.
async fn wait_for_end(namespace: &Namespace, name: &str) -> Result<EndDelays> {
    let object = format!("job/{name}");
    let complete = format!("wait --for=condition=Complete {object} --timeout=120s");
    namespace.run(&complete).await?;
    let job = namespace.json(&["get", &object]).await?;
    let pods = namespace.pods(&format!("job-name={name}")).await?;
    let pod = pods.first().context("the Job has no pod")?;
    let pod = pod["metadata"]["name"]
        .as_str()
        .context("the pod has no name")?;
    let finished_at = async |name| {
        let status = namespace.container_status(pod, name).await?;
        timestamp(&status["state"]["terminated"]["finishedAt"])
    };
    let work = finished_at(WORK).await?;
    let sidecars: &[_] = match name {
        WITHOUT_ENVOY => &[],
        WITHOUT_DRAINER => &["envoy"],
        _ => &["envoy", DRAINER_CONTAINER],
    };
    let mut last = work;
    for sidecar in sidecars {
        last = last.max(finished_at(sidecar).await?);
    }
    Ok(EndDelays {
        sidecars: time_between(work, last),
        job: time_between(work, timestamp(&job["status"]["completionTime"])?),
    })
}

fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs())
}

/// Parses an API time such as `2026-01-31T12:34:56Z`.
pub(super) fn timestamp(time: &Value) -> Result<Timestamp> {
    let text = time.as_str().context("the time is missing")?;
    Ok(text.parse()?)
}

/// Returns the time from `start` to `end`; zero if `end` is not later.
pub(super) fn time_between(start: Timestamp, end: Timestamp) -> Duration {
    end.duration_since(start).try_into().unwrap_or_default()
}
