//! Calls the webhook over HTTPS, each on a connection of its own, within a second.

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::Full;
use hyper::{Method, Request, Response, header};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto, version};

use crate::http_client;
use crate::settings::config::WebhookAccess;

/// For one call, from the first connection to the end of the response.
const CALL_TIMEOUT: Duration = Duration::from_secs(1);

/// For the connection to one address, so that another can be tried.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(400);

/// Maximum size of the response's body, in bytes.
const MAX_BODY: usize = 8 << 10;

/// Calls the webhook, and returns the body of the response. If this is cancelled, the connection is closed.
///
/// # Errors
/// Why there is none, within a second.
pub(crate) async fn call(
    access: &WebhookAccess,
    method: Method,
    path: &str,
    body: Bytes,
) -> Result<Bytes, String> {
    let call = async {
        ensure!(access.is_enabled(), "this drainer may not call the webhook");
        // The kubelet replaces it before it expires.
        let token = fs::read_to_string(&access.token);
        let token = token.with_context(|| format!("the token {}", access.token.display()))?;
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, &access.address)
            .header(header::AUTHORIZATION, format!("Bearer {}", token.trim()))
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(body))?;
        let response = timeout(CALL_TIMEOUT, exchange(access, &request)).await;
        let no_response = || format!("{}: no response within 1s", access.address);
        let response = response.ok().with_context(no_response)??;
        let (status, body) = (response.status(), response.into_body());
        let rejection = format!("{} {}", status.as_str(), String::from_utf8_lossy(&body));
        ensure!(status.is_success(), "{}", rejection.trim_end());
        anyhow::Ok(body)
    };
    // In a box: otherwise the drain's task would be larger from its start, by all that TLS needs.
    Box::pin(call).await.map_err(|error| format!("{error:#}"))
}

/// Tries the IP address, and then the first other one of the host: there is no time for more.
async fn exchange(
    access: &WebhookAccess,
    request: &Request<Full<Bytes>>,
) -> Result<Response<Bytes>> {
    let address = &access.address;
    let invalid = || format!("--webhook-address `{address}`: expected HOST:PORT");
    let (host, port) = address.rsplit_once(':').with_context(invalid)?;
    let port = port.parse().with_context(invalid)?;
    let server_name = ServerName::try_from(host.to_owned()).with_context(invalid)?;
    let tls = tls_connector(&access.ca)?;
    let exchange_with = async |address: SocketAddr| {
        let exchange = async {
            let stream = timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await;
            let stream = stream.ok().context("no connection within 400ms")??;
            stream.set_nodelay(true)?;
            let stream = tls.connect(server_name.clone(), stream).await?;
            anyhow::Ok(http_client::exchange(stream, request.clone(), MAX_BODY).await?)
        };
        exchange.await.with_context(|| address.to_string())
    };
    let ip = access.ip.map(|ip| SocketAddr::new(ip, port));
    let exchange_by_name = async {
        let resolved = lookup_host(address).await;
        let mut addresses = resolved.with_context(|| format!("cannot resolve {address}"))?;
        let other = addresses.find(|&address| Some(address) != ip);
        exchange_with(other.with_context(|| format!("{address} has no other address"))?).await
    };
    let Some(ip) = ip else {
        return exchange_by_name.await;
    };
    match exchange_with(ip).await {
        Err(first) => (exchange_by_name.await).map_err(|other| anyhow!("{first:#}; {other:#}")),
        response => response,
    }
}

