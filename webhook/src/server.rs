//! The admission server: TLS for the API server, plain HTTP for probes and metrics, their limits, and a
//! graceful end.

mod accept;
mod admit;
mod body;
mod client_ca;
mod connection;
mod connection_slots;
mod fair_queue;
mod health;
mod limits;
mod listen;
mod metrics;
mod phase;
mod plain_http;
mod port;
mod scheduler;
mod tls;
mod tls_records;
mod write_deadline;

use std::sync::Arc;

use anyhow::Context;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;
use tracing::{debug, info};

use crate::admission::SkippedPod;
use crate::certificates::resolver::CertResolver;
use crate::metrics::Metrics;
use crate::metrics::connections::PortName;

pub use admit::AdmitFn;
pub use client_ca::ClientCa;
pub use limits::Limits;
pub use listen::listen;
pub use tls::MinVersion;

use accept::accept;
use connection::{ConnectionHandler, KeepAlive};
use connection_slots::ConnectionStage;
use health::HealthState;
use phase::ShutdownPhase;
use plain_http::PlainPort;
use port::ConnectionLimiter;

/// The three ports, bound.
#[derive(Debug)]
pub struct ServerPorts {
    /// For the API server: `POST /inject` and `POST /workloads` over TLS.
    pub tls: TcpListener,
    /// For the kubelet: `/healthz` and `/readyz` over plain HTTP.
    pub health: TcpListener,
    /// For Prometheus: `/metrics` over plain HTTP.
    pub metrics: TcpListener,
}

/// What the server serves with.
pub struct Server {
    /// The admission of pods, `POST /inject`.
    pub admit: Box<AdmitFn>,
    /// The advice to authors of workloads, `POST /workloads`.
    pub admit_workload: Box<AdmitFn>,
    /// The certificate it shows.
    pub resolver: Arc<CertResolver>,
    /// The oldest TLS it speaks.
    pub tls_min_version: MinVersion,
    /// The CAs whose clients get past the TLS handshake; any client does if there is none.
    pub client_ca: Option<ClientCa>,
    /// Its bounds.
    pub limits: Limits,
    /// Where it counts.
    pub metrics: Arc<Metrics>,
    /// Whom it tells of pods without a drainer, if anyone. It never waits for them.
    pub skipped_pods: Option<mpsc::Sender<SkippedPod>>,
}

/// Serves until `shutdown`, and then ends gracefully: not ready at once, serving on for
/// [`Limits::shutdown_delay`], then until the API server has let its connections go, for
/// [`Limits::head`] and [`Limits::finish`] at most.
/// Dropped, it ends at once.
///
/// # Errors
/// When the client CA cannot be used, or the system gives no thread for probes and metrics.
pub async fn run(
    listeners: ServerPorts,
    server: Server,
    shutdown: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let Server {
        admit,
        admit_workload: advise,
        resolver: serving,
        tls_min_version,
        client_ca,
        limits,
        metrics: report,
        skipped_pods: undrained,
    } = server;
    let limits = Arc::new(limits);
    let (announce, phase) = watch::channel(ShutdownPhase::Serving);
    let metrics = report.connections(PortName::Webhook);
    let limiter = ConnectionLimiter::new(
        limits.max_connections,
        ConnectionStage::Handshaking,
        metrics,
    );

    let readiness = HealthState {
        phase: phase.clone(),
        resolver: Arc::clone(&serving),
        last_accepting: limiter.last_accepting(),
        last_ran: limiter.last_ran(),
    };
    let plain = [
        PlainPort {
            listener: listeners.health,
            router: health::router(readiness),
            metrics: report.connections(PortName::Health),
        },
        PlainPort {
            listener: listeners.metrics,
            router: metrics::router(Arc::clone(&report)),
            metrics: report.connections(PortName::Metrics),
        },
    ];
    let plain =
        plain_http::start(plain, &limits, &phase).context("cannot serve probes and metrics")?;

    let acceptor = tls::Acceptor::try_new(serving, tls_min_version, client_ca.as_ref())?;
    let injection = admit::router(admit, advise, &limits, &report, undrained.as_ref());
    let injection = ConnectionHandler::new(
        injection,
        limits.head_timeout,
        KeepAlive::Enabled,
        &limits,
        &phase,
    );
    let tls = accept(
        listeners.tls,
        &limiter,
        limits.head_timeout + limits.shutdown_grace,
        phase.clone(),
        |stream, place| {
            let (acceptor, report) = (acceptor.current(), Arc::clone(&report));
            let (http, limit) = (injection.clone(), limits.handshake_timeout);
            let write = limits.write_timeout;
            async move {
                match tls::handshake(acceptor, stream, limit, write).await {
                    Ok(stream) => {
                        place.advance(ConnectionStage::Unanswered);
                        http.serve(stream, place).await;
                    }
                    Err(error) => {
                        report.count_failed_handshake();
                        debug!(%error, "TLS handshake failed");
                    }
                }
            }
        },
    );

    let end = async {
        shutdown.await;
        info!("Shutting down");
        announce.send_replace(ShutdownPhase::Draining);
        sleep(limits.shutdown_delay).await;
        announce.send_replace(ShutdownPhase::Closing);
    };
    let served = async { tokio::join!(end, tls, plain) };
    tokio::select! {
        _ = served => Ok(()),
        never = acceptor.watch_client_ca(client_ca) => match never {},
    }
}
