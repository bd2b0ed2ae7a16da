//! Which certificate the server shows.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, bail};

use super::duration::HumanDuration;
use crate::certificates::files::Files;
use crate::certificates::in_memory::InMemoryCa;
use crate::certificates::lifetimes::{Lifetimes, LifetimesError};
use crate::certificates::pki::certified_key::CertifiedKeyPair;
use crate::certificates::reconciler::{CertificateReconciler, Mode};
use crate::certificates::resolver::CertResolver;
use crate::certificates::source::CertificateSource;
use crate::clock::wall_clock;
use crate::kubernetes::CertificateStore;
use crate::metrics::{CertificateKind, Metrics};
use crate::server::{ClientCa, MinVersion};

/// The certificate: from files, made in memory, or by the cluster's Secrets.
#[derive(Debug, clap::Args)]
pub struct TlsArgs {
    /// PEM file of the certificate chain, leaf first; read again when it changes.
    #[arg(long, value_name = "FILE", env = "ENVOY_DRAINER_TLS_CERT")]
    tls_cert: Option<PathBuf>,
    /// PEM file of the certificate's key; read again when it changes.
    #[arg(long, value_name = "FILE", env = "ENVOY_DRAINER_TLS_KEY")]
    tls_key: Option<PathBuf>,
    /// DNS name or IP address for which a certificate is made, by the authority in --ca-secret or, without it, by one in memory, or for which that of --tls-secret must be; may be repeated.
    #[arg(
        long,
        value_name = "NAME",
        env = "ENVOY_DRAINER_TLS_NAME",
        value_delimiter = ','
    )]
    tls_name: Vec<String>,
    /// File to write the certificate to that clients must trust, with --tls-name alone.
    #[arg(long, value_name = "FILE", env = "ENVOY_DRAINER_TLS_CA_OUT")]
    tls_ca_out: Option<PathBuf>,
    /// Secret of the release's namespace in which this webhook's replicas keep their authority.
    #[arg(long, value_name = "NAME", env = "ENVOY_DRAINER_CA_SECRET")]
    ca_secret: Option<String>,
    /// Secret of the release's namespace that somebody else keeps: tls.crt, tls.key and ca.crt.
    #[arg(long, value_name = "NAME", env = "ENVOY_DRAINER_TLS_SECRET")]
    tls_secret: Option<String>,
    /// MutatingWebhookConfiguration whose caBundle is kept in step with the Secret.
    #[arg(long, value_name = "NAME", env = "ENVOY_DRAINER_WEBHOOK_CONFIGURATION")]
    webhook_configuration: Option<String>,
    /// How long an authority in --ca-secret lives; the next takes over when a third of that is left.
    #[arg(
        long,
        value_name = "DURATION",
        env = "ENVOY_DRAINER_CA_LIFETIME",
        default_value_t = HumanDuration(Lifetimes::default().ca())
    )]
    ca_lifetime: HumanDuration,
    /// How long a certificate that it signs lives; the next takes over when a third of that is left.
    #[arg(
        long,
        value_name = "DURATION",
        env = "ENVOY_DRAINER_LEAF_LIFETIME",
        default_value_t = HumanDuration(Lifetimes::default().leaf())
    )]
    leaf_lifetime: HumanDuration,
    /// How long a new authority is trusted before its certificate is shown: longer than any API server takes to learn of it.
    #[arg(
        long,
        value_name = "DURATION",
        env = "ENVOY_DRAINER_CA_ACTIVATION_DELAY",
        default_value_t = HumanDuration(Lifetimes::default().activation_delay())
    )]
    ca_activation_delay: HumanDuration,
    /// The oldest TLS that is spoken.
    #[arg(
        long,
        value_name = "VERSION",
        env = "ENVOY_DRAINER_TLS_MIN_VERSION",
        value_enum,
        default_value_t
    )]
    tls_min_version: MinVersion,
    /// File of the CAs, PEM, whose clients alone may call the webhook, for API servers that show a certificate; read again when it changes.
    #[arg(long, value_name = "FILE", env = "ENVOY_DRAINER_CLIENT_CA")]
    client_ca: Option<PathBuf>,
}

