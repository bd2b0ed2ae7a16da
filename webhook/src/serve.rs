//! `envoy-drainer serve`: the admission webhook.

mod certificate_source;

use std::convert::Infallible;
use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use admission::Defaults;
use anyhow::{Context, bail};
use arc_swap::ArcSwap;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flags::serve::{Args, DrainerApiArgs};
use futures_util::future::OptionFuture;
use kubernetes::load_config;
use pki::bundle::Bundle;
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};
use tracing::{info, warn};

use crate::api_clients::DrainerApiClient;
use crate::certificates;
use crate::certificates::reconciler::CertificateReconciler;
use crate::drainer_api;
use crate::events::{self, EventQueue};
use crate::metrics;
use crate::reports;
use crate::server::{self, AdmitFn, DrainerApiPort, Limits, Server, ServerPorts, read_client_ca};
use crate::token::token_generator;

/// Maximum length of the CAs that a drainer gets, in bytes: those of a dozen CAs.
const MAX_BUNDLE_LEN: usize = 8 << 10;

/// Serves until the first signal, and then shuts down gracefully; a second one ends it at once. `next_signal` waits for
/// SIGTERM, SIGINT or SIGHUP.
///
/// # Errors
/// If it cannot start, or was ended by a second signal.
pub async fn run(args: Args, mut next_signal: impl AsyncFnMut()) -> anyhow::Result<()> {
    let Args {
        listen,
        health_listen,
        metrics_listen,
        shutdown_delay,
        events: events_enabled,
        excluded_namespaces,
        pod_name,
        tls,
        drainer_api,
        logs,
        defaults,
    } = args;
    logs.start();
    let defaults = Defaults {
        drainer_api: drainer_api.defaults()?,
        ..defaults.into_defaults()?
    };
    let release_namespace = defaults.release_namespace.clone();
    let defaults = Arc::new(ArcSwap::from_pointee(defaults));
    let mut registry = metrics::registry();
    metrics::register_build(&mut registry);
    let event_metrics = events::Metrics::register(&mut registry);
    let certificate_metrics = certificates::metrics::Metrics::register(&mut registry);
    let client_ca = tls.client_ca.as_deref().map(read_client_ca).transpose()?;
    let tls_min_version = tls.tls_min_version;
    let (reconciler, resolver) =
        certificate_source::open(tls, &release_namespace, &certificate_metrics).await?;
    let resolver = Arc::new(resolver);
    let cluster = reconciler.as_ref().map(CertificateReconciler::cluster);
    let cluster = cluster.filter(|_| events_enabled);
    let event_publication = || {
        let (queue, output) = cluster
            .map(|cluster| {
                let (sender, receiver) = events::queue(events::QUEUE_CAPACITY, &event_metrics);
                (sender, (receiver, cluster.event_writer(pod_name.clone())))
            })
            .unzip();
        let publish = output.map(async |(queue, writer)| {
            let write = async |series: &events::Series| writer.write(series).await;
            events::publish(queue, &excluded_namespaces, &event_metrics, write).await
        });
        (queue, OptionFuture::from(publish))
    };
    // Each with limits of its own: reviews may be forged, and reports are authenticated.
    let (review_events, publish_review_events) = event_publication();
    let (report_events, publish_report_events) = event_publication();
    let ports = ServerPorts {
        tls: listener(listen)?,
        health: listener(health_listen)?,
        metrics: listener(metrics_listen)?,
    };
    let drainer_api =
        open_drainer_api(&drainer_api, shutdown_delay, report_events, &mut registry).await?;
    let publish_bundle = publish_bundle(resolver.bundle(), &defaults);
    info!(
        listen = %ports.tls.local_addr()?,
        health_listen = %ports.health.local_addr()?,
        metrics_listen = %ports.metrics.local_addr()?,
        "Serving"
    );
    let admit_pod = |injects_all| -> Box<AdmitFn> {
        let defaults = Arc::clone(&defaults);
        let generate_token = token_generator();
        Box::new(move |body| {
            admission::admit_pod(body, injects_all, &defaults.load(), &generate_token)
        })
    };
    let admit_workload = {
        let defaults = Arc::clone(&defaults);
        move |body: &[u8]| admission::admit_workload(body, &defaults.load())
    };
    let server = Server {
        admissions: vec![
            ("/inject", admit_pod(false)),
            ("/inject-all", admit_pod(true)),
            ("/workloads", Box::new(admit_workload)),
        ],
        resolver: Arc::clone(&resolver),
        tls_min_version,
        client_ca,
        limits: Limits {
            shutdown_delay,
            ..Limits::default()
        },
        registry,
        drainer_api,
        events: review_events,
    };
    let (stop, stop_requested) = oneshot::channel();
    let shutdown = async {
        // The server shuts down when it is sent, or dropped.
        let _ = stop_requested.await;
    };
    let renew_certificate = reconciler.map(|it| it.run(&resolver, &certificate_metrics));
    let signals = async {
        tokio::select! {
            () = next_signal() => {}
            Some(never) = OptionFuture::from(renew_certificate) => match never {},
        }
        // From here on, neither Secret nor caBundle is written: during an uninstall, that would create again what is
        // being deleted.
        let _ = stop.send(());
        next_signal().await;
    };
    tokio::select! {
        result = server::run(ports, server, shutdown) => result,
        Some(never) = publish_review_events => match never {},
        Some(never) = publish_report_events => match never {},
        never = publish_bundle => match never {},
        () = signals => bail!("terminated by a second signal"),
    }
}

