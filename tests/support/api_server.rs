//! A fake Kubernetes API server on a local port, with configurable responses and a record of its requests.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs;
use std::future::pending;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use bytes::Bytes;
use http_body_util::channel::Sender;
use http_body_util::{BodyExt, Channel, Either, Full};
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::task::JoinSet;

use crate::binaries;
use crate::upstream::accept;

/// Responses to GET requests by path: a status code and a body, which need not be valid JSON.
pub type Responses = BTreeMap<String, (u16, String)>;

/// Returns the status code and the body of the response to a pod's creation.
pub type PodCreateResponder = fn(Value) -> (u16, Value);

/// A fake API server over plain HTTP, which stops when it is dropped.
#[derive(Debug)]
pub struct FakeApiServer {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    kubeconfig: PathBuf,
    /// Holds the kubeconfig alone.
    _dir: TempDir,
    _tasks: JoinSet<()>,
}

/// How the server responds to a request.
#[derive(Debug, Clone)]
pub enum Reply {
    /// With this status code and body.
    Response(u16, String),
    /// Never: the server reads the request and keeps the connection open.
    NoResponse,
    /// With these events, one a line, in a response that does not end, as to a watch.
    WatchEvents(Vec<Value>),
}

/// A request that the server has received.
#[derive(Debug, Clone)]
pub struct RecordedRequest {
    /// The method, and the path with its query.
    pub request_line: String,
    /// The value of the header `content-type`; empty without one.
    pub content_type: String,
    /// The body; null if it is not JSON.
    pub body: Value,
}

#[derive(Debug)]
struct State {
    script: Script,
    watch_reply: Reply,
    /// The replies to watches of these paths, instead of `watch_reply`.
    watch_replies: BTreeMap<String, Reply>,
    requests: Vec<RecordedRequest>,
    watches: Vec<String>,
    /// Keeps the responses to watches from ending.
    open_watches: Vec<Sender<Bytes>>,
}

/// How requests other than watches are answered.
#[derive(Debug)]
enum Script {
    /// All in the same way.
    Fixed(Reply),
    /// GET requests by their path, all others as the creation of a pod.
    Cluster(Responses, PodCreateResponder),
}

/// Returns a status code and the `Status` object that the API server sends with it.
pub fn failure_status(code: u16, reason: &str, message: &str) -> (u16, Value) {
    let status = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
    });
    (code, status)
}

/// Returns the same as the response to a GET request.
pub fn failure(code: u16, reason: &str, message: &str) -> (u16, String) {
    let (code, status) = failure_status(code, reason, message);
    (code, status.to_string())
}

// === impl FakeApiServer ===

impl FakeApiServer {
    /// Starts a server that does not respond until a reply is set.
    ///
    /// # Errors
    /// When there is no free port.
    pub async fn start() -> Result<Self> {
        Self::run(Script::Fixed(Reply::NoResponse)).await
    }

    /// Starts a server of a cluster with these objects; every other path is not found. A path may end with
    /// `?continue=TOKEN`, for a page of a list after the first.
    ///
    /// # Errors
    /// When there is no free port.
    pub async fn start_cluster(responses: Responses, pods: PodCreateResponder) -> Result<Self> {
        Self::run(Script::Cluster(responses, pods)).await
    }

    async fn run(script: Script) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let state = Arc::new(Mutex::new(State {
            script,
            watch_reply: Reply::NoResponse,
            watch_replies: BTreeMap::new(),
            requests: Vec::new(),
            watches: Vec::new(),
            open_watches: Vec::new(),
        }));
        let dir = TempDir::with_prefix("api-server-")?;
        let kubeconfig = dir.path().join("kubeconfig");
        fs::write(&kubeconfig, kubeconfig_of(address))?;
        let mut tasks = JoinSet::new();
        let of_server = Arc::clone(&state);
        tasks.spawn(accept(listener, move |stream| {
            serve(stream, Arc::clone(&of_server))
        }));
        Ok(Self {
            address,
            state,
            kubeconfig,
            _dir: dir,
            _tasks: tasks,
        })
    }

    /// The server's URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// A kubeconfig whose current context is this server, with an anonymous user.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The command `envoy-drainer` for this cluster, in an otherwise empty environment and in the root directory.
    ///
    /// # Errors
    /// When it does not build.
    pub fn command(&self, subcommand: &[&str], args: &[&str]) -> Result<Command> {
        let mut command = Command::new(binaries::envoy_drainer()?);
        command.args(subcommand).args(args).current_dir("/");
        command.env_clear().env("KUBECONFIG", &self.kubeconfig);
        command.kill_on_drop(true);
        Ok(command)
    }

    /// Sets the response to all requests other than watches.
    pub fn set_response(&self, status: u16, body: &Value) {
        self.set_reply(Reply::Response(status, body.to_string()));
    }

    /// Sets the reply to all requests other than watches.
    pub fn set_reply(&self, reply: Reply) {
        lock(&self.state).script = Script::Fixed(reply);
    }

    /// Sets the response to GET requests of a path, in a cluster.
    pub fn set_object(&self, path: &str, document: &Value) {
        if let Script::Cluster(responses, _) = &mut lock(&self.state).script {
            responses.insert(path.to_owned(), (200, document.to_string()));
        }
    }

    /// Sets the reply to watches.
    pub fn set_watch_reply(&self, reply: Reply) {
        lock(&self.state).watch_reply = reply;
    }

    /// Sets the reply to watches of a path.
    pub fn set_watch_reply_of(&self, path: &str, reply: Reply) {
        lock(&self.state)
            .watch_replies
            .insert(path.to_owned(), reply);
    }

    /// The requests since the last call, without watches.
    pub fn take_requests(&self) -> Vec<RecordedRequest> {
        std::mem::take(&mut lock(&self.state).requests)
    }

    /// The request lines of all watches so far.
    pub fn watches(&self) -> Vec<String> {
        lock(&self.state).watches.clone()
    }
}

