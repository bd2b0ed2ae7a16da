//! The HTTP server on which hooks wait: a TCP port for the kubelet, and a Unix socket for `drainer
//! drain` and `drainer status`.

mod binding;
pub(crate) mod connection;
pub(crate) mod local_socket;
pub(crate) mod port;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};

use self::connection::response;
use crate::drain::progress::{DrainPhase, Progress};
use crate::log_limiter::LogLimiter;
use crate::machine::termination::{CONTAINER_ALONE, Hook, TerminationSignals, hold};
use crate::settings::token::Token;

/// The drainer's HTTP server.
pub(crate) struct Server {
    /// The token that hooks require.
    pub token: Token,
    /// Where it records the open hooks, and what releases them.
    pub signals: watch::Sender<TerminationSignals>,
    /// What it returns as status.
    pub progress: watch::Receiver<Progress>,
    /// The free places for calls of the drainer's own hook.
    pub local_hooks: Semaphore,
    /// The free places for calls of other containers' hooks.
    pub container_hooks: Semaphore,
    /// Dropped with the last open connection, each of which has the server.
    pub connections: watch::Sender<()>,
}

/// The path of the drainer's own hook on the Unix socket.
pub(crate) const DRAIN_PATH: &str = "/drain";

/// The path of the status on the Unix socket.
pub(crate) const STATUS_PATH: &str = "/status";

/// Maximum number of concurrent connections on the port; the kubelet makes one for each container. A thousand leave some of
/// the 1024 file descriptors that a process has by default.
const MAX_CONNECTIONS: usize = 1000;

/// Maximum number of concurrent connections on the Unix socket without a request yet, or with one for the status; further
/// ones wait to be accepted. The limit is separate from the port's, so that a flood there does not keep the drainer's own
/// hook out.
const MAX_LOCAL_CONNECTIONS: usize = 8;

/// Maximum number of waiting calls of the drainer's own hook, of which the kubelet makes one.
pub(crate) const MAX_LOCAL_HOOKS: usize = 32;

/// Maximum number of waiting calls of other containers' hooks, more than a pod has containers: a client with the token must
/// leave places for Envoy's.
pub(crate) const MAX_CONTAINER_HOOKS: usize = 100;

/// Timeout for a connection's request. Hooks and this program send it at once.
const HEAD_TIMEOUT: Duration = Duration::from_secs(2);

/// How long hooks have to read their responses before the process exits.
const RESPONSE_GRACE: Duration = Duration::from_secs(2);

/// Pause after `accept` fails for lack of memory or file descriptors, before a retry.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Pause between two logs of that failure.
const ACCEPT_LOG_INTERVAL: Duration = Duration::from_secs(10);

// === impl Server ===

impl Server {
    /// Serves Envoy's hook on `address`, and the drainer's own and `status` on the Unix socket, until `end`, and then until
    /// every open connection has its response, for at most [`RESPONSE_GRACE`].
    pub(crate) async fn run(self, address: SocketAddr, end: impl Future) {
        let mut connections = self.connections.subscribe();
        let server = Arc::new(self);
        let serve_port = async {
            let listener = port::bind(address).await;
            server.serve_port(listener, MAX_CONNECTIONS).await
        };
        tokio::select! {
            biased;
            _ = end => {}
            never = server.serve_socket(address.port()) => never,
            never = serve_port => never,
        }
        drop(server);
        // A client that does not read its response does not need it.
        let _ = timeout(RESPONSE_GRACE, connections.changed()).await;
    }

    async fn serve_socket<T>(self: &Arc<Self>, port: u16) -> T {
        let listener = local_socket::bind(port).await;
        let permits = Arc::new(Semaphore::new(MAX_LOCAL_CONNECTIONS));
        let mut log = LogLimiter::default();
        loop {
            let permit = permits.clone().acquire_owned().await;
            match listener.accept().await {
                Ok((stream, _)) if local_socket::is_own_process(&stream) => {
                    let (server, permit) = (self.clone(), permit.expect("never closed"));
                    tokio::spawn(async move {
                        let respond = async |it: String| server.local_response(&it, permit).await;
                        connection::serve(stream, sleep(HEAD_TIMEOUT), respond).await;
                    });
                }
                Ok(_) => {}
                Err(error) => retry_accept(&error, &mut log).await,
            }
            // Otherwise a flood of other processes would keep the port from being served.
            yield_now().await;
        }
    }

