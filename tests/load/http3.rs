//! HTTP/3 clients, over QUIC.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::Context;
use bytes::{Buf, Bytes};
use h3::client::SendRequest;
use h3::error::StreamError;
use h3_quinn::OpenStreams;
use hyper::Request;
use quinn::crypto::rustls::QuicClientConfig;
use rustls::ClientConfig;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::BODY;
use crate::failure::{Failure, FailureKind, SendError};
use crate::pool::{HttpConnection, spawn_driver};
use crate::response::verify_content;
use crate::service::Protocol;
use crate::service::{CONNECT_TIMEOUT, Service};

/// A connection for concurrent requests.
#[derive(Clone)]
pub(super) struct Http3Connection {
    sender: SendRequest<OpenStreams, Bytes>,
    connection: quinn::Connection,
    /// Drives the connection, and closes it after the last request.
    _driver: Arc<JoinSet<()>>,
}

/// Returns true if a connection can be opened now.
pub(super) async fn can_connect(service: &Service) -> bool {
    Http3Connection::open(service).await.is_ok()
}

// === impl Http3Connection ===

impl HttpConnection for Http3Connection {
    async fn open(service: &Service) -> Result<Self, Failure> {
        let (address, guard) = service
            .endpoint(Protocol::Http3)
            .map_err(Failure::refused)?;
        let connection = timeout(CONNECT_TIMEOUT, connect(address)).await;
        let connection = connection.map_err(|_| Failure::refused("no handshake"))?;
        let connection = connection.map_err(Failure::refused)?;
        let quic = h3_quinn::Connection::new(connection.clone());
        let (mut driver, sender) = h3::client::new(quic).await.map_err(Failure::refused)?;
        let driver = async move { driver.wait_idle().await };
        Ok(Self {
            sender,
            connection,
            _driver: Arc::new(spawn_driver(driver, guard)),
        })
    }

    fn share(&self) -> Option<Self> {
        Some(self.clone())
    }

    async fn post(mut self, path: &str) -> Result<Option<Self>, SendError> {
        if let Some(reason) = self.connection.close_reason() {
            return Err(SendError::NotSent(reason.to_string()));
        }
        let request = Request::post(format!("https://edge.shop{path}"))
            .body(())
            .expect("the address is constant");
        let mut stream = match self.sender.send_request(request).await {
            Ok(stream) => stream,
            // This is checked before anything is sent.
            Err(error @ StreamError::RemoteClosing { .. }) => {
                return Err(SendError::NotSent(error.to_string()));
            }
            Err(error) => return Err(connection_lost(&error)),
        };
        let exchange = async {
            stream.send_data(Bytes::from_static(BODY)).await?;
            stream.finish().await?;
            let status = stream.recv_response().await?.status();
            let mut body = Vec::new();
            while let Some(mut chunk) = stream.recv_data().await? {
                body.extend_from_slice(&chunk.copy_to_bytes(chunk.remaining()));
            }
            Ok((status, body))
        };
        let (status, body) = exchange.await.map_err(|error| connection_lost(&error))?;
        verify_content(status, &body).map_err(SendError::Failed)?;
        Ok(None)
    }
}

fn connection_lost(error: &StreamError) -> SendError {
    SendError::Failed(Failure::new(FailureKind::CutInFlight, error.to_string()))
}

/// Connects from its own socket, as each client of a Service does.
async fn connect(address: SocketAddr) -> anyhow::Result<quinn::Connection> {
    let provider = Arc::new(ring::default_provider());
    let mut tls = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(NoVerification(provider)))
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    let config = quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?));
    let endpoint = quinn::Endpoint::client((Ipv4Addr::UNSPECIFIED, 0).into())?;
    let connection = endpoint.connect_with(config, address, "edge.shop")?;
    connection.await.context("the QUIC handshake")
}

/// Trusts every certificate: the load counts the results of requests, and does not test TLS.
#[derive(Debug)]
struct NoVerification(Arc<CryptoProvider>);

// === impl NoVerification ===

impl ServerCertVerifier for NoVerification {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("QUIC has TLS 1.3 only".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

impl fmt::Debug for Http3Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Http3Connection")
            .field(&self.connection)
            .finish()
    }
}
