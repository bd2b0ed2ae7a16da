//! A fake of Envoy's admin interface, with faults that a real Envoy cannot be made to have.

use std::future::pending;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;
use drainer::AdminAddress;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::port::Port;

/// How the admin interface responds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behaviour {
    /// As Envoy does.
    Normal,
    /// With this status and [`ERROR_TEXT`].
    Status(u16),
    /// Never: it reads the request and keeps the connection open.
    NoResponse,
    /// As Envoy does, but each response takes this long, in chunks.
    Slow(Duration),
    /// With half a response, and the end of the connection.
    TruncatedResponse,
    /// With a complete response of half a document.
    TruncatedDocument,
    /// As Envoy does, but with at least this many bytes of statistics, unless only those of the server or counters are
    /// asked for.
    LargeStats(usize),
    /// As Envoy does, but with this many more bytes in the dump of its listeners.
    LargeListenerDump(usize),
    /// As Envoy does, but in chunks of one byte.
    OneByteChunks,
    /// With 200 and an HTML page, as another service does.
    UnrelatedPage,
    /// As an Envoy whose `admin.allow_paths` allows statistics only.
    StatsOnly,
    /// Not at all: it does not listen.
    ConnectionRefused,
}

/// A fake admin interface, which stops when it is dropped.
#[derive(Debug)]
pub struct FakeAdmin {
    port: Port,
    state: Arc<Mutex<State>>,
    tasks: JoinSet<()>,
}

#[derive(Debug)]
struct State {
    behaviour: Behaviour,
    /// Response bodies by prefix of the path, newest first.
    overrides: Vec<(String, String)>,
    connections: u64,
    live: bool,
    started_at: Instant,
    calls: Vec<(Instant, String)>,
    concurrent_requests: usize,
    max_concurrent_requests: usize,
}

/// What a terminal would obey: it clears the screen and reorders the line.
pub const ERROR_TEXT: &str = "no\u{1b}[2J\u{202e}";

/// The chunks of a slow response.
const SLOW_CHUNKS: u32 = 10;

// === impl FakeAdmin ===

impl FakeAdmin {
    /// Starts one with this behaviour and without open connections.
    ///
    /// # Errors
    /// When there is no free port.
    pub async fn start(behaviour: Behaviour) -> Result<Self> {
        let state = State {
            behaviour,
            overrides: Vec::new(),
            connections: 0,
            live: true,
            started_at: Instant::now(),
            calls: Vec::new(),
            concurrent_requests: 0,
            max_concurrent_requests: 0,
        };
        let mut fake = Self {
            port: Port::free()?,
            state: Arc::new(Mutex::new(state)),
            tasks: JoinSet::new(),
        };
        fake.set_behaviour(behaviour).await?;
        Ok(fake)
    }

    /// Changes the behaviour. Requests without a response still get none, unless connections are refused now.
    ///
    /// # Errors
    /// When it cannot listen again.
    pub async fn set_behaviour(&mut self, behaviour: Behaviour) -> Result<()> {
        lock(&self.state).behaviour = behaviour;
        match behaviour {
            Behaviour::ConnectionRefused => self.tasks.shutdown().await,
            _ if self.tasks.is_empty() => {
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, self.port.number())).await?;
                self.tasks.spawn(accept(listener, self.state.clone()));
            }
            _ => {}
        }
        Ok(())
    }

    /// Sets the number of open connections of its only listener, which is for TCP.
    pub fn set_open_connections(&self, connections: u64) {
        lock(&self.state).connections = connections;
    }

    /// Responds with this body to paths with this prefix.
    pub fn override_response(&self, prefix: &str, body: String) {
        let mut state = lock(&self.state);
        state.overrides.insert(0, (prefix.to_owned(), body));
    }

    /// Its address.
    pub fn address(&self) -> AdminAddress {
        AdminAddress::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, self.port.number())))
    }

    /// Returns true if `/healthcheck/fail` has no effect now.
    pub fn is_live(&self) -> bool {
        lock(&self.state).live
    }

    /// The times of the requests whose path has this prefix.
    pub fn calls(&self, prefix: &str) -> Vec<Instant> {
        let state = lock(&self.state);
        let calls = state.calls.iter();
        calls
            .filter(|(_, called)| called.starts_with(prefix))
            .map(|(at, _)| *at)
            .collect()
    }

    /// The largest number of concurrent requests so far.
    pub fn max_concurrent_requests(&self) -> usize {
        lock(&self.state).max_concurrent_requests
    }
}

