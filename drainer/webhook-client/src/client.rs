//! The HTTP client of the webhook: one kept connection, one request at a time, a deadline for each.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::version::TLS13;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::deadline_stream::{DeadlineStream, time_until};

/// For one request, from the token's file to the end of the response. The drainer waits a little longer.
const REQUEST_TIMEOUT: Duration = Duration::from_millis(900);

/// For the connection to one address, so that another can be tried.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(400);

/// Maximum sizes of what is read, in bytes.
const MAX_TOKEN: u64 = 12 << 10;
const MAX_RESPONSE: usize = 8 << 10;

/// Maximum number of headers in a response.
const MAX_HEADERS: usize = 16;

/// A request for the webhook.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Request<'a> {
    method: &'a str,
    path: &'a str,
    body: Option<&'a str>,
}

/// Its response.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Response {
    /// The HTTP status.
    pub(crate) status: u16,
    /// The body.
    pub(crate) body: String,
}

/// A client of one webhook.
pub(crate) struct Client {
    host: String,
    port: u16,
    ip: Option<IpAddr>,
    server_name: ServerName<'static>,
    tls: Arc<ClientConfig>,
    token: PathBuf,
    /// The connection of the last request, if the webhook keeps it open.
    connection: Option<Connection>,
}

type Connection = StreamOwned<ClientConnection, DeadlineStream>;

// === impl Request ===

impl<'a> Request<'a> {
    /// Parses a line: a method, a path, and optionally a body.
    ///
    /// # Errors
    /// If it is none.
    pub(crate) fn parse(line: &'a str) -> Result<Self> {
        let mut parts = line.splitn(3, ' ');
        let (method, path, body) = (parts.next(), parts.next(), parts.next());
        match (method, path) {
            (Some(method @ ("GET" | "POST")), Some(path)) if path.starts_with('/') => {
                Ok(Self { method, path, body })
            }
            _ => bail!("not a request: `{line}`"),
        }
    }

    fn encode(&self, host: &str, port: u16, token: &str) -> String {
        let Self { method, path, body } = self;
        let mut text = format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {token}\r\n"
        );
        if let Some(body) = body {
            let length = body.len();
            text += &format!("Content-Type: application/json\r\nContent-Length: {length}\r\n");
        }
        text += "\r\n";
        text += body.unwrap_or_default();
        text
    }
}

// === impl Client ===

