//! The `--tls-*` and `--ca-*` flags: where the server's certificate comes from, and which TLS it accepts.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, bail};

use super::duration::HumanDuration;
use crate::certificates::in_memory::InMemoryCa;
use crate::certificates::lifetimes::Lifetimes;
use crate::certificates::metrics::{CertificateKind, Metrics};
use crate::certificates::reconciler::{CertificateReconciler, Mode};
use crate::certificates::resolver::CertResolver;
use crate::certificates::source::CertificateSource;
use crate::clock::wall_clock;
use crate::kubernetes::{CertificateStore, load_config};
use crate::server::{ClientCa, MinVersion};

/// The flags of the certificate and of TLS.
#[derive(Debug, clap::Args)]
pub struct TlsArgs {
    /// DNS name or IP address of the webhook, which the certificate must cover; may be repeated. Without --ca-secret and --tls-secret, the CA is created in memory.
    #[arg(
        long,
        value_name = "NAME",
        env = "ENVOY_DRAINER_TLS_NAME",
        value_delimiter = ','
    )]
    tls_name: Vec<String>,
    /// File to write the certificate of the CA in memory to, with --tls-name alone.
    #[arg(long, value_name = "FILE", env = "ENVOY_DRAINER_TLS_CA_OUT")]
    tls_ca_out: Option<PathBuf>,
    /// Secret of the release's namespace that holds the webhook's own CA.
    #[arg(long, value_name = "NAME", env = "ENVOY_DRAINER_CA_SECRET")]
    ca_secret: Option<String>,
    /// Secret of the release's namespace with a certificate of another issuer: tls.crt, tls.key and ca.crt.
    #[arg(long, value_name = "NAME", env = "ENVOY_DRAINER_TLS_SECRET")]
    tls_secret: Option<String>,
    /// MutatingWebhookConfiguration whose caBundle is kept in sync with the Secret.
    #[arg(long, value_name = "NAME", env = "ENVOY_DRAINER_WEBHOOK_CONFIGURATION")]
    webhook_configuration: Option<String>,
    /// Lifetime of the CA in --ca-secret; it is rotated when a third of that is left.
    #[arg(
        long,
        value_name = "DURATION",
        env = "ENVOY_DRAINER_CA_LIFETIME",
        default_value_t = HumanDuration(Lifetimes::default().ca())
    )]
    ca_lifetime: HumanDuration,
    /// Lifetime of the certificates that this CA signs; they are renewed when a third of that is left.
    #[arg(
        long,
        value_name = "DURATION",
        env = "ENVOY_DRAINER_LEAF_LIFETIME",
        default_value_t = HumanDuration(Lifetimes::default().leaf())
    )]
    leaf_lifetime: HumanDuration,
    /// How long a new CA must be in every caBundle before certificates that it signed are served: longer than any API server takes to observe it.
    #[arg(
        long,
        value_name = "DURATION",
        env = "ENVOY_DRAINER_CA_ACTIVATION_DELAY",
        default_value_t = HumanDuration(Lifetimes::default().activation_delay())
    )]
    ca_activation_delay: HumanDuration,
    /// Minimum TLS version.
    #[arg(
        long,
        value_name = "VERSION",
        env = "ENVOY_DRAINER_TLS_MIN_VERSION",
        value_enum,
        default_value_t
    )]
    tls_min_version: MinVersion,
    /// PEM file with the CAs of client certificates. If given, only clients with such a certificate may call the webhook; use it where API servers present one. Read again when it changes.
    #[arg(long, value_name = "FILE", env = "ENVOY_DRAINER_CLIENT_CA")]
    client_ca: Option<PathBuf>,
}

/// Where the flags take the certificate from.
#[derive(Debug)]
enum TlsMode {
    InMemory {
        names: Vec<String>,
        ca_out: Option<PathBuf>,
    },
    Cluster {
        secret: String,
        webhook_configuration: String,
        names: Vec<String>,
        mode: Mode,
    },
}

// === impl TlsArgs ===

impl TlsArgs {
    /// The Secret with a certificate of another issuer, in mode `secret`.
    pub fn tls_secret(&self) -> Option<&str> {
        self.tls_secret.as_deref()
    }

    /// The lifetimes of mode `self`.
    ///
    /// # Errors
    /// When they do not fit each other.
    pub fn lifetimes(&self) -> anyhow::Result<Lifetimes> {
        let HumanDuration(activation_delay) = self.ca_activation_delay;
        Lifetimes::try_new(self.ca_lifetime.0, self.leaf_lifetime.0, activation_delay)
    }

    /// The CAs of the clients that may call the webhook; `None` for any client.
    ///
    /// # Errors
    /// When the file is unusable.
    pub fn client_ca(&self) -> anyhow::Result<Option<ClientCa>> {
        self.client_ca.clone().map(ClientCa::open).transpose()
    }

