//! The command `drainer serve`: opens the sockets, and runs server and drain until both are done.

use std::future::pending;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Mutex;

use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use tracing::field::display;
use tracing::{info, warn};

use crate::drain::progress::Progress;
use crate::machine::Machine;
use crate::machine::termination::TerminationSignals;
use crate::server::{MAX_CONTAINER_HOOKS, MAX_LOCAL_HOOKS, Server};
use crate::settings::config::Config;

/// Runs the sidecar until `sigterm`, and then until every waiting hook has its response.
///
/// SIGTERM does not close the port: a plain container receives it when its own hook has returned, while
/// Envoy's may still be waiting. What cannot be bound, because another process has the port or the socket's name, is
/// bound later: a drainer that exited instead would make the pod unready with each restart.
pub async fn run(config: &Config, sigterm: impl Future) {
    let signals = watch::Sender::new(TerminationSignals::default());
    let (loopback, any) = (Ipv4Addr::LOCALHOST.into(), Ipv6Addr::UNSPECIFIED.into());
    let ip: IpAddr = if config.host_network { loopback } else { any };
    let port = config.settings.port;
    let progress = watch::Sender::new(Progress::default());
    let server = Server {
        token: config.token,
        manager: config.manager,
        open_hooks: Mutex::default(),
        signals: signals.clone(),
        progress: progress.subscribe(),
        local_hooks: Semaphore::new(MAX_LOCAL_HOOKS),
        container_hooks: Semaphore::new(MAX_CONTAINER_HOOKS),
        connections: watch::Sender::default(),
    };
    let admin = config.admin_address.as_ref().map(display);
    let manager_hook = config.manager.map(|it| it.hook_path);
    info!(
        version = env!("CARGO_PKG_VERSION"),
        admin, port, manager_hook, "Drainer started"
    );
    let delay = config.settings.health_failure_delay;
    for (setting, reason) in config.settings.timing.settings_without_effect(delay) {
        warn!("{setting} {reason}");
    }
    // The machine ends only after SIGTERM. It is a task, so that nothing else delays it.
    let machine = tokio::spawn(Machine::new(config, signals.clone(), progress).run());
    let record_sigterm = async {
        sigterm.await;
        signals.send_modify(|signals| signals.sigterm = Some(Instant::now()));
        info!("Received SIGTERM: exiting as soon as no drain is running and no hook waits");
        pending().await
    };
    tokio::select! {
        () = server.run((ip, port.get()).into(), machine) => {}
        never = record_sigterm => never,
    }
    info!("Exiting");
}
