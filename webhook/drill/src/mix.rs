//! The kinds of clients of a drill, and the load that they make.

use std::time::Duration;

use clap::ValueEnum;
use load::{ClientKind, Clients, Load, LoadUrl, RequestOptions};

/// How long a WebSocket is kept: several of them end while a pod terminates.
const WEBSOCKET_SESSION: Duration = Duration::from_secs(10);

/// Slow requests have this share of the rate, since many of them are in flight at once.
const SLOW_SHARE: f64 = 0.1;

/// The method of gRPC calls without `--grpc-method`.
const DEFAULT_GRPC_METHOD: &str = "/grpc.health.v1.Health/Check";

/// The options that are for one kind of clients.
const SLOW_PATH: &str = "--slow-path";
const WEBSOCKET_PATH: &str = "--websocket-path";
const GRPC_METHOD: &str = "--grpc-method";

/// A kind of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ClientMix {
    /// HTTP/1.1 over connections that are kept
    KeepAlive,
    /// HTTP/1.1 over a new connection for each request
    Connect,
    /// As keep-alive, to --slow-path, at a tenth of the rate
    Slow,
    /// HTTP/2, without TLS by prior knowledge
    H2,
    /// Pings over WebSockets to --websocket-path, each kept for 10 s
    Websocket,
    /// Unary calls of --grpc-method with an empty message
    Grpc,
    /// HTTP/3; needs a URL with https
    H3,
}

/// Where the requests of a drill go, beside what the mix says.
#[derive(Debug, Clone)]
pub(super) struct LoadOptions {
    pub url: LoadUrl,
    /// Requests per second of each kind.
    pub rate: f64,
    pub requests: RequestOptions,
    pub request_timeout: Duration,
    pub slow_path: Option<String>,
    pub websocket_path: Option<String>,
    pub grpc_method: Option<String>,
}

/// Why there is no load of a mix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum InvalidMix {
    #[error("the mix has `slow`: name a path whose response takes seconds, with --slow-path")]
    NoSlowPath,
    #[error("the mix has `h3`, and `{0}` has no TLS: HTTP/3 needs a URL such as https://edge/")]
    NoTls(String),
    #[error("{0}: `{1}` is no path such as /slow?seconds=2")]
    InvalidPath(&'static str, String),
    #[error("{0} is only for `{1}`, which is not in the mix")]
    UnusedOption(&'static str, String),
}

/// The mix without `--mix`: what every gateway for HTTP may serve. A kind whose first request fails is left out.
pub(super) const DEFAULT_MIX: [ClientMix; 3] =
    [ClientMix::KeepAlive, ClientMix::Connect, ClientMix::H2];

/// The load of a mix.
///
/// # Errors
/// With all that is missing for it.
pub(super) fn load(mix: &[ClientMix], options: &LoadOptions) -> Result<Load, Vec<InvalidMix>> {
    let mut clients = Vec::new();
    let mut errors = unused_options(mix, options);
    for kind in mix {
        match kind.clients(options) {
            Ok(kind) => clients.push(kind),
            Err(error) => errors.push(error),
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    Ok(Load {
        requests: options.requests.clone(),
        clients,
        request_timeout: options.request_timeout,
    })
}

fn unused_options(mix: &[ClientMix], options: &LoadOptions) -> Vec<InvalidMix> {
    let uses = [
        (SLOW_PATH, &options.slow_path, ClientMix::Slow),
        (
            WEBSOCKET_PATH,
            &options.websocket_path,
            ClientMix::Websocket,
        ),
        (GRPC_METHOD, &options.grpc_method, ClientMix::Grpc),
    ];
    let unused = uses
        .into_iter()
        .filter(|(_, value, kind)| value.is_some() && !mix.contains(kind));
    unused
        .map(|(option, _, kind)| InvalidMix::UnusedOption(option, kind.name()))
        .collect()
}

// === impl ClientMix ===

impl ClientMix {
    /// The name, as in `--mix`.
    pub(super) fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    fn clients(self, options: &LoadOptions) -> Result<Clients, InvalidMix> {
        let url = &options.url;
        let with_path = |option, path: &str| {
            url.with_path(path)
                .map_err(|_| InvalidMix::InvalidPath(option, path.to_owned()))
        };
        let is_slow = self == Self::Slow;
        let (kind, url) = match self {
            Self::KeepAlive => (ClientKind::KeepAlive, url.clone()),
            Self::Connect => (ClientKind::ConnectionPerRequest, url.clone()),
            Self::Slow => {
                let path = options.slow_path.as_deref().ok_or(InvalidMix::NoSlowPath)?;
                (ClientKind::KeepAlive, with_path(SLOW_PATH, path)?)
            }
            Self::H2 => (ClientKind::Http2, url.clone()),
            Self::Websocket => {
                let session = WEBSOCKET_SESSION;
                let url = match &options.websocket_path {
                    Some(path) => with_path(WEBSOCKET_PATH, path)?,
                    None => url.clone(),
                };
                (ClientKind::WebSocket { session }, url)
            }
            Self::Grpc => {
                let method = options.grpc_method.as_deref();
                let method = method.unwrap_or(DEFAULT_GRPC_METHOD);
                (ClientKind::Grpc, with_path(GRPC_METHOD, method)?)
            }
            Self::H3 if !url.is_tls() => return Err(InvalidMix::NoTls(url.to_string())),
            Self::H3 => (ClientKind::Http3, url.clone()),
        };
        Ok(Clients {
            name: self.name(),
            kind,
            url,
            rate: options.rate * if is_slow { SLOW_SHARE } else { 1.0 },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(url: &str) -> LoadOptions {
        LoadOptions {
            url: url.parse().unwrap(),
            rate: 50.0,
            requests: RequestOptions::default(),
            request_timeout: Duration::from_secs(10),
            slow_path: None,
            websocket_path: None,
            grpc_method: None,
        }
    }

    #[test]
    fn each_kind_has_its_path_and_its_rate() {
        let options = LoadOptions {
            slow_path: Some("/slow".to_owned()),
            websocket_path: Some("/ws".to_owned()),
            ..options("https://edge/a")
        };
        let load = load(ClientMix::value_variants(), &options).unwrap();
        let clients = load.clients.iter();
        let clients = clients.map(|it| format!("{} {} {}", it.name, it.url.path(), it.rate));
        let want = [
            "keep-alive /a 50",
            "connect /a 50",
            "slow /slow 5",
            "h2 /a 50",
            "websocket /ws 50",
            "grpc /grpc.health.v1.Health/Check 50",
            "h3 /a 50",
        ];
        assert_eq!(clients.collect::<Vec<_>>(), want);
    }

    #[test]
    fn all_that_a_mix_lacks_is_named_at_once() {
        let mix = [ClientMix::Slow, ClientMix::H3, ClientMix::Grpc];
        let options = LoadOptions {
            websocket_path: Some("/ws".to_owned()),
            grpc_method: Some("Check".to_owned()),
            ..options("http://edge/")
        };
        let errors = load(&mix, &options).unwrap_err();
        let want = [
            InvalidMix::UnusedOption(WEBSOCKET_PATH, "websocket".to_owned()),
            InvalidMix::NoSlowPath,
            InvalidMix::NoTls("http://edge/".to_owned()),
            InvalidMix::InvalidPath(GRPC_METHOD, "Check".to_owned()),
        ];
        assert_eq!(errors, want);
    }
}
