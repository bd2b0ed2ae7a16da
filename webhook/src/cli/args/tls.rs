//! The `--tls-*` and `--ca-*` flags: where the server's certificate comes from, and which TLS it accepts.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use drainer::duration;

use crate::certificates::in_memory::InMemoryCa;
use crate::certificates::lifetimes::Lifetimes;
use crate::certificates::metrics::{CertificateKind, Metrics};
use crate::certificates::pki::bundle::Bundle;
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
    pub(in crate::cli) tls_secret: Option<String>,
    /// MutatingWebhookConfiguration whose caBundle is kept in sync with the Secret.
    #[arg(long, value_name = "NAME", env = "ENVOY_DRAINER_WEBHOOK_CONFIGURATION")]
    webhook_configuration: Option<String>,
    /// Lifetime of the CA in --ca-secret; it is rotated when a third of that is left.
    #[arg(
        long,
        value_name = "DURATION",
        env = "ENVOY_DRAINER_CA_LIFETIME",
        value_parser = duration::parse,
        default_value = duration::format(Lifetimes::default().ca()).to_string()
    )]
    ca_lifetime: Duration,
    /// Lifetime of the certificates that this CA signs; they are renewed when a third of that is left.
    #[arg(
        long,
        value_name = "DURATION",
        env = "ENVOY_DRAINER_LEAF_LIFETIME",
        value_parser = duration::parse,
        default_value = duration::format(Lifetimes::default().leaf()).to_string()
    )]
    leaf_lifetime: Duration,
    /// How long a new CA must be in every caBundle before certificates that it signed are served: longer than any API server takes to observe it.
    #[arg(
        long,
        value_name = "DURATION",
        env = "ENVOY_DRAINER_CA_ACTIVATION_DELAY",
        value_parser = duration::parse,
        default_value = duration::format(Lifetimes::default().activation_delay()).to_string()
    )]
    ca_activation_delay: Duration,
    /// Minimum TLS version.
    #[arg(
        long,
        value_name = "VERSION",
        env = "ENVOY_DRAINER_TLS_MIN_VERSION",
        value_enum,
        default_value_t
    )]
    pub(in crate::cli) tls_min_version: MinVersion,
    /// PEM file with the CAs of client certificates. If given, only clients with such a certificate may call the webhook; use it where API servers present one. Read again when it changes.
    #[arg(long, value_name = "FILE", env = "ENVOY_DRAINER_CLIENT_CA")]
    client_ca: Option<PathBuf>,
}

// === impl TlsArgs ===

impl TlsArgs {
    /// The lifetimes of mode `self`.
    ///
    /// # Errors
    /// When they do not fit each other.
    pub fn lifetimes(&self) -> anyhow::Result<Lifetimes> {
        Lifetimes::try_new(
            self.ca_lifetime,
            self.leaf_lifetime,
            self.ca_activation_delay,
        )
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
    ) -> anyhow::Result<(CertificateSource<CertificateStore>, CertResolver)> {
        let cluster_objects = self.cluster_objects()?;
        let names = self.tls_name;
        let Some((secret, webhook_configuration, mode)) = cluster_objects else {
            let (ca, first) = InMemoryCa::try_new(names, wall_clock())?;
            if let Some(path) = self.tls_ca_out {
                fs::write(&path, ca.ca_pem())
                    .with_context(|| format!("cannot write {}", path.display()))?;
            }
            metrics.set_not_after(CertificateKind::Leaf, first.not_after());
            let resolver = CertResolver::new(first);
            resolver.set_bundle(Bundle::read(ca.ca_pem().as_bytes()));
            let source = CertificateSource::InMemory(Box::new(ca));
            return Ok((source, resolver));
        };
        let store = CertificateStore::from_config(
            load_config(None, None).await?,
            namespace,
            secret,
            webhook_configuration,
            names.clone(),
        )?;
        let reconciler = CertificateReconciler::new(store, names, mode);
        let source = CertificateSource::Cluster(Box::new(reconciler));
        Ok((source, CertResolver::default()))
    }

    /// The names of the Secret and of the webhook configuration, and what the Secret holds; `None` for a CA in memory.
    fn cluster_objects(&self) -> anyhow::Result<Option<(String, String, Mode)>> {
        let lifetimes = self.lifetimes()?;
        let has_names = !self.tls_name.is_empty();
        let (secret, webhook_configuration, mode) = match (
            &self.ca_secret,
            &self.tls_secret,
            &self.webhook_configuration,
            &self.tls_ca_out,
        ) {
            (None, None, None, _) if has_names => return Ok(None),
            (Some(secret), None, Some(configuration), None) if has_names => {
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
        Ok(Some((secret.clone(), webhook_configuration.clone(), mode)))
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

    fn parse(flags: &str) -> TlsArgs {
        let flags = ["test"].into_iter().chain(flags.split_whitespace());
        Command::try_parse_from(flags).unwrap().tls
    }

    #[test]
    fn flags_select_one_source() {
        for (flags, names, wanted) in [
            ("--tls-name a", vec!["a"], "None"),
            ("--tls-name a,b --tls-ca-out o", vec!["a", "b"], "None"),
            (
                "--ca-secret s --webhook-configuration w --tls-name a --tls-name b \
                 --ca-lifetime 90s --leaf-lifetime 30s --ca-activation-delay 5s",
                vec!["a", "b"],
                r#"Some(("s", "w", SelfManaged(Lifetimes { ca: 90s, leaf: 30s, activation_delay: 5s })))"#,
            ),
            (
                "--tls-secret s --webhook-configuration w",
                vec![],
                r#"Some(("s", "w", Secret { activation_delay: 120s }))"#,
            ),
            (
                "--tls-secret s --webhook-configuration w --tls-name a",
                vec!["a"],
                r#"Some(("s", "w", Secret { activation_delay: 120s }))"#,
            ),
        ] {
            let args = parse(flags);
            let objects = args.cluster_objects().unwrap();
            assert_eq!(format!("{objects:?}"), wanted, "{flags}");
            assert_eq!(args.tls_name, names, "{flags}");
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
            let error = parse(flags).cluster_objects().unwrap_err().to_string();
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
            let error = parse(&flags).cluster_objects().unwrap_err().to_string();
            assert!(error.starts_with(wanted), "{flags}: {error}");
        }
    }
}
