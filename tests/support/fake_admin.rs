//! An admin interface with the faults that a real Envoy cannot be made to show.

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

/// How it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behaviour {
    /// As an Envoy.
    Normal,
    /// With this status, and a line of text.
    Status(u16),
    /// Not at all: it reads the request and keeps the connection.
    NoResponse,
    /// As an Envoy, but each answer takes so long, in pieces.
    Slow(Duration),
    /// With half an answer, and the end of the connection.
    TruncatedResponse,
    /// With a whole answer that holds half a document.
    TruncatedDocument,
    /// As an Envoy, but with statistics of so many bytes.
    LargeStats(usize),
    /// As an Envoy, but with a dump of its listeners of so many bytes.
    LargeListenerDump(usize),
    /// As an Envoy, but each answer comes in chunks of one byte.
    OneByteChunks,
    /// With 200 and a page, as another service does.
    UnrelatedPage,
    /// As an Envoy whose `admin.allow_paths` has statistics alone.
    StatsOnly,
    /// As an Envoy, and closes the connection after each answer, as it has announced.
    AnnouncedClose,
    /// The same without a word.
    UnannouncedClose,
    /// It does not listen.
    ConnectionRefused,
}

/// A fake admin interface, which ends when it is dropped.
#[derive(Debug)]
pub struct FakeAdmin {
    port: Port,
    state: Arc<Mutex<State>>,
    tasks: JoinSet<()>,
}

#[derive(Debug)]
struct State {
    behaviour: Behaviour,
    /// Answers by how their paths begin, the newest first.
    overrides: Vec<(String, String)>,
    connections: u64,
    live: bool,
    calls: Vec<(Instant, String)>,
    concurrent_requests: usize,
    max_concurrent_requests: usize,
}

/// Of a slow answer.
const SLOW_CHUNKS: u32 = 10;

// === impl FakeAdmin ===

impl FakeAdmin {
    /// Starts one that is well, or in another mood from the first moment on. Nothing is open.
    ///
    /// # Errors
    /// When there is no free port.
    pub async fn start(mood: Behaviour) -> Result<Self> {
        let state = State {
            behaviour: mood,
            overrides: Vec::new(),
            connections: 0,
            live: true,
            calls: Vec::new(),
            concurrent_requests: 0,
            max_concurrent_requests: 0,
        };
        let mut fake = Self {
            port: Port::free()?,
            state: Arc::new(Mutex::new(state)),
            tasks: JoinSet::new(),
        };
        fake.set_behaviour(mood).await?;
        Ok(fake)
    }

    /// Changes its mood. Who waits for an answer goes on waiting, unless it refuses now.
    ///
    /// # Errors
    /// When it cannot listen again.
    pub async fn set_behaviour(&mut self, mood: Behaviour) -> Result<()> {
        lock(&self.state).behaviour = mood;
        match mood {
            Behaviour::ConnectionRefused => self.tasks.shutdown().await,
            _ if self.tasks.is_empty() => {
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, self.port.number())).await?;
                self.tasks.spawn(accept(listener, self.state.clone()));
            }
            _ => {}
        }
        Ok(())
    }

    /// Has so many connections open, on a listener for TCP.
    pub fn set_open_connections(&self, connections: u64) {
        lock(&self.state).connections = connections;
    }

    /// Answers with this body where the path begins so.
    pub fn override_response(&self, path: &str, body: String) {
        let mut state = lock(&self.state);
        state.overrides.insert(0, (path.to_owned(), body));
    }

    /// Where it is.
    #[must_use]
    pub fn address(&self) -> AdminAddress {
        AdminAddress::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, self.port.number())))
    }

    /// Whether its health is not failed.
    #[must_use]
    pub fn is_live(&self) -> bool {
        lock(&self.state).live
    }

    /// When a path that begins so was asked for.
    #[must_use]
    pub fn calls(&self, path: &str) -> Vec<Instant> {
        let state = lock(&self.state);
        let calls = state.calls.iter();
        calls
            .filter(|(_, called)| called.starts_with(path))
            .map(|(at, _)| *at)
            .collect()
    }

    /// How many requests it had under way at once, at most.
    #[must_use]
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
                // An error is that the drainer has gone.
                connections.spawn(async move { drop(serve(stream, &state).await) });
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(stream: TcpStream, state: &Mutex<State>) -> std::io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    while let Some(path) = read_request(&mut reader).await? {
        let (mood, (status, body)) = {
            let mut state = lock(state);
            state.calls.push((Instant::now(), path.clone()));
            state.concurrent_requests += 1;
            state.max_concurrent_requests =
                state.max_concurrent_requests.max(state.concurrent_requests);
            (state.behaviour, state.response(&path))
        };
        let goes_on = tokio::select! {
            goes_on = write_response(&mut writer, mood, status, &body) => goes_on,
            _ = reader.fill_buf() => Ok(false),
        };
        lock(state).concurrent_requests -= 1;
        if !goes_on? {
            break;
        }
    }
    Ok(())
}