async fn accept(listener: TcpListener, state: Arc<Mutex<State>>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => if let Ok((stream, _)) = accepted {
                let state = Arc::clone(&state);
                // Fails when the drainer disconnects.
                connections.spawn(async move { drop(serve(stream, &state).await) });
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(stream: TcpStream, state: &Mutex<State>) -> std::io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    let Some(path) = read_request(&mut reader).await? else {
        return Ok(());
    };
    let (behaviour, (status, body)) = {
        let mut state = lock(state);
        state.calls.push((Instant::now(), path.clone()));
        state.concurrent_requests += 1;
        state.max_concurrent_requests =
            state.max_concurrent_requests.max(state.concurrent_requests);
        (state.behaviour, state.response(&path))
    };
    let written = tokio::select! {
        written = write_response(&mut writer, behaviour, status, &body) => written,
        _ = reader.fill_buf() => Ok(()),
    };
    lock(state).concurrent_requests -= 1;
    written
}

/// Reads the request, of which there is one on each connection, and returns its path; `None` at the end of the connection.
async fn read_request(reader: &mut BufReader<OwnedReadHalf>) -> std::io::Result<Option<String>> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).await? == 0 {
            return Ok(None);
        }
    }
    Ok(head.split_whitespace().nth(1).map(str::to_owned))
}

