//! The admission server: TLS for API servers and for drainers, plain HTTP for probes and metrics, limits, graceful
//! shutdown.

mod admissions;
mod limits;
mod probes;
mod scheduler;
mod transport;

use std::sync::Arc;

use anyhow::Context;
use axum::Router;
use flags::serve::MinVersion;
use futures_util::FutureExt;
use futures_util::future::OptionFuture;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use rustls::server::danger::ClientCertVerifier;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::info;

use crate::certificates::resolver::CertResolver;
use crate::events::EventQueue;
use probes::HealthState;
use scheduler::Scheduler;
use transport::{ConnectionMetrics, Liveness, Port, ShutdownPhase, TlsAcceptor, start_thread};

pub use admissions::AdmitFn;
pub use limits::Limits;
#[cfg(fuzzing)]
pub use transport::fuzz;
pub use transport::{listen, read_client_ca};

/// The listeners of the three ports.
#[derive(Debug)]
pub struct ServerPorts {
    /// For API servers: `POST /inject`, `/inject-all` and `/workloads` over TLS.
    pub tls: TcpListener,
    /// For the kubelet: `/healthz` and `/readyz` over plain HTTP.
    pub health: TcpListener,
    /// For Prometheus: `/metrics` over plain HTTP.
    pub metrics: TcpListener,
}

/// The port for drainers: HTTPS, without client certificates, on a thread of its own, so that no flood of pods takes
/// CPU time or connections from admissions.
pub struct DrainerApiPort {
    /// Its listener.
    pub listener: TcpListener,
    /// Creates the router of its requests, on the runtime of its thread.
    pub router: Box<dyn FnOnce() -> anyhow::Result<Router> + Send>,
    /// Its limits; those of bodies and of plain HTTP are not used.
    pub limits: Limits,
    /// Counts failed TLS handshakes.
    pub failed_handshakes: Counter,
}

/// What the server needs to run.
pub struct Server {
    /// The paths to which API servers post AdmissionReviews, each with the function that answers them.
    pub admissions: Vec<(&'static str, Box<AdmitFn>)>,
    /// Resolves the certificate to serve.
    pub resolver: Arc<CertResolver>,
    /// Minimum TLS version.
    pub tls_min_version: MinVersion,
    /// The verifier of client certificates; if set, the TLS handshake of any other client fails.
    pub client_ca: Option<Arc<dyn ClientCertVerifier>>,
    /// Limits of time, memory and connections.
    pub limits: Limits,
    /// The metrics that `/metrics` exposes besides the server's own.
    pub registry: Registry,
    /// The port for drainers, if there is one.
    pub drainer_api: Option<DrainerApiPort>,
    /// Queue of Events for pods without a drainer; `None` publishes none.
    pub events: Option<EventQueue>,
}

/// Serves until `shutdown` resolves, then shuts down gracefully: `/readyz` fails at once; after
/// [`Limits::shutdown_delay`] the server stops accepting; it then waits until API servers have closed their
/// connections, for at most the sum of [`Limits::head_timeout`] and [`Limits::shutdown_grace`]. If the future is
/// dropped, the server ends at once.
///
/// # Errors
/// If the system cannot start the threads of the other ports.
pub async fn run(
    ports: ServerPorts,
    server: Server,
    shutdown: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let Server {
        admissions,
        resolver,
        tls_min_version,
        client_ca,
        limits,
        mut registry,
        drainer_api,
        events,
    } = server;
    let metrics = ConnectionMetrics::register(&mut registry);
    let (phase_sender, phase) = watch::channel(ShutdownPhase::Serving);
    let scheduler = Arc::<Scheduler>::default();

    let acceptor = TlsAcceptor::new(
        Arc::clone(&resolver),
        tls_min_version,
        client_ca,
        Arc::clone(&scheduler),
        metrics.failed_handshakes.clone(),
    );
    let port = Port {
        listener: ports.tls,
        tls: Some(acceptor),
        router: admissions::router(
            admissions,
            &limits,
            admissions::Metrics::register(&mut registry),
            scheduler,
            events,
        ),
        limits: limits.clone(),
        metrics: metrics.for_port("webhook"),
        phase: phase.clone(),
        liveness: watch::Sender::new(Liveness::now()),
    };

    let health = HealthState {
        phase: phase.clone(),
        resolver: Arc::clone(&resolver),
        liveness: port.liveness.subscribe(),
    };
    let plain_http = |name, listener, router| Port {
        listener,
        tls: None,
        router,
        limits: limits.plain_http(),
        metrics: metrics.for_port(name),
        phase: phase.clone(),
        liveness: watch::Sender::new(Liveness::now()),
    };
    let probes = [
        plain_http("health", ports.health, probes::health_router(&health)),
        plain_http("metrics", ports.metrics, probes::metrics_router(registry)),
    ];
    // On a thread of their own, they respond however busy the admission thread is.
    let probes = start_thread("probes", async move || {
        let [health, metrics] = probes.map(Port::serve);
        tokio::try_join!(health, metrics).map(drop)
    });
    let probes = probes.context("cannot serve probes and metrics")?;

    let drainer_api = drainer_api.map(|api| {
        let acceptor = TlsAcceptor::new(
            resolver,
            tls_min_version,
            None,
            Arc::default(),
            api.failed_handshakes,
        );
        let metrics = metrics.for_port("drainer-api");
        let thread = start_thread("drainer-api", async move || {
            let port = Port {
                listener: api.listener,
                tls: Some(acceptor),
                router: (api.router)()?,
                limits: api.limits,
                metrics,
                phase,
                liveness: watch::Sender::new(Liveness::now()),
            };
            port.serve().await
        });
        thread.context("cannot serve drainers")
    });
    let drainer_api = OptionFuture::from(drainer_api.transpose()?);
    let drainer_api = drainer_api.map(|ended| ended.unwrap_or(Ok(())));

    let phases = async {
        shutdown.await;
        info!("Shutting down");
        phase_sender.send_replace(ShutdownPhase::Draining);
        sleep(limits.shutdown_delay).await;
        phase_sender.send_replace(ShutdownPhase::Closing);
        Ok(())
    };
    // A thread that fails ends the process, which is restarted: it must not stay ready without that port.
    tokio::try_join!(phases, port.serve(), probes, drainer_api).map(drop)
}
