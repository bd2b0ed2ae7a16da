//! Stand-ins for the shutdown managers of Envoy Gateway and Contour, with their algorithms and defaults: what a pod of
//! theirs loses without the drainer can then be measured without their images.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use drainer::AdminAddress;
use hyper::StatusCode;
use tests::http::{Client, TextResponse};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::OnceCell;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

/// The product whose shutdown manager is imitated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Product {
    /// <https://github.com/envoyproxy/gateway/blob/v1.9.0/internal/cmd/envoy/shutdown_manager.go>
    EnvoyGateway,
    /// <https://github.com/projectcontour/contour/blob/v1.33.6/cmd/contour/shutdownmanager.go>
    Contour,
}

/// How a shutdown manager drains, by its defaults.
struct Algorithm {
    port: u16,
    admin: &'static str,
    /// The path with the gauges of connections; the regular expression is encoded.
    stats: &'static str,
    /// Gauges whose names contain one of these are not counted.
    uncounted: &'static [&'static str],
    min_drain_duration: Duration,
    drain_timeout: Duration,
    check_interval: Duration,
}

/// The time limit of a hook's request, which has a head only.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// Serves the hooks of a pod: each gets its response when the drain, which the first one starts, has ended.
///
/// # Errors
/// If the port is in use.
pub(crate) async fn serve(product: Product) -> Result<()> {
    let algorithm = product.algorithm();
    let listener = TcpListener::bind(("0.0.0.0", algorithm.port)).await?;
    let drained: &'static OnceCell<()> = Box::leak(Box::default());
    let algorithm: &'static Algorithm = Box::leak(Box::new(algorithm));
    let mut hooks = JoinSet::new();
    loop {
        let (hook, _) = listener.accept().await?;
        hooks.spawn(async move {
            if let Err(error) = respond(hook, algorithm, drained).await {
                eprintln!("{error:#}");
            }
        });
    }
}

async fn respond(mut hook: TcpStream, algorithm: &Algorithm, drained: &OnceCell<()>) -> Result<()> {
    let mut head = [0; 4096];
    timeout(READ_TIMEOUT, hook.read(&mut head)).await??;
    drained.get_or_init(|| algorithm.drain()).await;
    let response = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    Ok(hook.write_all(response).await?)
}

// === impl Product ===

impl Product {
    fn algorithm(self) -> Algorithm {
        match self {
            Self::EnvoyGateway => Algorithm {
                port: 19002,
                admin: "127.0.0.1:19000",
                stats: "/stats?filter=%5Elistener%5C..*%5C.downstream_cx_active%24",
                uncounted: &["admin", "19001", "19003", "worker"],
                min_drain_duration: Duration::from_secs(10),
                drain_timeout: Duration::from_secs(60),
                check_interval: Duration::from_secs(1),
            },
            Self::Contour => Algorithm {
                port: 8090,
                admin: "unix:/admin/admin.sock",
                stats: "/stats?filter=%5Ehttp%5C..*%5C.downstream_cx_active%24",
                uncounted: &[
                    "http.admin.",
                    "http.envoy-admin.",
                    "http.stats.",
                    "http.health.",
                ],
                min_drain_duration: Duration::ZERO,
                // It has none: the pod is killed after its grace period.
                drain_timeout: Duration::MAX,
                check_interval: Duration::from_secs(5),
            },
        }
    }
}

// === impl Algorithm ===

impl Algorithm {
    /// Fails Envoy's health, and waits until no connection is left.
    async fn drain(&self) {
        let admin: AdminAddress = self.admin.parse().expect("the address is valid");
        let admin = Client::new(admin);
        if let Err(error) = admin.post("/healthcheck/fail").await {
            eprintln!("{error:#}");
        }
        let started = Instant::now();
        loop {
            let elapsed = started.elapsed();
            if elapsed >= self.drain_timeout {
                println!("drain timeout");
                return;
            }
            match self.open_connections(&admin).await {
                Ok(0) if elapsed >= self.min_drain_duration => {
                    println!("drained after {elapsed:?}");
                    return;
                }
                Ok(_) => {}
                Err(error) => eprintln!("{error:#}"),
            }
            sleep(self.check_interval).await;
        }
    }

    async fn open_connections(&self, admin: &Client) -> Result<u64> {
        let TextResponse { status, body } = admin.get(self.stats).await?;
        if status != StatusCode::OK {
            bail!("the statistics have status {status}");
        }
        let gauges = body.lines().filter_map(|line| line.split_once(": "));
        let counted = gauges.filter(|(name, _)| !self.uncounted.iter().any(|it| name.contains(it)));
        let mut sum = 0;
        for (name, value) in counted {
            sum += value.parse::<u64>().with_context(|| name.to_owned())?;
        }
        Ok(sum)
    }
}
