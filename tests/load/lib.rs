//! A load generator: clients of a Service that send requests at a constant rate and count every failure.
//!
//! Each request is sent when it is due, whatever the response to the previous one, so that a slow server does not lower
//! the rate. Each is a POST, which a client must not retry once written, since the server may have acted on it. A
//! request without a complete response of the right status and body has failed.

mod failure;
pub mod http;
mod http1;
mod http2;
#[cfg(feature = "http3")]
mod http3;
mod open_loop;
pub mod outbound_report;
mod pool;
mod report;
mod response;
mod schedule;
pub mod service;
mod stream;
pub mod until;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

pub use failure::{Failure, FailureKind};
use http1::Http1Connection;
use http2::Http2Connection;
#[cfg(feature = "http3")]
use http3::Http3Connection;
use open_loop::{OpenLoopParams, run_open_loop};
use pool::{ConnectionPool, HttpConnection};
use report::Tally;
pub use report::{FailureSample, KindReport, Report};
use service::{Protocol, Service};

/// Connections of the keep-alive clients: each is used often, so that none is idle for long.
const KEEP_ALIVE_CONNECTIONS: usize = 10;

/// Connections of the HTTP/2 clients, and of the HTTP/3 clients, each with many streams.
const MULTIPLEXED_CONNECTIONS: usize = 4;

/// The body of a request, and of its response.
const BODY: &[u8] = b"two cups and a saucer";

/// A load before its start: kinds of clients, each with its rate in requests per second.
#[derive(Debug, Clone)]
pub struct Load {
    clients: Vec<(ClientKind, f64)>,
    request_timeout: Duration,
}

/// What clients send, and on which connections.
#[derive(Debug, Clone, Copy)]
enum ClientKind {
    KeepAlive,
    ConnectionPerRequest {
        response_time: Duration,
    },
    Http2 {
        response_time: Duration,
    },
    #[cfg(feature = "http3")]
    Http3 {
        response_time: Duration,
    },
    Stream {
        session: Duration,
    },
    Idle,
}

/// A running load. It is aborted when it is dropped; [`RunningLoad::stop`] waits for the pending responses.
#[derive(Debug)]
pub struct RunningLoad {
    tallies: Vec<Arc<Tally>>,
    clients: JoinSet<()>,
    stop: watch::Sender<Option<Instant>>,
    start: Instant,
}

/// A load without clients.
pub fn load() -> Load {
    Load {
        clients: Vec::new(),
        request_timeout: Duration::from_secs(10),
    }
}

/// The path of a response that takes this long, for the tests' upstream and for fortio's echo server.
fn path(response_time: Duration) -> String {
    match response_time.as_millis() {
        0 => "/".to_owned(),
        milliseconds => format!("/slow?ms={milliseconds}&delay={milliseconds}ms"),
    }
}

// === impl Load ===

impl Load {
    /// Adds HTTP/1.1 clients that keep their connections.
    pub fn keep_alive(self, rate: f64) -> Self {
        self.add(ClientKind::KeepAlive, rate)
    }

    /// Adds HTTP/1.1 clients that open a connection for each request.
    pub fn connection_per_request(self, rate: f64) -> Self {
        self.slow(rate, Duration::ZERO)
    }

    /// Adds HTTP/1.1 clients that open a connection for each request, whose response takes this long.
    pub fn slow(self, rate: f64, response_time: Duration) -> Self {
        self.add(ClientKind::ConnectionPerRequest { response_time }, rate)
    }

    /// Adds HTTP/2 clients with many requests on each connection.
    pub fn http2(self, rate: f64) -> Self {
        self.slow_http2(rate, Duration::ZERO)
    }

    /// Adds HTTP/2 clients with many requests on each connection, whose responses take this long.
    pub fn slow_http2(self, rate: f64, response_time: Duration) -> Self {
        self.add(ClientKind::Http2 { response_time }, rate)
    }

    /// Adds HTTP/3 clients with many requests on each connection, to the number of the HTTP port over UDP. They do not
    /// verify certificates.
    #[cfg(feature = "http3")]
    pub fn http3(self, rate: f64) -> Self {
        self.slow_http3(rate, Duration::ZERO)
    }

    /// Adds HTTP/3 clients as [`Load::http3`] does, whose responses take this long.
    #[cfg(feature = "http3")]
    pub fn slow_http3(self, rate: f64, response_time: Duration) -> Self {
        self.add(ClientKind::Http3 { response_time }, rate)
    }

    /// Adds a TCP stream of messages, each of which is echoed. The client opens another stream after `session`.
    pub fn stream(self, rate: f64, session: Duration) -> Self {
        self.add(ClientKind::Stream { session }, rate)
    }

