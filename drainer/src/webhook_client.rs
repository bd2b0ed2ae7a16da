//! Calls the webhook over HTTPS: one kept connection, one request at a time, a deadline for each.

use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Method, Request, Response, header};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpStream, lookup_host};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tracing::{debug, info};

use crate::config::WebhookAccess;
use crate::duration;
use crate::replacement::Replacement;
use crate::report::Report;

/// For one request, from the token's file to the end of the response.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(1);

/// For the connection to one address, so that another can be tried.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(400);

/// Maximum sizes of what is read, in bytes. Hyper takes no smaller one for a head.
const MAX_TOKEN: u64 = 12 << 10;
const MAX_HEAD: usize = 8 << 10;
const MAX_BODY: usize = 8 << 10;

/// A client of one webhook, which connects with the first request.
pub(crate) struct WebhookClient {
    /// Or why none can be called.
    webhook: Result<Webhook, String>,
    /// The connection of the last request, if that has a response.
    connection: Option<Connection>,
}

/// A webhook, and how to call it.
struct Webhook {
    /// `HOST:PORT`.
    address: String,
    /// An address that is tried before the host is resolved.
    ip: Option<SocketAddr>,
    server_name: ServerName<'static>,
    tls: TlsConnector,
    /// The file of the token.
    token: PathBuf,
}

/// A connection, which is closed when this is dropped.
struct Connection {
    sender: SendRequest<Full<Bytes>>,
    /// The task that reads and writes.
    _task: JoinSet<()>,
}

/// A request, and when its response has to be complete.
struct Call {
    request: Request<Full<Bytes>>,
    deadline: Instant,
}

/// A response, and the connection that it came on.
type Exchange = (Response<Bytes>, Connection);

/// Sends a report, if the webhook takes any, within a second.
pub(crate) async fn send_report(access: &WebhookAccess, report: &Report) {
    if access.reports
        && let Err(error) = WebhookClient::new(access).send_report(report).await
    {
        info!(error, "The webhook did not take the report");
    }
}

// === impl WebhookClient ===

impl WebhookClient {
    /// A client that does not connect yet. If the access is invalid, each request fails and says why.
    pub(crate) fn new(access: &WebhookAccess) -> Self {
        Self {
            webhook: Webhook::try_new(access).map_err(|error| format!("{error:#}")),
            connection: None,
        }
    }

    /// Asks which Services of this pod have another ready endpoint.
    ///
    /// # Errors
    /// Why there is no answer, within a second.
    pub(crate) async fn fetch_replacement(&mut self) -> Result<Replacement, String> {
        let body = self.call(Method::GET, "/replacement", Bytes::new()).await;
        debug!(?body, "The webhook answered");
        serde_json::from_slice(&body?).map_err(|error| error.to_string())
    }

    /// Sends a report.
    ///
    /// # Errors
    /// Why the webhook did not take it, within a second.
    pub(crate) async fn send_report(&mut self, report: &Report) -> Result<(), String> {
        let json = serde_json::to_vec(report).map_err(|error| error.to_string())?;
        self.call(Method::POST, "/report", json.into()).await?;
        Ok(())
    }

    /// Makes a call, and returns the body of the response. If this is cancelled, the connection is closed.
    async fn call(&mut self, method: Method, path: &str, body: Bytes) -> Result<Bytes, String> {
        let describe = |error: anyhow::Error| format!("{error:#}");
        let webhook = self.webhook.as_ref().map_err(Clone::clone)?;
        let kept = self.connection.take();
        let call = webhook.begin(method, path, body).map_err(describe)?;
        // In a box: otherwise the drain's task would be larger from its start, by all that TLS needs.
        let exchange = Box::pin(webhook.exchange(call, kept)).await;
        let (response, connection) = exchange.map_err(describe)?;
        self.connection = Some(connection);
        let (status, body) = (response.status(), response.into_body());
        if status.is_success() {
            return Ok(body);
        }
        let text = String::from_utf8_lossy(&body);
        Err(format!("{} {text}", status.as_str()).trim_end().to_owned())
    }
}

