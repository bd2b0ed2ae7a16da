//! `envoy-drainer serve`: the admission webhook.

use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::builder::ArgAction;
use drainer::duration;
use tokio::net::TcpListener;
use tokio::runtime;
use tokio::sync::oneshot;
use tracing::info;

use super::args::logs::LogArgs;
use super::args::pod_defaults::PodDefaultsArgs;
use super::args::tls::TlsArgs;
use crate::admission;
use crate::certificates;
use crate::events;
use crate::metrics;
use crate::server::{self, Limits, Server, ServerPorts};
use crate::signals::Signals;
use crate::token::token_generator;

/// The flags of `serve`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Address of the webhook's port for API servers: POST /inject and /workloads over TLS.
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "ENVOY_DRAINER_LISTEN",
        default_value = "[::]:10250"
    )]
    listen: SocketAddr,
    /// Address of the port for /healthz and /readyz over plain HTTP.
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "ENVOY_DRAINER_HEALTH_LISTEN",
        default_value = "[::]:8081"
    )]
    health_listen: SocketAddr,
    /// Address of the port for /metrics over plain HTTP.
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "ENVOY_DRAINER_METRICS_LISTEN",
        default_value = "[::]:8080"
    )]
    metrics_listen: SocketAddr,
    /// How long a replica keeps serving after SIGTERM, until API servers know that it is terminating.
    #[arg(
        long,
        value_name = "DURATION",
        env = "ENVOY_DRAINER_SHUTDOWN_DELAY",
        value_parser = duration::parse,
        default_value = duration::format(Limits::default().shutdown_delay).to_string()
    )]
    shutdown_delay: Duration,
    /// Whether to publish an Event with the reason on the owner of a pod that requests a drainer but gets none; requires --webhook-configuration.
    #[arg(
        long,
        value_name = "BOOL",
        env = "ENVOY_DRAINER_EVENTS",
        action = ArgAction::Set,
        default_value_t = true
    )]
    events: bool,
    /// Namespaces in which no Events are published, comma-separated: those that the webhook configuration excludes.
    #[arg(
        long,
        value_name = "NAMESPACES",
        env = "ENVOY_DRAINER_EXCLUDED_NAMESPACES",
        value_delimiter = ','
    )]
    excluded_namespaces: Vec<String>,
    /// Name of this replica in its Events.
    #[arg(
        long,
        value_name = "NAME",
        env = "ENVOY_DRAINER_POD_NAME",
        default_value = "envoy-drainer"
    )]
    pod_name: String,
    #[command(flatten)]
    pub(super) tls: TlsArgs,
    #[command(flatten)]
    logs: LogArgs,
    #[command(flatten)]
    pub(super) defaults: PodDefaultsArgs,
}

/// Serves until SIGTERM or SIGINT, and then shuts down gracefully; a second signal ends it at once.
///
/// # Errors
/// If it cannot start, or was ended by a second signal.
pub fn run(args: Args) -> anyhow::Result<()> {
    // One thread for admissions: each takes microseconds, and one core answers about ten thousand per second, more
    // than API servers send. More threads would cost memory on nodes of any size.
    runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?
        .block_on(serve(args))
}

async fn serve(args: Args) -> anyhow::Result<()> {
    let Args {
        listen,
        health_listen,
        metrics_listen,
        shutdown_delay,
        events: events_enabled,
        excluded_namespaces,
        pod_name,
        tls,
        logs,
        defaults,
    } = args;
    let mut signals = Signals::install().context("cannot handle signals")?;
    logs.start();
    let defaults = Arc::new(defaults.into_defaults()?);
    let mut registry = metrics::registry();
    let server_metrics = server::Metrics::register(&mut registry);
    let event_metrics = events::Metrics::register(&mut registry);
    let certificate_metrics = certificates::metrics::Metrics::register(&mut registry);
    let client_ca = tls.client_ca()?;
    let tls_min_version = tls.tls_min_version;
    let (source, resolver) = tls
        .open(&defaults.release_namespace, &certificate_metrics)
        .await?;
    let resolver = Arc::new(resolver);
    let cluster = source.cluster().filter(|_| events_enabled);
    let (event_queue, event_output) = cluster
        .map(|cluster| {
            let (sender, receiver) = events::queue(events::QUEUE_CAPACITY, &event_metrics);
            (sender, (receiver, cluster.event_writer(pod_name)))
        })
        .unzip();
    let publish_events = async {
        match event_output {
            Some((queue, writer)) => {
                let write = async |series: &events::Series| writer.write(series).await;
                events::publish(queue, &excluded_namespaces, &event_metrics, write).await
            }
            None => pending().await,
        }
    };
    let ports = ServerPorts {
        tls: listener(listen)?,
        health: listener(health_listen)?,
        metrics: listener(metrics_listen)?,
    };
    info!(
        listen = %ports.tls.local_addr()?,
        health_listen = %ports.health.local_addr()?,
        metrics_listen = %ports.metrics.local_addr()?,
        "Serving"
    );
    let server = Server {
        admit: Box::new({
            let defaults = Arc::clone(&defaults);
            let generate_token = token_generator();
            move |body| admission::admit_pod(body, &defaults, &generate_token)
        }),
        admit_workload: Box::new(move |body| admission::admit_workload(body, &defaults)),
        resolver: Arc::clone(&resolver),
        tls_min_version,
        client_ca,
        limits: Limits {
            shutdown_delay,
            ..Limits::default()
        },
        metrics: server_metrics,
        registry,
        events: event_queue,
    };
    let (stop, stop_requested) = oneshot::channel();
    let shutdown = async {
        // Sent or dropped, the server shuts down.
        let _ = stop_requested.await;
    };
    let second_signal = async {
        tokio::select! {
            () = signals.next() => {}
            never = source.run(&resolver, &certificate_metrics) => match never {},
        }
        // From here on, neither Secret nor caBundle is written: during an uninstall, that would create again what is
        // being deleted.
        let _ = stop.send(());
        signals.next().await;
    };
    tokio::select! {
        result = server::run(ports, server, shutdown) => result,
        never = publish_events => match never {},
        () = second_signal => bail!("terminated by a second signal"),
    }
}

fn listener(address: SocketAddr) -> anyhow::Result<TcpListener> {
    server::listen(address).with_context(|| format!("cannot listen on {address}"))
}
