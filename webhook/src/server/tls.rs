//! The TLS handshake, as API servers need it, and the response to plain HTTP.

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use ctl::cli::serve::MinVersion;
use futures_util::FutureExt;
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::{self, kx_group};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoClientAuth, NoServerSessionStorage};
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, SupportedProtocolVersion};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_rustls::LazyConfigAcceptor;
use tracing::{error, info};

use super::client_ca::ClientCa;
use super::limits::Limits;
use super::metered_stream::MeteredTlsStream;
use super::scheduler::Scheduler;
use super::write_deadline::WriteDeadline;
use crate::certificates::resolver::CertResolver;

/// The same text as from Go's servers, so that a search finds its meaning.
const PLAIN_HTTP_RESPONSE: &str = "HTTP/1.0 400 Bad Request\r\nConnection: close\r\n\r\n\
    Client sent an HTTP request to an HTTPS server.\n";

/// A handshake waits for its turn like a review of this length: longer than an ordinary one.
const HANDSHAKE_RANK: usize = 16 << 10;

/// Bytes of a response that TLS buffers while the kernel's buffer is full: one record; rustls' default is four.
const TLS_SEND_BUFFER: usize = 16 << 10;

/// The configuration of new connections, replaced when the client CA changes.
pub(super) struct Acceptor {
    config: ArcSwap<ServerConfig>,
    resolver: Arc<CertResolver>,
    min_version: MinVersion,
}

// === impl Acceptor ===

impl Acceptor {
    /// Creates an acceptor that verifies client certificates if there is a client CA.
    ///
    /// # Errors
    /// If the client CA is invalid.
    pub(super) fn try_new(
        resolver: Arc<CertResolver>,
        min_version: MinVersion,
        client_ca: Option<&ClientCa>,
    ) -> anyhow::Result<Self> {
        let verifier = match client_ca {
            Some(ca) => ca.verifier()?,
            None => Arc::new(NoClientAuth),
        };
        let config = server_config(Arc::clone(&resolver), min_version, verifier);
        Ok(Self {
            config: ArcSwap::from_pointee(config),
            resolver,
            min_version,
        })
    }

    /// Reloads the client CA when its file changes, for as long as it is polled. Open connections stay until they
    /// reach their maximum age.
    pub(super) async fn watch_client_ca(&self, client_ca: Option<ClientCa>) -> Infallible {
        let Some(mut client_ca) = client_ca else {
            return pending().await;
        };
        loop {
            match client_ca.changed().await {
                Ok(verifier) => {
                    let config =
                        server_config(Arc::clone(&self.resolver), self.min_version, verifier);
                    self.config.store(Arc::new(config));
                    info!("Reloaded client CA");
                }
                Err(error) => error!(
                    error = format!("{error:#}"),
                    "Failed to reload client CA, keeping the previous one"
                ),
            }
        }
    }

    /// The acceptor for the next connection.
    pub(super) fn current(&self) -> Arc<ServerConfig> {
        self.config.load_full()
    }
}

/// *ring*, with the two key exchange groups that Go, and so the API server, offers. P-384, which *ring* has too,
/// would cost a millisecond of CPU for each ClientHello that an attacker replays.
/// <https://pkg.go.dev/crypto/tls#CurveID>
fn crypto_provider() -> CryptoProvider {
    CryptoProvider {
        kx_groups: vec![kx_group::X25519, kx_group::SECP256R1],
        ..ring::default_provider()
    }
}

/// HTTP/1.1 only, the one protocol in which the API server calls webhooks, and no session tickets, which it does not
/// use.
/// <https://github.com/kubernetes/apiserver/blob/master/pkg/util/webhook/client.go>
fn server_config(
    resolver: Arc<CertResolver>,
    min_version: MinVersion,
    verifier: Arc<dyn ClientCertVerifier>,
) -> ServerConfig {
    let versions: &[&SupportedProtocolVersion] = match min_version {
        MinVersion::Tls12 => &[&TLS13, &TLS12],
        MinVersion::Tls13 => &[&TLS13],
    };
    let mut config = ServerConfig::builder_with_provider(Arc::new(crypto_provider()))
        .with_protocol_versions(versions)
        .expect("ring has cipher suites for both versions")
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(resolver);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config
}

/// Completes the handshake within [`Limits::handshake_timeout`]. Its computation waits for its turn like a review. A write
/// may take up to [`Limits::write_timeout`].
///
/// # Errors
/// If the client is too slow, speaks plain HTTP (which gets a response), or the handshake fails.
pub(super) async fn handshake(
    config: Arc<ServerConfig>,
    mut stream: TcpStream,
    limits: &Limits,
    scheduler: &Arc<Scheduler>,
    source: IpAddr,
) -> io::Result<MeteredTlsStream> {
    timeout(limits.handshake_timeout, async {
        // TLS starts with a handshake record, type 22, and HTTP with the name of a method.
        let mut first = [0];
        if stream.peek(&mut first).await? == 1 && first[0].is_ascii_alphabetic() {
            reject_plain_http(&mut stream).await?;
            return Err(io::Error::other("plain HTTP on the TLS port"));
        }
        let stream = WriteDeadline::new(stream, limits.write_timeout);
        let hello = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), stream).await?;
        let mut handshake = Box::pin(hello.into_stream(config));
        let permit = scheduler.acquire(source, HANDSHAKE_RANK).await;
        let started = Instant::now();
        let completed = handshake.as_mut().now_or_never();
        permit.finish(started.elapsed()).await;
        let mut stream = match completed {
            Some(completed) => completed?,
            None => handshake.await?,
        };
        stream.get_mut().1.set_buffer_limit(Some(TLS_SEND_BUFFER));
        Ok(MeteredTlsStream::new(stream))
    })
    .await?
}

async fn reject_plain_http(stream: &mut TcpStream) -> io::Result<()> {
    stream.write_all(PLAIN_HTTP_RESPONSE.as_bytes()).await?;
    stream.shutdown().await?;
    // Closed with unread bytes, the connection would be reset and the response lost.
    let mut request = [0; 4096];
    while stream.read(&mut request).await? > 0 {}
    Ok(())
}