/// TLS 1.3 with these CAs: DER in base64, comma-separated.
fn tls_connector(ca: &str) -> Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    for certificate in ca.split(',') {
        let der = STANDARD.decode(certificate);
        let der = der.context("--webhook-ca: not base64")?;
        let added = roots.add(CertificateDer::from(der));
        added.context("--webhook-ca: not a certificate")?;
    }
    let config = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_protocol_versions(&[&version::TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config).into())
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use rcgen::{CertifiedKey, generate_simple_self_signed};
    use tempfile::NamedTempFile;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::task::JoinHandle;
    use tokio_rustls::TlsAcceptor;
    use tokio_rustls::rustls::ServerConfig;
    use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;

    use super::*;
    use crate::drain::replacement;
    use crate::drain::report::Report;
    use crate::envoy::setup_warnings::SetupWarningKind;

    const BODY: &str = r#"{"services": 2, "unready": ["edge"], "terminating": false, "more": 1}"#;

    fn response(status: &str, body: &str) -> String {
        let length = body.len();
        format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{body}")
    }

    /// A webhook for one request, and the file of its token.
    struct FakeWebhook {
        access: WebhookAccess,
        /// Returns the request, in lower case.
        task: JoinHandle<String>,
        _token: NamedTempFile,
    }

    /// Starts a webhook that sends this response, or none and keeps the connection.
    async fn serve(response: Option<String>) -> FakeWebhook {
        let names = ["localhost".to_owned()];
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed(names).unwrap();
        let key = PrivatePkcs8KeyDer::from(signing_key.serialize_der());
        let config =
            ServerConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
                .with_protocol_versions(&[&version::TLS13])
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(vec![cert.der().clone()], key.into());
        let acceptor = TlsAcceptor::from(Arc::new(config.unwrap()));
        let listener = TcpListener::bind("localhost:0").await.unwrap();
        let address = format!("localhost:{}", listener.local_addr().unwrap().port());
        let task = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            // Panics if the client does not trust the certificate, and so closes the connection.
            let mut stream = acceptor.accept(stream).await.unwrap();
            let mut request = [0; 1024];
            let length = stream.read(&mut request).await.unwrap();
            let Some(response) = response else {
                return pending().await;
            };
            // Fails if the client needs no more.
            let _ = stream.write_all(response.as_bytes()).await;
            String::from_utf8_lossy(&request[..length]).to_lowercase()
        });
        let token = NamedTempFile::new().unwrap();
        std::fs::write(token.path(), "a.b.c\n").unwrap();
        let access = WebhookAccess {
            address,
            ca: STANDARD.encode(cert.der()),
            token: token.path().to_owned(),
            reports: true,
            ..WebhookAccess::default()
        };
        FakeWebhook {
            access,
            task,
            _token: token,
        }
    }

    /// The number of Services in the answer.
    async fn fetch(access: &WebhookAccess) -> Result<usize, String> {
        let answer = replacement::fetch(access).await;
        answer.map(|answer| answer.services)
    }

    #[tokio::test]
    async fn response_is_an_answer_or_an_error() {
        let long = |length| "-".repeat(length);
        for (response, want) in [
            (response("200 OK", BODY), Ok(2)),
            (response("401 Unauthorized", ""), Err("401")),
            (response("503 No", "later\n"), Err("503 later")),
            (response("200 OK", ""), Err("EOF while parsing")),
            ("SSH-2.0\r\n".to_owned(), Err("invalid HTTP version")),
            (
                response("200 OK", &long(MAX_BODY + 1)),
                Err("more than 8192 bytes"),
            ),
            (
                response(&format!("200 {}", long(8 << 10)), ""),
                Err("too large"),
            ),
            (String::new(), Err("connection error")),
        ] {
            let got = fetch(&serve(Some(response)).await.access).await;
            match want {
                Ok(services) => assert_eq!(got, Ok(services)),
                Err(want) => assert!(
                    got.as_ref().is_err_and(|it| it.contains(want)),
                    "{want}: {got:?}"
                ),
            }
        }
        let access = &serve(None).await.access;
        let want = format!("{}: no response within 1s", access.address);
        assert_eq!(fetch(access).await, Err(want));
    }

    #[tokio::test]
    async fn report_has_the_token_and_a_body() {
        let webhook = serve(Some(response("204 No Content", ""))).await;
        let report = Report::SetupWarnings(vec![SetupWarningKind::DrainTimeShort]);
        report.send(&webhook.access).await;
        let want = format!(
            "post /report http/1.1\r\nhost: {}\r\nauthorization: bearer a.b.c\r\ncontent-type: application/json\r\n\
             content-length: 38\r\n\r\n{{\"setupwarnings\":[\"drain-time-short\"]}}",
            webhook.access.address
        );
        assert_eq!(webhook.task.await.unwrap(), want);
    }

    #[tokio::test]
    async fn host_is_resolved_when_the_ip_fails() {
        let mut webhook = serve(Some(response("200 OK", BODY))).await;
        let access = &mut webhook.access;
        access.ip = Some([127, 0, 0, 2].into());
        assert_eq!(fetch(access).await, Ok(2));
        access.address = "localhost:1".to_owned();
        let error = fetch(access).await.unwrap_err();
        let refused = "Connection refused (os error 111)";
        let first = format!("127.0.0.2:1: {refused}; ");
        assert!(
            error.starts_with(&first) && error.ends_with(refused),
            "{error}"
        );
    }

    #[tokio::test]
    async fn invalid_access_is_named() {
        let webhook = serve(None).await;
        let other = serve(None).await.access;
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
            ("token", "a\r\nHost: b", "failed to parse header value"),
        ] {
            let mut access = webhook.access.clone();
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