/// The one source that the flags name.
#[derive(Debug)]
enum TlsMode {
    Files {
        chain: PathBuf,
        key: PathBuf,
    },
    InMemory {
        ca_out: Option<PathBuf>,
    },
    Cluster {
        secret: String,
        webhook_configuration: String,
        mode: Mode,
    },
}

// === impl TlsArgs ===

impl TlsArgs {
    /// The Secret that somebody else keeps, if the certificate is to come from one.
    #[must_use]
    pub fn tls_secret(&self) -> Option<&str> {
        self.tls_secret.as_deref()
    }

    /// How long what the webhook makes by itself is valid.
    ///
    /// # Errors
    /// When these do not fit each other.
    pub fn lifetimes(&self) -> Result<Lifetimes, LifetimesError> {
        let HumanDuration(activation_delay) = self.ca_activation_delay;
        Lifetimes::try_new(self.ca_lifetime.0, self.leaf_lifetime.0, activation_delay)
    }

    /// The CAs whose clients alone may call the webhook, if there are any.
    ///
    /// # Errors
    /// When the file cannot be used.
    pub fn client_ca(&self) -> anyhow::Result<Option<ClientCa>> {
        self.client_ca.clone().map(ClientCa::open).transpose()
    }

    /// Opens the source of certificates, and what serves them: with the first, but that of a cluster
    /// comes when it comes. The cluster's Secrets are those of `namespace`.
    ///
    /// # Errors
    /// When there is not exactly one source, or it has no certificate.
    pub async fn open(
        self,
        namespace: &str,
        report: &Metrics,
    ) -> anyhow::Result<(
        CertificateSource<CertificateStore>,
        CertResolver,
        MinVersion,
    )> {
        let tls_min_version = self.tls_min_version;
        let names = self.tls_name.clone();
        let serving = |first: CertifiedKeyPair| {
            report.set_not_after(CertificateKind::Leaf, first.not_after());
            CertResolver::new(first)
        };
        let (source, serving) = match self.into_tls_mode()? {
            TlsMode::Files { chain, key } => {
                let (files, first) = Files::open(chain, key)?;
                (CertificateSource::Files(files), serving(first))
            }
            TlsMode::InMemory { ca_out } => {
                let (self_made, first) = InMemoryCa::try_new(names, wall_clock())?;
                if let Some(path) = ca_out {
                    fs::write(&path, self_made.ca_pem())
                        .with_context(|| format!("cannot write {}", path.display()))?;
                }
                (
                    CertificateSource::InMemory(Box::new(self_made)),
                    serving(first),
                )
            }
            TlsMode::Cluster {
                secret,
                webhook_configuration: webhooks,
                mode,
            } => {
                let objects = CertificateStore::open(namespace, secret, webhooks, names).await?;
                let authority = CertificateReconciler::new(objects, mode);
                (
                    CertificateSource::Cluster(Box::new(authority)),
                    CertResolver::empty(),
                )
            }
        };
        Ok((source, serving, tls_min_version))
    }

