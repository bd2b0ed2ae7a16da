//! The HTTP server on which hooks wait: a TCP port for the kubelet, and a Unix socket for `drainer
//! drain` and `drainer status`.

mod binding;
pub(crate) mod connection;
pub(crate) mod local_socket;
pub(crate) mod port;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
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
use crate::shutdown_manager::{MARIN3R, ShutdownManager};

/// The drainer's HTTP server.
pub(crate) struct Server {
    /// The token that hooks require.
    pub token: Token,
    /// The shutdown manager whose paths it serves instead, without a token.
    pub manager: Option<&'static ShutdownManager>,
    /// The free places for calls of Envoy's hook without a token, by the address of the client.
    pub open_hooks: Mutex<HashMap<IpAddr, Arc<Semaphore>>>,
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

/// Maximum number of waiting calls of Envoy's hook from one address, without a token: the kubelet makes one.
const MAX_OPEN_HOOKS: usize = 4;

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
                Ok((stream, client)) => {
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
                        let client = client.ip();
                        let respond = async |it: String| server.port_response(&it, client).await;
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
        let (request, query) = request.split_once('?').unwrap_or((request, ""));
        match request.split_once(' ') {
            Some(("GET", STATUS_PATH)) => {
                let status = serde_json::to_string(&*self.progress.borrow());
                response("200 OK", &status.expect("keys are texts"))
            }
            Some(("GET", DRAIN_PATH)) => {
                drop(permit);
                let flags = query.split_terminator('&').map(str::to_owned).collect();
                self.signals.send_modify(|signals| signals.flags = flags);
                within(&self.local_hooks, self.hold(Hook::Drainer)).await
            }
            _ => not_found(),
        }
    }

