//! A load: its kinds of clients, and how they are started and stopped.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::failure::Failure;
use crate::http1::{self, Http1Connection};
use crate::http2::Http2Connection;
#[cfg(feature = "h3")]
use crate::http3::Http3Connection;
use crate::messages::run_messages;
use crate::open_loop::{OpenLoopParams, run_open_loop};
use crate::pool::{ConnectionPool, HttpConnection};
use crate::report::{Report, Tally};
use crate::request::{RequestOptions, RequestTemplate};
use crate::schedule::RequestSchedule;
use crate::target::{Connector, Target};
use crate::url::LoadUrl;
use crate::{tcp, websocket};

/// A load before its start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Load {
    /// What all requests have in common.
    pub requests: RequestOptions,
    /// The kinds of clients.
    pub clients: Vec<Clients>,
    /// The timeout of a request.
    pub request_timeout: Duration,
}

/// Clients of one kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Clients {
    /// The name in the report.
    pub name: String,
    /// How they send requests.
    pub kind: ClientKind,
    /// The URL of the requests. Its host and port are those of the connections, unless there is a [`Target`].
    pub url: LoadUrl,
    /// Requests per second of all of them: zero for [`ClientKind::Idle`], and above zero for the others.
    pub rate: f64,
}

/// How clients send requests, and on which connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ClientKind {
    /// HTTP/1.1 over connections that are kept.
    KeepAlive,
    /// HTTP/1.1 over a new connection for each request.
    ConnectionPerRequest,
    /// HTTP/1.1 over five connections that stay open after one request each. One that the server closes is opened anew.
    Idle,
    /// HTTP/2 with many requests on each connection, without TLS by prior knowledge.
    Http2,
    /// gRPC: unary calls of an empty message, over connections as those of HTTP/2.
    Grpc,
    /// HTTP/3 with many requests on each connection.
    #[cfg(feature = "h3")]
    Http3,
    /// Pings over one WebSocket, which the client replaces with another after `session`.
    WebSocket {
        /// How long each is kept.
        session: Duration,
    },
    /// Messages to an echo server over one TCP connection, which the client replaces with another after `session`.
    TcpStream {
        /// How long each is kept.
        session: Duration,
    },
}

/// A running load. It is aborted when it is dropped; [`RunningLoad::stop`] waits for the pending responses.
#[derive(Debug)]
pub struct RunningLoad {
    tallies: Vec<Arc<Tally>>,
    clients: JoinSet<()>,
    stop: watch::Sender<Option<Instant>>,
    start: Instant,
}

// === impl Load ===

impl Load {
    /// The rate of all clients in requests per second.
    pub fn rate(&self) -> f64 {
        self.clients.iter().map(|clients| clients.rate).sum()
    }

    /// Sends one request of each kind of clients, to the target or else to the hosts of their URLs. Returns the results
    /// in the order of the clients.
    pub async fn probe(&self, target: Option<&Target>) -> Vec<Result<(), Failure>> {
        let mut results = Vec::new();
        for clients in &self.clients {
            let one = Self {
                clients: vec![clients.clone()],
                ..self.clone()
            };
            // Its first request is due at once, and the next one after the stop.
            let mut report = one.start(target).stop().await;
            let details = report.kinds.pop().map(|kind| kind.details);
            let failure = details.and_then(|details| details.into_iter().next());
            results.push(failure.map_or(Ok(()), |sample| Err(sample.failure)));
        }
        results
    }

    /// Starts all clients at once, to the target or else to the hosts of their URLs.
    #[must_use]
    pub fn start(self, target: Option<&Target>) -> RunningLoad {
        let start = Instant::now();
        let (stop, stopped) = watch::channel(None);
        let mut running = RunningLoad {
            tallies: Vec::new(),
            clients: JoinSet::new(),
            stop,
            start,
        };
        for clients in self.clients {
            let tally = Arc::new(Tally::new(clients.name.clone(), clients.rate, start));
            running.tallies.push(Arc::clone(&tally));
            let params = OpenLoopParams {
                schedule: RequestSchedule::new(clients.rate, stopped.clone()),
                request_timeout: self.request_timeout,
                tally,
            };
            let host = || Target::Host(clients.url.host_port());
            let target = target.cloned().unwrap_or_else(host);
            let client = clients.run(target, self.requests.clone(), params);
            running.clients.spawn(client);
        }
        running
    }
}

// === impl Clients ===

impl Clients {
    async fn run(self, target: Target, options: RequestOptions, params: OpenLoopParams) {
        let connector = |protocol: &'static [u8]| Connector::new(target, &self.url, protocol);
        let template = RequestTemplate::new(&self.url, &options);
        match self.kind {
            ClientKind::KeepAlive => run_pool::<Http1Connection>(connector, template, params).await,
            ClientKind::ConnectionPerRequest => {
                let exchange = Arc::new((connector(b"http/1.1"), template));
                let request = || http1::connection_per_request(Arc::clone(&exchange));
                run_open_loop(params, request).await;
            }
            ClientKind::Idle => http1::run_idle(params, (connector(b"http/1.1"), template)).await,
            ClientKind::Http2 => run_pool::<Http2Connection>(connector, template, params).await,
            ClientKind::Grpc => {
                let template = RequestTemplate::grpc(&self.url, &options);
                run_pool::<Http2Connection>(connector, template, params).await;
            }
            #[cfg(feature = "h3")]
            ClientKind::Http3 => run_pool::<Http3Connection>(connector, template, params).await,
            ClientKind::WebSocket { session } => {
                let connector = connector(b"http/1.1");
                let connect = || websocket::open(&connector, &self.url, &options.headers);
                run_messages(params, session, connect).await;
            }
            ClientKind::TcpStream { session } => {
                let connector = connector(b"");
                run_messages(params, session, || tcp::open(&connector)).await;
            }
        }
    }
}

/// Sends requests on the connections of a pool.
async fn run_pool<C: HttpConnection + 'static>(
    connector: impl FnOnce(&'static [u8]) -> Connector,
    template: RequestTemplate,
    params: OpenLoopParams,
) {
    let pool = Arc::new(ConnectionPool::<C>::new(connector(C::ALPN), template));
    run_open_loop(params, || Arc::clone(&pool).send()).await;
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
