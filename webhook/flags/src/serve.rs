//! The flags of `envoy-drainer serve`, which `check` and `explain` read too.

use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::time::Duration;

use admission::DrainerApiDefaults;
use anyhow::{bail, ensure};
use clap::builder::ArgAction;
use drainer::duration::{self, format};
use pki::lifetimes::Lifetimes;

use crate::logs::LogArgs;
use crate::pod_defaults::PodDefaultsArgs;

/// The flags of `serve`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Address of the webhook's port for API servers: POST /inject, /inject-all and /workloads over TLS.
    #[arg(long, value_name = "ADDRESS", default_value = "[::]:10250")]
    pub listen: SocketAddr,
    /// Address of the port for /healthz and /readyz over plain HTTP.
    #[arg(long, value_name = "ADDRESS", default_value = "[::]:8081")]
    pub health_listen: SocketAddr,
    /// Address of the port for /metrics over plain HTTP.
    #[arg(long, value_name = "ADDRESS", default_value = "[::]:8080")]
    pub metrics_listen: SocketAddr,
    /// How long a replica keeps serving after SIGTERM, until API servers know that it is terminating.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, default_value = "5s")]
    pub shutdown_delay: Duration,
    /// Whether to publish an Event with the reason on the owner of a pod that requests a drainer but gets none, or
    /// whose drain cut something. Requires --webhook-configuration.
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = true)]
    pub events: bool,
    /// Namespaces in which no Events are published, comma-separated: those that the webhook configuration excludes.
    #[arg(long, value_name = "NAMESPACES", value_delimiter = ',')]
    pub excluded_namespaces: Vec<String>,
    /// Name of this replica in its Events.
    #[arg(long, value_name = "NAME", default_value = "envoy-drainer")]
    pub pod_name: String,
    #[command(flatten)]
    pub tls: TlsArgs,
    #[command(flatten)]
    pub drainer_api: DrainerApiArgs,
    #[command(flatten)]
    pub logs: LogArgs,
    #[command(flatten)]
    pub defaults: PodDefaultsArgs,
}

/// The flags of the certificate and of TLS.
#[derive(Debug, clap::Args)]
pub struct TlsArgs {
    /// DNS name or IP address of the webhook, which the certificate must cover. May be repeated. Without --ca-secret
    /// and --tls-secret, the CA is created in memory.
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
    /// Lifetime of the CA in --ca-secret. It is rotated when a third of that remains.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    #[arg(default_value = "8760h")]
    ca_lifetime: Duration,
    /// Lifetime of the certificates that this CA signs. They are renewed when a third of that remains.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    #[arg(default_value = "168h")]
    leaf_lifetime: Duration,
    /// How long a new CA must be in every caBundle before certificates that it signed are served: longer than any API
    /// server takes to observe it.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    #[arg(default_value = format(Lifetimes::default().activation_delay()).to_string())]
    ca_activation_delay: Duration,
    /// Minimum TLS version.
    #[arg(long, value_name = "VERSION", value_enum, default_value_t)]
    pub tls_min_version: MinVersion,
    /// PEM file with the CAs of client certificates. If given, only clients with such a certificate may call the
    /// webhook: use it only if API servers present one. The file is read at the start only.
    #[arg(long, value_name = "FILE")]
    pub client_ca: Option<PathBuf>,
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

/// The flags of the drainer API.
#[derive(Debug, clap::Args)]
pub struct DrainerApiArgs {
    /// Address of the port for drainers, over TLS. Without it, drainers do not call the webhook.
    #[arg(long, value_name = "ADDRESS")]
    pub drainer_api_listen: Option<SocketAddr>,
    /// Address at which drainers call the webhook. The webhook's certificate must cover HOST.
    #[arg(long, value_name = "HOST:PORT")]
    pub drainer_api_address: Option<String>,
    /// IP address at which drainers call the webhook, before they resolve HOST. Ignored if it is not an IP address,
    /// such as a variable that the kubelet did not expand.
    #[arg(long, value_name = "IP")]
    pub drainer_api_ip: Option<String>,
    /// Whether drainers may ask for a replacement of their pod (annotation wait-for-replacement).
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = true)]
    pub drainer_api_replacement: bool,
    /// Whether drainers report each drain to the webhook, for metrics of all drains and, with --events, Events on
    /// workloads.
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = false)]
    pub drainer_api_reports: bool,
}

