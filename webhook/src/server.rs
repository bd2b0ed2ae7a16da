//! The admission server: TLS for API servers and for drainers, plain HTTP for probes and metrics, limits, graceful
//! shutdown.

mod accept;
mod admission_log;
mod admit;
mod body;
mod client_ca;
mod client_prefix;
mod connection;
mod connection_limiter;
mod connection_slots;
mod dedicated_thread;
mod drainer_api_port;
mod exposition;
mod health;
mod limits;
mod listen;
mod metered_stream;
mod metrics;
mod phase;
mod plain_http;
mod scheduler;
mod tls;
mod tls_port;
mod write_deadline;

use std::future::ready;
use std::sync::Arc;

use anyhow::Context;
use ctl::cli::serve::MinVersion;
use futures_util::future::Either;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::info;

use crate::certificates::resolver::CertResolver;
use crate::events::EventQueue;

pub use admit::AdmitFn;
pub use client_ca::ClientCa;
pub use drainer_api_port::DrainerApiPort;
pub use limits::Limits;
pub use listen::listen;
pub use metrics::Metrics;

use connection::{ConnectionHandler, KeepAlive};
use connection_limiter::ConnectionLimiter;
use health::HealthState;
use phase::ShutdownPhase;
use plain_http::PlainPort;
use scheduler::Scheduler;

/// The listeners of the three ports.
#[derive(Debug)]
pub struct ServerPorts {
    /// For API servers: `POST /inject` and `POST /workloads` over TLS.
    pub tls: TcpListener,
    /// For the kubelet: `/healthz` and `/readyz` over plain HTTP.
    pub health: TcpListener,
    /// For Prometheus: `/metrics` over plain HTTP.
    pub metrics: TcpListener,
}

/// What the server needs to run.
pub struct Server {
    /// Admits pods: `POST /inject`.
    pub admit: Box<AdmitFn>,
    /// Admits workloads, with warnings: `POST /workloads`.
    pub admit_workload: Box<AdmitFn>,
    /// Resolves the certificate to serve.
    pub resolver: Arc<CertResolver>,
    /// Minimum TLS version.
    pub tls_min_version: MinVersion,
    /// The CAs of client certificates; if set, the TLS handshake of any other client fails.
    pub client_ca: Option<ClientCa>,
    /// Limits of time, memory and connections.
    pub limits: Limits,
    /// The metrics that the server counts.
    pub metrics: Metrics,
    /// All metrics that `/metrics` exposes.
    pub registry: Registry,
    /// The port for drainers, if there is one.
    pub drainer_api: Option<DrainerApiPort>,
    /// Queue of Events for pods without a drainer; `None` publishes none.
    pub events: Option<EventQueue>,
}

/// Serves until `shutdown` resolves, then shuts down gracefully: `/readyz` fails at once; after
/// [`Limits::shutdown_delay`] the server stops accepting; it then waits until API servers have closed their
/// connections, for at most [`Limits::head_timeout`] and [`Limits::shutdown_grace`]. Dropped, it ends at once.
///
/// # Errors
/// If the client CA is invalid, or the system cannot start the thread for probes and metrics.
pub async fn run(
    ports: ServerPorts,
    server: Server,
    shutdown: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let Server {
        admit,
        admit_workload,
        resolver,
        tls_min_version,
        client_ca,
        limits,
        metrics,
        registry,
        drainer_api,
        events,
    } = server;
    let (limits, metrics) = (Arc::new(limits), Arc::new(metrics));
    let (phase_sender, phase) = watch::channel(ShutdownPhase::Serving);
    let port_metrics = metrics.connections.for_port("webhook");
    let limiter = ConnectionLimiter::new(limits.max_connections, port_metrics);

    let health = HealthState {
        phase: phase.clone(),
        resolver: Arc::clone(&resolver),
        last_accepting: limiter.last_accepting(),
        last_ran: limiter.last_ran(),
    };
    let plain_ports = [
        PlainPort {
            listener: ports.health,
            router: health::router(health),
            metrics: metrics.connections.for_port("health"),
        },
        PlainPort {
            listener: ports.metrics,
            router: exposition::router(Arc::new(registry)),
            metrics: metrics.connections.for_port("metrics"),
        },
    ];
    let plain = plain_http::start(plain_ports, &limits, &phase)
        .context("cannot serve probes and metrics")?;

    let drainer_api = match drainer_api {
        Some(port) => {
            let acceptor = tls::Acceptor::try_new(Arc::clone(&resolver), tls_min_version, None)?;
            let port = drainer_api_port::start(port, acceptor, &metrics, &phase);
            Either::Left(port.context("cannot serve drainers")?)
        }
        None => Either::Right(ready(Ok(()))),
    };
    let acceptor = tls::Acceptor::try_new(resolver, tls_min_version, client_ca.as_ref())?;
    let scheduler = Arc::<Scheduler>::default();
    let router = admit::router(
        admit,
        admit_workload,
        &limits,
        &metrics,
        &scheduler,
        events.as_ref(),
    );
    let handler = ConnectionHandler {
        router,
        keep_alive: KeepAlive::Enabled,
        limits: Arc::clone(&limits),
        phase: phase.clone(),
    };
    let tls = tls_port::serve(
        ports.tls,
        &limiter,
        &acceptor,
        &handler,
        &scheduler,
        &metrics.handshakes_failed,
    );

    let phases = async {
        shutdown.await;
        info!("Shutting down");
        phase_sender.send_replace(ShutdownPhase::Draining);
        sleep(limits.shutdown_delay).await;
        phase_sender.send_replace(ShutdownPhase::Closing);
    };
    let own = async {
        tokio::join!(phases, tls);
        Ok(())
    };
    // A thread that fails ends the process, which is restarted: it must not stay ready without that port.
    let served = async { tokio::try_join!(own, plain, drainer_api) };
    tokio::select! {
        served = served => served.map(drop),
        never = acceptor.watch_client_ca(client_ca) => match never {},
    }
}
