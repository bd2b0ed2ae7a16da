//! A client that reads a response slowly. Envoy has long sent all of it, and counts an idle connection, while the rest waits
//! in the pod's kernel, which a drain asks too.

use anyhow::{Result, ensure};

use crate::cluster_fixture::ClusterFixture;
use crate::edge::{EnvoyDeployment, annotate};
use crate::images;
use crate::traffic::{Requests, client};

/// The client's pod.
const READER: &str = "slow-reader";

/// By this time, in seconds, a drain has ended that the kernel does not hold: the client needs 26 s.
const HELD: f64 = 18.0;

/// Restarts an Envoy while the client reads. Without the kernel's witness the response is cut.
pub(crate) async fn during_a_rollout(
    fixture: &ClusterFixture<'_>,
    ignore_kernel: &str,
    requests: Requests,
) -> Result<()> {
    let namespace = fixture.namespace().await?;
    let edge = EnvoyDeployment::start(&namespace, 1, |template| {
        annotate(template, "ignore-kernel", ignore_kernel);
        Ok(())
    })
    .await?;
    let args = ["read-slowly".to_owned(), edge.address.to_string()];
    let reader = client(READER, images::POD_TOOLS_IMAGE, &args);
    namespace.apply(reader).await?;
    let wait = async |what: &str| {
        let wait = format!("wait pod/{READER} --timeout=120s --for={what}");
        namespace.run(&wait).await
    };
    wait("condition=Ready").await?;
    edge.rollout_restart().await?;
    let survives = requests == Requests::Survive;
    let phase = if survives { "Succeeded" } else { "Failed" };
    wait(&format!("jsonpath={{.status.phase}}={phase}")).await?;
    fixture.report_drains(&namespace)?;
    let summary = namespace.first_summary().await?;
    ensure!((summary.seconds > HELD) == survives, "{summary:?}");
    Ok(())
}
