//! Rollouts of Envoys with a QUIC listener behind a UDP Service, under HTTP/3 clients with slow responses. kube-proxy
//! deletes the flows of a UDP endpoint whose readiness fails, and the requests in flight are lost with them.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tests::listener::quic_socket;
use tests::load::{EchoLoad, Report, load};
use tests::test_ca::{Leaf, TestCa};

use crate::cluster_fixture::ClusterFixture;
use crate::edge::{APP, EnvoyDeployment, reconfigure};
use crate::namespace::Namespace;
use crate::service;
use crate::traffic::{ensure_no_failure, roll_under_load};

const ROLLOUTS: usize = 2;

/// Requests that are in flight for longer than readiness takes to fail.
fn slow_http3() -> EchoLoad {
    load()
        .slow_http3(6.0, Duration::from_secs(9))
        .request_timeout(Duration::from_secs(20))
}

/// The name of the QUIC port, and of its Service.
pub(super) const QUIC: &str = "quic";

const QUIC_PORT: u16 = 8443;

/// Rollouts fail no request where Envoy's health is kept until HTTP/3 clients have left.
pub(crate) async fn kept_health_loses_no_request(fixture: &ClusterFixture<'_>) -> Result<()> {
    let report = run_with_delay(fixture, None).await?;
    ensure_no_failure(&report)
}

/// Rollouts that fail Envoy's health at once fail requests: otherwise [`kept_health_loses_no_request`] would prove
/// nothing.
pub(crate) async fn zero_delay_loses_requests(fixture: &ClusterFixture<'_>) -> Result<()> {
    let report = run_with_delay(fixture, Some("0s")).await?;
    ensure!(report.failed() > 0, "no request failed:\n{report}");
    Ok(())
}

async fn run_with_delay(fixture: &ClusterFixture<'_>, delay: Option<&str>) -> Result<Report> {
    let namespace = fixture.namespace().await?;
    let edge = EnvoyDeployment::start(&namespace, 2, |template| {
        add_quic_listener(template)?;
        let annotations = &mut template["metadata"]["annotations"];
        annotations["envoy-drainer.dev/drain-strategy"] = json!("immediate");
        if let Some(delay) = delay {
            annotations["envoy-drainer.dev/health-failure-delay"] = json!(delay);
        }
        Ok(())
    })
    .await?;
    let address = quic_service(&namespace).await?;
    let edge = EnvoyDeployment { address, ..edge };
    roll_under_load(fixture, &edge, slow_http3(), ROLLOUTS).await
}

/// Creates the Service of the QUIC port, and returns its address.
pub(super) async fn quic_service(namespace: &Namespace) -> Result<SocketAddr> {
    service::create_for_pods(namespace, QUIC, json!({ "app": APP }), "UDP", QUIC).await
}

/// Adds a listener for HTTP/3 beside the one for HTTP/1.1, which serves the readiness probe.
pub(super) fn add_quic_listener(template: &mut Value) -> Result<()> {
    let Leaf {
        certificate, key, ..
    } = TestCa::new()?.issue_leaf_for("edge.shop")?;
    let transport_socket = quic_socket(&certificate, &key);
    reconfigure(template, |bootstrap| {
        let listeners = &mut bootstrap["static_resources"]["listeners"];
        let mut listener = listeners[0].clone();
        listener["name"] = json!(QUIC);
        listener["address"]["socket_address"]["protocol"] = json!("UDP");
        listener["address"]["socket_address"]["port_value"] = json!(QUIC_PORT);
        listener["udp_listener_config"] = json!({ "quic_options": {} });
        let chain = &mut listener["filter_chains"][0];
        chain["transport_socket"] = transport_socket;
        let manager = &mut chain["filters"][0]["typed_config"];
        manager["codec_type"] = json!("HTTP3");
        manager["stat_prefix"] = json!(QUIC);
        listeners
            .as_array_mut()
            .expect("it is an array")
            .push(listener);
    })?;
    let ports = &mut template["spec"]["containers"][0]["ports"];
    let port = json!({ "name": QUIC, "containerPort": QUIC_PORT, "protocol": "UDP" });
    ports.as_array_mut().expect("it is an array").push(port);
    Ok(())
}
