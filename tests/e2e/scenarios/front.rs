//! Rollouts of an Envoy that listens on loopback alone, behind a proxy of its pod.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tests::load::{EchoLoad, Report, load};

use crate::cluster_fixture::ClusterFixture;
use crate::edge::{EnvoyDeployment, containers, deployment, reconfigure};
use crate::traffic::{ensure_no_failure, roll_under_load};

/// Requests that take longer than the minimum of a drain, each on a connection of its own.
fn clients() -> EchoLoad {
    load()
        .slow(2.0, Duration::from_secs(20))
        .request_timeout(Duration::from_secs(40))
}

/// Where Envoy listens.
const ENVOY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8081);

/// The container of the proxy, which is an Envoy without an admin interface.
const FRONT: &str = "front";

/// The listener counts, since the pod has no other: requests in flight are waited for.
pub(crate) async fn requests_are_waited_for(fixture: &ClusterFixture<'_>) -> Result<()> {
    let report = roll(fixture, &[]).await?;
    ensure_no_failure(&report)
}

/// They are cut where an annotation leaves the listener out: otherwise [`requests_are_waited_for`] would prove nothing.
pub(crate) async fn ignored_listener_loses_requests(fixture: &ClusterFixture<'_>) -> Result<()> {
    let report = roll(fixture, &[("ignore-listeners", "edge")]).await?;
    ensure!(report.failed() > 0, "no request failed:\n{report}");
    Ok(())
}

async fn roll(fixture: &ClusterFixture<'_>, annotations: &[(&str, &str)]) -> Result<Report> {
    let namespace = fixture.namespace().await?;
    let edge = EnvoyDeployment::start(&namespace, 2, |template| {
        put_behind_front(template, annotations)
    })
    .await?;
    roll_under_load(fixture, &edge, clients(), 1).await
}

/// Puts the front proxy of a pod before its Envoy.
fn put_behind_front(template: &mut Value, annotations: &[(&str, &str)]) -> Result<()> {
    // The front proxy serves until the drain has ended.
    for (name, value) in [("extra-lifecycle-hooks", FRONT)].iter().chain(annotations) {
        template["metadata"]["annotations"][format!("envoy-drainer.dev/{name}")] = json!(value);
    }
    reconfigure(template, |bootstrap| {
        let (ip, port) = (ENVOY.ip().to_string(), ENVOY.port());
        bootstrap["static_resources"]["listeners"][0]["address"]["socket_address"] =
            json!({ "address": ip, "port_value": port });
    })?;
    let mut front = deployment(1, ENVOY)?["spec"]["template"].take();
    reconfigure(&mut front, |bootstrap| bootstrap["admin"] = Value::Null)?;
    let mut front = front["spec"]["containers"][0].take();
    front["name"] = json!(FRONT);
    let containers = containers(template)?;
    for field in ["ports", "readinessProbe"] {
        containers[0][field] = Value::Null;
    }
    containers.push(front);
    Ok(())
}
