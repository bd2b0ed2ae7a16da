//! Jobs whose pods have an Envoy, which must complete once their work is done.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use tests::load::load;

use crate::cluster_fixture::ClusterFixture;
use crate::echo;
use crate::edge::{annotate, containers, deployment, remove_inject};
use crate::images;
use crate::namespace::Namespace;
use crate::termination_message::DRAINER_CONTAINER;
use crate::traffic;

/// The container that does the work.
const WORK: &str = "work";

/// The Job whose Envoy has a drainer.
const WITH_DRAINER: &str = "drained";

/// The Job without an Envoy.
const WITHOUT_ENVOY: &str = "alone";

/// The most that drainer and Envoy may add to a Job.
const MAX_OVERHEAD: Duration = Duration::from_secs(3);

/// Where the work sends its requests: to Envoy.
const ENVOY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);

/// An Envoy among the containers that the annotation makes a native sidecar exits with its drainer within 3 s of the
/// end of a Job's work. The Job completes once the kubelet and the Job controller have observed that: at most 3 s later
/// than a Job without an Envoy.
pub(crate) async fn with_annotation_complete_like_those_without_envoy(
    fixture: &ClusterFixture<'_>,
) -> Result<()> {
    let namespace = fixture.namespace().await?;
    let upstream = echo::start(&namespace).await?;
    let mut drained = template(upstream)?;
    annotate(&mut drained, "envoy-native-sidecar", "true");
    let mut alone = template(upstream)?;
    remove_inject(&mut alone)?;
    alone["spec"]["containers"] = json!([work(upstream)?]);
    namespace.apply(job(WITH_DRAINER, &drained)).await?;
    namespace.apply(job(WITHOUT_ENVOY, &alone)).await?;
    let drained = wait_for_end(&namespace, WITH_DRAINER, &["envoy", DRAINER_CONTAINER]).await?;
    let baseline = wait_for_end(&namespace, WITHOUT_ENVOY, &[]).await?;
    for (label, time) in [
        ("completion of the Job without Envoy", baseline.job),
        ("last sidecar's exit after the work", drained.sidecars),
        ("Job completion after the work", drained.job),
    ] {
        fixture.add_row(label, format!("{} s", time.as_secs()));
    }
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
    let duration = Some(Duration::from_secs(5));
    let args = traffic::args(load().keep_alive(20.0), target, duration)?;
    Ok(traffic::container(WORK, images::WEBHOOK_IMAGE, &args))
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

/// Waits until a Job is complete, whose pods have these sidecars.
async fn wait_for_end(namespace: &Namespace, name: &str, sidecars: &[&str]) -> Result<EndDelays> {
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
    let mut last = work;
    for sidecar in sidecars {
        last = last.max(finished_at(sidecar).await?);
    }
    Ok(EndDelays {
        sidecars: time_between(work, last),
        job: time_between(work, timestamp(&job["status"]["completionTime"])?),
    })
}

/// Parses an API time such as `2026-01-31T12:34:56Z`.
fn timestamp(time: &Value) -> Result<Timestamp> {
    let text = time.as_str().context("the time is missing")?;
    Ok(text.parse()?)
}

/// Returns the time from `start` to `end`; zero if `end` is not later.
fn time_between(start: Timestamp, end: Timestamp) -> Duration {
    end.duration_since(start).try_into().unwrap_or_default()
}
