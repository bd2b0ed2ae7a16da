//! Loads of echo servers: the tests' upstream, and fortio's.
//!
//! Each request is a POST, which a client must not retry once written, since the server may have acted on it. Its
//! response has the same body.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

pub use ::load::{
    ClientKind, Clients, Endpoints, ExpectedResponse, FailureKind, KindReport, Load, Protocol,
    Report, RequestOptions, RunningLoad, Target,
};

use crate::service::Service;

/// The host of the requests' URLs.
const HOST: &str = "edge.shop";

/// The body of a request, and of its response.
const BODY: &str = "two cups and a saucer";

/// A load of an echo server, before its start.
#[derive(Debug, Clone)]
pub struct EchoLoad(Load);

/// A rate whose second request is due after the end of every load.
const IDLE_RATE: f64 = 1e-6;

/// A load without clients.
pub fn load() -> EchoLoad {
    EchoLoad(Load {
        requests: RequestOptions {
            body: Some(BODY.to_owned()),
            expected: ExpectedResponse::Echo,
            ..RequestOptions::default()
        },
        clients: Vec::new(),
        request_timeout: Duration::from_secs(10),
    })
}

// === impl EchoLoad ===

impl EchoLoad {
    /// Adds HTTP/1.1 clients that keep their connections.
    pub fn keep_alive(self, rate: f64) -> Self {
        self.add("keep-alive", ClientKind::KeepAlive, rate, Duration::ZERO)
    }

    /// Adds HTTP/1.1 clients that open a connection for each request.
    pub fn connection_per_request(self, rate: f64) -> Self {
        self.slow(rate, Duration::ZERO)
    }

    /// Adds HTTP/1.1 clients that open a connection for each request, whose response takes this long.
    pub fn slow(self, rate: f64, response_time: Duration) -> Self {
        let name = "one connection per request";
        self.add(name, ClientKind::ConnectionPerRequest, rate, response_time)
    }

    /// Adds HTTP/2 clients with many requests on each connection.
    pub fn http2(self, rate: f64) -> Self {
        self.slow_http2(rate, Duration::ZERO)
    }

    /// Adds HTTP/2 clients with many requests on each connection, whose responses take this long.
    pub fn slow_http2(self, rate: f64, response_time: Duration) -> Self {
        self.add("HTTP/2", ClientKind::Http2, rate, response_time)
    }

    /// Adds HTTP/3 clients with many requests on each connection, to the number of the HTTP port over UDP.
    #[cfg(feature = "http3")]
    pub fn http3(self, rate: f64) -> Self {
        self.slow_http3(rate, Duration::ZERO)
    }

    /// Adds HTTP/3 clients as [`EchoLoad::http3`] does, whose responses take this long.
    #[cfg(feature = "http3")]
    pub fn slow_http3(self, rate: f64, response_time: Duration) -> Self {
        self.add("HTTP/3", ClientKind::Http3, rate, response_time)
    }

    /// Adds a TCP stream of messages, each of which is echoed. The client opens another stream after `session`.
    pub fn stream(self, rate: f64, session: Duration) -> Self {
        let kind = ClientKind::TcpStream { session };
        self.add("TCP stream", kind, rate, Duration::ZERO)
    }

    /// Adds a client that sends one request and then keeps its connection idle. Idle clients connect before all others,
    /// so that one is connected to the first pod, and two to the first two.
    pub fn idle(self) -> Self {
        let kind = ClientKind::KeepAlive;
        let mut load = self.add("idle connection", kind, IDLE_RATE, Duration::ZERO);
        load.0.clients.rotate_right(1);
        load
    }

    /// Sets the timeout of requests, which is ten seconds by default.
    pub fn request_timeout(mut self, limit: Duration) -> Self {
        self.0.request_timeout = limit;
        self
    }

    /// The rate of all clients in requests per second.
    pub fn rate(&self) -> f64 {
        self.0.rate()
    }

    /// Starts all clients at once, to the pods of a simulated Service.
    #[must_use]
    pub fn start(self, service: &Arc<Service>) -> RunningLoad {
        let service = Arc::clone(service);
        self.0.start(Some(&Target::Endpoints(service)))
    }

    /// Starts all clients at once, to one address.
    #[must_use]
    pub fn start_at(self, address: SocketAddr) -> RunningLoad {
        self.0.start(Some(&Target::Host(address.into())))
    }

    /// The load, for a program to run.
    pub fn into_load(self) -> Load {
        self.0
    }

    /// Adds clients whose responses take this long: the path asks the tests' upstream and fortio's echo server for
    /// that.
    fn add(mut self, name: &str, kind: ClientKind, rate: f64, response_time: Duration) -> Self {
        let (path, name) = match response_time.as_millis() {
            0 => ("/".to_owned(), name.to_owned()),
            milliseconds => {
                let path = format!("/slow?ms={milliseconds}&delay={milliseconds}ms");
                let name = match kind {
                    ClientKind::ConnectionPerRequest => String::new(),
                    _ => format!("{name}, "),
                };
                let seconds = response_time.as_secs_f64();
                (path, format!("{name}{seconds} s responses"))
            }
        };
        #[cfg(feature = "http3")]
        let scheme = if kind == ClientKind::Http3 {
            "https"
        } else {
            "http"
        };
        #[cfg(not(feature = "http3"))]
        let scheme = "http";
        let url = format!("{scheme}://{HOST}{path}");
        self.0.clients.push(Clients {
            name,
            kind,
            url: url.parse().expect("the URL is valid"),
            rate,
        });
        self
    }
}