    /// Opens the source of the certificate, and the resolver that serves it. The resolver has a certificate at once only
    /// from a CA in memory. Secrets are those of `namespace`.
    ///
    /// # Errors
    /// When the flags do not select exactly one source, or it cannot be opened.
    pub(in crate::cli) async fn open(
        self,
        namespace: &str,
        metrics: &Metrics,
    ) -> anyhow::Result<(
        CertificateSource<CertificateStore>,
        CertResolver,
        MinVersion,
    )> {
        let tls_min_version = self.tls_min_version;
        let (source, resolver) = match self.into_tls_mode()? {
            TlsMode::InMemory { names, ca_out } => {
                let (ca, first) = InMemoryCa::try_new(names, wall_clock())?;
                if let Some(path) = ca_out {
                    fs::write(&path, ca.ca_pem())
                        .with_context(|| format!("cannot write {}", path.display()))?;
                }
                metrics.set_not_after(CertificateKind::Leaf, first.not_after());
                let source = CertificateSource::InMemory(Box::new(ca));
                (source, CertResolver::new(first))
            }
            TlsMode::Cluster {
                secret,
                webhook_configuration,
                names,
                mode,
            } => {
                let config = load_config(None, None).await?;
                let store = CertificateStore::from_config(
                    config,
                    namespace,
                    secret,
                    webhook_configuration,
                    names.clone(),
                )?;
                let reconciler = CertificateReconciler::new(store, names, mode);
                let source = CertificateSource::Cluster(Box::new(reconciler));
                (source, CertResolver::default())
            }
        };
        Ok((source, resolver, tls_min_version))
    }

    fn into_tls_mode(self) -> anyhow::Result<TlsMode> {
        let lifetimes = self.lifetimes()?;
        let Self {
            tls_name: names,
            tls_ca_out: ca_out,
            ca_secret,
            tls_secret,
            webhook_configuration,
            ..
        } = self;
        let (secret, webhook_configuration, mode) =
            match (ca_secret, tls_secret, webhook_configuration, &ca_out) {
                (None, None, None, _) if !names.is_empty() => {
                    return Ok(TlsMode::InMemory { names, ca_out });
                }
                (Some(secret), None, Some(configuration), None) if !names.is_empty() => {
                    (secret, configuration, Mode::SelfManaged(lifetimes))
                }
                (None, Some(secret), Some(configuration), None) => {
                    let activation_delay = lifetimes.activation_delay();
                    (secret, configuration, Mode::Secret { activation_delay })
                }
                _ => bail!(
                    "give one source of a certificate: --tls-name, optionally with --tls-ca-out; \
                     or --ca-secret with --webhook-configuration and --tls-name; \
                     or --tls-secret with --webhook-configuration, optionally with --tls-name"
                ),
            };
        Ok(TlsMode::Cluster {
            secret,
            webhook_configuration,
            names,
            mode,
        })
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
    fn flags_select_one_source() {
        for (flags, wanted) in [
            ("--tls-name a", r#"InMemory { names: ["a"], ca_out: None }"#),
            (
                "--tls-name a,b --tls-ca-out o",
                r#"InMemory { names: ["a", "b"], ca_out: Some("o") }"#,
            ),
            (
                "--ca-secret s --webhook-configuration w --tls-name a --tls-name b \
                 --ca-lifetime 90s --leaf-lifetime 30s --ca-activation-delay 5s",
                r#"Cluster { secret: "s", webhook_configuration: "w", names: ["a", "b"], mode: SelfManaged(Lifetimes { ca: 90s, leaf: 30s, activation_delay: 5s }) }"#,
            ),
            (
                "--tls-secret s --webhook-configuration w",
                r#"Cluster { secret: "s", webhook_configuration: "w", names: [], mode: Secret { activation_delay: 120s } }"#,
            ),
            (
                "--tls-secret s --webhook-configuration w --tls-name a",
                r#"Cluster { secret: "s", webhook_configuration: "w", names: ["a"], mode: Secret { activation_delay: 120s } }"#,
            ),
        ] {
            let mode = tls_mode(flags).unwrap();
            assert_eq!(format!("{mode:?}"), wanted, "{flags}");
        }
    }

    #[test]
    fn no_or_several_sources_are_rejected() {
        for flags in [
            "",
            "--tls-ca-out o",
            "--tls-name a --webhook-configuration w --tls-ca-out o",
            "--ca-secret s --tls-name a",
            "--ca-secret s --webhook-configuration w",
            "--webhook-configuration w --tls-name a",
            "--tls-secret s",
            "--tls-secret s --ca-secret s --webhook-configuration w --tls-name a",
            "--tls-secret s --webhook-configuration w --tls-ca-out o",
            "--ca-secret s --webhook-configuration w --tls-name a --tls-ca-out o",
        ] {
            let error = tls_mode(flags).unwrap_err().to_string();
            assert!(error.starts_with("give one source"), "{flags}: {error}");
        }
    }

    #[test]
    fn lifetimes_that_do_not_fit_are_rejected() {
        for (flags, wanted) in [
            (
                "--ca-lifetime 500h",
                "ca-lifetime is less than three times leaf-lifetime",
            ),
            ("--ca-lifetime 90000h", "ca-lifetime must be at most 87600h"),
            (
                "--leaf-lifetime 10m",
                "leaf-lifetime is less than six times ca-activation-delay",
            ),
            (
                "--ca-activation-delay 999ms",
                "ca-activation-delay must be at least 1s",
            ),
        ] {
            let flags = format!("--tls-name a {flags}");
            let error = tls_mode(&flags).unwrap_err().to_string();
            assert!(error.starts_with(wanted), "{flags}: {error}");
        }
    }
}
