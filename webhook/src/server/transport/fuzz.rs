//! What `make fuzz` calls of the server.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use admission::{Defaults, admit_pod};
use drainer::Token;
use drainer::fuzz::connection;
use prometheus_client::registry::Registry;
use tokio::sync::watch;

use super::connection::{ShutdownPhase, serve_http};
use super::connection_slots::ConnectionSlots;
use super::metrics::ConnectionMetrics;
use crate::server::admissions::{self, AdmitFn};
use crate::server::limits::Limits;

/// Sends bytes to the port of API servers, as they are inside TLS.
pub fn admission_connection(bytes: &[u8]) {
    let (limits, mut registry) = (Limits::default(), Registry::default());
    let defaults = Defaults::new("registry.example/drainer:1", "envoy-drainer");
    let admit: Box<AdmitFn> = Box::new(move |body| admit_pod(body, false, &defaults, || Token(7)));
    let metrics = admissions::Metrics::register(&mut registry);
    let router = admissions::router(
        vec![("/inject", admit)],
        &limits,
        metrics,
        Arc::default(),
        None,
    );
    let metrics = ConnectionMetrics::register(&mut registry).for_port("webhook");
    let slot = ConnectionSlots::new(1, metrics).acquire(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let phase = watch::Sender::new(ShutdownPhase::Serving);
    connection(bytes, async |server| {
        serve_http(server, &slot, router, &limits, phase.subscribe()).await;
    });
}
