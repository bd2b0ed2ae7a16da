//! An API server that answers as it is told to, and tells what it was asked.

use std::convert::Infallible;
use std::future::pending;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use bytes::Bytes;
use http_body_util::{BodyExt, Channel};
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// An API server over plain HTTP that follows a script, which ends when it is dropped.
#[derive(Debug)]
pub struct ScriptedApiServer {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    _tasks: JoinSet<()>,
}

/// How it answers.
#[derive(Debug, Clone)]
pub enum Reply {
    /// With this status and body.
    Response(u16, String),
    /// Not at all: it reads the request and keeps the connection.
    NoResponse,
    /// With these lines, and then nothing more, as a watch does.
    WatchEvents(Vec<Value>),
}

/// What it was asked.
#[derive(Debug, Clone)]
pub struct RecordedRequest {
    /// The method and the path with its query.
    pub request_line: String,
    /// The kind of body.
    pub content_type: String,
    /// The body; null if it is none of JSON.
    pub body: Value,
}

#[derive(Debug)]
struct State {
    reply: Reply,
    watch_reply: Reply,
    requests: Vec<RecordedRequest>,
    watches: Vec<String>,
}

// === impl ScriptedApi ===

impl ScriptedApiServer {
    /// Starts one that has nothing to say.
    ///
    /// # Errors
    /// When there is no free port.
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let state = Arc::new(Mutex::new(State {
            reply: Reply::NoResponse,
            watch_reply: Reply::NoResponse,
            requests: Vec::new(),
            watches: Vec::new(),
        }));
        let mut serving = JoinSet::new();
        serving.spawn(accept(listener, Arc::clone(&state)));
        Ok(Self {
            address,
            state,
            _tasks: serving,
        })
    }

    /// Where it is.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Answers so from now on, but to watches.
    pub fn set_response(&self, status: u16, body: &Value) {
        lock(&self.state).reply = Reply::Response(status, body.to_string());
    }

    /// Answers so from now on, but to watches.
    pub fn set_reply(&self, reply: Reply) {
        lock(&self.state).reply = reply;
    }

    /// Answers watches so from now on.
    pub fn set_watch_reply(&self, reply: Reply) {
        lock(&self.state).watch_reply = reply;
    }

    /// What it was asked since the last time, but for watches.
    #[must_use]
    pub fn take_requests(&self) -> Vec<RecordedRequest> {
        std::mem::take(&mut lock(&self.state).requests)
    }

    /// The watches that were opened, each by its path and query.
    #[must_use]
    pub fn watches(&self) -> Vec<String> {
        lock(&self.state).watches.clone()
    }
}

async fn accept(listener: TcpListener, state: Arc<Mutex<State>>) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            return;
        };
        let state = Arc::clone(&state);
        connections.spawn(async move {
            let service = service_fn(|request| respond(request, Arc::clone(&state)));
            // A client that goes away is none of its business.
            let _ = http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

async fn respond(
    request: Request<Incoming>,
    state: Arc<Mutex<State>>,
) -> Result<Response<Channel<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let line = format!("{} {}", head.method, head.uri);
    let content_type = head.headers.get(CONTENT_TYPE);
    let content_type = content_type.and_then(|value| value.to_str().ok());
    let content_type = content_type.unwrap_or_default().to_owned();
    let body = body.collect().await.map(|body| body.to_bytes());
    let body = serde_json::from_slice(&body.unwrap_or_default()).unwrap_or_default();
    let reply = {
        let mut state = lock(&state);
        if line.contains("watch=true") {
            state.watches.push(line);
            state.watch_reply.clone()
        } else {
            state.requests.push(RecordedRequest {
                request_line: line,
                content_type,
                body,
            });
            state.reply.clone()
        }
    };
    let (status, lines, ends) = match reply {
        Reply::Response(status, body) => (status, vec![body], true),
        Reply::WatchEvents(lines) => (
            200,
            lines.iter().map(|line| format!("{line}\n")).collect(),
            false,
        ),
        Reply::NoResponse => pending().await,
    };
    let (mut sender, body) = Channel::new(lines.len().max(1));
    for line in lines {
        // The client may have gone.
        let _ = sender.send_data(line.into()).await;
    }
    if !ends {
        // The answer has no end before the test has.
        tokio::spawn(async move {
            pending::<()>().await;
            drop(sender);
        });
    }
    let mut response = Response::new(body);
    *response.status_mut() = status.try_into().unwrap_or_default();
    Ok(response)
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
