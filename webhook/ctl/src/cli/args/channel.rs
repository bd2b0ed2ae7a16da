//! The `--channel-*` flags: the port for drainers, and its features.

use std::net::{IpAddr, SocketAddr};

use admission::ChannelDefaults;
use anyhow::{Context, bail};
use clap::builder::ArgAction;

/// The flags of the channel.
#[derive(Debug, clap::Args)]
pub struct ChannelArgs {
    /// Address of the port for drainers, over TLS. Without it, drainers do not call the webhook.
    #[arg(long, value_name = "ADDRESS")]
    pub channel_listen: Option<SocketAddr>,
    /// Address at which drainers call the webhook; its certificate must cover HOST.
    #[arg(long, value_name = "HOST:PORT")]
    pub channel_address: Option<String>,
    /// IP address at which drainers call the webhook, before they resolve HOST. Ignored if it is not an IP address, such as a variable that the kubelet did not expand.
    #[arg(long, value_name = "IP")]
    pub channel_ip: Option<String>,
    /// Whether drainers may ask for a replacement of their pod (annotation wait-for-replacement).
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = true)]
    pub channel_replacement: bool,
    /// Whether drainers report each drain to the webhook, for metrics of all drains and, with --events, Events on workloads.
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = false)]
    pub channel_reports: bool,
}

// === impl ChannelArgs ===

impl ChannelArgs {
    /// What pods get, without the CA, which is not known yet; `None` if drainers do not call the webhook.
    ///
    /// # Errors
    /// When the flags are not complete.
    pub fn defaults(&self) -> anyhow::Result<Option<ChannelDefaults>> {
        let Self {
            channel_listen,
            channel_address,
            channel_ip,
            channel_replacement,
            channel_reports,
        } = self;
        match (channel_listen, channel_address) {
            (None, None) => Ok(None),
            (Some(_), Some(address)) => {
                let (host, port) = address.rsplit_once(':').unwrap_or_default();
                let is_port = port.parse::<u16>().is_ok_and(|port| port > 0);
                let port = Some(port).filter(|_| is_port && !host.is_empty());
                port.with_context(|| format!("--channel-address {address}: expected HOST:PORT"))?;
                Ok(Some(ChannelDefaults {
                    address: address.clone(),
                    ip: channel_ip.as_deref().and_then(parse_ip),
                    ca: String::new(),
                    replacement: *channel_replacement,
                    reports: *channel_reports,
                }))
            }
            _ => bail!("--channel-listen and --channel-address require each other"),
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
        channel: ChannelArgs,
    }

    fn parse(flags: &str) -> anyhow::Result<Option<ChannelDefaults>> {
        let flags = ["test"].into_iter().chain(flags.split_whitespace());
        Command::try_parse_from(flags).unwrap().channel.defaults()
    }

    #[test]
    fn channel_is_off_without_its_flags() {
        assert_eq!(parse("").unwrap(), None);
        let on = "--channel-listen [::]:8443 --channel-address webhook.infra.svc:8443";
        let mut want = ChannelDefaults {
            address: "webhook.infra.svc:8443".to_owned(),
            ip: None,
            ca: String::new(),
            replacement: true,
            reports: false,
        };
        assert_eq!(parse(on).unwrap().as_ref(), Some(&want));
        let unexpanded = format!("{on} --channel-ip $(WEBHOOK_SERVICE_HOST)");
        assert_eq!(parse(&unexpanded).unwrap().as_ref(), Some(&want));
        want.ip = Some([10, 0, 0, 1].into());
        (want.replacement, want.reports) = (false, true);
        let all = format!(
            "{on} --channel-ip 10.0.0.1 --channel-replacement false --channel-reports true"
        );
        assert_eq!(parse(&all).unwrap(), Some(want));
    }

    #[test]
    fn incomplete_flags_are_errors() {
        let listen = "--channel-listen [::]:8443";
        for (flags, want) in [
            (listen.to_owned(), "require each other"),
            ("--channel-address a:1".to_owned(), "require each other"),
            (
                format!("{listen} --channel-address a"),
                "expected HOST:PORT",
            ),
            (
                format!("{listen} --channel-address a:0"),
                "expected HOST:PORT",
            ),
            (
                format!("{listen} --channel-address :1"),
                "expected HOST:PORT",
            ),
        ] {
            let error = parse(&flags).unwrap_err().to_string();
            assert!(error.contains(want), "{flags}: {error}");
        }
    }
}
