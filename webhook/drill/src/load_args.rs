//! The flags of a drill's load: its kinds of clients, and their requests.

use std::time::Duration;

use anyhow::Context;
use clap::ValueEnum;
use ctl::cli::terminal::UsageError;
use drainer::{InvalidValue, duration};
use hyper::header::{HeaderName, HeaderValue};
use load::job::LoadJob;
use load::{ClientKind, Clients, ExpectedResponse, HostPort, Load, LoadUrl, RequestOptions};

/// The mix without `--mix`: what every gateway for HTTP may serve. A kind whose first request fails is left out.
const DEFAULT_MIX: [ClientMix; 3] = [ClientMix::KeepAlive, ClientMix::Connect, ClientMix::H2];

/// How long a WebSocket is kept: several of them end while a pod terminates.
const WEBSOCKET_SESSION: Duration = Duration::from_secs(10);

/// Slow requests have this share of the rate, since many of them are in flight at once.
const SLOW_SHARE: f64 = 0.1;

/// The method of gRPC calls without `--grpc-method`.
const DEFAULT_GRPC_METHOD: &str = "/grpc.health.v1.Health/Check";

/// The least time that a request may take.
const MIN_REQUEST_TIMEOUT: Duration = Duration::from_millis(100);

/// The options that are for one kind of clients.
const SLOW_PATH: &str = "--slow-path";
const WEBSOCKET_PATH: &str = "--websocket-path";
const GRPC_METHOD: &str = "--grpc-method";

/// What `slow` lacks without `--slow-path`.
const NO_SLOW_PATH: &str =
    "the mix has `slow`: name a path whose response takes seconds, with --slow-path";

/// A kind of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ClientMix {
    /// HTTP/1.1 over connections that are kept
    KeepAlive,
    /// HTTP/1.1 over a new connection for each request
    Connect,
    /// 5 connections of HTTP/1.1 that stay open after one request each; one that the server closes is replaced
    Idle,
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

/// The flags of what is sent.
#[derive(Debug, clap::Args)]
pub(super) struct LoadArgs {
    /// URL of the requests.
    #[arg(long)]
    pub(super) url: LoadUrl,
    /// Host and port to connect to, instead of those of the URL.
    #[arg(long, value_name = "HOST:PORT")]
    connect_to: Option<HostPort>,
    /// Kinds of clients [default: keep-alive,connect,h2, as far as the gateway serves them].
    #[arg(long, value_name = "KINDS", value_enum, value_delimiter = ',')]
    mix: Vec<ClientMix>,
    /// Requests per second of each kind but `idle`.
    #[arg(long, value_name = "NUMBER", default_value = "50", value_parser = parse_rate)]
    rate: f64,
    /// Minimum time to send requests. They begin 5 s before the disruption, and end 5 s after the last pod is gone.
    #[arg(long = "for", value_name = "DURATION", default_value = "0s", value_parser = duration::parse)]
    pub(super) r#for: Duration,
    /// Timeout of a request.
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = parse_timeout)]
    request_timeout: Duration,
    /// Header of all requests, as in curl. It is visible in the Job's arguments.
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", value_parser = parse_header)]
    header: Vec<(HeaderName, HeaderValue)>,
    /// Body of all requests, which makes them POSTs.
    #[arg(long, value_name = "TEXT")]
    body: Option<String>,
    /// Expected status of every response, instead of 200 to 399.
    #[arg(long, value_name = "STATUS", value_parser = clap::value_parser!(u16).range(200..=599))]
    status: Option<u16>,
    /// Path whose response takes seconds, for the kind `slow`.
    #[arg(long, value_name = "PATH")]
    slow_path: Option<String>,
    /// Path of WebSockets, instead of the URL's.
    #[arg(long, value_name = "PATH")]
    websocket_path: Option<String>,
    /// Method of gRPC calls, instead of /grpc.health.v1.Health/Check.
    #[arg(long, value_name = "/SERVICE/METHOD")]
    grpc_method: Option<String>,
}

fn parse_timeout(text: &str) -> Result<Duration, InvalidValue> {
    let timeout = duration::parse(text)?;
    if timeout < MIN_REQUEST_TIMEOUT {
        return Err(InvalidValue::new("timeout", text, "must be at least 100ms"));
    }
    Ok(timeout)
}

fn parse_rate(text: &str) -> Result<f64, &'static str> {
    let rate = text.parse().ok();
    let rate = rate.filter(|rate| (0.1..=10_000.0).contains(rate));
    rate.ok_or("a rate is a number of requests per second from 0.1 to 10000")
}

fn parse_header(text: &str) -> anyhow::Result<(HeaderName, HeaderValue)> {
    let (name, value) = text.split_once(':').context("a header is `NAME: VALUE`")?;
    Ok((name.trim().parse()?, value.trim().parse()?))
}

// === impl LoadArgs ===

impl LoadArgs {
    /// What the load is to do, for as long as it runs.
    ///
    /// # Errors
    /// As invalid usage, with all that is missing.
    pub(super) fn job(&self) -> Result<LoadJob, UsageError> {
        let is_default = self.mix.is_empty();
        let load = self.load(if is_default { &DEFAULT_MIX } else { &self.mix });
        let load = load.map_err(|errors| UsageError(errors.join("; ")))?;
        Ok(LoadJob {
            load,
            connect_to: self.connect_to.clone(),
            duration: None,
            skips_failing: is_default,
        })
    }

