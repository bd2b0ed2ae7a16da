//! `envoy-drainer serve`: the admission webhook.

use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, bail};
use clap::builder::ArgAction;
use tokio::net::TcpListener;
use tokio::runtime;
use tokio::sync::{mpsc, oneshot};
use tracing::info;

use super::args::duration::HumanDuration;
use super::args::logs::LogArgs;
use super::args::pod_defaults::{InvalidDefaults, PodDefaultsArgs};
use super::args::tls::TlsArgs;
use crate::admission::{self, Defaults};
use crate::certificates;
use crate::events;
use crate::metrics::Metrics;
use crate::server::{self, Limits, Server, ServerPorts};
use crate::signals::Signals;
use crate::token::TokenGenerator;

/// The flags of `serve`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where to listen for the API server: POST /inject and /workloads over TLS.
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "ENVOY_DRAINER_LISTEN",
        default_value = "[::]:10250"
    )]
    listen: SocketAddr,
    /// Where to listen for /healthz and /readyz over plain HTTP.
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "ENVOY_DRAINER_HEALTH_LISTEN",
        default_value = "[::]:8081"
    )]
    health_listen: SocketAddr,
    /// Where to listen for /metrics over plain HTTP.
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "ENVOY_DRAINER_METRICS_LISTEN",
        default_value = "[::]:8080"
    )]
    metrics_listen: SocketAddr,
    /// How long to serve on after SIGTERM, until the API server knows that this replica is gone.
    #[arg(
        long,
        value_name = "DURATION",
        env = "ENVOY_DRAINER_SHUTDOWN_DELAY",
        default_value_t = HumanDuration(Limits::default().shutdown_delay)
    )]
    shutdown_delay: HumanDuration,
    /// Whether the owner of a pod that asks for a drainer and gets none has an Event that says why, with --webhook-configuration.
    #[arg(
        long,
        value_name = "BOOL",
        env = "ENVOY_DRAINER_EVENTS",
        action = ArgAction::Set,
        default_value_t = true
    )]
    events: bool,
    /// Namespaces without Events, comma-separated: those of which API servers do not ask.
    #[arg(
        long,
        value_name = "NAMESPACES",
        env = "ENVOY_DRAINER_EXCLUDED_NAMESPACES",
        value_delimiter = ','
    )]
    excluded_namespaces: Vec<String>,
    /// This replica's name in its Events.
    #[arg(
        long,
        value_name = "NAME",
        env = "ENVOY_DRAINER_POD_NAME",
        default_value = "envoy-drainer"
    )]
    pod_name: String,
    #[command(flatten)]
    tls: TlsArgs,
    #[command(flatten)]
    logs: LogArgs,
    #[command(flatten)]
    defaults: PodDefaultsArgs,
}

/// Serves until SIGTERM or SIGINT, and ends gracefully; at once with a second signal.
///
/// # Errors
/// When it cannot start, or was ended by a second signal.
pub fn run(args: Args) -> anyhow::Result<()> {
    // One thread for admissions: one is microseconds of work, and one core answers some ten thousand a
    // second, more than an API server can ask. More threads would cost memory on every node size.
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
        shutdown_delay: HumanDuration(shutdown_delay),
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
    let mut report = Metrics::new();
    let certificate_metrics = certificates::metrics::Metrics::register(report.registry_mut());
    let report = Arc::new(report);
    let client_ca = tls.client_ca()?;
    let (source, serving, tls_min_version) = tls
        .open(&defaults.release_namespace, &certificate_metrics)
        .await?;
    let serving = Arc::new(serving);
    let cluster = source.cluster().filter(|_| events_enabled);
    let (undrained, event_output) = cluster
        .map(|cluster| {
            let (undrained, queue) = mpsc::channel(events::QUEUE_CAPACITY);
            (undrained, (queue, cluster.event_writer(pod_name)))
        })
        .unzip();
    let publish_events = async {
        match event_output {
            Some((queue, events)) => {
                let write = async |series: &events::Series| events.write(series).await;
                events::publish(queue, &excluded_namespaces, &report, write).await
            }
            None => pending().await,
        }
    };
    let listeners = ServerPorts {
        tls: listener(listen)?,
        health: listener(health_listen)?,
        metrics: listener(metrics_listen)?,
    };
    info!(
        listen = %listeners.tls.local_addr()?,
        health_listen = %listeners.health.local_addr()?,
        metrics_listen = %listeners.metrics.local_addr()?,
        "Serving"
    );
    let server = Server {
        admit: Box::new({
            let defaults = Arc::clone(&defaults);
            let tokens = TokenGenerator::default();
            move |body| admission::admit_pod(body, &defaults, || tokens.generate())
        }),
        admit_workload: Box::new(move |body| admission::admit_workload(body, &defaults)),
        resolver: Arc::clone(&serving),
        tls_min_version,
        client_ca,
        limits: Limits {
            shutdown_delay,
            ..Limits::default()
        },
        metrics: Arc::clone(&report),
        skipped_pods: undrained,
    };
    let (stop, stopped) = oneshot::channel();
    let stopped = async {
        // Dropped or sent, it is time to go.
        let _ = stopped.await;
    };
    let second_signal = async {
        tokio::select! {
            () = signals.next() => {}
            never = source.run(&serving, &certificate_metrics) => match never {},
        }
        // Who leaves writes neither Secret nor caBundle: what is being deleted would be made anew.
        let _ = stop.send(());
        signals.next().await;
    };
    tokio::select! {
        served = server::run(listeners, server, stopped) => served,
        never = publish_events => match never {},
        () = second_signal => bail!("ended at once by a second signal"),
    }
}

fn listener(address: SocketAddr) -> anyhow::Result<TcpListener> {
    server::listen(address).with_context(|| format!("cannot listen on {address}"))
}

// === impl Args ===

impl Args {
    /// What the flags decide for pods.
    ///
    /// # Errors
    /// When they do not fit together.
    pub fn into_defaults(self) -> Result<Defaults, InvalidDefaults> {
        self.defaults.into_defaults()
    }

    /// Where the certificate comes from.
    #[must_use]
    pub fn tls(&self) -> &TlsArgs {
        &self.tls
    }
}