/// Reads one request and returns its path; `None` at the end of the connection.
async fn read_request(reader: &mut BufReader<OwnedReadHalf>) -> std::io::Result<Option<String>> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).await? == 0 {
            return Ok(None);
        }
    }
    Ok(head.split_whitespace().nth(1).map(str::to_owned))
}

/// Answers in the manner of a mood. Returns whether the connection goes on.
async fn write_response(
    writer: &mut OwnedWriteHalf,
    mood: Behaviour,
    status: u16,
    body: &str,
) -> std::io::Result<bool> {
    let announced = match mood {
        Behaviour::AnnouncedClose => "connection: close\r\n",
        _ => "",
    };
    let length = body.len();
    let head = format!("HTTP/1.1 {status} x\r\n{announced}content-length: {length}\r\n\r\n");
    let answer = [head.as_bytes(), body.as_bytes()].concat();
    match mood {
        Behaviour::NoResponse => pending().await,
        Behaviour::OneByteChunks => {
            let head = format!("HTTP/1.1 {status} x\r\ntransfer-encoding: chunked\r\n\r\n");
            let mut answer = head.into_bytes();
            for byte in body.bytes() {
                answer.extend_from_slice(&[b'1', b'\r', b'\n', byte, b'\r', b'\n']);
            }
            answer.extend_from_slice(b"0\r\n\r\n");
            writer.write_all(&answer).await?;
        }
        Behaviour::TruncatedResponse => {
            writer.write_all(&answer[..head.len() + length / 2]).await?
        }
        Behaviour::Slow(time) => {
            for piece in answer.chunks(answer.len().div_ceil(SLOW_CHUNKS as usize)) {
                sleep(time / SLOW_CHUNKS).await;
                writer.write_all(piece).await?;
            }
        }
        _ => writer.write_all(&answer).await?,
    }
    Ok(!matches!(
        mood,
        Behaviour::TruncatedResponse | Behaviour::AnnouncedClose | Behaviour::UnannouncedClose
    ))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

// === impl State ===

impl State {
    /// The status and the body of an answer, in this mood.
    fn response(&mut self, path: &str) -> (u16, String) {
        match self.behaviour {
            Behaviour::Status(status) => (status, "no".to_owned()),
            Behaviour::UnrelatedPage => (200, "<!doctype html><title>shop</title>".to_owned()),
            Behaviour::StatsOnly if !path.starts_with("/stats") => {
                (403, format!("request to path {path} not allowed\n"))
            }
            Behaviour::NoResponse => (200, String::new()),
            mood => {
                let instead = self
                    .overrides
                    .iter()
                    .find(|(begin, _)| path.starts_with(begin));
                let instead = instead.map(|(_, body)| (200, body.clone()));
                let (status, mut body) = instead.unwrap_or_else(|| self.envoy_response(path));
                match mood {
                    Behaviour::LargeStats(length) if path.starts_with("/stats") => {
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

    /// What an Envoy answers, as far as the drainer asks.
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
        ];
        let stats = stats.map(|(name, value)| json!({ "name": name, "value": value }));
        json!({ "stats": stats })
    }
}

/// A document of statistics with more of them, so that it is this long at least.
fn padded_stats(body: &str, length: usize) -> String {
    let mut grown = body.strip_suffix("]}").unwrap_or(body).to_owned();
    for listener in 0.. {
        if grown.len() >= length {
            break;
        }
        grown += &format!(
            r#",{{"name":"listener.10.0.0.0_{listener}.worker_0.downstream_cx_active","value":0}}"#
        );
    }
    grown + "]}"
}
