//! A fake of Envoy's admin interface, whose behaviour is a function of the second, with faults that a real Envoy cannot
//! be made to have. It listens on a socket, or is connected in memory, for tests in paused time.

use std::future::pending;
use std::io::{Error, ErrorKind, Result};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, DuplexStream,
};
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep};

/// How Envoy behaves at a moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Behaviour {
    /// What is wrong with its responses.
    pub fault: Option<Fault>,
    /// The open connections of its TCP listener.
    pub connections: u64,
    /// The open HTTP/3 connections of its QUIC listener, if it has one. Its drain strategy is immediate then.
    pub http3: Option<u64>,
    /// Its TCP listener is INBOUND, beside an OUTBOUND one. Its drain strategy is immediate then.
    pub has_outbound: bool,
    /// The body of the statistics of its listeners, in place of the counts above.
    pub stats: Option<String>,
}

/// What is wrong with the responses of the admin interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// They have this status and [`ERROR_TEXT`].
    Status(u16),
    /// There are none: it reads the request and keeps the connection open.
    NoResponse,
    /// Each takes this long, in chunks.
    Slow(Duration),
    /// There is half of each, and the end of the connection.
    TruncatedResponse,
    /// Each is complete, but its document is not: there is half of it.
    TruncatedDocument,
    /// Those to paths with this text are longer by so many bytes.
    Long(&'static str, usize),
    /// They are in chunks of one byte.
    OneByteChunks,
    /// They are 200 and an HTML page, as another service's.
    UnrelatedPage,
    /// Only statistics are allowed by `admin.allow_paths`.
    StatsOnly,
    /// Connections in memory are refused.
    ConnectionRefused,
    /// They are refused too, and then it is another Envoy, which is live.
    Exited,
}

/// A fake Envoy. Clones are the same Envoy.
#[derive(Clone)]
pub struct FakeEnvoy(Arc<Mutex<State>>);

struct State {
    behaviour: Box<dyn Fn(f64) -> Behaviour + Send>,
    started_at: Instant,
    /// The second in which the Envoy that runs was started.
    restarted_at: f64,
    /// False after `/healthcheck/fail`.
    live: bool,
    /// The second and the path of each request.
    calls: Vec<(f64, String)>,
    /// The second and the path of each request that changed it.
    changes: Vec<(f64, String)>,
    concurrent_requests: usize,
    max_concurrent_requests: usize,
}

/// What a terminal would obey: it clears the screen and reorders the line.
pub const ERROR_TEXT: &str = "no\u{1b}[2J\u{202e}";

/// The chunks of a slow response.
const SLOW_CHUNKS: u32 = 10;

/// How long the first Envoy has been running at the start, in seconds.
const UPTIME: f64 = 1000.0;

/// The resolution in seconds of the behaviour, for what happens between two requests.
const RESOLUTION: f64 = 0.1;

/// The bytes of a connection in memory that are not read yet.
const BUFFER: usize = 64 << 10;

// === impl Behaviour ===

impl Behaviour {
    /// That of an Envoy without a fault, with so many open connections.
    pub const fn open(connections: u64) -> Self {
        Self {
            fault: None,
            connections,
            http3: None,
            has_outbound: false,
            stats: None,
        }
    }

    /// The same with a fault.
    pub const fn with(mut self, fault: Fault) -> Self {
        self.fault = Some(fault);
        self
    }

    fn is_refusing(&self) -> bool {
        matches!(self.fault, Some(Fault::ConnectionRefused | Fault::Exited))
    }
}

// === impl FakeEnvoy ===