    /// Adds a client that sends one request and then keeps its connection idle. It connects first: one idle client to
    /// the first pod, two to the first two.
    pub fn idle(mut self) -> Self {
        self.clients.insert(0, (ClientKind::Idle, 0.0));
        self
    }

    /// Sets the timeout of requests, which is ten seconds by default.
    pub fn request_timeout(mut self, limit: Duration) -> Self {
        self.request_timeout = limit;
        self
    }

    /// Returns true if the target accepts a connection now, over QUIC if all clients use HTTP/3.
    pub async fn can_connect(&self, service: &Service) -> bool {
        #[cfg(feature = "http3")]
        if self
            .clients
            .iter()
            .all(|(kind, _)| matches!(kind, ClientKind::Http3 { .. }))
        {
            return http3::can_connect(service).await;
        }
        service.connect(Protocol::Http).await.is_ok()
    }

    /// Whether it has no clients.
    pub fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// The rate of all clients in requests per second.
    pub fn rate(&self) -> f64 {
        self.clients.iter().map(|(_, rate)| rate).sum()
    }

    /// Starts all clients at once.
    #[must_use]
    pub fn start(self, service: &Arc<Service>) -> RunningLoad {
        let start = Instant::now();
        let (stop, stop_signal) = schedule::stop_channel();
        let mut running = RunningLoad {
            tallies: Vec::new(),
            clients: JoinSet::new(),
            stop,
            start,
        };
        for (kind, rate) in self.clients {
            let tally = Arc::new(Tally::new(kind.name(), rate, start));
            running.tallies.push(Arc::clone(&tally));
            let params = OpenLoopParams {
                rate,
                request_timeout: self.request_timeout,
                tally,
                stop: stop_signal.clone(),
            };
            let service = Arc::clone(service);
            running.clients.spawn(kind.run(service, params));
        }
        running
    }

    fn add(mut self, kind: ClientKind, rate: f64) -> Self {
        self.clients.push((kind, rate));
        self
    }
}

// === impl ClientKind ===

impl ClientKind {
    fn name(self) -> String {
        let (protocol, response_time) = match self {
            Self::KeepAlive => return "keep-alive".to_owned(),
            Self::Stream { .. } => return "TCP stream".to_owned(),
            Self::Idle => return "idle connection".to_owned(),
            Self::ConnectionPerRequest { response_time } if response_time.is_zero() => {
                return "one connection per request".to_owned();
            }
            Self::ConnectionPerRequest { response_time } => ("", response_time),
            Self::Http2 { response_time } => ("HTTP/2", response_time),
            #[cfg(feature = "http3")]
            Self::Http3 { response_time } => ("HTTP/3", response_time),
        };
        let responses = format!("{} s responses", response_time.as_secs_f64());
        match protocol {
            "" => responses,
            protocol if response_time.is_zero() => protocol.to_owned(),
            protocol => format!("{protocol}, {responses}"),
        }
    }

    async fn run(self, service: Arc<Service>, params: OpenLoopParams) {
        match self {
            Self::KeepAlive => {
                let pool = ConnectionPool::<Http1Connection>::new(
                    KEEP_ALIVE_CONNECTIONS,
                    path(Duration::ZERO),
                );
                run_pool(service, params, pool).await;
            }
            Self::ConnectionPerRequest { response_time } => {
                let request =
                    || http1::connection_per_request(Arc::clone(&service), path(response_time));
                run_open_loop(params, request).await;
            }
            Self::Http2 { response_time } => {
                let pool = ConnectionPool::<Http2Connection>::new(
                    MULTIPLEXED_CONNECTIONS,
                    path(response_time),
                );
                run_pool(service, params, pool).await;
            }
            #[cfg(feature = "http3")]
            Self::Http3 { response_time } => {
                let pool = ConnectionPool::<Http3Connection>::new(
                    MULTIPLEXED_CONNECTIONS,
                    path(response_time),
                );
                run_pool(service, params, pool).await;
            }
            Self::Stream { session } => stream::run_stream(&service, params, session).await,
            Self::Idle => http1::idle(&service, params).await,
        }
    }
}

/// Sends requests on the connections of a pool.
async fn run_pool<C: HttpConnection + 'static>(
    service: Arc<Service>,
    params: OpenLoopParams,
    pool: ConnectionPool<C>,
) {
    let pool = Arc::new(pool);
    let request = || {
        let (service, pool) = (Arc::clone(&service), Arc::clone(&pool));
        async move { pool.post(&service).await }
    };
    run_open_loop(params, request).await;
}

// === impl RunningLoad ===

impl RunningLoad {
    /// The counts so far.
    pub fn report(&self) -> Report {
        self.report_at(Instant::now())
    }

    /// Sends no more requests, waits for the pending responses and returns the counts.
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
