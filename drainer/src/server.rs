//! The HTTP server on which hooks wait: a TCP port for the kubelet, and a Unix socket for `drainer
//! drain` and `drainer status`.

mod binding;
pub(crate) mod connection;
mod connection_slots;
pub(crate) mod local_socket;
pub(crate) mod port;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};

use self::connection::{HookConnection, HookRequest, HookResponse};
use self::connection_slots::{HookSlot, HookSlots};
use crate::drain::progress::{DrainPhase, Progress};
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

/// The socket of a connection. Only processes of the drainer's container can use the Unix socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transport {
    Tcp,
    Local,
}

/// The endpoint of a request, or why there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Route {
    /// `GET /drained/TOKEN`: Envoy's hook.
    EnvoyHook,
    /// `GET /drained/TOKEN/CONTAINER`: the hook of another container, which waits but starts nothing.
    ContainerHook,
    /// `GET /drain` on the Unix socket: the drainer's own hook.
    DrainerHook,
    /// `GET /status` on the Unix socket.
    Status,
    /// The wrong token.
    Forbidden,
    /// Anything else.
    NotFound,
}

const STATUS_OK: &str = "200 OK";
const STATUS_UNAVAILABLE: &str = "503 Service Unavailable";

/// The path of the drainer's own hook.
pub(crate) const DRAIN_PATH: &str = "/drain";

/// The path of the status.
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

/// Timeout for the request on the Unix socket. Its client is this program, which sends it at once.
const LOCAL_HEAD_TIMEOUT: Duration = Duration::from_secs(2);

/// How long hooks have to read their responses before the process exits.
const RESPONSE_GRACE: Duration = Duration::from_secs(2);

/// Pause after `accept` fails for lack of memory or file descriptors, before a retry.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

// === impl Server ===

impl Server {
    /// Serves Envoy's hook on `address`, and the drainer's own and `status` on the Unix socket, until `end`, and then until
    /// every open connection has its response, for at most [`RESPONSE_GRACE`].
    pub(crate) async fn run(self, address: SocketAddr, end: impl Future) {
        let mut connections = self.connections.subscribe();
        let server = Arc::new(self);
        tokio::select! {
            biased;
            _ = end => {}
            never = server.serve_socket(address.port()) => never,
            never = server.serve_port(address) => never,
        }
        drop(server);
        // A client that does not read its response does not need it.
        let _ = timeout(RESPONSE_GRACE, connections.changed()).await;
    }

    async fn serve_socket<T>(self: &Arc<Self>, port: u16) -> T {
        let listener = local_socket::bind(port).await;
        let permits = Arc::new(Semaphore::new(MAX_LOCAL_CONNECTIONS));
        loop {
            let permit = permits.clone().acquire_owned().await;
            match listener.accept().await {
                Ok((stream, _)) if local_socket::is_own_process(&stream).unwrap_or(false) => {
                    let permit = permit.expect("never closed");
                    tokio::spawn(self.clone().serve_local(stream, permit));
                }
                Ok(_) => {}
                Err(error) => retry_accept(&error).await,
            }
            // Otherwise a flood of other processes would keep the port from being served.
            yield_now().await;
        }
    }

    async fn serve_port<T>(self: &Arc<Self>, address: SocketAddr) -> T {
        let listener = port::bind(address).await;
        let mut slots = HookSlots::new(MAX_CONNECTIONS);
        loop {
            let permit = slots.acquire().await;
            match listener.accept().await {
                Ok((stream, _)) => {
                    let slot = slots.occupy(permit);
                    tokio::spawn(self.clone().serve_tcp(stream, slot));
                }
                Err(error) => retry_accept(&error).await,
            }
        }
    }

    async fn serve_local(self: Arc<Self>, stream: UnixStream, permit: OwnedSemaphorePermit) {
        if let Some(connection) = HookConnection::read(stream, sleep(LOCAL_HEAD_TIMEOUT)).await {
            let route = self.route(Transport::Local, &connection.request);
            if route == Route::DrainerHook {
                drop(permit);
            }
            connection.respond_when_ready(self.response(route)).await;
        }
    }

    async fn serve_tcp(self: Arc<Self>, stream: TcpStream, mut slot: HookSlot) {
        if let Some(connection) = HookConnection::read(stream, slot.until_expired()).await {
            slot.dequeue();
            let route = self.route(Transport::Tcp, &connection.request);
            connection.respond_when_ready(self.response(route)).await;
        }
    }

