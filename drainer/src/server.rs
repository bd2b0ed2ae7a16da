//! Where the hooks wait: HTTP for the kubelet on a port, and on a Unix socket for `drain` and `status`.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, warn};

use crate::config::Token;
use crate::ending::{Came, LONE_DRAINER};
use crate::progress::{Phase, Progress, released};

/// The sockets on which the drainer serves.
pub struct Sockets {
    /// For Envoy's hook.
    pub tcp: TcpListener,
    /// For the drainer's own hook, and `status`.
    pub unix: UnixListener,
}

/// The drainer's HTTP server.
pub struct Server {
    token: Token,
    came: watch::Sender<Came>,
    progress: watch::Receiver<Progress>,
}

/// Through which socket a caller came. Only the pod's own containers that mount the drainer's
/// directory can use the Unix one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Door {
    Tcp,
    Unix,
}

/// What a caller wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Route {
    /// `GET /drained/TOKEN`: Envoy's hook.
    EnvoyHook,
    /// `GET /drained/TOKEN/CONTAINER`: another container's, which waits and starts nothing.
    ContainerHook,
    /// `GET /drain` on the Unix socket: the drainer's own.
    DrainerHook,
    /// `GET /status`.
    Status,
    /// The wrong token.
    Forbidden,
    /// Not a GET.
    NotAllowed,
    /// Anything else.
    NotFound,
}

/// The path of the drainer's own hook.
pub(crate) const DRAIN: &str = "/drain";

/// The path of the status.
pub(crate) const STATUS: &str = "/status";

/// A caller says what it wants in its first packet; whoever does not is no hook.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);

/// Callers at once; others wait to be accepted. The kubelet comes once for each container, and
/// whoever does not know the token is gone after its head.
const MAX_CALLERS: usize = 2048;

/// The least that hyper takes; a hook's request has 200 bytes.
const BUFFER: usize = 8192;

/// `accept` fails for want of memory or files: trying again at once would only burn the CPU.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

// === impl Server ===

impl Server {
    /// A server whose hooks need `token`. It tells who `came`, and lets them go by `progress`.
    pub fn new(
        token: Token,
        came: watch::Sender<Came>,
        progress: watch::Receiver<Progress>,
    ) -> Self {
        Self {
            token,
            came,
            progress,
        }
    }

    /// Serves until `shutdown`, and then until every caller there is has its answer, at most `grace`
    /// long.
    pub async fn run(self, sockets: Sockets, shutdown: impl Future<Output = ()>, grace: Duration) {
        let Sockets { tcp, unix } = sockets;
        let server = Arc::new(self);
        let callers = Arc::new(Semaphore::new(MAX_CALLERS));
        let mut connections = JoinSet::new();
        tokio::pin!(shutdown);
        loop {
            let caller = tokio::select! {
                biased;
                () = &mut shutdown => break,
                _ = connections.join_next(), if !connections.is_empty() => continue,
                caller = callers.clone().acquire_owned() => caller.expect("never closed"),
            };
            let accepted = tokio::select! {
                biased;
                () = &mut shutdown => break,
                _ = connections.join_next(), if !connections.is_empty() => continue,
                tcp = tcp.accept() => tcp.map(|(stream, _)| {
                    let serve = server.clone().serve(TokioIo::new(stream), Door::Tcp, caller);
                    connections.spawn(serve)
                }),
                unix = unix.accept() => unix.map(|(stream, _)| {
                    let serve = server.clone().serve(TokioIo::new(stream), Door::Unix, caller);
                    connections.spawn(serve)
                }),
            };
            if let Err(error) = accepted {
                warn!(%error, "Cannot accept a connection");
                sleep(ACCEPT_PAUSE).await;
            }
        }
        let answered = async { while connections.join_next().await.is_some() {} };
        if timeout(grace, answered).await.is_err() {
            debug!("Leaving callers behind who do not take their answer");
        }
    }

    async fn serve<S>(self: Arc<Self>, stream: S, door: Door, _caller: OwnedSemaphorePermit)
    where
        S: Read + Write + Unpin,
    {
        let service = service_fn(|request: Request<Incoming>| {
            let route = self.route(door, request.method(), request.uri().path());
            let server = self.clone();
            async move { Ok::<_, Infallible>(server.answer(route).await) }
        });
        let served = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_buf_size(BUFFER)
            .keep_alive(false)
            .serve_connection(stream, service)
            .await;
        if let Err(error) = served {
            debug!(%error, "A caller went away");
        }
    }

