//! A namespace with the label `envoy-drainer.dev/injection: all`, in which no pod needs an annotation.

use anyhow::Result;

use crate::cluster_fixture::ClusterFixture;
use crate::echo;
use crate::edge::{EnvoyDeployment, deployment, remove_inject};
use crate::traffic::{Requests, light, roll_under_load};

/// Pods whose Envoy is certain get a drainer without an annotation, so that a rollout loses no request.
pub(crate) async fn get_drainers_without_annotation(fixture: &ClusterFixture<'_>) -> Result<()> {
    let namespace = fixture.namespace_with("all", "restricted").await?;
    let upstream = echo::start(&namespace).await?;
    let mut workload = deployment(2, upstream)?;
    remove_inject(&mut workload["spec"]["template"])?;
    let edge = EnvoyDeployment::apply(&namespace, &workload).await?;
    edge.ensure_drainers(true).await?;

    let report = roll_under_load(fixture, &edge, light(), 1).await?;
    edge.ensure_drainers(true).await?;
    Requests::Survive.ensure(&report)
}
