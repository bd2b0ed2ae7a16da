//! The `--drainer-api-*` flags: the port for drainers, and its features.

use std::net::{IpAddr, SocketAddr};

use admission::DrainerApiDefaults;
use anyhow::{Context, bail};
use clap::builder::ArgAction;

/// The flags of the drainer API. Their aliases are those of 0.1.0, which `check` and `explain` read.
#[derive(Debug, clap::Args)]
pub struct DrainerApiArgs {
    /// Address of the port for drainers, over TLS. Without it, drainers do not call the webhook.
    #[arg(long, alias = "channel-listen", value_name = "ADDRESS")]
    pub drainer_api_listen: Option<SocketAddr>,
    /// Address at which drainers call the webhook; its certificate must cover HOST.
    #[arg(long, alias = "channel-address", value_name = "HOST:PORT")]
    pub drainer_api_address: Option<String>,
    /// IP address at which drainers call the webhook, before they resolve HOST. Ignored if it is not an IP address, such as a variable that the kubelet did not expand.
    #[arg(long, alias = "channel-ip", value_name = "IP")]
    pub drainer_api_ip: Option<String>,
    /// Whether drainers may ask for a replacement of their pod (annotation wait-for-replacement).
    #[arg(long, alias = "channel-replacement", value_name = "BOOL", action = ArgAction::Set, default_value_t = true)]
    pub drainer_api_replacement: bool,
    /// Whether drainers report each drain to the webhook, for metrics of all drains and, with --events, Events on workloads.
    #[arg(long, alias = "channel-reports", value_name = "BOOL", action = ArgAction::Set, default_value_t = false)]
    pub drainer_api_reports: bool,
}

// === impl DrainerApiArgs ===

impl DrainerApiArgs {
    /// What pods get, without the CA, which is not known yet; `None` if drainers do not call the webhook.
    ///
    /// # Errors
    /// When the flags are not complete.
    pub fn defaults(&self) -> anyhow::Result<Option<DrainerApiDefaults>> {
        let Self {
            drainer_api_listen,
            drainer_api_address,
            drainer_api_ip,
            drainer_api_replacement,
            drainer_api_reports,
        } = self;
        match (drainer_api_listen, drainer_api_address) {
            (None, None) => Ok(None),
            (Some(_), Some(address)) => {
                let (host, port) = address.rsplit_once(':').unwrap_or_default();
                let is_port = port.parse::<u16>().is_ok_and(|port| port > 0);
                let port = Some(port).filter(|_| is_port && !host.is_empty());
                port.with_context(|| {
                    format!("--drainer-api-address {address}: expected HOST:PORT")
                })?;
                Ok(Some(DrainerApiDefaults {
                    address: address.clone(),
                    ip: drainer_api_ip.as_deref().and_then(parse_ip),
                    ca: String::new(),
                    replacement: *drainer_api_replacement,
                    reports: *drainer_api_reports,
                }))
            }
            _ => bail!("--drainer-api-listen and --drainer-api-address require each other"),
        }
    }
}

fn parse_ip(text: &str) -> Option<IpAddr> {
    text.parse().ok()
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

    fn parse(flags: &str) -> anyhow::Result<Option<DrainerApiDefaults>> {
        let flags = ["test"].into_iter().chain(flags.split_whitespace());
        Command::try_parse_from(flags)
            .unwrap()
            .drainer_api
            .defaults()
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
