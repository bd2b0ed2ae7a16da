//! The `--tls-*` and `--ca-*` flags: where the server's certificate comes from, and which TLS it accepts.

use std::path::PathBuf;
use std::time::Duration;

use drainer::duration;
use pki::lifetimes::Lifetimes;

use super::format;

/// The flags of the certificate and of TLS.
#[derive(Debug, clap::Args)]
pub struct TlsArgs {
    /// DNS name or IP address of the webhook, which the certificate must cover; may be repeated. Without --ca-secret and --tls-secret, the CA is created in memory.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub tls_name: Vec<String>,
    /// File to write the certificate of the CA in memory to, with --tls-name alone.
    #[arg(long, value_name = "FILE")]
    pub tls_ca_out: Option<PathBuf>,
    /// Secret of the release's namespace that holds the webhook's own CA.
    #[arg(long, value_name = "NAME")]
    pub ca_secret: Option<String>,
    /// Secret of the release's namespace with a certificate of another issuer: tls.crt, tls.key and ca.crt.
    #[arg(long, value_name = "NAME")]
    pub tls_secret: Option<String>,
    /// MutatingWebhookConfiguration whose caBundle is kept in sync with the Secret.
    #[arg(long, value_name = "NAME")]
    pub webhook_configuration: Option<String>,
    /// Lifetime of the CA in --ca-secret; it is rotated when a third of that is left.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    #[arg(default_value = format(Lifetimes::default().ca()))]
    ca_lifetime: Duration,
    /// Lifetime of the certificates that this CA signs; they are renewed when a third of that is left.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    #[arg(default_value = format(Lifetimes::default().leaf()))]
    leaf_lifetime: Duration,
    /// How long a new CA must be in every caBundle before certificates that it signed are served: longer than any API server takes to observe it.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    #[arg(default_value = format(Lifetimes::default().activation_delay()))]
    ca_activation_delay: Duration,
    /// Minimum TLS version.
    #[arg(long, value_name = "VERSION", value_enum, default_value_t)]
    pub tls_min_version: MinVersion,
    /// PEM file with the CAs of client certificates. If given, only clients with such a certificate may call the webhook; use it where API servers present one. Read again when it changes.
    #[arg(long, value_name = "FILE")]
    pub client_ca: Option<PathBuf>,
}

// === impl TlsArgs ===

impl TlsArgs {
    /// The lifetimes of mode `self`.
    ///
    /// # Errors
    /// When they do not fit each other.
    pub fn lifetimes(&self) -> anyhow::Result<Lifetimes> {
        let (ca, leaf, delay) = (
            self.ca_lifetime,
            self.leaf_lifetime,
            self.ca_activation_delay,
        );
        Lifetimes::try_new(ca, leaf, delay)
    }
}

/// Minimum TLS version.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum MinVersion {
    /// TLS 1.2, for API servers that are restricted to it.
    #[value(name = "1.2")]
    Tls12,
    /// TLS 1.3.
    #[default]
    #[value(name = "1.3")]
    Tls13,
}