    fn route(&self, door: Door, method: &Method, path: &str) -> Route {
        let hook = path.strip_prefix("/drained/").map(|rest| {
            let (token, container) = match rest.split_once('/') {
                Some((token, container)) => (token, Some(container)),
                None => (rest, None),
            };
            match (token.parse::<Token>(), container) {
                (Ok(token), _) if token != self.token => Route::Forbidden,
                (Err(_), _) => Route::Forbidden,
                (Ok(_), None) => Route::EnvoyHook,
                (Ok(_), Some("")) => Route::NotFound,
                (Ok(_), Some(_)) => Route::ContainerHook,
            }
        });
        let route = match (hook, path, door) {
            (Some(hook), ..) => hook,
            (None, STATUS, _) => Route::Status,
            (None, DRAIN, Door::Unix) => Route::DrainerHook,
            (None, ..) => Route::NotFound,
        };
        match route {
            Route::NotFound | Route::Forbidden => route,
            _ if method != Method::GET => Route::NotAllowed,
            _ => route,
        }
    }

    async fn answer(&self, route: Route) -> Response<Full<Bytes>> {
        match route {
            Route::EnvoyHook => {
                let progress = self.come(|came, now| came.envoy_hook.get_or_insert(now));
                self.release(progress).await
            }
            Route::DrainerHook => {
                let progress = self.come(|came, now| came.drainer_hook.get_or_insert(now));
                self.release(progress).await
            }
            Route::ContainerHook => {
                let progress = self.progress.clone();
                let mut underway = self.progress.clone();
                let begun = underway.wait_for(|now| now.phase != Phase::Idle);
                // Its container is restarted alone: nothing will come.
                if timeout(LONE_DRAINER, begun).await.is_err() {
                    return text(StatusCode::OK, "nothing ends\n");
                }
                self.release(progress).await
            }
            Route::Status => self.status(),
            Route::Forbidden => text(StatusCode::FORBIDDEN, "wrong token\n"),
            Route::NotAllowed => text(StatusCode::METHOD_NOT_ALLOWED, "only GET\n"),
            Route::NotFound => text(StatusCode::NOT_FOUND, "not found\n"),
        }
    }

    /// Notes who came, and in which round, so that the wait cannot miss the round's end.
    fn come(
        &self,
        note: impl FnOnce(&mut Came, Instant) -> &mut Instant,
    ) -> watch::Receiver<Progress> {
        let progress = self.progress.clone();
        self.came.send_modify(|came| {
            note(came, Instant::now());
        });
        progress
    }

    async fn release(&self, mut progress: watch::Receiver<Progress>) -> Response<Full<Bytes>> {
        released(&mut progress).await;
        text(StatusCode::OK, "drained\n")
    }

    fn status(&self) -> Response<Full<Bytes>> {
        match serde_json::to_vec(&*self.progress.borrow()) {
            Ok(body) => answer(StatusCode::OK, "application/json", body.into()),
            Err(error) => {
                warn!(%error, "Cannot show the status");
                text(StatusCode::INTERNAL_SERVER_ERROR, "no status\n")
            }
        }
    }
}

fn text(status: StatusCode, body: &'static str) -> Response<Full<Bytes>> {
    answer(status, "text/plain", Bytes::from_static(body.as_bytes()))
}

fn answer(status: StatusCode, kind: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    let kind = header::HeaderValue::from_static(kind);
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_token_opens_the_hooks_and_only_the_unix_socket_the_drainers_own() {
        let server = Server::new(
            Token::new(0xabc),
            watch::Sender::default(),
            watch::Sender::default().subscribe(),
        );
        let hook = "/drained/0000000000000abc";
        let table = [
            (Door::Tcp, Method::GET, hook, Route::EnvoyHook),
            (Door::Unix, Method::GET, hook, Route::EnvoyHook),
            (Door::Tcp, Method::POST, hook, Route::NotAllowed),
            (
                Door::Tcp,
                Method::GET,
                "/drained/0000000000000abc/app",
                Route::ContainerHook,
            ),
            (
                Door::Tcp,
                Method::GET,
                "/drained/0000000000000abc/",
                Route::NotFound,
            ),
            (
                Door::Tcp,
                Method::GET,
                "/drained/0000000000000abd",
                Route::Forbidden,
            ),
            (
                Door::Tcp,
                Method::GET,
                "/drained/0000000000000abd/app",
                Route::Forbidden,
            ),
            (
                Door::Tcp,
                Method::POST,
                "/drained/0000000000000abd",
                Route::Forbidden,
            ),
            (Door::Tcp, Method::GET, "/drained/abc", Route::Forbidden),
            (Door::Tcp, Method::GET, "/drained/", Route::Forbidden),
            (Door::Tcp, Method::GET, "/drained", Route::NotFound),
            (Door::Tcp, Method::GET, "/drain", Route::NotFound),
            (Door::Unix, Method::GET, "/drain", Route::DrainerHook),
            (Door::Unix, Method::POST, "/drain", Route::NotAllowed),
            (Door::Tcp, Method::GET, "/status", Route::Status),
            (Door::Tcp, Method::GET, "/", Route::NotFound),
        ];
        for (door, method, path, want) in table {
            let route = server.route(door, &method, path);
            assert_eq!(route, want, "{method} {path} by {door:?}");
        }
    }
}