// === impl TlsArgs ===

impl TlsArgs {
    /// The lifetimes of mode `self`.
    ///
    /// # Errors
    /// When they do not fit each other.
    pub fn lifetimes(&self) -> anyhow::Result<Lifetimes> {
        let (ca, leaf) = (self.ca_lifetime, self.leaf_lifetime);
        Lifetimes::try_new(ca, leaf, self.ca_activation_delay)
    }
}

// === impl DrainerApiArgs ===

impl DrainerApiArgs {
    /// What pods get, without the CA, which is not known yet; `None` if drainers do not call the webhook.
    ///
    /// # Errors
    /// When the flags are not complete.
    pub fn defaults(&self) -> anyhow::Result<Option<DrainerApiDefaults>> {
        let address = match (&self.drainer_api_listen, &self.drainer_api_address) {
            (None, None) => return Ok(None),
            (Some(_), Some(address)) => address,
            _ => bail!("--drainer-api-listen and --drainer-api-address require each other"),
        };
        let (host, port) = address.rsplit_once(':').unwrap_or_default();
        let is_valid = !host.is_empty() && port.parse::<NonZeroU16>().is_ok();
        ensure!(
            is_valid,
            "--drainer-api-address {address}: expected HOST:PORT"
        );
        let ip = self.drainer_api_ip.as_deref();
        Ok(Some(DrainerApiDefaults {
            address: address.clone(),
            ip: ip.and_then(|ip| ip.parse().ok()),
            ca: String::new(),
            replacement: self.drainer_api_replacement,
            reports: self.drainer_api_reports,
        }))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        drainer_api: DrainerApiArgs,
    }

    #[derive(Parser)]
    struct TlsCommand {
        #[command(flatten)]
        tls: TlsArgs,
    }

    fn parse(flags: &str) -> anyhow::Result<Option<DrainerApiDefaults>> {
        let flags = ["test"].into_iter().chain(flags.split_whitespace());
        Command::try_parse_from(flags)
            .unwrap()
            .drainer_api
            .defaults()
    }

    #[test]
    fn lifetimes_default_to_those_of_the_library() {
        let lifetimes = TlsCommand::try_parse_from(["test"])
            .unwrap()
            .tls
            .lifetimes();
        assert_eq!(lifetimes.unwrap(), Lifetimes::default());
    }

    #[test]
    fn drainer_api_is_off_without_its_flags() {
        assert_eq!(parse("").unwrap(), None);
        let on = "--drainer-api-listen [::]:8443 --drainer-api-address webhook.infra.svc:8443";
        let mut want = DrainerApiDefaults {
            address: "webhook.infra.svc:8443".to_owned(),
            ip: None,
            ca: String::new(),
            replacement: true,
            reports: false,
        };
        assert_eq!(parse(on).unwrap().as_ref(), Some(&want));
        let unexpanded = format!("{on} --drainer-api-ip $(WEBHOOK_SERVICE_HOST)");
        assert_eq!(parse(&unexpanded).unwrap().as_ref(), Some(&want));
        want.ip = Some([10, 0, 0, 1].into());
        (want.replacement, want.reports) = (false, true);
        let all = format!(
            "{on} --drainer-api-ip 10.0.0.1 --drainer-api-replacement false --drainer-api-reports true"
        );
        assert_eq!(parse(&all).unwrap(), Some(want));
    }

    #[test]
    fn incomplete_flags_are_errors() {
        let listen = "--drainer-api-listen [::]:8443";
        for (flags, want) in [
            (listen.to_owned(), "require each other"),
            ("--drainer-api-address a:1".to_owned(), "require each other"),
            (
                format!("{listen} --drainer-api-address a"),
                "expected HOST:PORT",
            ),
            (
                format!("{listen} --drainer-api-address a:0"),
                "expected HOST:PORT",
            ),
            (
                format!("{listen} --drainer-api-address :1"),
                "expected HOST:PORT",
            ),
        ] {
            let error = parse(&flags).unwrap_err().to_string();
            assert!(error.contains(want), "{flags}: {error}");
        }
    }
}