impl FakeEnvoy {
    /// An Envoy that is live and behaves so at each second from now on.
    pub fn new(behaviour: impl Fn(f64) -> Behaviour + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(State {
            behaviour: Box::new(behaviour),
            started_at: Instant::now(),
            restarted_at: -UPTIME,
            live: true,
            calls: Vec::new(),
            changes: Vec::new(),
            concurrent_requests: 0,
            max_concurrent_requests: 0,
        })))
    }

    /// Listens on a free port of 127.0.0.1, until the runtime is dropped.
    ///
    /// # Errors
    /// When there is no free port.
    pub async fn listen(&self) -> Result<SocketAddr> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let envoy = self.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                envoy.accept(stream);
            }
        });
        Ok(address)
    }

    /// Connects in memory.
    ///
    /// # Errors
    /// When it refuses connections now.
    pub fn connect(&self) -> Result<DuplexStream> {
        if self.is_refusing() {
            return Err(ErrorKind::ConnectionRefused.into());
        }
        let (client, server) = tokio::io::duplex(BUFFER);
        self.accept(server);
        Ok(client)
    }

    /// Sends a request without a connection. Returns the status and the body; `None` if it does not respond.
    ///
    /// # Errors
    /// When it refuses connections now.
    pub fn call(&self, method: &str, path: &str) -> Result<Option<(u16, String)>> {
        let mut state = self.state();
        if state.behaviour().is_refusing() {
            return Err(ErrorKind::ConnectionRefused.into());
        }
        let (fault, response) = state.respond(method, path.to_owned());
        Ok((fault != Some(Fault::NoResponse)).then_some(response))
    }

    /// Changes the behaviour for good.
    pub fn set_behaviour(&self, behaviour: Behaviour) {
        self.state().behaviour = Box::new(move |_| behaviour.clone());
    }

    /// Fails or restores its health, as another client of its admin interface.
    pub fn set_live(&self, live: bool) {
        self.state().live = live;
    }

    /// Becomes another process, which is live.
    pub fn restart(&self) {
        let mut state = self.state();
        (state.live, state.restarted_at) = (true, state.second());
    }

    /// Whether its health is not failed.
    pub fn is_live(&self) -> bool {
        self.state().live
    }

    /// Whether it refuses connections.
    pub fn is_refusing(&self) -> bool {
        self.state().behaviour().is_refusing()
    }

    /// The seconds of the requests whose path has this prefix; `GET /…` for one that changes nothing of a path that would.
    pub fn calls(&self, prefix: &str) -> Vec<f64> {
        let state = self.state();
        let calls = state.calls.iter();
        let calls = calls.filter(|(_, path)| path.starts_with(prefix));
        calls.map(|(second, _)| *second).collect()
    }

    /// The second and the path of each request that changed it.
    pub fn changes(&self) -> Vec<(f64, String)> {
        self.state().changes.clone()
    }

    /// The largest number of concurrent requests so far.
    pub fn max_concurrent_requests(&self) -> usize {
        self.state().max_concurrent_requests
    }

    fn accept(&self, stream: impl AsyncRead + AsyncWrite + Send + 'static) {
        let envoy = self.clone();
        // Fails when the client disconnects.
        tokio::spawn(async move { drop(envoy.serve(stream).await) });
    }

    /// Serves one request, as each connection has.
    async fn serve(&self, stream: impl AsyncRead + AsyncWrite) -> Result<()> {
        let (reader, mut writer) = tokio::io::split(stream);
        let mut reader = BufReader::new(reader);
        let (method, path) = read_request(&mut reader).await?;
        let (fault, (status, body)) = {
            let mut state = self.state();
            state.concurrent_requests += 1;
            state.max_concurrent_requests =
                state.max_concurrent_requests.max(state.concurrent_requests);
            state.respond(&method, path)
        };
        let written = tokio::select! {
            written = write_response(&mut writer, fault, status, &body) => written,
            _ = reader.fill_buf() => Ok(()),
        };
        self.state().concurrent_requests -= 1;
        written
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads a request and returns its method and its path.
async fn read_request(reader: &mut (impl AsyncBufRead + Unpin)) -> Result<(String, String)> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).await? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
    }
    let mut words = head.split_whitespace().map(str::to_owned);
    let line = words.next().zip(words.next());
    line.ok_or_else(|| Error::other(head.clone()))
}

async fn write_response(
    writer: &mut (impl AsyncWrite + Unpin),
    fault: Option<Fault>,
    status: u16,
    body: &str,
) -> Result<()> {
    let length = body.len();
    let head = format!("HTTP/1.1 {status} x\r\ncontent-length: {length}\r\n\r\n");
    let response = [head.as_bytes(), body.as_bytes()].concat();
    match fault {
        Some(Fault::NoResponse) => pending().await,
        Some(Fault::OneByteChunks) => {
            let head = format!("HTTP/1.1 {status} x\r\ntransfer-encoding: chunked\r\n\r\n");
            let mut response = head.into_bytes();
            for byte in body.bytes() {
                response.extend_from_slice(&[b'1', b'\r', b'\n', byte, b'\r', b'\n']);
            }
            response.extend_from_slice(b"0\r\n\r\n");
            writer.write_all(&response).await
        }
        Some(Fault::TruncatedResponse) => {
            let half = &response[..head.len() + length / 2];
            writer.write_all(half).await
        }
        Some(Fault::Slow(time)) => {
            for chunk in response.chunks(response.len().div_ceil(SLOW_CHUNKS as usize)) {
                sleep(time / SLOW_CHUNKS).await;
                writer.write_all(chunk).await?;
            }
            Ok(())
        }
        _ => writer.write_all(&response).await,
    }
}

// === impl State ===

impl State {
    fn second(&self) -> f64 {
        self.started_at.elapsed().as_secs_f64()
    }

    fn behaviour(&self) -> Behaviour {
        (self.behaviour)(self.second())
    }

    /// The fault, the status and the body of a response.
    fn respond(&mut self, method: &str, mut path: String) -> (Option<Fault>, (u16, String)) {
        self.restart_if_exited();
        let behaviour = self.behaviour();
        let is_change = path.starts_with("/healthcheck/") || path.starts_with("/drain_listeners");
        let (status, mut body) = match behaviour.fault {
            Some(Fault::NoResponse) => (200, String::new()),
            Some(Fault::Status(status)) => (status, ERROR_TEXT.to_owned()),
            Some(Fault::UnrelatedPage) => (200, "<!doctype html><title>shop</title>".to_owned()),
            Some(Fault::StatsOnly) if !path.starts_with("/stats") => {
                (403, format!("request to path {path} not allowed\n"))
            }
            _ if is_change && method == "GET" => (405, "Method GET not allowed\n".to_owned()),
            _ => self.envoy_response(&behaviour, &path),
        };
        match behaviour.fault {
            Some(Fault::Long(part, bytes)) if path.contains(part) => body += &" ".repeat(bytes),
            Some(Fault::TruncatedDocument) => body.truncate(body.len() / 2),
            _ => {}
        }
        if is_change && method == "GET" {
            path.insert_str(0, "GET ");
        }
        self.calls.push((self.second(), path));
        (behaviour.fault, (status, body))
    }

