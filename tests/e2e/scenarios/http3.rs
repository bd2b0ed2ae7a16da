//! Rollouts of Envoys with a QUIC listener behind a UDP Service, under HTTP/3 clients with slow responses. kube-proxy
//! deletes the flows of a UDP endpoint whose readiness fails, and the requests in flight are lost with them.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};
use tests::json::push;
use tests::listener::quic_socket;
use tests::load::{EchoLoad, load};
use tests::test_ca::{Leaf, TestCa};

use crate::cluster_fixture::ClusterFixture;
use crate::edge::{APP, EnvoyDeployment, annotate, reconfigure};
use crate::namespace::Namespace;
use crate::service;
use crate::traffic::{Requests, roll_under_load};

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

/// Rollouts where Envoy's health fails after this delay, or else once HTTP/3 clients have left.
pub(crate) async fn roll(
    fixture: &ClusterFixture<'_>,
    delay: Option<&str>,
    requests: Requests,
) -> Result<()> {
    let namespace = fixture.namespace().await?;
    let edge = EnvoyDeployment::start(&namespace, 2, |template| {
        annotate(template, "drain-strategy", "immediate");
        if let Some(delay) = delay {
            annotate(template, "health-failure-delay", delay);
        }
        add_quic_listener(template)
    })
    .await?;
    let address = quic_service(&namespace).await?;
    let edge = EnvoyDeployment { address, ..edge };
    let report = roll_under_load(fixture, &edge, slow_http3(), ROLLOUTS).await?;
    requests.ensure(&report)
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
        push(listeners, listener);
    })?;
    let port = json!({ "name": QUIC, "containerPort": QUIC_PORT, "protocol": "UDP" });
    push(&mut template["spec"]["containers"][0]["ports"], port);
    Ok(())
}
