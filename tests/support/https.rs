//! An HTTPS client that verifies the server's certificate, as the API server does.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::test_ca::Leaf;

/// A client of one server, whose certificate is for `localhost`.
#[derive(Debug, Clone)]
pub struct HttpsClient {
    address: SocketAddr,
    source: Option<IpAddr>,
    config: Arc<ClientConfig>,
}

/// A connection for consecutive requests, which is closed when it is dropped.
#[derive(Debug)]
pub struct HttpsConnection {
    sender: SendRequest<Full<Bytes>>,
    driver: JoinHandle<hyper::Result<()>>,
    certificate: Vec<u8>,
}

/// `POST /inject` with this body, as the API server sends it.
pub fn inject_request(body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    post_request("/inject", body)
}

/// `POST` with this body, as the API server sends it to a webhook at `path`.
pub fn post_request(path: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    Request::post(path)
        .header("host", "localhost")
        .header("content-type", "application/json")
        .body(Full::new(body.into()))
        .expect("the parts are valid")
}

/// A request of a drainer with this token.
pub fn drainer_request(
    method: &str,
    path: &str,
    token: Option<&str>,
    body: impl Into<Bytes>,
) -> Request<Full<Bytes>> {
    let request = Request::builder().method(method).uri(path);
    let request = request.header("host", "localhost");
    let request = match token {
        Some(token) => request.header("authorization", format!("Bearer {token}")),
        None => request,
    };
    request
        .body(Full::new(body.into()))
        .expect("the parts are valid")
}

// === impl HttpsClient ===

impl HttpsClient {
    /// A client that trusts this CA only and offers HTTP/1.1 over any version of TLS.
    ///
    /// # Errors
    /// When the PEM is not a certificate.
    pub fn new(address: SocketAddr, ca_pem: &str) -> Result<Self> {
        Self::with_provider(address, ca_pem, ring::default_provider())
    }

    /// The same with these cipher suites and key exchange groups only.
    ///
    /// # Errors
    /// When the PEM is not a certificate, or no version of TLS has these.
    pub fn with_provider(
        address: SocketAddr,
        ca_pem: &str,
        provider: CryptoProvider,
    ) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add(
            CertificateDer::from_pem_slice(ca_pem.as_bytes())
                .map_err(|error| anyhow!("{error:?}"))?,
        )?;
        let config = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(rustls::ALL_VERSIONS)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let client = Self {
            address,
            source: None,
            config: Arc::new(config),
        };
        Ok(client.with_protocols(&["http/1.1"]))
    }

    /// The same client with these ALPN protocols.
    pub fn with_protocols(mut self, protocols: &[&str]) -> Self {
        let protocols = protocols.iter().map(|name| name.as_bytes().to_vec());
        Arc::make_mut(&mut self.config).alpn_protocols = protocols.collect();
        self
    }

    /// The same client with this source address.
    pub fn with_source(self, source: IpAddr) -> Self {
        let source = Some(source);
        Self { source, ..self }
    }

    /// The same client with a client certificate.
    ///
    /// # Errors
    /// When the certificate and the key do not match.
    pub fn with_client_certificate(mut self, leaf: &Leaf) -> Result<Self> {
        let key = PrivateKeyDer::from_pem_slice(leaf.key.as_bytes())
            .map_err(|error| anyhow!("{error:?}"))?;
        let chain = vec![leaf.der.clone().into()];
        let certified_key = CertifiedKey::from_der(chain, key, &ring::default_provider())?;
        Arc::make_mut(&mut self.config).client_auth_cert_resolver =
            Arc::new(SingleCertAndKey::from(certified_key));
        Ok(self)
    }

    /// Opens a TLS connection.
    ///
    /// # Errors
    /// When the connection or the handshake fails.
    pub async fn connect_tls(&self) -> io::Result<TlsStream<TcpStream>> {
        let socket = match self.address {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        if let Some(source) = self.source {
            socket.bind((source, 0).into())?;
        }
        let stream = socket.connect(self.address).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
        TlsConnector::from(Arc::clone(&self.config))
            .connect(name, stream)
            .await
    }

    /// Opens an HTTP connection.
    ///
    /// # Errors
    /// When the connection or the handshake fails.
    pub async fn connect(&self) -> Result<HttpsConnection> {
        let stream = self.connect_tls().await?;
        let certificates = stream.get_ref().1.peer_certificates();
        let leaf = certificates.and_then(<[_]>::first);
        let certificate = leaf.context("the server sent no certificate")?.to_vec();
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        Ok(HttpsConnection {
            sender,
            driver: tokio::spawn(connection),
            certificate,
        })
    }

    /// Sends a request on a new connection.
    ///
    /// # Errors
    /// Without a complete response; any status is one.
    pub async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Bytes>> {
        self.connect().await?.send(request).await
    }

    /// Sends an [`inject_request`] on a new connection.
    ///
    /// # Errors
    /// As [`HttpsClient::send`].
    pub async fn inject(&self, body: impl Into<Bytes>) -> Result<Response<Bytes>> {
        self.send(inject_request(body)).await
    }
}

// === impl HttpsConnection ===

impl HttpsConnection {
    /// Sends a request and reads the complete response.
    ///
    /// # Errors
    /// Without a complete response; any status is one.
    pub async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<Response<Bytes>> {
        self.sender.ready().await?;
        let (head, body) = self.sender.send_request(request).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        Ok(Response::from_parts(head, body))
    }

    /// The certificate of the server, DER.
    pub fn certificate(&self) -> &[u8] {
        &self.certificate
    }

    /// Returns true if the server has closed the connection.
    pub fn is_closed(&self) -> bool {
        self.driver.is_finished()
    }

    /// Waits until the server has closed the connection.
    pub async fn wait_until_closed(&mut self) {
        // With or without an error.
        let _ = (&mut self.driver).await;
    }
}

impl Drop for HttpsConnection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}
