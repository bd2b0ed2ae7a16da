//! Clients of a Service that count honestly what they see.
//!
//! Every request has its time, whatever became of the one before it, so that a slow server cannot
//! make the load smaller unseen. Each is a POST: a client that has written one may not send it again,
//! since the server may have acted on it. So what was written once is never written again, and what
//! was not answered in full, with the right status and the right body, has failed.

mod failure;
mod http1;
mod http2;
mod http3;
mod open_loop;
mod pace;
mod report;
mod shared;
mod slots;
mod stream;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::listener::Protocol;
use crate::service::Service;
pub use failure::{Failure, FailureKind};
use http2::Http2Connection;
use http3::Http3Connection;
use open_loop::{OpenLoopParams, run_open_loop};
use report::Tally;
pub use report::{FailureSample, KindReport, Report};
use shared::request;
use slots::ConnectionPool;

/// Connections of the keep-alive kind: each is used often, so that none is idle for long.
const KEEP_ALIVE_CONNECTIONS: usize = 10;

/// Connections of the HTTP/2 kind and of the HTTP/3 kind, each with many streams.
const HTTP2_CONNECTIONS: usize = 4;
const HTTP3_CONNECTIONS: usize = 4;

/// What a request carries, and what must come back.
const BODY: &[u8] = b"two cups and a saucer";

/// A load to be: kinds of clients, each with its rate in requests a second.
#[derive(Debug, Clone)]
pub struct Load {
    kinds: Vec<ClientKind>,
    request_timeout: Duration,
}

#[derive(Debug, Clone, Copy)]
enum ClientKind {
    KeepAlive { rate: f64 },
    ConnectionPerRequest { rate: f64 },
    Slow { rate: f64, response_time: Duration },
    Http2 { rate: f64 },
    Http3 { rate: f64 },
    Stream { rate: f64, session: Duration },
    Idle,
}

/// A load under way. Dropped, it ends at once; [`Running::stop`] lets it end well.
#[derive(Debug)]
pub struct RunningLoad {
    tallies: Vec<Arc<Tally>>,
    clients: JoinSet<()>,
    stop: watch::Sender<Option<Instant>>,
    start: Instant,
}

/// Begins a load without clients.
#[must_use]
pub fn load() -> Load {
    Load {
        kinds: Vec::new(),
        request_timeout: Duration::from_secs(10),
    }
}

/// The path of an answer that takes so long, as [`crate::upstream`] and fortio's echo server each
/// understand it.
fn slow_path(takes: Duration) -> String {
    let milliseconds = takes.as_millis();
    format!("/slow?ms={milliseconds}&delay={milliseconds}ms")
}

// === impl Load ===

impl Load {
    /// Adds HTTP/1.1 clients that keep their connections.
    #[must_use]
    pub fn keep_alive(self, rate: f64) -> Self {
        self.add(ClientKind::KeepAlive { rate })
    }

    /// Adds HTTP/1.1 clients that open a connection for each request.
    #[must_use]
    pub fn connection_per_request(self, rate: f64) -> Self {
        self.add(ClientKind::ConnectionPerRequest { rate })
    }

    /// Adds HTTP/1.1 clients, with a connection for each request, whose answers take long.
    #[must_use]
    pub fn slow(self, rate: f64, takes: Duration) -> Self {
        self.add(ClientKind::Slow {
            rate,
            response_time: takes,
        })
    }

    /// Adds HTTP/2 clients with many requests on each connection.
    #[must_use]
    pub fn http2(self, rate: f64) -> Self {
        self.add(ClientKind::Http2 { rate })
    }

    /// Adds HTTP/3 clients with many requests on each connection, to the HTTP port's number by UDP.
    /// They verify no certificate.
    #[must_use]
    pub fn http3(self, rate: f64) -> Self {
        self.add(ClientKind::Http3 { rate })
    }

    /// Adds a TCP stream that talks: so many messages a second, each echoed. It hangs up after
    /// `session` and connects anew.
    #[must_use]
    pub fn stream(self, rate: f64, session: Duration) -> Self {
        self.add(ClientKind::Stream { rate, session })
    }

    /// Adds a client that sends one request and then keeps its connection to the end, idle. It is
    /// the first to connect: one idle client goes to the first pod, two to the first two.
    #[must_use]
    pub fn idle(mut self) -> Self {
        self.kinds.insert(0, ClientKind::Idle);
        self
    }

    /// Lets a request take so long, rather than ten seconds, before it counts as failed.
    #[must_use]
    pub fn request_timeout(mut self, limit: Duration) -> Self {
        self.request_timeout = limit;
        self
    }