    /// Becomes another Envoy, which is live, if it has exited since the last request.
    fn restart_if_exited(&mut self) {
        let mut at = self.calls.last().map_or(0.0, |(second, _)| *second);
        while at < self.second() {
            if (self.behaviour)(at).fault == Some(Fault::Exited) {
                self.live = true;
                self.restarted_at = at;
            }
            at += RESOLUTION;
        }
    }

    /// Envoy's response, for the requests that a drainer sends.
    fn envoy_response(&mut self, behaviour: &Behaviour, path: &str) -> (u16, String) {
        let json = match path.split_once('?').unwrap_or((path, "")) {
            ("/healthcheck/fail", _) => return self.change(path, false),
            ("/healthcheck/ok", _) => return self.change(path, true),
            ("/drain_listeners", "graceful&skip_exit" | "graceful&skip_exit&inboundonly") => {
                return self.change(path, self.live);
            }
            ("/server_info", _) => self.server_info(behaviour),
            ("/listeners", "format=json") => {
                let address = json!({ "address": "0.0.0.0", "port_value": 80 });
                json!({ "listener_statuses": [{ "local_address": { "socket_address": address } }] })
            }
            ("/config_dump", query) if query.starts_with("resource=static_listeners") => {
                let address = |port| json!({ "socket_address": { "address": "0.0.0.0", "port_value": port } });
                let direction = ["UNSPECIFIED", "INBOUND"][usize::from(behaviour.has_outbound)];
                let listener = |name, port, direction| json!({ "name": name, "address": address(port), "traffic_direction": direction });
                let tcp = listener("tcp", 80, direction);
                let out = (behaviour.has_outbound).then(|| listener("out", 81, "OUTBOUND"));
                let quic = behaviour.http3.map(|_| {
                    let udp = json!({ "quic_options": {} });
                    json!({ "name": "quic", "address": address(443), "udp_listener_config": udp })
                });
                let listeners = [Some(tcp), out, quic].into_iter().flatten();
                let listeners = listeners.map(|listener| json!({ "listener": listener }));
                json!({ "configs": listeners.collect::<Vec<_>>() })
            }
            ("/config_dump", "resource=dynamic_listeners") => json!({}),
            ("/config_dump", "mask=bootstrap.stats_config") => json!({}),
            ("/stats", query) => match &behaviour.stats {
                Some(stats) if query.contains("pre_cx_active") => return (200, stats.clone()),
                _ => return (200, self.stats(behaviour)),
            },
            _ => return (404, "invalid path\n".to_owned()),
        };
        (200, json.to_string())
    }

    fn change(&mut self, path: &str, live: bool) -> (u16, String) {
        self.live = live;
        self.changes.push((self.second(), path.to_owned()));
        (200, "OK\n".to_owned())
    }

    fn server_info(&self, behaviour: &Behaviour) -> Value {
        let uptime = (self.second() - self.restarted_at).floor();
        let is_immediate = behaviour.http3.is_some() || behaviour.has_outbound;
        let strategy = if is_immediate { "Immediate" } else { "Gradual" };
        json!({
            "version": "x/1.40.0/Clean/RELEASE/BoringSSL",
            "state": if self.live { "LIVE" } else { "DRAINING" },
            "uptime_current_epoch": format!("{uptime}s"),
            "command_line_options": { "drain_strategy": strategy },
        })
    }

    fn stats(&self, behaviour: &Behaviour) -> String {
        let connections = behaviour.connections;
        let stats = [
            ("http.admin.downstream_cx_active", 1),
            ("http.admin.downstream_rq_active", 1),
            ("http.admin.downstream_cx_http1_total", 1),
            (
                "http.quic.downstream_cx_http3_active",
                behaviour.http3.unwrap_or(0),
            ),
            ("listener.0.0.0.0_80.downstream_cx_active", connections),
            ("listener.0.0.0.0_80.downstream_cx_total", 7),
            ("listener.admin.downstream_cx_active", 1),
            ("listener.admin.downstream_cx_total", 1),
            ("listener.admin.http.admin.downstream_rq_completed", 1),
            ("listener.admin.main_thread.downstream_cx_active", 1),
            ("listener.admin.main_thread.downstream_cx_total", 1),
            ("server.live", u64::from(self.live)),
        ];
        let stats = stats.map(|(name, value)| format!(r#"{{"name":"{name}","value":{value}}}"#));
        format!(r#"{{"stats":[{}]}}"#, stats.join(","))
    }
}
