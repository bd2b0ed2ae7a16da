//! The HTTP server on which hooks wait: a TCP port for the kubelet, and a Unix socket for `drainer
//! drain` and `drainer status`.

pub(crate) mod connection_slots;
pub(crate) mod port;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, info, warn};

use self::connection_slots::HookSlot;
use self::port::HookPort;
use crate::http::server::{HookConnection, HookRequest, HookResponse};
use crate::progress::{DrainPhase, Progress, wait_for_release};
use crate::termination::{CONTAINER_ONLY_GRACE, TerminationSignals};
use crate::token::Token;

/// The drainer's HTTP server.
pub(crate) struct Server {
    /// The token that hooks require.
    pub token: Token,
    /// Where it records the signals.
    pub signals: watch::Sender<TerminationSignals>,
    /// What releases the hooks.
    pub progress: watch::Receiver<Progress>,
}

/// The socket of a connection. Only containers of the pod that mount the drainer's directory can use
/// the Unix socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transport {
    Tcp,
    Unix,
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
    /// Not a GET.
    MethodNotAllowed,
    /// Anything else.
    NotFound,
}

const STATUS_OK: &str = "200 OK";

/// The path of the drainer's own hook.
pub(crate) const DRAIN_PATH: &str = "/drain";

/// The path of the status.
pub(crate) const STATUS_PATH: &str = "/status";

/// Maximum number of concurrent connections on the Unix socket; further ones wait to be accepted. The
/// limit is separate from the port's, so that a flood there does not keep the drainer's own hook out.
const MAX_UNIX_CONNECTIONS: usize = 8;

/// Timeout for the request on the Unix socket. Its client is this program, which sends it at once.
const UNIX_HEAD_TIMEOUT: Duration = Duration::from_secs(2);

/// How long hooks have to read their responses before the process exits.
const RESPONSE_GRACE: Duration = Duration::from_secs(2);

/// Pause after `accept` fails for lack of memory or file descriptors, before a retry.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

// === impl Server ===

