//! TLS as the API server speaks it, and an answer to who does not.

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::{self, kx_group};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoClientAuth, NoServerSessionStorage};
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, SupportedProtocolVersion};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tracing::{error, info};

use super::client_ca::ClientCa;
use super::metered_stream::MeteredTlsStream;
use super::write_deadline::WriteDeadline;
use crate::certificates::resolver::CertResolver;

/// The oldest version of TLS that is spoken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum MinVersion {
    /// TLS 1.2, for API servers that are told to speak no other.
    #[value(name = "1.2")]
    Tls12,
    /// TLS 1.3.
    #[default]
    #[value(name = "1.3")]
    Tls13,
}

/// What Go's servers say too, so that it is found by who looks for it.
const PLAIN_HTTP_RESPONSE: &str = "HTTP/1.0 400 Bad Request\r\nConnection: close\r\n\r\n\
    Client sent an HTTP request to an HTTPS server.\n";

/// In bytes: what TLS keeps of an answer that the kernel does not take. It is one record; rustls has four.
const TLS_SEND_BUFFER: usize = 16 << 10;

/// What new connections are accepted with, which changes with the client CA.
pub(super) struct Acceptor {
    config: ArcSwap<ServerConfig>,
    resolver: Arc<CertResolver>,
    min_version: MinVersion,
}

// === impl Acceptor ===

impl Acceptor {
    /// The TLS side, whose clients need no certificate unless there is a client CA.
    ///
    /// # Errors
    /// When the client CA cannot be used.
    pub(super) fn try_new(
        resolver: Arc<CertResolver>,
        min_version: MinVersion,
        client_ca: Option<&ClientCa>,
    ) -> anyhow::Result<Self> {
        let clients = match client_ca {
            Some(ca) => ca.verifier()?,
            None => Arc::new(NoClientAuth),
        };
        let config = server_config(Arc::clone(&resolver), min_version, clients);
        Ok(Self {
            config: ArcSwap::from_pointee(config),
            resolver,
            min_version,
        })
    }

    /// Accepts by what the file of the client CA says, for as long as it is polled. Open connections
    /// stay until they are old.
    pub(super) async fn watch_client_ca(&self, client_ca: Option<ClientCa>) -> Infallible {
        let Some(mut client_ca) = client_ca else {
            return pending().await;
        };
        loop {
            match client_ca.changed().await {
                Ok(clients) => {
                    let config =
                        server_config(Arc::clone(&self.resolver), self.min_version, clients);
                    self.config.store(Arc::new(config));
                    info!("Reloaded client CA");
                }
                Err(error) => error!(
                    error = format!("{error:#}"),
                    "Client CA kept, the new one cannot be used"
                ),
            }
        }
    }

    /// What the next connection is accepted with.
    pub(super) fn current(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.config.load_full())
    }
}

/// Go, and so the API server, offers both groups. P-384, which *ring* has too, would cost a millisecond
/// of CPU for each ClientHello that an attacker replays.
/// <https://pkg.go.dev/crypto/tls#CurveID>
fn crypto_provider() -> CryptoProvider {
    CryptoProvider {
        kx_groups: vec![kx_group::X25519, kx_group::SECP256R1],
        ..ring::default_provider()
    }
}

/// HTTP/1.1 only, which is all that the API server speaks to webhooks, and no session tickets, which it
/// does not use.
/// <https://github.com/kubernetes/apiserver/blob/master/pkg/util/webhook/client.go>
fn server_config(
    resolver: Arc<CertResolver>,
    min_version: MinVersion,
    clients: Arc<dyn ClientCertVerifier>,
) -> ServerConfig {
    let versions: &[&SupportedProtocolVersion] = match min_version {
        MinVersion::Tls12 => &[&TLS13, &TLS12],
        MinVersion::Tls13 => &[&TLS13],
    };
    let mut config = ServerConfig::builder_with_provider(Arc::new(crypto_provider()))
        .with_protocol_versions(versions)
        .expect("ring has cipher suites for both versions")
        .with_client_cert_verifier(clients)
        .with_cert_resolver(resolver);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config
}

/// Shakes hands within `limit`. From then on a write waits for `write` at most.
///
/// # Errors
/// When the client is too slow, speaks plain HTTP (which it is told) or another TLS.
pub(super) async fn handshake(
    acceptor: TlsAcceptor,
    mut stream: TcpStream,
    limit: Duration,
    write: Duration,
) -> io::Result<MeteredTlsStream> {
    timeout(limit, async {
        // TLS starts with a handshake record, which is a 22, and HTTP with the name of a method.
        let mut first = [0];
        if stream.peek(&mut first).await? == 1 && first[0].is_ascii_alphabetic() {
            reject_plain_http(&mut stream).await?;
            return Err(io::Error::other("plain HTTP on the TLS port"));
        }
        let mut stream = acceptor.accept(WriteDeadline::new(stream, write)).await?;
        stream.get_mut().1.set_buffer_limit(Some(TLS_SEND_BUFFER));
        Ok(MeteredTlsStream::new(stream))
    })
    .await?
}

async fn reject_plain_http(stream: &mut TcpStream) -> io::Result<()> {
    stream.write_all(PLAIN_HTTP_RESPONSE.as_bytes()).await?;
    stream.shutdown().await?;
    // Closed with bytes unread, the connection would be reset, and the answer lost.
    let mut request = [0; 4096];
    while stream.read(&mut request).await? > 0 {}
    Ok(())
}