    /// Accepts every connection. The last free place evicts the oldest connections whose request is not read yet, a hundredth
    /// of all: if it evicted one, each accept would wait for one to end, and a flood of 5,000 connections per second would
    /// fill the kernel's backlog, which drops the SYN of Envoy's hook.
    async fn serve_port<T>(self: &Arc<Self>, listener: TcpListener, max_connections: usize) -> T {
        let permits = Arc::new(Semaphore::new(max_connections));
        let mut log = LogLimiter::default();
        // One for each connection, the oldest first; dropping it evicts the connection. Those that are closed belong to
        // connections whose request was read, or that ended.
        let mut pending = VecDeque::<oneshot::Sender<()>>::new();
        loop {
            let permit = permits.clone().acquire_owned().await;
            match listener.accept().await {
                Ok((stream, _)) => {
                    let is_full = permits.available_permits() == 0;
                    if is_full || pending.len() >= 2 * max_connections {
                        pending.retain(|it| !it.is_closed());
                    }
                    if is_full {
                        pending.drain(..pending.len().min(max_connections.div_ceil(100)));
                    }
                    let (evict, evicted) = oneshot::channel();
                    pending.push_back(evict);
                    let (server, permit) = (self.clone(), permit.expect("never closed"));
                    tokio::spawn(async move {
                        let respond = async |it: String| server.port_response(&it).await;
                        let evicted = timeout(HEAD_TIMEOUT, evicted);
                        connection::serve(stream, evicted, respond).await;
                        drop(permit);
                    });
                }
                Err(error) => retry_accept(&error, &mut log).await,
            }
        }
    }

    /// Responds to a process of the drainer's container. Its hook gives up the `permit` of a connection without a request.
    async fn local_response(&self, request: &str, permit: OwnedSemaphorePermit) -> String {
        match request.split_once(' ') {
            Some(("GET", STATUS_PATH)) => {
                let status = serde_json::to_string(&*self.progress.borrow());
                response("200 OK", &status.expect("keys are texts"))
            }
            Some(("GET", DRAIN_PATH)) => {
                drop(permit);
                within(&self.local_hooks, self.hold(Hook::Drainer)).await
            }
            _ => not_found(),
        }
    }

    /// Responds to anybody: `GET /drained/TOKEN` is Envoy's hook, and `GET /drained/TOKEN/CONTAINER` that of another
    /// container, which waits but starts nothing.
    async fn port_response(&self, request: &str) -> String {
        let Some((method, hook)) = request.split_once(" /drained/") else {
            return not_found();
        };
        let mut parts = hook.splitn(2, '/');
        let (token, container) = (parts.next().unwrap_or_default(), parts.next());
        match container {
            _ if token.parse() != Ok(self.token) => response("403 Forbidden", "wrong token\n"),
            _ if method != "GET" || container == Some("") => not_found(),
            None => self.hold(Hook::Envoy).await,
            Some(_) => within(&self.container_hooks, self.hold_container_hook()).await,
        }
    }

    async fn hold(&self, hook: Hook) -> String {
        let held = hold(&self.signals, hook);
        debug!(?hook, "A preStop hook was called");
        held.await;
        response("200 OK", "released\n")
    }

    /// Holds the hook of another container while something is ending; it is no evidence of that.
    async fn hold_container_hook(&self) -> String {
        use DrainPhase::{Released, Standby};
        let mut progress = self.progress.clone();
        let started = progress.wait_for(|progress| progress.phase != Standby);
        if timeout(CONTAINER_ALONE, started).await.is_err() {
            return response("200 OK", "nothing is terminating\n");
        }
        let is_over = |now: &Progress| matches!(now.phase, Standby | Released(_));
        // An error means that the drainer ends.
        drop(progress.wait_for(is_over).await);
        response("200 OK", "released\n")
    }
}

fn not_found() -> String {
    response("404 Not Found", "not found\n")
}

/// Waits for the response if there is a free place for the call.
async fn within(places: &Semaphore, respond: impl Future<Output = String>) -> String {
    match places.try_acquire() {
        Ok(_permit) => respond.await,
        Err(_) => response("503 Service Unavailable", "too many calls\n"),
    }
}