impl Server {
    /// Serves Envoy's hook on `port`, and the drainer's own and `status` on `unix`, until `shutdown`, and
    /// then until every open connection has its response, for at most [`RESPONSE_GRACE`].
    pub(crate) async fn run(self, mut port: HookPort, unix: UnixListener, shutdown: impl Future) {
        let server = Arc::new(self);
        let unix_permits = Arc::new(Semaphore::new(MAX_UNIX_CONNECTIONS));
        let mut connections = JoinSet::new();
        tokio::pin!(shutdown);
        loop {
            let accepted = tokio::select! {
                biased;
                _ = &mut shutdown => break,
                Some(_) = connections.join_next() => continue,
                unix = with_permit(&unix_permits, unix.accept()) => unix.map(|(permit, (stream, _))| {
                    connections.spawn(server.clone().serve_unix(stream, permit))
                }),
                tcp = port.accept() => tcp.map(|(stream, slot)| {
                    connections.spawn(server.clone().serve_tcp(stream, slot))
                }),
            };
            if let Err(error) = accepted {
                warn!(%error, "Cannot accept a connection");
                sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
        let finished = async { while connections.join_next().await.is_some() {} };
        if timeout(RESPONSE_GRACE, finished).await.is_err() {
            debug!("Closing connections whose clients did not read the response");
        }
    }

    async fn serve_unix(self: Arc<Self>, stream: UnixStream, _permit: OwnedSemaphorePermit) {
        if let Some(connection) = HookConnection::read(stream, sleep(UNIX_HEAD_TIMEOUT)).await {
            let route = self.route(Transport::Unix, &connection.request);
            connection.respond_when_ready(self.response(route)).await;
        }
    }

    async fn serve_tcp(self: Arc<Self>, stream: TcpStream, mut slot: HookSlot) {
        let expired = async {
            if slot.until_expired().await {
                TerminationSignals::record_port_unavailable(&self.signals);
            }
        };
        if let Some(connection) = HookConnection::read(stream, expired).await {
            slot.dequeue();
            let route = self.route(Transport::Tcp, &connection.request);
            connection.respond_when_ready(self.response(route)).await;
        }
    }

    fn route(&self, transport: Transport, request: &HookRequest) -> Route {
        let HookRequest { method, path } = request;
        let segments: Vec<_> = path.splitn(4, '/').collect();
        let route = match (&segments[..], path.as_str(), transport) {
            (["", "drained", token, ..], ..) if token.parse() != Ok(self.token) => Route::Forbidden,
            (["", "drained", _], ..) => Route::EnvoyHook,
            (["", "drained", _, container], ..) if !container.is_empty() => Route::ContainerHook,
            (_, STATUS_PATH, Transport::Unix) => Route::Status,
            (_, DRAIN_PATH, Transport::Unix) => Route::DrainerHook,
            _ => Route::NotFound,
        };
        match route {
            Route::NotFound | Route::Forbidden => route,
            _ if method != "GET" => Route::MethodNotAllowed,
            _ => route,
        }
    }

    async fn response(&self, route: Route) -> HookResponse {
        match route {
            Route::EnvoyHook => {
                if self.signals.borrow().envoy_hook.is_none() {
                    info!("Envoy's preStop hook was called");
                }
                self.respond_to_signal(TerminationSignals::record_envoy_hook)
                    .await
            }
            Route::DrainerHook => {
                if self.signals.borrow().drainer_hook.is_none() {
                    info!("The drainer's preStop hook was called");
                }
                self.respond_to_signal(TerminationSignals::record_drainer_hook)
                    .await
            }
            Route::ContainerHook => {
                let progress = self.progress.clone();
                let mut updates = self.progress.clone();
                let started = updates.wait_for(|progress| progress.phase != DrainPhase::Standby);
                // If not, only this container is restarting.
                if timeout(CONTAINER_ONLY_GRACE, started).await.is_err() {
                    return HookResponse::text(STATUS_OK, "nothing is terminating\n");
                }
                respond_when_released(progress).await
            }
            Route::Status => self.status(),
            Route::Forbidden => HookResponse::text("403 Forbidden", "wrong token\n"),
            Route::MethodNotAllowed => HookResponse::text("405 Method Not Allowed", "only GET\n"),
            Route::NotFound => HookResponse::text("404 Not Found", "not found\n"),
        }
    }

    /// Records the signal of a hook, and responds when the hook may return.
    async fn respond_to_signal(
        &self,
        record: impl FnOnce(&mut TerminationSignals, Instant),
    ) -> HookResponse {
        // As of just before the signal, so that the wait cannot miss the end of the round.
        let progress = self.progress.clone();
        self.signals
            .send_modify(|signals| record(signals, Instant::now()));
        respond_when_released(progress).await
    }

    fn status(&self) -> HookResponse {
        match serde_json::to_string(&*self.progress.borrow()) {
            Ok(body) => HookResponse {
                status: STATUS_OK,
                content_type: "application/json",
                body,
            },
            Err(error) => {
                warn!(%error, "Cannot serialize the status");
                HookResponse::text("500 Internal Server Error", "no status\n")
            }
        }
    }
}

async fn respond_when_released(mut progress: watch::Receiver<Progress>) -> HookResponse {
    wait_for_release(&mut progress).await;
    HookResponse::text(STATUS_OK, "released\n")
}

/// Accepts a connection once there is a permit for it.
async fn with_permit<T>(
    permits: &Arc<Semaphore>,
    accept: impl Future<Output = io::Result<T>>,
) -> io::Result<(OwnedSemaphorePermit, T)> {
    let permit = permits.clone().acquire_owned().await;
    Ok((permit.expect("never closed"), accept.await?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_require_the_token_or_the_unix_socket() {
        let server = Server {
            token: Token::new(0xabc),
            signals: watch::Sender::default(),
            progress: watch::Sender::default().subscribe(),
        };
        let hook = "/drained/0000000000000abc";
        let table = [
            (Transport::Tcp, "GET", hook, Route::EnvoyHook),
            (Transport::Unix, "GET", hook, Route::EnvoyHook),
            (Transport::Tcp, "POST", hook, Route::MethodNotAllowed),
            (
                Transport::Tcp,
                "GET",
                "/drained/0000000000000abc/app",
                Route::ContainerHook,
            ),
            (
                Transport::Tcp,
                "GET",
                "/drained/0000000000000abc/",
                Route::NotFound,
            ),
            (
                Transport::Tcp,
                "GET",
                "/drained/0000000000000abd",
                Route::Forbidden,
            ),
            (
                Transport::Tcp,
                "GET",
                "/drained/0000000000000abd/app",
                Route::Forbidden,
            ),
            (
                Transport::Tcp,
                "POST",
                "/drained/0000000000000abd",
                Route::Forbidden,
            ),
            (Transport::Tcp, "GET", "/drained/abc", Route::Forbidden),
            (Transport::Tcp, "GET", "/drained/", Route::Forbidden),
            (Transport::Tcp, "GET", "/drained", Route::NotFound),
            (Transport::Tcp, "GET", "/drain", Route::NotFound),
            (Transport::Unix, "GET", "/drain", Route::DrainerHook),
            (Transport::Unix, "POST", "/drain", Route::MethodNotAllowed),
            (Transport::Unix, "GET", "/status", Route::Status),
            (Transport::Tcp, "GET", "/status", Route::NotFound),
            (Transport::Tcp, "GET", "/", Route::NotFound),
        ];
        for (transport, method, path, want) in table {
            let (method, path) = (method.to_owned(), path.to_owned());
            let route = server.route(
                transport,
                &HookRequest {
                    method: method.clone(),
                    path: path.clone(),
                },
            );
            assert_eq!(route, want, "{method} {path} over {transport:?}");
        }
    }
}
