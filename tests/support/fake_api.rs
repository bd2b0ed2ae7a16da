//! An API server with the answers that a real one cannot be made to give.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// What is answered to GETs, by path: a status code, and a document that need not be JSON.
pub type Responses = BTreeMap<String, (u16, String)>;

/// What becomes of a pod that somebody wants to make.
pub type PodCreateResponder = fn(Value) -> (u16, Value);

/// A fake API server, which ends when it is dropped.
#[derive(Debug)]
pub struct FakeApiServer {
    address: SocketAddr,
    /// Method, path and query of every request but GETs.
    writes: Arc<Mutex<Vec<String>>>,
    _tasks: JoinSet<()>,
}

/// A failure as API servers write it.
#[must_use]
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

// === impl FakeApi ===

impl FakeApiServer {
    /// Starts one that answers with these documents, and that something is not found to all else. A path
    /// may end with `?continue=TOKEN`, for a page behind the first.
    ///
    /// # Errors
    /// When it cannot listen.
    pub async fn start(answers: Responses, judge: PodCreateResponder) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let writes = Arc::new(Mutex::new(Vec::new()));
        let answers = Arc::new(answers);
        let mut serving = JoinSet::new();
        serving.spawn({
            let writes = Arc::clone(&writes);
            async move {
                let mut connections = JoinSet::new();
                while let Ok((stream, _)) = listener.accept().await {
                    let (answers, writes) = (Arc::clone(&answers), Arc::clone(&writes));
                    connections.spawn(async move {
                        let answer =
                            service_fn(|request| respond(request, &answers, &writes, judge));
                        let io = TokioIo::new(stream);
                        // Whoever hangs up has had what they wanted.
                        let _ = http1::Builder::new().serve_connection(io, answer).await;
                    });
                }
            }
        });
        Ok(Self {
            address,
            writes,
            _tasks: serving,
        })
    }

    /// A kubeconfig for it.
    #[must_use]
    pub fn kubeconfig(&self) -> String {
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "fake", "cluster": {"server": format!("http://{}", self.address)}}],
            "users": [{"name": "somebody", "user": {}}],
            "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "somebody"}}],
            "current-context": "fake",
        })
        .to_string()
    }

    /// Method, path and query of every request so far that was no GET.
    #[must_use]
    pub fn writes(&self) -> Vec<String> {
        let writes = self.writes.lock().unwrap_or_else(PoisonError::into_inner);
        writes.clone()
    }
}

async fn respond(
    request: Request<Incoming>,
    answers: &Responses,
    writes: &Mutex<Vec<String>>,
    judge: PodCreateResponder,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path().to_owned();
    let query = parts.uri.query().unwrap_or_default();
    let (code, document) = if parts.method == Method::GET {
        let page = query.split('&').find(|part| part.starts_with("continue="));
        let path = match page {
            Some(page) => format!("{path}?{page}"),
            None => path,
        };
        answers.get(&path).cloned().unwrap_or_else(|| {
            let (code, status) = failure_status(404, "NotFound", "there is none");
            (code, status.to_string())
        })
    } else {
        let write = format!("{} {path}?{query}", parts.method);
        writes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(write);
        let body = body.collect().await.map(|body| body.to_bytes());
        let pod = serde_json::from_slice(&body.unwrap_or_default()).unwrap_or_default();
        let (code, document) = judge(pod);
        (code, document.to_string())
    };
    let response = Response::builder()
        .status(code)
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(document)));
    Ok(response.unwrap_or_default())
}
