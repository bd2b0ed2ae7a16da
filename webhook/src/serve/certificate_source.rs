//! The source of the server's certificate that the flags select.

use std::fs;

use anyhow::{Context, bail};
use flags::serve::TlsArgs;
use kubernetes::load_config;
use pki::bundle::Bundle;
use pki::clock::wall_clock;

use crate::api_clients::CertificateStore;
use crate::certificates::in_memory;
use crate::certificates::metrics::{CertificateKind, Metrics};
use crate::certificates::reconciler::{CertificateReconciler, Mode};
use crate::certificates::resolver::CertResolver;

/// Returns the resolver that serves the certificate, and the reconciler that renews it, with Secrets of `namespace`.
/// A certificate of a CA in memory is served at once, and never renewed.
///
/// # Errors
/// When the flags do not select exactly one source, or it cannot be opened.
pub(super) async fn open(
    args: TlsArgs,
    namespace: &str,
    metrics: &Metrics,
) -> anyhow::Result<(
    Option<CertificateReconciler<CertificateStore>>,
    CertResolver,
)> {
    let cluster_objects = cluster_objects(&args)?;
    let names = args.tls_name;
    let Some((secret, webhook_configuration, mode)) = cluster_objects else {
        let (ca, first) = in_memory::issue(&names, wall_clock())?;
        if let Some(path) = args.tls_ca_out {
            fs::write(&path, ca.pem())
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        metrics.set_not_after(CertificateKind::Leaf, first.not_after());
        let resolver = CertResolver::new(first);
        resolver.set_bundle(Bundle::from(ca.der().clone()));
        return Ok((None, resolver));
    };
    let store = CertificateStore::from_config(
        load_config(None, None).await?,
        namespace,
        secret,
        webhook_configuration,
        names.clone(),
    )?;
    let reconciler = CertificateReconciler::new(store, names, mode);
    Ok((Some(reconciler), CertResolver::default()))
}

/// The names of the Secret and of the webhook configuration, and what the Secret holds; `None` for a CA in memory.
fn cluster_objects(args: &TlsArgs) -> anyhow::Result<Option<(String, String, Mode)>> {
    let lifetimes = args.lifetimes()?;
    let has_names = !args.tls_name.is_empty();
    let (secret, webhook_configuration, mode) = match (
        &args.ca_secret,
        &args.tls_secret,
        &args.webhook_configuration,
        &args.tls_ca_out,
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
            let objects = cluster_objects(&args).unwrap();
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
            let error = cluster_objects(&parse(flags)).unwrap_err().to_string();
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
            let error = cluster_objects(&parse(&flags)).unwrap_err().to_string();
            assert!(error.starts_with(wanted), "{flags}: {error}");
        }
    }
}