    fn load(&self, mix: &[ClientMix]) -> Result<Load, Vec<String>> {
        let mut clients = Vec::new();
        let mut errors = self.unused_options(mix);
        for kind in mix {
            match self.clients(*kind) {
                Ok(kind) => clients.push(kind),
                Err(error) => errors.push(error),
            }
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let expected = self.status.map(ExpectedResponse::Status);
        Ok(Load {
            requests: RequestOptions {
                headers: self.header.clone(),
                body: self.body.clone(),
                expected: expected.unwrap_or_default(),
            },
            clients,
            request_timeout: self.request_timeout,
        })
    }

    fn unused_options(&self, mix: &[ClientMix]) -> Vec<String> {
        let uses = [
            (SLOW_PATH, &self.slow_path, ClientMix::Slow),
            (WEBSOCKET_PATH, &self.websocket_path, ClientMix::Websocket),
            (GRPC_METHOD, &self.grpc_method, ClientMix::Grpc),
        ];
        let uses = uses.into_iter();
        let unused = uses.filter(|(_, value, kind)| value.is_some() && !mix.contains(kind));
        let names = unused.map(|(option, _, kind)| (option, kind.name()));
        let describe =
            |(option, kind)| format!("{option} is only for `{kind}`, which is not in the mix");
        names.map(describe).collect()
    }

    fn clients(&self, kind: ClientMix) -> Result<Clients, String> {
        let url = &self.url;
        let with_path = |option, path: &str| {
            let invalid = |_| format!("{option}: `{path}` is no path such as /slow?seconds=2");
            url.with_path(path).map_err(invalid)
        };
        let name = kind.name();
        let share = match kind {
            ClientMix::Idle => 0.0,
            ClientMix::Slow => SLOW_SHARE,
            _ => 1.0,
        };
        let (kind, url) = match kind {
            ClientMix::KeepAlive => (ClientKind::KeepAlive, url.clone()),
            ClientMix::Connect => (ClientKind::ConnectionPerRequest, url.clone()),
            ClientMix::Idle => (ClientKind::Idle, url.clone()),
            ClientMix::Slow => {
                let path = self.slow_path.as_deref().ok_or(NO_SLOW_PATH)?;
                (ClientKind::KeepAlive, with_path(SLOW_PATH, path)?)
            }
            ClientMix::H2 => (ClientKind::Http2, url.clone()),
            ClientMix::Websocket => {
                let session = WEBSOCKET_SESSION;
                let path = self.websocket_path.as_deref().unwrap_or(url.path());
                let url = with_path(WEBSOCKET_PATH, path)?;
                (ClientKind::WebSocket { session }, url)
            }
            ClientMix::Grpc => {
                let method = self.grpc_method.as_deref();
                let method = method.unwrap_or(DEFAULT_GRPC_METHOD);
                (ClientKind::Grpc, with_path(GRPC_METHOD, method)?)
            }
            ClientMix::H3 if !url.is_tls() => {
                return Err(format!(
                    "the mix has `h3`, and `{url}` has no TLS: HTTP/3 needs a URL such as https://edge/"
                ));
            }
            ClientMix::H3 => (ClientKind::Http3, url.clone()),
        };
        Ok(Clients {
            name,
            kind,
            url,
            rate: self.rate * share,
        })
    }
}

// === impl ClientMix ===

impl ClientMix {
    /// The name, as in `--mix`.
    pub(super) fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        load: LoadArgs,
    }

    fn args(url: &str) -> LoadArgs {
        Command::parse_from(["test", "--url", url]).load
    }

    #[test]
    fn each_kind_has_its_path_and_its_rate() {
        let args = LoadArgs {
            slow_path: Some("/slow".to_owned()),
            websocket_path: Some("/ws".to_owned()),
            ..args("https://edge/a")
        };
        let load = args.load(ClientMix::value_variants()).unwrap();
        let clients = load.clients.iter();
        let clients = clients.map(|it| format!("{} {} {}", it.name, it.url.path(), it.rate));
        let want = [
            "keep-alive /a 50",
            "connect /a 50",
            "idle /a 0",
            "slow /slow 5",
            "h2 /a 50",
            "websocket /ws 50",
            "grpc /grpc.health.v1.Health/Check 50",
            "h3 /a 50",
        ];
        assert_eq!(clients.collect::<Vec<_>>(), want);
    }

    #[test]
    fn header_beyond_ascii_survives_the_job() {
        let header = ("x-name".parse().unwrap(), "é".parse().unwrap());
        let args = LoadArgs {
            header: vec![header],
            ..args("http://edge/")
        };
        let job = args.job().unwrap();
        let json = serde_json::to_string(&job).unwrap();
        assert_eq!(serde_json::from_str::<LoadJob>(&json).unwrap(), job);
    }

    #[test]
    fn all_that_a_mix_lacks_is_named_at_once() {
        let mix = [ClientMix::Slow, ClientMix::H3, ClientMix::Grpc];
        let args = LoadArgs {
            websocket_path: Some("/ws".to_owned()),
            grpc_method: Some("Check".to_owned()),
            ..args("http://edge/")
        };
        let errors = args.load(&mix).unwrap_err();
        let want = [
            "--websocket-path is only for `websocket`, which is not in the mix",
            NO_SLOW_PATH,
            "the mix has `h3`, and `http://edge/` has no TLS: HTTP/3 needs a URL such as https://edge/",
            "--grpc-method: `Check` is no path such as /slow?seconds=2",
        ];
        assert_eq!(errors, want);
    }
}
