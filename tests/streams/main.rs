//! Measures what clients of a server that is no Envoy lose that the kernel takes for idle: each keeps silent for longer than
//! `idle-exit`. Prints a table, and writes the same figures to `docs/measured/streams.json`.

mod client;

use std::env;
use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::thread;

use anyhow::Result;
use futures_util::future::try_join_all;
use strum::VariantArray;
use tests::drainer::{DrainerBuilder, drainer};
use tests::server_report::{self, ServerEnd, ServerRun};
use tests::timing::SECOND;
use tests::upstream::Upstream;
use tokio::runtime;
use tokio::sync::{Barrier, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use client::Client;

/// How many clients each server has.
const CLIENTS: usize = 5;

/// The names of a server's port: what is open on the second kind rests only once it is closed.
const PORTS: [&str; 2] = ["http", "grpc, tcp"];

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut runs = Vec::new();
    for _ in 0..env::var("RUNS").map_or(Ok(1), |runs| runs.parse())? {
        let ends = [ServerEnd::Sleep15, ServerEnd::Sleep30, ServerEnd::Drainer].into_iter();
        let ends = ends.flat_map(|end| PORTS.map(|port| (end, port)));
        let ends: Vec<_> = ends
            .filter(|(end, port)| *end == ServerEnd::Drainer || *port == PORTS[0])
            .collect();
        let cases = Client::VARIANTS.iter();
        let cases =
            cases.flat_map(|client| ends.iter().map(|(end, port)| run(*client, *end, port)));
        runs.extend(try_join_all(cases).await?);
    }
    server_report::write_streams(&runs)?;
    println!("{}", server_report::streams()?);
    Ok(())
}

/// Ends a server with clients of one kind.
async fn run(client: Client, end: ServerEnd, port: &str) -> Result<ServerRun> {
    let (address, stop) = start_server()?;
    let pod_end = Arc::new(Barrier::new(CLIENTS + 1));
    let drainer = drainer_of(address, port == PORTS[1])?.start().await?;
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let pod_end = Arc::clone(&pod_end);
        clients.spawn(async move { client.run(address, &pod_end).await });
    }
    pod_end.wait().await;
    let start = Instant::now();
    match end.sleep() {
        Some(seconds) => sleep(SECOND * u32::try_from(seconds)?).await,
        None => drop(drainer.drain_pod().await?),
    }
    let mut run = ServerRun::new(port, &client.to_string(), end);
    run.seconds.push(start.elapsed().as_secs_f64());
    drop(stop);
    for client in clients.join_all().await {
        run.sent += 1;
        run.failed += u64::from(client.is_err());
    }
    Ok(run)
}

/// The drainer of a server on this port.
fn drainer_of(server: SocketAddr, never_idle: bool) -> Result<DrainerBuilder> {
    let port = server.port().to_string().parse()?;
    let drainer = drainer(&drainer::AdminAddress::default())?;
    Ok(drainer.with_config(|config| {
        config.admin_address = None;
        config.server_ports = vec![port];
        if never_idle {
            config.never_idle_ports = config.server_ports.clone();
        } else {
            config.settings.timing.idle_exit = Some(15 * SECOND);
        }
    }))
}

/// Starts a server in a runtime of its own, which ends with all its connections once the sender is dropped.
fn start_server() -> Result<(SocketAddr, oneshot::Sender<()>)> {
    let (address, started) = mpsc::channel();
    let (stop, stopped) = oneshot::channel();
    thread::spawn(move || {
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(async {
            let server = Upstream::start().await?;
            address.send(server.http())?;
            let _: Result<(), _> = stopped.await;
            anyhow::Ok(())
        })
    });
    Ok((started.recv()?, stop))
}