impl Client {
    /// A client of the webhook at `address`, `HOST:PORT`, whose certificate for HOST was issued by one of `ca`. It does
    /// not connect yet.
    ///
    /// # Errors
    /// If an argument is invalid.
    pub(crate) fn try_new(
        address: &str,
        ip: Option<IpAddr>,
        ca: &str,
        token: PathBuf,
    ) -> Result<Self> {
        let invalid = || format!("--address `{address}`: expected HOST:PORT");
        let (host, port) = address.rsplit_once(':').with_context(invalid)?;
        let mut roots = RootCertStore::empty();
        for certificate in ca.split(',') {
            let der = STANDARD.decode(certificate).context("--ca: not base64")?;
            let added = roots.add(CertificateDer::from(der));
            added.context("--ca: not a certificate")?;
        }
        let tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&TLS13])?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self {
            server_name: ServerName::try_from(host.to_owned()).with_context(invalid)?,
            port: port.parse().ok().with_context(invalid)?,
            host: host.to_owned(),
            ip,
            tls: Arc::new(tls),
            token,
            connection: None,
        })
    }

    /// Sends a request, on the connection of the last one if that is still open.
    ///
    /// # Errors
    /// If there is no complete response in time.
    pub(crate) fn send(&mut self, request: &Request<'_>) -> Result<Response> {
        let deadline = Instant::now() + REQUEST_TIMEOUT;
        let token = read_token(&self.token)
            .with_context(|| format!("the token {}", self.token.display()))?;
        let request = request.encode(&self.host, self.port, &token);
        if let Some(mut kept) = self.connection.take() {
            kept.sock.deadline = deadline;
            // The webhook may have closed it meanwhile, or have been replaced.
            if let Ok(exchanged) = exchange(kept, &request) {
                return Ok(self.keep(exchanged));
            }
        }
        let mut failures = Vec::new();
        for resolve in [Self::given_address, Self::resolved_addresses] {
            let addresses = match resolve(self, deadline) {
                Ok(addresses) => addresses,
                Err(error) => {
                    failures.push(format!("{error:#}"));
                    continue;
                }
            };
            for address in addresses {
                let exchanged = self
                    .connect(address, deadline)
                    .and_then(|connection| exchange(connection, &request));
                match exchanged {
                    Ok(exchanged) => return Ok(self.keep(exchanged)),
                    Err(error) => failures.push(format!("{address}: {error:#}")),
                }
            }
        }
        bail!("{}", failures.join("; "))
    }

    fn keep(&mut self, (response, connection): (Response, Option<Connection>)) -> Response {
        self.connection = connection;
        response
    }

    fn given_address(&self, _: Instant) -> Result<Vec<SocketAddr>> {
        let address = self.ip.map(|ip| SocketAddr::new(ip, self.port));
        Ok(address.into_iter().collect())
    }

    /// Resolves the host, one address of each: the deadline allows no more attempts.
    fn resolved_addresses(&self, deadline: Instant) -> Result<Vec<SocketAddr>> {
        let host = (self.host.clone(), self.port);
        let addresses = before(deadline, move || Ok(host.to_socket_addrs()?.collect()));
        let addresses: Vec<_> =
            addresses.with_context(|| format!("cannot resolve {}", self.host))?;
        let given = |address: &SocketAddr| Some(address.ip()) == self.ip;
        let others = addresses.into_iter().filter(|it| !given(it));
        Ok(others.take(1).collect())
    }

    fn connect(&self, address: SocketAddr, deadline: Instant) -> Result<Connection> {
        let stream = DeadlineStream::connect(address, CONNECT_TIMEOUT, deadline)?;
        let session = ClientConnection::new(Arc::clone(&self.tls), self.server_name.clone())?;
        Ok(StreamOwned::new(session, stream))
    }
}

/// Calls a function that has no timeout of its own. One that takes too long goes on in its thread, of which there is no
/// other: the drainer ends this process when a request fails.
///
/// # Errors
/// If it fails, or takes longer than until the deadline.
fn before<T: Send + 'static>(
    deadline: Instant,
    call: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let (sender, result) = mpsc::channel();
    // Fails if the result comes too late.
    thread::Builder::new().spawn(move || drop(sender.send(call())))?;
    let received = result.recv_timeout(time_until(deadline)?);
    received.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()))
}

/// Reads the token, which the kubelet replaces before it expires.
fn read_token(path: &Path) -> Result<String> {
    let mut token = String::new();
    File::open(path)?
        .take(MAX_TOKEN)
        .read_to_string(&mut token)?;
    let token = token.trim();
    let is_valid = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
    ensure!(is_valid, "it is not a token");
    Ok(token.to_owned())
}

/// Sends a request and reads its response. Returns the connection if it can be used again.
fn exchange(mut connection: Connection, request: &str) -> Result<(Response, Option<Connection>)> {
    connection.write_all(request.as_bytes())?;
    connection.flush()?;
    let mut buffer = Vec::new();
    loop {
        if let Some((response, is_kept)) = parse(&buffer)? {
            return Ok((response, is_kept.then_some(connection)));
        }
        ensure!(buffer.len() < MAX_RESPONSE, "the response is too large");
        let mut chunk = [0; 1024];
        match connection.read(&mut chunk)? {
            0 => bail!("the response is incomplete"),
            length => buffer.extend_from_slice(&chunk[..length]),
        }
    }
}

