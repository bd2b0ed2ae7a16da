//! The flags of `envoy-drainer serve`, which `check` and `explain` read too.

use std::net::SocketAddr;
use std::time::Duration;

use clap::builder::ArgAction;
use drainer::duration;

use super::args::drainer_api::DrainerApiArgs;
use super::args::logs::LogArgs;
use super::args::pod_defaults::PodDefaultsArgs;
use super::args::tls::TlsArgs;

/// The flags of `serve`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Address of the webhook's port for API servers: POST /inject and /workloads over TLS.
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
    /// Whether to publish an Event with the reason on the owner of a pod that requests a drainer but gets none, or whose drain cut something; requires --webhook-configuration.
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
