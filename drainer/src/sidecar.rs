//! The command `drainer serve`: opens the sockets, and runs server and drain until both are done.

use std::future::pending;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anyhow::Context;
use tokio::net::UnixListener;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;
use tracing::info;

use crate::config::Config;
use crate::drain::Drain;
use crate::envoy::AdminClient;
use crate::marker::remove_if_present;
use crate::progress::Progress;
use crate::server::Server;
use crate::server::port::HookPort;
use crate::termination::TerminationSignals;

/// Runs the sidecar until `sigterm`, and then until every waiting hook has its response.
///
/// SIGTERM does not close the port: a plain container receives it when its own hook has returned, while
/// Envoy's may still be waiting.
///
/// # Errors
/// If the Unix socket cannot be created.
pub async fn run(config: &Config, sigterm: impl Future<Output = ()>) -> anyhow::Result<()> {
    let signals = watch::Sender::new(TerminationSignals::default());
    let path = config.socket();
    remove_if_present(&path).with_context(|| format!("cannot replace {}", path.display()))?;
    let unix = UnixListener::bind(&path)
        .with_context(|| format!("cannot listen on {}", path.display()))?;
    let ip: IpAddr = match config.host_network {
        true => Ipv4Addr::LOCALHOST.into(),
        false => Ipv6Addr::UNSPECIFIED.into(),
    };
    // A port in use is bound later: a drainer that exited instead would make the pod unready with each
    // restart.
    let port = HookPort::open((ip, config.settings.port.get()).into(), signals.clone());
    let progress = watch::Sender::new(Progress::default());
    let server = Server {
        token: config.token,
        signals: signals.clone(),
        progress: progress.subscribe(),
    };
    let admin = AdminClient::new(
        config.settings.admin_address.clone(),
        config.settings.ignore_listeners.clone(),
    );
    let drain = Drain::new(admin, config, signals.clone(), progress);
    info!(
        version = env!("CARGO_PKG_VERSION"),
        admin = %config.settings.admin_address,
        port = config.settings.port.get(),
        "Drainer started"
    );

    let sigterm = async {
        sigterm.await;
        info!("Received SIGTERM: exiting as soon as no drain is running and no hook waits");
        signals.send_modify(|signals| signals.sigterm = Some(Instant::now()));
        pending().await
    };
    let mut received = signals.subscribe();
    let (done, until_done) = oneshot::channel::<()>();
    let drain = async {
        drain.run().await;
        // An error means that no further signal can arrive.
        let _ = received.wait_for(|signals| signals.sigterm.is_some()).await;
        drop(done);
    };
    tokio::select! {
        _ = async { tokio::join!(drain, server.run(port, unix, until_done)) } => {}
        () = sigterm => {}
    }
    info!("Exiting");
    Ok(())
}