    fn route(&self, transport: Transport, request: &HookRequest) -> Route {
        let HookRequest { method, path } = request;
        let segments: Vec<_> = path.splitn(4, '/').collect();
        match (&segments[..], path.as_str(), transport) {
            (["", "drained", token, ..], ..) if token.parse() != Ok(self.token) => Route::Forbidden,
            _ if method != "GET" => Route::NotFound,
            (["", "drained", _], ..) => Route::EnvoyHook,
            (["", "drained", _, container], ..) if !container.is_empty() => Route::ContainerHook,
            (_, STATUS_PATH, Transport::Local) => Route::Status,
            (_, DRAIN_PATH, Transport::Local) => Route::DrainerHook,
            _ => Route::NotFound,
        }
    }

    async fn response(&self, route: Route) -> HookResponse {
        match route {
            Route::EnvoyHook => self.hold(Hook::Envoy).await,
            Route::DrainerHook => match self.local_hooks.try_acquire() {
                Ok(_permit) => self.hold(Hook::Drainer).await,
                Err(_) => HookResponse::new(STATUS_UNAVAILABLE, "too many calls\n"),
            },
            Route::ContainerHook => match self.container_hooks.try_acquire() {
                Ok(_permit) => self.hold_container_hook().await,
                Err(_) => HookResponse::new(STATUS_UNAVAILABLE, "too many calls\n"),
            },
            Route::Status => {
                let status = serde_json::to_string(&*self.progress.borrow());
                HookResponse::new(STATUS_OK, &status.expect("keys are texts"))
            }
            Route::Forbidden => HookResponse::new("403 Forbidden", "wrong token\n"),
            Route::NotFound => HookResponse::new("404 Not Found", "not found\n"),
        }
    }

    async fn hold(&self, hook: Hook) -> HookResponse {
        let held = hold(&self.signals, hook);
        debug!(?hook, "A preStop hook was called");
        held.await;
        HookResponse::new(STATUS_OK, "released\n")
    }

    /// Holds the hook of another container while something is ending; it is no evidence of that.
    async fn hold_container_hook(&self) -> HookResponse {
        use DrainPhase::{Released, Standby};
        let mut progress = self.progress.clone();
        let started = progress.wait_for(|progress| progress.phase != Standby);
        if timeout(CONTAINER_ALONE, started).await.is_err() {
            return HookResponse::new(STATUS_OK, "nothing is terminating\n");
        }
        let is_over = |now: &Progress| matches!(now.phase, Standby | Released(_));
        // An error means that the drainer ends.
        drop(progress.wait_for(is_over).await);
        HookResponse::new(STATUS_OK, "released\n")
    }
}

/// Waits after `accept` has failed for lack of memory or file descriptors.
async fn retry_accept(error: &io::Error) {
    warn!(%error, "Cannot accept a connection");
    sleep(ACCEPT_RETRY_DELAY).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_require_the_token_or_the_unix_socket() {
        use Route::*;
        use Transport::{Local, Tcp};
        let server = Server {
            token: Token::new(0xabc),
            signals: watch::Sender::default(),
            progress: watch::Sender::default().subscribe(),
            local_hooks: Semaphore::new(1),
            container_hooks: Semaphore::new(1),
            connections: watch::Sender::default(),
        };
        let table = [
            (Tcp, "GET /drained/0000000000000abc", EnvoyHook),
            (Local, "GET /drained/0000000000000abc", EnvoyHook),
            (Tcp, "POST /drained/0000000000000abc", NotFound),
            (Tcp, "GET /drained/0000000000000abc/app", ContainerHook),
            (Tcp, "GET /drained/0000000000000abc/", NotFound),
            (Tcp, "GET /drained/0000000000000abd", Forbidden),
            (Tcp, "GET /drained/0000000000000abd/app", Forbidden),
            (Tcp, "POST /drained/0000000000000abd", Forbidden),
            (Tcp, "GET /drained/abc", Forbidden),
            (Tcp, "GET /drained/", Forbidden),
            (Tcp, "GET /drained", NotFound),
            (Tcp, "GET /drain", NotFound),
            (Local, "GET /drain", DrainerHook),
            (Local, "POST /drain", NotFound),
            (Local, "GET /status", Status),
            (Tcp, "GET /status", NotFound),
            (Tcp, "GET /", NotFound),
        ];
        for (transport, line, want) in table {
            let (method, path) = line.split_once(' ').unwrap();
            let (method, path) = (method.to_owned(), path.to_owned());
            let route = server.route(transport, &HookRequest { method, path });
            assert_eq!(route, want, "{line} over {transport:?}");
        }
    }
}
