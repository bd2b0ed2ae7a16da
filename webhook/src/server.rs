//! The admission server: TLS for the API server, plain HTTP for probes and metrics, their limits, and a
//! graceful end.

mod accept;
mod body;
mod client_ca;
mod connection;
mod health;
mod limits;
mod listen;
mod metrics;
mod phase;
mod places;
mod plain;
mod port;
mod records;
mod review;
mod scheduler;
mod tls;
mod turns;
mod write_deadline;

use std::sync::Arc;

use anyhow::Context;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;
use tracing::{debug, info};

use crate::admission::Undrained;
use crate::certificates::serving::Serving;
use crate::report::Report;
use crate::report::connections::PortName;

pub use client_ca::ClientCa;
pub use limits::Limits;
pub use listen::listen;
pub use review::Admit;
pub use tls::MinVersion;

use accept::accept;
use connection::{Http, Use};
use health::Readiness;
use phase::Phase;
use places::Standing;
use plain::Plain;
use port::Port;

/// The three ports, bound.
#[derive(Debug)]
pub struct Listeners {
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
    pub admit: Box<Admit>,
    /// The advice to authors of workloads, `POST /workloads`.
    pub advise: Box<Admit>,
    /// The certificate it shows.
    pub serving: Arc<Serving>,
    /// The oldest TLS it speaks.
    pub tls_min_version: MinVersion,
    /// The CAs whose clients get past the TLS handshake; any client does if there is none.
    pub client_ca: Option<ClientCa>,
    /// Its bounds.
    pub limits: Limits,
    /// Where it counts.
    pub report: Arc<Report>,
    /// Whom it tells of pods without a drainer, if anyone. It never waits for them.
    pub undrained: Option<mpsc::Sender<Undrained>>,
}

/// Serves until `shutdown`, and then ends gracefully: not ready at once, serving on for
/// [`Limits::shutdown_delay`], then until the API server has let its connections go, for
/// [`Limits::head`] and [`Limits::finish`] at most.
/// Dropped, it ends at once.
///
/// # Errors
/// When the client CA cannot be used, or the system gives no thread for probes and metrics.
pub async fn run(
    listeners: Listeners,
    server: Server,
    shutdown: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let Server {
        admit,
        advise,
        serving,
        tls_min_version,
        client_ca,
        limits,
        report,
        undrained,
    } = server;
    let limits = Arc::new(limits);
    let (announce, phase) = watch::channel(Phase::Serving);
    let metrics = report.connections(PortName::Webhook);
    let port = Port::new(limits.connections, Standing::Handshaking, metrics);

    let readiness = Readiness {
        phase: phase.clone(),
        serving: Arc::clone(&serving),
        accepting: port.accepting(),
        running: port.running(),
    };
    let plain = [
        Plain {
            listener: listeners.health,
            router: health::router(readiness),
            metrics: report.connections(PortName::Health),
        },
        Plain {
            listener: listeners.metrics,
            router: metrics::router(Arc::clone(&report)),
            metrics: report.connections(PortName::Metrics),
        },
    ];
    let plain = plain::start(plain, &limits, &phase).context("cannot serve probes and metrics")?;

    let acceptor = tls::Acceptor::try_new(serving, tls_min_version, client_ca.as_ref())?;
    let injection = review::router(admit, advise, &limits, &report, undrained.as_ref());
    let injection = Http::new(injection, limits.head, Use::Calls, &limits, &phase);
    let tls = accept(
        listeners.tls,
        &port,
        limits.head + limits.finish,
        phase.clone(),
        |stream, place| {
            let (acceptor, report) = (acceptor.current(), Arc::clone(&report));
            let (http, limit) = (injection.clone(), limits.handshake);
            let write = limits.write;
            async move {
                match tls::handshake(acceptor, stream, limit, write).await {
                    Ok(stream) => {
                        place.advance(Standing::Unanswered);
                        http.serve(stream, place).await;
                    }
                    Err(error) => {
                        report.handshake_failed();
                        debug!(%error, "TLS handshake failed");
                    }
                }
            }
        },
    );

    let end = async {
        shutdown.await;
        info!("Shutting down");
        announce.send_replace(Phase::Leaving);
        sleep(limits.shutdown_delay).await;
        announce.send_replace(Phase::Ending);
    };
    let served = async { tokio::join!(end, tls, plain) };
    tokio::select! {
        _ = served => Ok(()),
        never = acceptor.follow(client_ca) => match never {},
    }
}
