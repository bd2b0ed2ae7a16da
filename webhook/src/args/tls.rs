//! Which certificate the server shows.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, bail};

use crate::certificates::files::Files;
use crate::certificates::self_made::SelfMade;
use crate::certificates::{Identity, Source, wall_clock};
use crate::server::MinVersion;

/// The certificate: either from files, or self-made.
#[derive(Debug, clap::Args)]
pub struct TlsArgs {
    /// PEM file of the certificate chain, leaf first; read again when it changes.
    #[arg(long, value_name = "FILE", env = "ENVOY_DRAINER_TLS_CERT")]
    tls_cert: Option<PathBuf>,
    /// PEM file of the certificate's key; read again when it changes.
    #[arg(long, value_name = "FILE", env = "ENVOY_DRAINER_TLS_KEY")]
    tls_key: Option<PathBuf>,
    /// DNS name or IP address for which a certificate is made in memory, instead of files; may be repeated.
    #[arg(
        long,
        value_name = "NAME",
        env = "ENVOY_DRAINER_TLS_NAME",
        value_delimiter = ','
    )]
    tls_name: Vec<String>,
    /// File to write the certificate to that clients must trust, with --tls-name.
    #[arg(long, value_name = "FILE", env = "ENVOY_DRAINER_TLS_CA_OUT")]
    tls_ca_out: Option<PathBuf>,
    /// The oldest TLS that is spoken.
    #[arg(
        long,
        value_name = "VERSION",
        env = "ENVOY_DRAINER_TLS_MIN_VERSION",
        value_enum,
        default_value_t
    )]
    tls_min_version: MinVersion,
}

// === impl TlsArgs ===

impl TlsArgs {
    /// Opens the source of certificates, with its first.
    ///
    /// # Errors
    /// When there is not exactly one source, or it has no certificate.
    pub fn open(self) -> anyhow::Result<(Source, Identity, MinVersion)> {
        let Self {
            tls_cert,
            tls_key,
            tls_name,
            tls_ca_out,
            tls_min_version,
        } = self;
        let (source, first) = match (tls_cert, tls_key, tls_name, tls_ca_out) {
            (Some(cert), Some(key), names, None) if names.is_empty() => {
                let (files, first) = Files::open(cert, key)?;
                (Source::Files(files), first)
            }
            (None, None, names, ca_out) if !names.is_empty() => {
                let (self_made, first) = SelfMade::try_new(names, wall_clock())?;
                if let Some(path) = ca_out {
                    fs::write(&path, self_made.ca_pem())
                        .with_context(|| format!("cannot write {}", path.display()))?;
                }
                (Source::SelfMade(Box::new(self_made)), first)
            }
            _ => bail!(
                "give one source of a certificate: --tls-cert with --tls-key, \
                 or --tls-name, perhaps with --tls-ca-out"
            ),
        };
        Ok((source, first, tls_min_version))
    }
}
