//! Load generator for a Service, run inside a cluster: clients of one address that never retry a
//! request, and a report as JSON at the end. It is also the app behind an Envoy, and acts on processes.

mod app;
mod process_actions;
mod shutdown_manager;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Parser;
use drainer::{InvalidValue, duration};
use load::service::Service;
use load::until::wait_until;
use load::{Load, Report, load};
use shutdown_manager::Product;
use tokio::runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

/// How long the target may take to accept a first connection: kube-proxy programs a Service's address
/// a moment after its first pod is ready.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// Sends requests to a Service without retries and reports every failure.
#[derive(Debug, Parser)]
#[command(name = "load", version)]
enum Command {
    /// Waits until the target accepts connections, sends requests until SIGTERM or for the given
    /// duration, then prints a report.
    Run(Args),
    /// Serves as an app behind a sidecar Envoy, through which each request makes two calls to the outside.
    App(app::Args),
    /// Sends SIGTERM to process 1.
    Stop,
    /// Sends SIGKILL to all processes of this name.
    Kill { name: String },
    /// Allocates memory until the kernel kills process 1 (OOM).
    Exhaust,
    /// Prints the names of a directory's entries.
    List { folder: PathBuf },
    /// Prints the response of an HTTP server to a GET request.
    Get {
        #[arg(value_name = "IP:PORT")]
        server: SocketAddr,
        path: String,
    },
    /// Drains the Envoy of its pod as the shutdown manager of this product does, until SIGTERM.
    ShutdownManager { product: Product },
}

/// The kinds of clients, each with its rate in requests per second.
#[derive(Debug, clap::Args)]
struct Args {
    /// Address that requests are sent to.
    #[arg(value_name = "IP:PORT")]
    target: SocketAddr,
    /// HTTP/1.1 over keep-alive connections.
    #[arg(long, value_name = "RATE")]
    keep_alive: Option<Rate>,
    /// HTTP/1.1 over a new connection for each request.
    #[arg(long, value_name = "RATE")]
    connection_each: Option<Rate>,
    /// HTTP/1.1 over a new connection for each request; the response takes `--slow-takes`.
    #[arg(long, value_name = "RATE")]
    slow: Option<Rate>,
    /// How long a slow response takes.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = parse_duration)]
    slow_takes: Duration,
    /// HTTP/2 without TLS, many requests on each connection.
    #[arg(long, value_name = "RATE")]
    http2: Option<Rate>,
    /// HTTP/2 without TLS, many requests on each connection; the response takes `--slow-takes`.
    #[arg(long, value_name = "RATE")]
    slow_http2: Option<Rate>,
    /// HTTP/3, many requests on each connection, to the same port by UDP; certificates are not verified.
    #[arg(long, value_name = "RATE")]
    http3: Option<Rate>,
    /// HTTP/3 as with `--http3`; the response takes `--slow-takes`.
    #[arg(long, value_name = "RATE")]
    slow_http3: Option<Rate>,
    /// A client that sends one request and then keeps its connection idle.
    #[arg(long)]
    idle: bool,
    /// Timeout of a request.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration)]
    limit: Duration,
    /// How long to send requests; by default until SIGTERM.
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration)]
    time: Option<Duration>,
}

/// Requests per second, above zero.
#[derive(Debug, Clone, Copy)]
struct Rate(f64);

fn main() -> Result<()> {
    let command = Command::parse();
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    match command {
        Command::Run(args) => {
            let report = runtime.block_on(run(args))?;
            println!("{}", serde_json::to_string(&report)?);
        }
        Command::App(args) => runtime.block_on(app::run(args))?,
        Command::Stop => process_actions::terminate_init()?,
        Command::Kill { name } => process_actions::kill(&name)?,
        Command::Exhaust => match process_actions::exhaust_memory()? {},
        Command::List { folder } => print!("{}", process_actions::list(&folder)?),
        Command::Get { server, path } => {
            print!("{}", runtime.block_on(process_actions::get(server, &path))?)
        }
        Command::ShutdownManager { product } => runtime.block_on(serve(product))?,
    }
    Ok(())
}

/// Serves until SIGTERM.
async fn serve(product: Product) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        result = shutdown_manager::serve(product) => result,
        _ = terminate.recv() => Ok(()),
    }
}

async fn run(args: Args) -> Result<Report> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let load = args.load();
    ensure!(
        !load.is_empty(),
        "no clients: set a rate above zero for at least one kind, or --idle"
    );
    let service = Arc::new(Service::at(args.target));
    wait_until(
        "the target accepts connections",
        CONNECT_TIMEOUT,
        || async { Ok(load.can_connect(&service).await) },
    )
    .await?;
    let running = load.start(&service);
    tokio::select! {
        () = sleep(args.time.unwrap_or(Duration::MAX)) => {}
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(running.stop().await)
}

fn parse_duration(text: &str) -> Result<Duration, InvalidValue> {
    duration::parse(text)
}

// === impl Args ===

impl Args {
    fn load(&self) -> Load {
        type Add = fn(Load, f64, Duration) -> Load;
        let kinds: [(Option<Rate>, Add); 7] = [
            (self.keep_alive, |load, rate, _| load.keep_alive(rate)),
            (self.connection_each, |load, rate, _| {
                load.connection_per_request(rate)
            }),
            (self.slow, Load::slow),
            (self.http2, |load, rate, _| load.http2(rate)),
            (self.slow_http2, Load::slow_http2),
            (self.http3, |load, rate, _| load.http3(rate)),
            (self.slow_http3, Load::slow_http3),
        ];
        let requested = kinds
            .into_iter()
            .filter_map(|(rate, add)| Some((rate?, add)));
        let load = requested.fold(
            load().request_timeout(self.limit),
            |load, (Rate(rate), add)| add(load, rate, self.slow_takes),
        );
        if self.idle { load.idle() } else { load }
    }
}

// === impl Rate ===

impl std::str::FromStr for Rate {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.parse() {
            Ok(rate) if rate > 0.0 && f64::is_finite(rate) => Ok(Self(rate)),
            _ => Err("a rate is a number of requests per second above zero, such as 200 or 0.5"),
        }
    }
}