fn kubeconfig_of(address: SocketAddr) -> String {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "fake", "cluster": {"server": format!("http://{address}")}}],
        "users": [{"name": "anonymous", "user": {}}],
        "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "anonymous"}}],
        "current-context": "fake",
    })
    .to_string()
}

async fn serve(stream: TcpStream, state: Arc<Mutex<State>>) {
    let service = service_fn(|request| respond(request, &state));
    // Fails when the client disconnects first.
    let _ = http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn respond(
    request: Request<Incoming>,
    state: &Mutex<State>,
) -> Result<Response<Either<Full<Bytes>, Channel<Bytes>>>, Infallible> {
    let (head, body) = request.into_parts();
    let content_type = head.headers.get(CONTENT_TYPE);
    let content_type = content_type.and_then(|value| value.to_str().ok());
    let body = body.collect().await.map(|body| body.to_bytes());
    let request = RecordedRequest {
        request_line: format!("{} {}", head.method, head.uri),
        content_type: content_type.unwrap_or_default().to_owned(),
        body: serde_json::from_slice(&body.unwrap_or_default()).unwrap_or_default(),
    };
    let reply = lock(state).reply(request);
    let (status, body) = match reply {
        Reply::Response(status, body) => (status, Either::Left(Full::from(body))),
        Reply::WatchEvents(events) => {
            let (mut sender, body) = Channel::new(1);
            let lines: String = events.iter().map(|event| format!("{event}\n")).collect();
            // Fails only without a receiver.
            let _ = sender.send_data(lines.into()).await;
            lock(state).open_watches.push(sender);
            (200, Either::Right(body))
        }
        Reply::NoResponse => pending().await,
    };
    let response = Response::builder()
        .status(status)
        .header(CONTENT_TYPE, "application/json")
        .body(body);
    Ok(response.expect("the status codes of tests are valid"))
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

// === impl State ===

impl State {
    /// Records a request, and returns the reply to it.
    fn reply(&mut self, request: RecordedRequest) -> Reply {
        if request.request_line.contains("watch=true") {
            let mut replies = self.watch_replies.iter();
            let prefix = |path: &String| format!("GET {path}?");
            let reply = replies.find(|(path, _)| request.request_line.starts_with(&prefix(path)));
            let reply = reply.map_or(&self.watch_reply, |(_, reply)| reply).clone();
            self.watches.push(request.request_line);
            return reply;
        }
        let reply = self.script.reply(&request);
        self.requests.push(request);
        reply
    }
}

// === impl Script ===

impl Script {
    fn reply(&self, request: &RecordedRequest) -> Reply {
        let (responses, pods) = match self {
            Self::Fixed(reply) => return reply.clone(),
            Self::Cluster(responses, pods) => (responses, pods),
        };
        let Some(target) = request.request_line.strip_prefix("GET ") else {
            let (code, document) = pods(request.body.clone());
            return Reply::Response(code, document.to_string());
        };
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let page = query.split('&').find(|part| part.starts_with("continue="));
        let page = page.map(|page| format!("?{page}")).unwrap_or_default();
        let response = responses.get(&format!("{path}{page}")).cloned();
        let not_found = || failure(404, "NotFound", "not found");
        let (code, document) = response.unwrap_or_else(not_found);
        Reply::Response(code, document)
    }
}