// === impl Webhook ===

impl Webhook {
    fn try_new(access: &WebhookAccess) -> Result<Self> {
        ensure!(access.is_enabled(), "this drainer may not call the webhook");
        let address = &access.address;
        let invalid = || format!("--webhook-address `{address}`: expected HOST:PORT");
        let (host, port) = address.rsplit_once(':').with_context(invalid)?;
        let port = port.parse().with_context(invalid)?;
        Ok(Self {
            address: address.clone(),
            ip: access.ip.map(|ip| SocketAddr::new(ip, port)),
            server_name: ServerName::try_from(host.to_owned()).with_context(invalid)?,
            tls: tls_connector(&access.ca)?,
            token: access.token.clone(),
        })
    }

    /// Begins a call. The token is read each time, since the kubelet replaces it before it expires.
    fn begin(&self, method: Method, path: &str, body: Bytes) -> Result<Call> {
        let deadline = Instant::now() + REQUEST_TIMEOUT;
        let token = read_token(&self.token);
        let token = token.with_context(|| format!("the token {}", self.token.display()))?;
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, &self.address)
            .header(header::AUTHORIZATION, format!("Bearer {token}"))
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(body))?;
        Ok(Call { request, deadline })
    }

    /// Makes a call on the kept connection, or on a new one.
    async fn exchange(&self, call: Call, kept: Option<Connection>) -> Result<Exchange> {
        // The webhook may have closed it meanwhile, or have been replaced.
        if let Some(mut kept) = kept
            && let Ok(response) = call.within(kept.send(&call.request)).await
        {
            return Ok((response, kept));
        }
        let Some(ip) = self.ip else {
            return self.exchange_with_host(&call).await;
        };
        match self.exchange_with(ip, &call).await {
            Err(first) if Instant::now() < call.deadline => {
                let exchange = self.exchange_with_host(&call).await;
                exchange.map_err(|second| anyhow!("{first:#}; {second:#}"))
            }
            exchange => exchange,
        }
    }

    /// Resolves the host, and makes a call to its first address but `ip`: the deadline allows no more attempts.
    async fn exchange_with_host(&self, call: &Call) -> Result<Exchange> {
        let host = &self.address;
        let resolved = call.within(async { Ok(lookup_host(host).await?) }).await;
        let mut addresses = resolved.with_context(|| format!("cannot resolve {host}"))?;
        let other = addresses.find(|&address| Some(address) != self.ip);
        let other = other.with_context(|| format!("{host} has no other address"))?;
        self.exchange_with(other, call).await
    }

    async fn exchange_with(&self, address: SocketAddr, call: &Call) -> Result<Exchange> {
        let exchange = async {
            let mut connection = self.connect(address).await?;
            Ok((connection.send(&call.request).await?, connection))
        };
        call.within(exchange)
            .await
            .with_context(|| address.to_string())
    }

    async fn connect(&self, address: SocketAddr) -> Result<Connection> {
        let stream = timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await;
        let stream = stream.map_err(|_| timed_out("connection", CONNECT_TIMEOUT))??;
        stream.set_nodelay(true)?;
        let stream = self.tls.connect(self.server_name.clone(), stream).await?;
        let mut builder = http1::Builder::new();
        let handshake = builder
            .max_buf_size(MAX_HEAD)
            .handshake(TokioIo::new(stream));
        let (sender, connection) = handshake.await?;
        // The sender reports the same error.
        let task = async move { drop(connection.await) };
        Ok(Connection {
            sender,
            _task: JoinSet::from_iter([task]),
        })
    }
}

/// TLS 1.3 with these CAs: DER in base64, comma-separated.
fn tls_connector(ca: &str) -> Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    for certificate in ca.split(',') {
        let der = STANDARD
            .decode(certificate)
            .context("--webhook-ca: not base64")?;
        let added = roots.add(CertificateDer::from(der));
        added.context("--webhook-ca: not a certificate")?;
    }
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config).into())
}

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