/// Waits after `accept` has failed for lack of memory or file descriptors.
async fn retry_accept(error: &io::Error, log: &mut LogLimiter) {
    if log.should_log(ACCEPT_LOG_INTERVAL) {
        warn!(%error, "Cannot accept a connection");
    }
    sleep(ACCEPT_RETRY_DELAY).await;
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::pin::pin;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tokio::time::Instant;

    use super::*;

    const ENVOY_HOOK: &str = "GET /drained/0000000000000abc";

    fn server(progress: &watch::Sender<Progress>) -> Arc<Server> {
        Arc::new(Server {
            token: Token(0xabc),
            signals: watch::Sender::default(),
            progress: progress.subscribe(),
            local_hooks: Semaphore::new(1),
            container_hooks: Semaphore::new(1),
            connections: watch::Sender::default(),
        })
    }

    #[tokio::test(start_paused = true)]
    async fn routes_require_the_token_or_the_unix_socket() {
        const ENVOY: &str = "Envoy's hook";
        const DRAINER: &str = "the drainer's hook";
        let progress = watch::Sender::default();
        let server = server(&progress);
        let port = [
            (ENVOY_HOOK, ENVOY),
            ("POST /drained/0000000000000abc", "not found"),
            (
                "GET /drained/0000000000000abc/app",
                "nothing is terminating",
            ),
            ("GET /drained/0000000000000abc/", "not found"),
            ("GET /drained/0000000000000abd", "wrong token"),
            ("GET /drained/0000000000000abd/app", "wrong token"),
            ("POST /drained/0000000000000abd", "wrong token"),
            ("GET /drained/abc", "wrong token"),
            ("GET /drained/", "wrong token"),
            ("GET /drained", "not found"),
            ("GET /drain", "not found"),
            ("GET /status", "not found"),
            ("GET /", "not found"),
        ];
        let local = [
            ("GET /drain", DRAINER),
            ("POST /drain", "not found"),
            ("GET /status", r#"{"phase":{"name":"standby"}}"#),
            (ENVOY_HOOK, "not found"),
        ];
        let permits = Arc::new(Semaphore::new(1));
        let on_port = port.map(|row| (row, false)).into_iter();
        for ((request, want), is_local) in on_port.chain(local.map(|row| (row, true))) {
            let respond = async {
                if is_local {
                    let permit = permits.clone().acquire_owned().await.unwrap();
                    server.local_response(request, permit).await
                } else {
                    server.port_response(request).await
                }
            };
            let mut respond = pin!(respond);
            // Longer than the hook of another container waits for a drain.
            let body = match timeout(2 * CONTAINER_ALONE, &mut respond).await {
                Ok(response) => response.split_once("\r\n\r\n").unwrap().1.to_owned(),
                Err(_) => {
                    let mut signals = server.signals.borrow().clone();
                    signals.record_sigterm(Instant::now());
                    let is_envoy_hook = signals.pod_end().is_some();
                    String::from(if is_envoy_hook { ENVOY } else { DRAINER })
                }
            };
            assert_eq!(body.trim_end(), want, "{request}, local: {is_local}");
        }
    }

    #[tokio::test]
    async fn last_place_evicts_the_oldest_connection_without_a_request() {
        let progress = watch::Sender::default();
        let server = server(&progress);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { server.serve_port::<()>(listener, 3).await });
        let request = format!("{ENVOY_HOOK} HTTP/1.1\r\n\r\n");
        let connect = async || TcpStream::connect(address).await.unwrap();
        let is_open = async |stream: &mut TcpStream| {
            let mut byte = [0];
            let read = timeout(Duration::from_millis(300), stream.read(&mut byte));
            read.await.is_err()
        };
        let mut waiting = connect().await;
        waiting.write_all(request.as_bytes()).await.unwrap();
        assert!(is_open(&mut waiting).await);
        let (mut oldest, mut newest) = (connect().await, connect().await);
        assert!(!is_open(&mut oldest).await);
        assert!(is_open(&mut newest).await);
        newest.write_all(request.as_bytes()).await.unwrap();
        assert!(is_open(&mut newest).await);
        // The last one is not evicted if all others are waiting hooks.
        let start = Instant::now();
        let mut last = connect().await;
        assert!(is_open(&mut last).await);
        assert_eq!(last.read(&mut [0]).await.unwrap(), 0);
        assert!(start.elapsed() >= HEAD_TIMEOUT - Duration::from_millis(500));
        assert!(is_open(&mut waiting).await && is_open(&mut newest).await);
    }
}
