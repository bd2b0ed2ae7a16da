//! What `make fuzz` calls of the server.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use admission::{Defaults, admit_pod};
use drainer::Token;
use prometheus_client::registry::Registry;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::runtime;
use tokio::sync::watch;

use super::connection::serve_http;
use super::connection_slots::ConnectionSlots;
use super::{ConnectionMetrics, ShutdownPhase};
use crate::server::admissions::{self, AdmitFn};
use crate::server::limits::Limits;

/// Sends bytes to the port of API servers, as they are inside TLS, and closes the connection. What it answers, if
/// anything, is HTTP.
///
/// # Panics
/// Without a runtime.
pub fn connection(bytes: &[u8]) {
    let runtime = runtime::Builder::new_current_thread().enable_time().build();
    runtime.expect("a runtime of this thread").block_on(async {
        let (limits, mut registry) = (Limits::default(), Registry::default());
        let defaults = Defaults::new("registry.example/drainer:1", "envoy-drainer");
        let admit: Box<AdmitFn> =
            Box::new(move |body| admit_pod(body, false, &defaults, || Token::new(7)));
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
        let (mut client, server) = duplex(64 << 10);
        let call = async {
            // The server may close the connection before it has read all of it.
            let _ = client.write_all(bytes).await;
            let _ = client.shutdown().await;
            let mut response = Vec::new();
            let _ = client.read_to_end(&mut response).await;
            response
        };
        let serve = serve_http(server, &slot, router, &limits, phase.subscribe());
        let ((), response) = tokio::join!(serve, call);
        assert!(response.is_empty() || response.starts_with(b"HTTP/1."));
    });
}