/// Parses a response with a `Content-Length`, and whether its connection stays open; `None` if it is not complete yet.
fn parse(bytes: &[u8]) -> Result<Option<(Response, bool)>> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut head = httparse::Response::new(&mut headers);
    let parsed = head.parse(bytes);
    let httparse::Status::Complete(start) = parsed.map_err(|error| anyhow!("not HTTP: {error}"))?
    else {
        return Ok(None);
    };
    let status = head.code.context("no status")?;
    let header = |name: &str| {
        let mut headers = head.headers.iter();
        let header = headers.find(|header| header.name.eq_ignore_ascii_case(name))?;
        std::str::from_utf8(header.value).ok()
    };
    let length = match header("content-length") {
        Some(length) => length.parse::<usize>()?,
        None if status == 204 => 0,
        None => bail!("the response has no Content-Length"),
    };
    ensure!(length <= MAX_RESPONSE, "the response is too large");
    let Some(body) = bytes[start..].get(..length) else {
        return Ok(None);
    };
    let body = String::from_utf8(body.to_vec()).map_err(|_| anyhow!("the body is not UTF-8"))?;
    let is_kept = header("connection").is_none_or(|value| !value.eq_ignore_ascii_case("close"));
    Ok(Some((Response { status, body }, is_kept)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_is_a_request() {
        let request = |method, path, body| Some(Request { method, path, body });
        for (line, want) in [
            ("GET /replacement", request("GET", "/replacement", None)),
            (
                "POST /report {\"a\": 1}",
                request("POST", "/report", Some("{\"a\": 1}")),
            ),
            ("DELETE /", None),
            ("GET", None),
            ("GET replacement", None),
            ("", None),
        ] {
            assert_eq!(Request::parse(line).ok(), want, "{line}");
        }
    }

    #[test]
    fn response_is_parsed_once_it_is_complete() {
        let response = |status, body: &str, is_kept| {
            let body = body.to_owned();
            Some((Response { status, body }, is_kept))
        };
        for (text, want) in [
            ("HTTP/1.1 200 OK\r\ncontent-le", None),
            ("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nab", None),
            (
                "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc",
                response(200, "abc", true),
            ),
            (
                "HTTP/1.1 401 Unauthorized\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
                response(401, "", false),
            ),
            ("HTTP/1.1 204 No Content\r\n\r\n", response(204, "", true)),
        ] {
            assert_eq!(parse(text.as_bytes()).unwrap(), want, "{text}");
        }
        for text in [
            "SSH-2.0-OpenSSH_9.6\r\n\r\n",
            "HTTP/1.1 200 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 9000\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        ] {
            assert!(parse(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn token_must_fit_a_header() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        for (content, want) in [
            ("a.b.c\n", Some("a.b.c")),
            ("", None),
            ("a\r\nHost: b", None),
            ("ä", None),
        ] {
            std::fs::write(&path, content).unwrap();
            assert_eq!(read_token(&path).ok().as_deref(), want, "{content:?}");
        }
        assert!(read_token(&dir.path().join("missing")).is_err());
    }

    #[test]
    fn call_without_a_timeout_ends_at_the_deadline() {
        let later = Instant::now() + Duration::from_secs(60);
        assert_eq!(before(later, || Ok(7)).unwrap(), 7);
        let error = before(later, || Err::<(), _>(ErrorKind::NotFound.into())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        let soon = Instant::now() + Duration::from_millis(50);
        let (_blocked, never) = mpsc::channel::<()>();
        let error = before(soon, move || Ok(never.recv())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }

    #[test]
    fn invalid_arguments_are_named() {
        let token = PathBuf::new;
        for (address, ca, want) in [
            ("webhook", "", "--address `webhook`: expected HOST:PORT"),
            ("a:b", "AAAA", "--ca: not a certificate"),
            ("a:1", "*", "--ca: not base64"),
        ] {
            let error = Client::try_new(address, None, ca, token()).err().unwrap();
            assert_eq!(error.to_string(), want);
        }
    }
}