/// Opens the port for drainers, if there is one.
///
/// # Errors
/// If it cannot listen, or finds no cluster.
async fn open_drainer_api(
    args: &DrainerApiArgs,
    shutdown_delay: Duration,
    events: Option<EventQueue>,
    registry: &mut metrics::Registry,
) -> anyhow::Result<Option<DrainerApiPort>> {
    let Some(address) = args.drainer_api_listen else {
        return Ok(None);
    };
    let listener = listener(address)?;
    let config = load_config(None, None).await?;
    let metrics = drainer_api::Metrics::register(registry);
    let report_metrics = (args.drainer_api_reports).then(|| reports::Metrics::register(registry));
    let replacement = args.drainer_api_replacement;
    let failed_handshakes = metrics.failed_handshakes.clone();
    info!(listen = %listener.local_addr()?, "Serving drainers");
    Ok(Some(DrainerApiPort {
        listener,
        router: Box::new(move || {
            let client = DrainerApiClient::from_config(config)?;
            let report = report_metrics.map(|metrics| -> Box<drainer_api::ReportFn> {
                let (queue, drains) = reports::queue(&metrics);
                // It ends with the queue, and is lost with the runtime of the drainer API's thread.
                tokio::spawn(reports::process(drains, client.clone(), events, metrics));
                Box::new(move |pod, report| queue.take(pod, report))
            });
            let features = drainer_api::Features {
                replacement,
                report,
            };
            Ok(drainer_api::router(client, features, &metrics))
        }),
        limits: drainer_api::limits(shutdown_delay),
        failed_handshakes,
    }))
}

/// Gives new pods the CAs that their drainers should trust, for as long as it is polled.
async fn publish_bundle(
    mut bundle: watch::Receiver<Bundle>,
    defaults: &ArcSwap<Defaults>,
) -> Infallible {
    loop {
        let ca = encode_bundle(&bundle.borrow_and_update());
        defaults.rcu(|defaults| {
            let mut defaults = Defaults::clone(defaults);
            if let Some(drainer_api) = &mut defaults.drainer_api {
                drainer_api.ca.clone_from(&ca);
            }
            defaults
        });
        if bundle.changed().await.is_err() {
            return pending().await;
        }
    }
}

/// Formats CAs for a drainer's arguments: those that come first, if all of them are too long.
fn encode_bundle(bundle: &Bundle) -> String {
    let cas: Vec<_> = bundle.iter().map(|ca| STANDARD.encode(ca)).collect();
    let mut length = 0;
    let fits = |ca: &&String| {
        length += ca.len() + 1;
        length <= MAX_BUNDLE_LEN
    };
    let used = cas.iter().take_while(fits).count();
    if used < cas.len() {
        warn!(
            all = cas.len(),
            used, "Drainers trust only some CAs of the webhook, which has too many"
        );
    }
    cas[..used].join(",")
}

fn listener(address: SocketAddr) -> anyhow::Result<TcpListener> {
    server::listen(address).with_context(|| format!("cannot listen on {address}"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use pki::ca::Ca;
    use pki::clock::wall_clock;

    #[test]
    fn drainers_get_the_first_cas_of_a_bundle() {
        let ca = || Ca::try_new(wall_clock(), Duration::from_secs(3600)).unwrap();
        let bundle: Bundle = (0..40).map(|_| ca().der().clone()).collect();
        for (count, is_whole) in [(0, true), (1, true), (3, true), (40, false)] {
            let bundle = bundle.first(count);
            let encoded = encode_bundle(&bundle);
            assert!(encoded.len() <= MAX_BUNDLE_LEN);
            let parts: Vec<_> = encoded.split(',').filter(|part| !part.is_empty()).collect();
            let ders = bundle.iter().zip(&parts);
            for (ca, part) in ders {
                assert_eq!(STANDARD.decode(part).unwrap(), ca.to_vec());
            }
            assert_eq!(parts.len() == count, is_whole, "{count}: {}", parts.len());
        }
    }
}