    fn into_tls_mode(self) -> anyhow::Result<TlsMode> {
        let lifetimes = self.lifetimes()?;
        let Self {
            tls_cert,
            tls_key,
            tls_name: names,
            tls_ca_out: ca_out,
            ca_secret,
            tls_secret,
            webhook_configuration: webhooks,
            ca_lifetime: _,
            leaf_lifetime: _,
            ca_activation_delay: HumanDuration(activation_delay),
            tls_min_version: _,
            client_ca: _,
        } = self;
        let files = (tls_cert, tls_key, ca_out);
        Ok(
            match (files, names.is_empty(), ca_secret, tls_secret, webhooks) {
                ((Some(chain), Some(key), None), true, None, None, None) => {
                    TlsMode::Files { chain, key }
                }
                ((None, None, ca_out), false, None, None, None) => TlsMode::InMemory { ca_out },
                ((None, None, None), false, Some(secret), None, Some(webhooks)) => {
                    TlsMode::Cluster {
                        secret,
                        webhook_configuration: webhooks,
                        mode: Mode::SelfManaged { names, lifetimes },
                    }
                }
                ((None, None, None), _, None, Some(secret), Some(webhooks)) => TlsMode::Cluster {
                    secret,
                    webhook_configuration: webhooks,
                    mode: Mode::Secret {
                        names,
                        activation_delay,
                    },
                },
                _ => bail!(
                    "give one source of a certificate: --tls-cert with --tls-key; \
                 or --tls-name, perhaps with --tls-ca-out; \
                 or --ca-secret with --webhook-configuration and --tls-name; \
                 or --tls-secret with --webhook-configuration, perhaps with --tls-name"
                ),
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        tls: TlsArgs,
    }

    fn tls_mode(flags: &str) -> anyhow::Result<TlsMode> {
        let flags = ["test"].into_iter().chain(flags.split_whitespace());
        Command::try_parse_from(flags)?.tls.into_tls_mode()
    }

    #[test]
    fn one_source_is_named_by_all_of_its_flags() {
        for (flags, wanted) in [
            (
                "--tls-cert c --tls-key k",
                r#"Files { chain: "c", key: "k" }"#,
            ),
            ("--tls-name a", "InMemory { ca_out: None }"),
            (
                "--tls-name a,b --tls-ca-out o",
                r#"InMemory { ca_out: Some("o") }"#,
            ),
            (
                "--ca-secret s --webhook-configuration w --tls-name a --tls-name b \
                 --ca-lifetime 90s --leaf-lifetime 30s --ca-activation-delay 5s",
                r#"Cluster { secret: "s", webhook_configuration: "w", mode: SelfManaged { names: ["a", "b"], lifetimes: Lifetimes { ca: 90s, leaf: 30s, activation_delay: 5s } } }"#,
            ),
            (
                "--tls-secret s --webhook-configuration w",
                r#"Cluster { secret: "s", webhook_configuration: "w", mode: Secret { names: [], activation_delay: 120s } }"#,
            ),
            (
                "--tls-secret s --webhook-configuration w --tls-name a",
                r#"Cluster { secret: "s", webhook_configuration: "w", mode: Secret { names: ["a"], activation_delay: 120s } }"#,
            ),
        ] {
            let named = tls_mode(flags).unwrap();
            assert_eq!(format!("{named:?}"), wanted, "{flags}");
        }
    }

    #[test]
    fn less_or_more_than_one_source_is_told() {
        for flags in [
            "",
            "--tls-cert c",
            "--tls-ca-out o",
            "--tls-cert c --tls-key k --tls-name a",
            "--ca-secret s --tls-name a",
            "--ca-secret s --webhook-configuration w",
            "--webhook-configuration w --tls-name a",
            "--tls-secret s",
            "--tls-secret s --ca-secret s --webhook-configuration w --tls-name a",
            "--tls-secret s --webhook-configuration w --tls-cert c --tls-key k",
            "--ca-secret s --webhook-configuration w --tls-name a --tls-ca-out o",
        ] {
            let told = tls_mode(flags).unwrap_err().to_string();
            assert!(told.starts_with("give one source"), "{flags}: {told}");
        }
    }

    #[test]
    fn lifetimes_that_do_not_fit_each_other_are_told() {
        for (flags, wanted) in [
            (
                "--ca-lifetime 500h",
                "ca-lifetime is less than three times leaf-lifetime",
            ),
            ("--ca-lifetime 90000h", "ca-lifetime: at most 87600h"),
            (
                "--leaf-lifetime 10m",
                "leaf-lifetime is less than six times ca-activation-delay",
            ),
            (
                "--ca-activation-delay 999ms",
                "ca-activation-delay: give at least 1s",
            ),
        ] {
            let flags = format!("--tls-name a {flags}");
            let told = tls_mode(&flags).unwrap_err().to_string();
            assert!(told.starts_with(wanted), "{flags}: {told}");
        }
    }
}