    /// Responds to any client: `GET /drained/TOKEN` is Envoy's hook, and `GET /drained/TOKEN/CONTAINER` that of another
    /// container, which waits but starts nothing.
    async fn port_response(&self, request: &str, client: IpAddr) -> String {
        if let Some(manager) = self.manager {
            return self.respond_as(manager, request, client).await;
        }
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

    /// Responds to any client as a shutdown manager.
    async fn respond_as(&self, manager: &ShutdownManager, request: &str, client: IpAddr) -> String {
        match request.strip_prefix("GET ") {
            Some("/healthz") => response("200 OK", "OK\n"),
            Some(path) if path == manager.hook_path => {
                within(&self.open_hooks(client), self.hold(Hook::Envoy)).await
            }
            // The manager's own hook, which proves nothing.
            Some("/drain") if *manager == MARIN3R => response("200 OK", "SIGTERM follows\n"),
            _ => not_found(),
        }
    }

    /// The free places of a client's address. Those of addresses without an open call are forgotten.
    fn open_hooks(&self, client: IpAddr) -> Arc<Semaphore> {
        let all = self.open_hooks.lock();
        let mut all = all.unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, places| Arc::strong_count(places) > 1);
        let new = || Arc::new(Semaphore::new(MAX_OPEN_HOOKS));
        all.entry(client).or_insert_with(new).clone()
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
    use crate::shutdown_manager::{CONTOUR, ENVOY_GATEWAY};

    const ENVOY_HOOK: &str = "GET /drained/0000000000000abc";
    const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    const ENVOY: &str = "Envoy's hook";
    const DRAINER: &str = "the drainer's hook";

    fn server(
        progress: &watch::Sender<Progress>,
        manager: Option<&'static ShutdownManager>,
    ) -> Arc<Server> {
        Arc::new(Server {
            token: Token(0xabc),
            manager,
            open_hooks: Mutex::default(),
            signals: watch::Sender::default(),
            progress: progress.subscribe(),
            local_hooks: Semaphore::new(1),
            container_hooks: Semaphore::new(1),
            connections: watch::Sender::default(),
        })
    }

    /// The body of the response, or which hook is held.
    async fn answer(server: &Server, request: &str, is_local: bool) -> String {
        let permits = Arc::new(Semaphore::new(1));
        let respond = async {
            if is_local {
                let permit = permits.clone().acquire_owned().await.unwrap();
                server.local_response(request, permit).await
            } else {
                server.port_response(request, CLIENT).await
            }
        };
        let mut respond = pin!(respond);
        // Longer than the hook of another container waits for a drain.
        match timeout(2 * CONTAINER_ALONE, &mut respond).await {
            Ok(response) => response
                .split_once("\r\n\r\n")
                .unwrap()
                .1
                .trim_end()
                .to_owned(),
            Err(_) => {
                let mut signals = server.signals.borrow().clone();
                signals.sigterm = Some(Instant::now());
                let is_envoy_hook = signals.pod_end().is_some();
                String::from(if is_envoy_hook { ENVOY } else { DRAINER })
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn routes_require_the_token_or_the_unix_socket() {
        let progress = watch::Sender::default();
        let server = server(&progress, None);
        for (request, want) in [
            (ENVOY_HOOK, ENVOY),
            ("GET /drained/0000000000000abc?x=y", "wrong token"),
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
        ] {
            assert_eq!(answer(&server, request, false).await, want, "{request}");
        }
        for (request, want) in [
            ("GET /drain", DRAINER),
            ("POST /drain", "not found"),
            ("GET /status", r#"{"phase":{"name":"standby"}}"#),
            (ENVOY_HOOK, "not found"),
        ] {
            assert_eq!(answer(&server, request, true).await, want, "{request}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn manager_has_the_paths_of_its_product_alone() {
        let progress = watch::Sender::default();
        for (manager, hook, drain) in [
            (&ENVOY_GATEWAY, "GET /shutdown/ready", "not found"),
            (&CONTOUR, "GET /shutdown", "not found"),
            (&MARIN3R, "GET /shutdown", "SIGTERM follows"),
        ] {
            let server = server(&progress, Some(manager));
            for (request, want) in [
                ("GET /healthz", "OK"),
                (hook, ENVOY),
                ("GET /drain", drain),
                ("POST /drain", "not found"),
                ("POST /healthz", "not found"),
                ("GET /drained/0000000000000abc", "not found"),
                ("GET /drained/0000000000000000", "not found"),
                ("GET /status", "not found"),
            ] {
                let got = answer(&server, request, false).await;
                assert_eq!(got, want, "{request} of {manager:?}");
            }
            assert_eq!(answer(&server, "GET /drain?--a=b&--c", true).await, DRAINER);
            assert_eq!(server.signals.borrow().flags, ["--a=b", "--c"]);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn clients_without_a_token_keep_no_other_out() {
        let progress = watch::Sender::default();
        let server = server(&progress, Some(&ENVOY_GATEWAY));
        let call = |last: u8| {
            let server = server.clone();
            tokio::spawn(async move {
                let client = Ipv4Addr::new(127, 0, 0, last).into();
                server.port_response("GET /shutdown/ready", client).await
            })
        };
        let mut flood: Vec<_> = (0..100).map(|_| call(2)).collect();
        sleep(Duration::from_secs(1)).await;
        let (refused, held): (Vec<_>, Vec<_>) = flood.drain(..).partition(|it| it.is_finished());
        assert_eq!((refused.len(), held.len()), (96, MAX_OPEN_HOOKS));
        let kubelet = call(1);
        server
            .signals
            .send_modify(|it| it.answer_hooks(Instant::now()));
        sleep(Duration::from_secs(1)).await;
        server
            .signals
            .send_modify(|it| it.answer_hooks(Instant::now()));
        assert!(kubelet.await.unwrap().ends_with("released\n"));
        for call in held {
            call.await.unwrap();
        }
        // Their places are free again, and forgotten with the next call.
        assert_eq!(answer(&server, "GET /shutdown/ready", false).await, ENVOY);
        assert_eq!(server.open_hooks.lock().unwrap().len(), 1);
    }

    #[tokio::test]
    async fn last_place_evicts_the_oldest_connection_without_a_request() {
        let progress = watch::Sender::default();
        let server = server(&progress, None);
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
