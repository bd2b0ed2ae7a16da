//! The admission server: TLS and plain HTTP, their limits, and a graceful end.

mod accept;
mod body;
mod connection;
mod health;
mod limits;
mod phase;
mod review;
mod tls;

use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;
use tracing::{debug, info};

use crate::admission::Undrained;
use crate::certificates::serving::Serving;
use crate::report::Report;

pub use limits::Limits;
pub use review::Admit;
pub use tls::MinVersion;

use accept::accept;
use connection::{Http, Idle};
use phase::Phase;

/// The two ports, bound.
#[derive(Debug)]
pub struct Listeners {
    /// For the API server: `POST /inject` and `POST /workloads` over TLS.
    pub tls: TcpListener,
    /// For the kubelet and Prometheus: `/healthz`, `/readyz` and `/metrics` over plain HTTP.
    pub plain: TcpListener,
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
pub async fn run(listeners: Listeners, server: Server, shutdown: impl Future<Output = ()>) {
    let Server {
        admit,
        advise,
        serving,
        tls_min_version,
        limits,
        report,
        undrained,
    } = server;
    let limits = Arc::new(limits);
    let (announce, phase) = watch::channel(Phase::Serving);
    let acceptor = tls::acceptor(Arc::clone(&serving), tls_min_version);

    let health = health::router(phase.clone(), serving, Arc::clone(&report));
    let health = Http::new(health, limits.plain_head, Idle::Closed, &limits, &phase);
    let plain = accept(
        listeners.plain,
        limits.plain_connections,
        limits.finish,
        phase.clone(),
        |stream, full| health.clone().serve(stream, full),
    );

    let injection = review::router(admit, advise, &limits, &report, undrained.as_ref());
    let injection = Http::new(injection, limits.head, Idle::Left, &limits, &phase);
    let tls = accept(
        listeners.tls,
        limits.connections,
        limits.head + limits.finish,
        phase.clone(),
        |stream, full| {
            let (acceptor, report) = (acceptor.clone(), Arc::clone(&report));
            let (http, limit) = (injection.clone(), limits.handshake);
            async move {
                match tls::handshake(&acceptor, stream, limit).await {
                    Ok(stream) => http.serve(stream, full).await,
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
    tokio::join!(end, tls, plain);
}
