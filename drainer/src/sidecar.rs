//! The command `drainer serve`: opens the sockets, and runs server and drain until both are done.

use std::future::{Future, pending};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::Context;
use tokio::net::UnixListener;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;
use tracing::info;

use crate::config::Config;
use crate::drain::Drain;
use crate::envoy::AdminClient;
use crate::progress::Progress;
use crate::server::port::HookPort;
use crate::server::{Server, Sockets};
use crate::termination::TerminationSignals;

/// How long hooks have to read their responses before the process exits.
const RESPONSE_GRACE: Duration = Duration::from_secs(2);

/// Runs the sidecar until `sigterm`, and then until every waiting hook has its response.
///
/// SIGTERM does not close the port: a plain container receives it when its own hook has returned, while
/// Envoy's may still be waiting.
///
/// # Errors
/// If the Unix socket cannot be created.
pub async fn run(config: &Config, sigterm: impl Future<Output = ()>) -> anyhow::Result<()> {
    let signals = watch::Sender::new(TerminationSignals::default());
    let sockets = open_sockets(config, signals.clone())?;
    let progress = watch::Sender::new(Progress::default());
    let server = Server::new(config.token, signals.clone(), progress.subscribe());
    let admin = AdminClient::new(
        config.settings.admin_address.clone(),
        config.settings.ignore_listeners.clone(),
    );
    let drain = Drain::new(admin, config, signals.clone(), progress);
    info!(admin = %config.settings.admin_address, port = config.settings.port.get(), "Ready");

    let sigterm = async {
        sigterm.await;
        info!("Received SIGTERM");
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
    let shutdown = async { drop(until_done.await) };
    tokio::select! {
        _ = async { tokio::join!(drain, server.run(sockets, shutdown, RESPONSE_GRACE)) } => {}
        () = sigterm => {}
    }
    Ok(())
}

/// Opens the sockets of `config`: the Unix socket, replacing that of an earlier process, and the
/// port on all addresses, or only on 127.0.0.1 with the node's network. A port in use is bound
/// later: a drainer that exited instead would make the pod unready with each restart.
///
/// # Errors
/// If the Unix socket cannot be created.
fn open_sockets(
    config: &Config,
    signals: watch::Sender<TerminationSignals>,
) -> anyhow::Result<Sockets> {
    let path = config.socket();
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("cannot replace {}", path.display()));
        }
        _ => {}
    }
    let unix = UnixListener::bind(&path)
        .with_context(|| format!("cannot listen on {}", path.display()))?;
    let port = config.settings.port.get();
    let address = match config.host_network {
        true => SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
        false => SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)),
    };
    let port = HookPort::open(address, signals);
    Ok(Sockets { port, unix })
}
