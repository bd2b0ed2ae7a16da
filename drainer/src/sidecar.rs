//! `drainer serve`: the sidecar's whole life.

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

/// How long the callers have to take their answers before the process ends.
const RESPONSE_GRACE: Duration = Duration::from_secs(2);

/// Runs the sidecar until SIGTERM has come and every hook that waits has its answer.
///
/// SIGTERM does not close the port: as a plain container the drainer gets it when its own hook has
/// returned, while Envoy's may still wait for its answer.
///
/// # Errors
/// If the directory cannot be written to.
pub async fn run(config: &Config, sigterm: impl Future<Output = ()>) -> anyhow::Result<()> {
    let signals = watch::Sender::new(TerminationSignals::default());
    let sockets = open_sockets(config, signals.clone())?;
    let progress = watch::Sender::new(Progress::default());
    let server = Server::new(config.token, signals.clone(), progress.subscribe());
    let admin = AdminClient::new(
        config.admin_address.clone(),
        config.ignore_listeners.clone(),
    );
    let drain = Drain::new(admin, config, signals.clone(), progress);
    info!(admin = %config.admin_address, port = config.port.get(), "Ready");

    let sigterm = async {
        sigterm.await;
        info!("SIGTERM");
        signals.send_modify(|came| came.sigterm = Some(Instant::now()));
        pending().await
    };
    let mut signalled = signals.subscribe();
    let (end, over) = oneshot::channel::<()>();
    let drain = async {
        drain.run().await;
        // An error means that nobody can come any more.
        let _ = signalled.wait_for(|came| came.sigterm.is_some()).await;
        drop(end);
    };
    let over = async { drop(over.await) };
    tokio::select! {
        _ = async { tokio::join!(drain, server.run(sockets, over, RESPONSE_GRACE)) } => {}
        () = sigterm => {}
    }
    Ok(())
}

/// Opens the sockets that `config` asks for: the Unix socket, in place of one that an earlier process
/// left behind, and the port on all addresses, on 127.0.0.1 only with the node's network. A port that
/// is taken is bound later: a drainer that ended for it would make the pod unready again and again.
///
/// # Errors
/// If the directory cannot be written to.
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
    let port = config.port.get();
    let address = match config.host_network {
        true => SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
        false => SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)),
    };
    let port = HookPort::open(address, signals);
    Ok(Sockets { port, unix })
}
