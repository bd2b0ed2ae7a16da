//! A TLS handshake with a pod, through the API server and the pod's kubelet.

use std::sync::Arc;

use kube::api::Portforwarder;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use tokio_rustls::TlsConnector;

/// What came of a call to a pod.
#[derive(Debug)]
pub enum Shown {
    /// The chain, leaf first.
    Chain(Vec<CertificateDer<'static>>),
    /// No TLS, and why.
    Nothing(String),
}

/// Takes whatever a server shows: it is judged afterwards, and nothing is said to it.
#[derive(Debug)]
struct Anyone(CryptoProvider);

/// Takes the chain, leaf first, that a pod shows to whoever calls it `host`.
pub(super) async fn chain(
    mut forwarded: Portforwarder,
    port: u16,
    host: &str,
) -> Result<Vec<CertificateDer<'static>>, String> {
    let broken = forwarded.take_error(port);
    let stream = forwarded.take_stream(port).ok_or("no such port")?;
    let host = ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?;
    let connector = connector().map_err(|error| error.to_string())?;
    match connector.connect(host, stream).await {
        Ok(tls) => {
            let chain = tls.get_ref().1.peer_certificates();
            Ok(chain
                .unwrap_or_default()
                .iter()
                .cloned()
                .map(CertificateDer::into_owned)
                .collect())
        }
        Err(error) => {
            // The kubelet knows whether there was anybody to speak with.
            let broken = match broken {
                Some(broken) => broken.await,
                None => None,
            };
            Err(match broken {
                Some(broken) if broken.contains("connection refused") => {
                    format!("nobody listens at port {port}")
                }
                Some(broken) => broken.trim().to_owned(),
                None => format!("no TLS at port {port}: {error}"),
            })
        }
    }
}

fn connector() -> Result<TlsConnector, Error> {
    let provider = ring::default_provider();
    let anyone = Arc::new(Anyone(provider.clone()));
    let config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(anyone)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

// === impl Anyone ===

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