async fn write_response(
    writer: &mut OwnedWriteHalf,
    behaviour: Behaviour,
    status: u16,
    body: &str,
) -> std::io::Result<()> {
    let length = body.len();
    let head = format!("HTTP/1.1 {status} x\r\ncontent-length: {length}\r\n\r\n");
    let response = [head.as_bytes(), body.as_bytes()].concat();
    match behaviour {
        Behaviour::NoResponse => pending().await,
        Behaviour::OneByteChunks => {
            let head = format!("HTTP/1.1 {status} x\r\ntransfer-encoding: chunked\r\n\r\n");
            let mut response = head.into_bytes();
            for byte in body.bytes() {
                response.extend_from_slice(&[b'1', b'\r', b'\n', byte, b'\r', b'\n']);
            }
            response.extend_from_slice(b"0\r\n\r\n");
            writer.write_all(&response).await?;
        }
        Behaviour::TruncatedResponse => {
            writer
                .write_all(&response[..head.len() + length / 2])
                .await?
        }
        Behaviour::Slow(time) => {
            for chunk in response.chunks(response.len().div_ceil(SLOW_CHUNKS as usize)) {
                sleep(time / SLOW_CHUNKS).await;
                writer.write_all(chunk).await?;
            }
        }
        _ => writer.write_all(&response).await?,
    }
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

// === impl State ===

impl State {
    /// The status and the body of a response.
    fn response(&mut self, path: &str) -> (u16, String) {
        match self.behaviour {
            Behaviour::Status(status) => (status, ERROR_TEXT.to_owned()),
            Behaviour::UnrelatedPage => (200, "<!doctype html><title>shop</title>".to_owned()),
            Behaviour::StatsOnly if !path.starts_with("/stats") => {
                (403, format!("request to path {path} not allowed\n"))
            }
            Behaviour::NoResponse => (200, String::new()),
            behaviour => {
                let overridden = self
                    .overrides
                    .iter()
                    .find(|(prefix, _)| path.starts_with(prefix));
                let overridden = overridden.map(|(_, body)| (200, body.clone()));
                let (status, mut body) = overridden.unwrap_or_else(|| self.envoy_response(path));
                match behaviour {
                    Behaviour::LargeStats(length)
                        if path.starts_with("/stats") && path.contains("pre_cx_active") =>
                    {
                        body = padded_stats(&body, length)
                    }
                    Behaviour::LargeListenerDump(length)
                        if path.starts_with("/config_dump?resource") =>
                    {
                        body += &" ".repeat(length);
                    }
                    Behaviour::TruncatedDocument => body.truncate(body.len() / 2),
                    _ => {}
                }
                (status, body)
            }
        }
    }

    /// Envoy's response, for the requests that a drainer sends.
    fn envoy_response(&mut self, path: &str) -> (u16, String) {
        let json = match path.split_once('?').unwrap_or((path, "")) {
            ("/healthcheck/fail", _) => return self.set_live(false),
            ("/healthcheck/ok", _) => return self.set_live(true),
            ("/drain_listeners", "graceful&skip_exit") => return (200, "OK\n".to_owned()),
            ("/server_info", _) => json!({ "version": "x/1.40.0/Clean/RELEASE/BoringSSL" }),
            ("/config_dump", query) if query.starts_with("resource=static_listeners") => {
                let socket = json!({ "address": "0.0.0.0", "port_value": 80 });
                let address = json!({ "socket_address": socket });
                json!({ "configs": [{ "listener": { "name": "tcp", "address": address } }] })
            }
            ("/config_dump", "resource=dynamic_listeners") => json!({}),
            ("/config_dump", "mask=bootstrap.stats_config") => json!({}),
            ("/stats", _) => self.stats(),
            _ => return (404, "invalid path\n".to_owned()),
        };
        (200, json.to_string())
    }

    fn set_live(&mut self, live: bool) -> (u16, String) {
        self.live = live;
        (200, "OK\n".to_owned())
    }

    fn stats(&self) -> Value {
        let stats = [
            ("http.admin.downstream_cx_active", 1),
            ("http.admin.downstream_cx_tx_bytes_buffered", 0),
            ("http.admin.downstream_cx_upgrades_active", 0),
            ("http.admin.downstream_rq_active", 1),
            ("http.admin.downstream_cx_http1_total", 1),
            ("http.admin.downstream_cx_http2_total", 0),
            ("http.admin.downstream_cx_http3_total", 0),
            ("http.admin.downstream_cx_http3_active", 0),
            ("listener.0.0.0.0_80.downstream_cx_active", self.connections),
            ("listener.0.0.0.0_80.downstream_cx_total", 7),
            ("listener.0.0.0.0_80.downstream_pre_cx_active", 0),
            ("listener.admin.downstream_cx_active", 1),
            ("listener.admin.downstream_cx_total", 1),
            ("listener.admin.http.admin.downstream_rq_completed", 1),
            ("listener.admin.main_thread.downstream_cx_active", 1),
            ("listener.admin.main_thread.downstream_cx_total", 1),
            ("server.live", u64::from(self.live)),
            ("server.total_connections", self.connections),
            // Flushed each second.
            ("server.uptime", self.started_at.elapsed().as_secs()),
        ];
        let stats = stats.map(|(name, value)| json!({ "name": name, "value": value }));
        json!({ "stats": stats })
    }
}

/// Adds statistics until the document has at least this length. Their names have an escape, so that a reader has to copy them.
fn padded_stats(body: &str, length: usize) -> String {
    let mut padded = body.strip_suffix("]}").unwrap_or(body).to_owned();
    for listener in 0.. {
        if padded.len() >= length {
            break;
        }
        padded += &format!(
            r#",{{"name":"listener.10.0.0.0\u005f{listener}.downstream_cx_active","value":0}}"#
        );
    }
    padded + "]}"
}