    /// Whether the target of this load accepts a connection now: over QUIC where all clients speak
    /// HTTP/3.
    pub async fn can_connect(&self, service: &Service) -> bool {
        let http3 = |kind: &ClientKind| matches!(kind, ClientKind::Http3 { .. });
        if self.kinds.iter().all(http3) {
            return http3::can_connect(service).await;
        }
        service.connect(Protocol::Http).await.is_ok()
    }

    /// All requests a second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.kinds.iter().map(|kind| kind.rate()).sum()
    }

    /// Starts all clients at once.
    #[must_use]
    pub fn start(self, service: &Arc<Service>) -> RunningLoad {
        let start = Instant::now();
        let (stop, told) = pace::stop_channel();
        let mut running = RunningLoad {
            tallies: Vec::new(),
            clients: JoinSet::new(),
            stop,
            start,
        };
        for kind in self.kinds {
            let tally = Arc::new(Tally::new(kind.name(), kind.rate(), start));
            running.tallies.push(Arc::clone(&tally));
            let clients = OpenLoopParams {
                rate: kind.rate(),
                request_timeout: self.request_timeout,
                tally,
                stop: told.clone(),
            };
            let service = Arc::clone(service);
            running.clients.spawn(kind.run(service, clients));
        }
        running
    }

    fn add(mut self, kind: ClientKind) -> Self {
        self.kinds.push(kind);
        self
    }
}

// === impl Kind ===

impl ClientKind {
    fn name(self) -> String {
        match self {
            Self::KeepAlive { .. } => "keep-alive".into(),
            Self::ConnectionPerRequest { .. } => "one connection a request".into(),
            Self::Slow {
                response_time: takes,
                ..
            } => format!("{} s answers", takes.as_secs_f64()),
            Self::Http2 { .. } => "HTTP/2".into(),
            Self::Http3 { .. } => "HTTP/3".into(),
            Self::Stream { .. } => "TCP stream".into(),
            Self::Idle => "idle connection".into(),
        }
    }

    /// Requests a second; zero where there is but one.
    fn rate(self) -> f64 {
        match self {
            Self::KeepAlive { rate }
            | Self::ConnectionPerRequest { rate }
            | Self::Slow { rate, .. }
            | Self::Http2 { rate }
            | Self::Http3 { rate }
            | Self::Stream { rate, .. } => rate,
            Self::Idle => 0.0,
        }
    }

    async fn run(self, service: Arc<Service>, clients: OpenLoopParams) {
        match self {
            Self::KeepAlive { .. } => {
                let slots = Arc::new(ConnectionPool::new(KEEP_ALIVE_CONNECTIONS));
                let request = || http1::keep_alive(Arc::clone(&service), Arc::clone(&slots));
                run_open_loop(clients, request).await;
            }
            Self::ConnectionPerRequest { .. } => {
                let request =
                    || http1::connection_per_request(Arc::clone(&service), "/".to_owned());
                run_open_loop(clients, request).await;
            }
            Self::Slow {
                response_time: takes,
                ..
            } => {
                let path = slow_path(takes);
                let request = || http1::connection_per_request(Arc::clone(&service), path.clone());
                run_open_loop(clients, request).await;
            }
            Self::Http2 { .. } => {
                let slots = Arc::new(ConnectionPool::new(HTTP2_CONNECTIONS));
                let request =
                    || request::<Http2Connection>(Arc::clone(&service), Arc::clone(&slots));
                run_open_loop(clients, request).await;
            }
            Self::Http3 { .. } => {
                let slots = Arc::new(ConnectionPool::new(HTTP3_CONNECTIONS));
                let request =
                    || request::<Http3Connection>(Arc::clone(&service), Arc::clone(&slots));
                run_open_loop(clients, request).await;
            }
            Self::Stream { session, .. } => stream::run_stream(&service, clients, session).await,
            Self::Idle => http1::idle(&service, clients).await,
        }
    }
}

// === impl Running ===

impl RunningLoad {
    /// What has been counted so far.
    #[must_use]
    pub fn report(&self) -> Report {
        self.report_at(Instant::now())
    }

    /// Sends no more, waits for the answers that are due, and counts up.
    pub async fn stop(mut self) -> Report {
        let end = Instant::now();
        self.stop.send_replace(Some(end));
        while self.clients.join_next().await.is_some() {}
        self.report_at(end)
    }

    fn report_at(&self, end: Instant) -> Report {
        let elapsed = end - self.start;
        let kinds = self.tallies.iter().map(|tally| tally.report(elapsed));
        Report {
            kinds: kinds.collect(),
            elapsed,
        }
    }
}
