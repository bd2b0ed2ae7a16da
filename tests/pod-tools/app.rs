//! An app behind a sidecar Envoy: each request to it makes two calls to the outside, through Envoy.

use std::convert::Infallible;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use drainer::duration;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tests::http::Client;
use tests::outbound_report::OutboundReport;
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{interval, sleep, timeout};

/// The pause between the calls that the app makes by itself after SIGTERM.
const CALL_INTERVAL: Duration = Duration::from_millis(100);

/// How long requests in flight may take after the app has stopped listening.
const LAST_REQUESTS: Duration = Duration::from_secs(20);

/// The addresses of the app and of its Envoy, and what it does at SIGTERM: it stops listening at once and finishes the
/// requests in flight, unless it serves on.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Address that the app listens on.
    #[arg(value_name = "IP:PORT")]
    listen: SocketAddr,
    /// Envoy's listener for calls to the outside.
    #[arg(value_name = "IP:PORT")]
    outbound: SocketAddr,
    /// Time between the two calls of a request.
    #[arg(long, value_name = "DURATION", default_value = "500ms", value_parser = duration::parse)]
    takes: Duration,
    /// How long to serve on after SIGTERM, with calls to the outside all the time.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    serve_on: Option<Duration>,
    /// File for the report on the calls after SIGTERM.
    #[arg(long, value_name = "FILE", default_value = "/dev/termination-log")]
    report: PathBuf,
}

/// Calls to the outside.
#[derive(Debug)]
struct Outbound {
    client: Client,
    /// `None` before SIGTERM.
    report: Mutex<Option<OutboundReport>>,
}

/// Serves until SIGTERM and then as long as the arguments say, and writes the report.
///
/// # Errors
/// If the address cannot be bound, or the report cannot be written.
pub(crate) async fn run(args: Args) -> Result<()> {
    let listener = TcpListener::bind(args.listen).await?;
    let mut terminate = signal(SignalKind::terminate())?;
    let outbound = Arc::new(Outbound::new(args.outbound));
    let stop = watch::Sender::new(false);
    let mut connections = JoinSet::new();
    let until_stopped = async {
        terminate.recv().await;
        outbound.start_report();
        if let Some(time) = args.serve_on {
            // It never returns.
            let _ = timeout(time, outbound.call_repeatedly()).await;
        }
    };
    tokio::pin!(until_stopped);
    loop {
        tokio::select! {
            () = &mut until_stopped => break,
            accepted = listener.accept() => {
                let connection = serve(accepted?.0, stop.subscribe(), Arc::clone(&outbound), args.takes);
                connections.spawn(connection);
            }
            Some(_) = connections.join_next() => {}
        }
    }
    drop(listener);
    stop.send_replace(true);
    let finished = async { while connections.join_next().await.is_some() {} };
    let finished = timeout(LAST_REQUESTS, finished).await;
    let report = serde_json::to_string(&outbound.report())?;
    fs::write(&args.report, report).with_context(|| args.report.display().to_string())?;
    finished.context("requests are still in flight")
}

/// Serves a connection until its client closes it, or until the end of its request after `stop`.
async fn serve(
    stream: TcpStream,
    mut stop: watch::Receiver<bool>,
    outbound: Arc<Outbound>,
    takes: Duration,
) {
    let service = service_fn(move |request: Request<Incoming>| {
        respond(request, Arc::clone(&outbound), takes)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(None)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    // A connection fails when its client disconnects.
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = stop.wait_for(|stop| *stop) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}

/// Responds with the body of the request after the two calls.
async fn respond(
    request: Request<Incoming>,
    outbound: Arc<Outbound>,
    takes: Duration,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let calls = async {
        let body = request.into_body().collect().await?.to_bytes();
        outbound.call().await?;
        sleep(takes).await;
        outbound.call().await?;
        anyhow::Ok(body)
    };
    let (status, body) = match calls.await {
        Ok(body) => (StatusCode::OK, body),
        Err(error) => (StatusCode::BAD_GATEWAY, format!("{error:#}\n").into()),
    };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    Ok(response)
}

// === impl Outbound ===

impl Outbound {
    fn new(envoy: SocketAddr) -> Self {
        Self {
            client: Client::from(envoy),
            report: Mutex::default(),
        }
    }

    fn start_report(&self) {
        let mut report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        *report = Some(OutboundReport::default());
    }

    fn report(&self) -> OutboundReport {
        let report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        report.clone().unwrap_or_default()
    }

    async fn call(&self) -> Result<()> {
        let result = self.get().await;
        let mut report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(report) = &mut *report {
            report.record(&result);
        }
        result
    }

    async fn get(&self) -> Result<()> {
        let response = self.client.get("/").await?;
        ensure!(response.status == StatusCode::OK, "{}", response.status);
        Ok(())
    }

    async fn call_repeatedly(&self) {
        let mut tick = interval(CALL_INTERVAL);
        loop {
            tick.tick().await;
            // A failure is in the report.
            let _ = self.call().await;
        }
    }
}