fn timed_out(what: &str, limit: Duration) -> anyhow::Error {
    anyhow!("no {what} within {}", duration::format(limit))
}

// === impl Call ===

impl Call {
    /// Takes a step, which fails at the deadline.
    async fn within<T>(&self, step: impl Future<Output = Result<T>>) -> Result<T> {
        let result = timeout_at(self.deadline, step).await;
        result.unwrap_or_else(|_| Err(timed_out("response", REQUEST_TIMEOUT)))
    }
}

// === impl Connection ===

impl Connection {
    async fn send(&mut self, request: &Request<Full<Bytes>>) -> Result<Response<Bytes>> {
        self.sender.ready().await?;
        let response = self.sender.send_request(request.clone()).await?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, MAX_BODY).collect().await;
        let body = body.map_err(|error| anyhow!(error).context("the response's body"))?;
        Ok(Response::from_parts(head, body.to_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertifiedKey, generate_simple_self_signed};
    use tempfile::NamedTempFile;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
    use tokio_rustls::TlsAcceptor;
    use tokio_rustls::rustls::ServerConfig;
    use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;

    use super::*;
    use crate::envoy::setup_warnings::SetupWarningKind;

    const BODY: &str = r#"{"services": 2, "unready": ["edge"], "terminating": false, "more": 1}"#;

    fn response(status: &str, body: &str) -> String {
        let length = body.len();
        format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{body}")
    }

    /// What a server has read, and on which of its connections.
    type Requests = UnboundedReceiver<(usize, String)>;

    /// Starts a webhook that answers the requests of each connection with these responses, and then closes it. Returns
    /// the file of the token too.
    async fn serve<const N: usize>(
        connections: [Vec<String>; N],
    ) -> (WebhookAccess, Requests, NamedTempFile) {
        let names = ["localhost".to_owned()];
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed(names).unwrap();
        let key = PrivatePkcs8KeyDer::from(signing_key.serialize_der());
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()));
        let config = config
            .with_protocol_versions(&[&TLS13])
            .unwrap()
            .with_no_client_auth();
        let config = config.with_single_cert(vec![cert.der().clone()], key.into());
        let acceptor = TlsAcceptor::from(Arc::new(config.unwrap()));
        let listener = TcpListener::bind("localhost:0").await.unwrap();
        let address = format!("localhost:{}", listener.local_addr().unwrap().port());
        let (sender, requests) = unbounded_channel();
        tokio::spawn(async move {
            for (number, responses) in connections.into_iter().enumerate() {
                let (stream, _) = listener.accept().await.unwrap();
                // Panics if the client does not trust the certificate, and so closes the connection.
                let mut stream = acceptor.accept(stream).await.unwrap();
                for response in responses {
                    let mut request = [0; 1024];
                    let length = stream.read(&mut request).await.unwrap();
                    let request = String::from_utf8_lossy(&request[..length]).to_lowercase();
                    // Both fail if the test needs no more.
                    let _ = sender.send((number, request));
                    let _ = stream.write_all(response.as_bytes()).await;
                }
            }
        });
        let token = NamedTempFile::new().unwrap();
        std::fs::write(token.path(), "a.b.c\n").unwrap();
        let access = WebhookAccess {
            address,
            ca: STANDARD.encode(cert.der()),
            token: token.path().to_owned(),
            ..WebhookAccess::default()
        };
        (access, requests, token)
    }

    /// The number of Services in the answer.
    async fn fetch(access: &WebhookAccess) -> Result<usize, String> {
        let answer = WebhookClient::new(access).fetch_replacement().await;
        answer.map(|answer| answer.services)
    }

    #[tokio::test]
    async fn response_is_an_answer_or_an_error() {
        let long = |length| "-".repeat(length);
        let never = vec![String::new(), String::new()];
        for (responses, want) in [
            (vec![response("200 OK", BODY)], Ok(2)),
            (vec![response("401 Unauthorized", "")], Err("401")),
            (vec![response("503 No", "later\n")], Err("503 later")),
            (vec![response("200 OK", "")], Err("EOF while parsing")),
            (vec!["SSH-2.0\r\n".to_owned()], Err("invalid HTTP version")),
            (
                vec![response("200 OK", &long(MAX_BODY + 1))],
                Err("length limit"),
            ),
            (
                vec![response(&format!("200 {}", long(MAX_HEAD)), "")],
                Err("too large"),
            ),
            (Vec::new(), Err("connection")),
            (never, Err("no response within 1s")),
        ] {
            let (access, ..) = &serve([responses]).await;
            let got = fetch(access).await;
            match want {
                Ok(services) => assert_eq!(got, Ok(services)),
                Err(want) => assert!(got.as_ref().is_err_and(|it| it.contains(want)), "{got:?}"),
            }
        }
    }

    #[tokio::test]
    async fn report_has_the_token_and_a_body() {
        let (access, mut requests, _token) = serve([vec![response("204 No Content", "")]]).await;
        let report = Report::SetupWarnings(vec![SetupWarningKind::QuicGradual]);
        let sent = WebhookClient::new(&access).send_report(&report).await;
        assert_eq!(sent, Ok(()));
        let (_, request) = requests.recv().await.unwrap();
        let want = format!(
            "post /report http/1.1\r\nhost: {}\r\nauthorization: bearer a.b.c\r\ncontent-type: application/json\r\n\
             content-length: 34\r\n\r\n{{\"setupwarnings\":[\"quic-gradual\"]}}",
            access.address
        );
        assert_eq!(request, want);
    }

    #[tokio::test]
    async fn connection_is_kept_and_replaced_when_closed() {
        let ok = || response("200 OK", BODY);
        let (access, mut requests, _token) = serve([vec![ok(), ok()], vec![ok()]]).await;
        let mut client = WebhookClient::new(&access);
        for connection in [0, 0, 1] {
            assert_eq!(client.fetch_replacement().await.unwrap().services, 2);
            assert_eq!(requests.recv().await.unwrap().0, connection);
        }
    }

    #[tokio::test]
    async fn host_is_resolved_when_the_ip_fails() {
        let (mut access, _, _token) = serve([vec![response("200 OK", BODY)]]).await;
        access.ip = Some([127, 0, 0, 2].into());
        assert_eq!(fetch(&access).await, Ok(2));
        access.address = "localhost:1".to_owned();
        let error = fetch(&access).await.unwrap_err();
        let refused = "Connection refused (os error 111)";
        let first = format!("127.0.0.2:1: {refused}; ");
        assert!(
            error.starts_with(&first) && error.ends_with(refused),
            "{error}"
        );
    }

    #[tokio::test]
    async fn invalid_access_is_named() {
        let (access, _, _token) = serve([Vec::new()]).await;
        let (other, ..) = serve([]).await;
        let address = "expected HOST:PORT";
        for (name, value, want) in [
            ("address", "", "this drainer may not call the webhook"),
            ("address", "webhook", address),
            ("address", "webhook:https", address),
            ("address", "-:1", address),
            (
                "address",
                "localhost.invalid:1",
                "cannot resolve localhost.invalid:1",
            ),
            ("token file", "/nowhere", "the token /nowhere: No such file"),
            ("ca", "*", "--webhook-ca: not base64"),
            ("ca", "AAAA", "--webhook-ca: not a certificate"),
            ("ca", &other.ca, "invalid peer certificate"),
            ("token", "", "it is not a token"),
            ("token", "a\r\nHost: b", "it is not a token"),
            ("token", "ä", "it is not a token"),
        ] {
            let mut access = access.clone();
            match name {
                "address" => access.address = value.to_owned(),
                "ca" => access.ca = value.to_owned(),
                "token file" => access.token = value.into(),
                _ => std::fs::write(&access.token, value).unwrap(),
            }
            let error = fetch(&access).await.unwrap_err();
            assert!(error.contains(want), "{want}: {error}");
        }
    }
}
