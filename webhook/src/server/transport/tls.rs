//! TLS as API servers need it: its configuration and the handshake.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flags::serve::MinVersion;
use prometheus_client::metrics::counter::Counter;
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::{self, kx_group};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoClientAuth, NoServerSessionStorage};
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, SupportedProtocolVersion};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_rustls::LazyConfigAcceptor;
use tokio_util::io::InspectReader;

use super::client_stream::ClientStream;
use crate::certificates::resolver::CertResolver;
use crate::server::limits::Limits;
use crate::server::scheduler::{HANDSHAKE_SIZE, Scheduler};

/// Bytes of a response that TLS buffers while the kernel's buffer is full: one record; rustls' default is four.
const TLS_SEND_BUFFER: usize = 16 << 10;

/// Accepts the TLS connections of a port.
pub(in crate::server) struct TlsAcceptor {
    /// The configuration of all connections.
    config: Arc<ServerConfig>,
    scheduler: Arc<Scheduler>,
    pub(super) failed_handshakes: Counter,
}

// === impl TlsAcceptor ===

impl TlsAcceptor {
    /// Creates an acceptor that verifies client certificates if there is a verifier. Handshakes wait for their turn in
    /// `scheduler`.
    pub(in crate::server) fn new(
        resolver: Arc<CertResolver>,
        min_version: MinVersion,
        client_ca: Option<Arc<dyn ClientCertVerifier>>,
        scheduler: Arc<Scheduler>,
        failed_handshakes: Counter,
    ) -> Arc<Self> {
        let verifier = client_ca.unwrap_or_else(|| Arc::new(NoClientAuth));
        let config = server_config(resolver, min_version, verifier);
        Arc::new(Self {
            config: Arc::new(config),
            scheduler,
            failed_handshakes,
        })
    }

    /// Completes the handshake within [`Limits::handshake_timeout`]. Its computation waits for its turn like a review.
    ///
    /// # Errors
    /// If the client is too slow, or the handshake fails.
    pub(super) async fn accept(
        &self,
        stream: TcpStream,
        limits: &Limits,
        source: IpAddr,
    ) -> io::Result<impl AsyncRead + AsyncWrite + Unpin + use<>> {
        timeout(limits.handshake_timeout, async {
            let payload = Arc::<AtomicU64>::default();
            let stream =
                ClientStream::new(stream, limits.write_timeout, Some(Arc::clone(&payload)));
            let hello =
                LazyConfigAcceptor::new(rustls::server::Acceptor::default(), stream).await?;
            let permit = self.scheduler.acquire(source, HANDSHAKE_SIZE).await;
            let started = Instant::now();
            // Exchanges keys and signs; what follows waits for the client.
            let handshake = hello.into_stream(Arc::clone(&self.config));
            permit.finish(started.elapsed()).await;
            let mut stream = handshake.await?;
            stream.get_mut().1.set_buffer_limit(Some(TLS_SEND_BUFFER));
            Ok(InspectReader::new(stream, move |read: &[u8]| {
                payload.fetch_add(read.len() as u64, Ordering::Relaxed);
            }))
        })
        .await?
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
