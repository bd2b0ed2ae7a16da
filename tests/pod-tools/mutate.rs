//! Another product's mutating webhook: it changes a pod by the JSON patch in an annotation of the pod.

use std::net::Ipv4Addr;
use std::sync::Arc;

use anyhow::Result;
use base64::prelude::{BASE64_STANDARD, Engine};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// The annotation with the patch.
const PATCH: &str = "example.com/patch";

#[derive(Debug, clap::Args)]
#[command(allow_hyphen_values = true)]
pub(crate) struct Args {
    /// Its certificate, PEM.
    certificate: String,
    /// The key, PEM.
    key: String,
}

/// Serves port 8443 until the process ends.
///
/// # Errors
/// If the certificate or the key is invalid, or the address cannot be bound.
pub(crate) async fn run(args: Args) -> Result<()> {
    let certificate = CertificateDer::from_pem_slice(args.certificate.as_bytes())?;
    let key = PrivateKeyDer::from_pem_slice(args.key.as_bytes())?;
    let config = ServerConfig::builder().with_no_client_auth();
    let acceptor = TlsAcceptor::from(Arc::new(config.with_single_cert(vec![certificate], key)?));
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 8443)).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        let acceptor = acceptor.clone();
        tokio::spawn(async move {
            // A connection fails when its client disconnects.
            let stream = TokioIo::new(acceptor.accept(stream).await?);
            let connection = http1::Builder::new().serve_connection(stream, service_fn(respond));
            anyhow::Ok(connection.await?)
        });
    }
}

/// Responds to an AdmissionReview.
async fn respond(request: Request<Incoming>) -> Result<Response<Full<Bytes>>> {
    let mut review: Value =
        serde_json::from_slice(&request.into_body().collect().await?.to_bytes())?;
    let request = review["request"].take();
    let mut response = json!({ "uid": request["uid"], "allowed": true });
    if let Some(patch) = request["object"]["metadata"]["annotations"][PATCH].as_str() {
        response["patchType"] = json!("JSONPatch");
        response["patch"] = json!(BASE64_STANDARD.encode(patch));
    }
    review["response"] = response;
    Ok(Response::new(Full::from(review.to_string())))
}
