//! TLS as the API server speaks it, and an answer to who does not.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::ring;
use rustls::server::NoServerSessionStorage;
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, SupportedProtocolVersion};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::certificates::serving::Serving;

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
const PLAIN_HTTP: &str = "HTTP/1.0 400 Bad Request\r\nConnection: close\r\n\r\n\
    Client sent an HTTP request to an HTTPS server.\n";

/// Builds the TLS side: HTTP/1.1 only, which is all that the API server speaks to webhooks, and no
/// session tickets, which it does not use.
/// <https://github.com/kubernetes/apiserver/blob/master/pkg/util/webhook/client.go>
pub(super) fn acceptor(serving: Arc<Serving>, oldest: MinVersion) -> TlsAcceptor {
    let versions: &[&SupportedProtocolVersion] = match oldest {
        MinVersion::Tls12 => &[&TLS13, &TLS12],
        MinVersion::Tls13 => &[&TLS13],
    };
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(versions)
        .expect("ring has cipher suites for both versions")
        .with_no_client_auth()
        .with_cert_resolver(serving);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    TlsAcceptor::from(Arc::new(config))
}

/// Shakes hands within `limit`.
///
/// # Errors
/// When the client is too slow, speaks plain HTTP (which it is told) or another TLS.
pub(super) async fn handshake(
    acceptor: &TlsAcceptor,
    mut stream: TcpStream,
    limit: Duration,
) -> io::Result<TlsStream<TcpStream>> {
    timeout(limit, async {
        // TLS starts with a handshake record, which is a 22, and HTTP with the name of a method.
        let mut first = [0];
        if stream.peek(&mut first).await? == 1 && first[0].is_ascii_alphabetic() {
            refuse_plain_http(&mut stream).await?;
            return Err(io::Error::other("plain HTTP on the TLS port"));
        }
        acceptor.accept(stream).await
    })
    .await?
}

async fn refuse_plain_http(stream: &mut TcpStream) -> io::Result<()> {
    stream.write_all(PLAIN_HTTP.as_bytes()).await?;
    stream.shutdown().await?;
    // Closed with bytes unread, the connection would be reset, and the answer lost.
    let mut request = [0; 4096];
    while stream.read(&mut request).await? > 0 {}
    Ok(())
}
