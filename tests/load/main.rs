//! The load as a program of its own, to run where a Service can be reached: clients of one address
//! that never send a request twice, and at the end one report as JSON.

mod process_actions;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Parser;
use drainer::{InvalidValue, duration};
use tests::load::{Load, Report, load};
use tests::service::Service;
use tests::until::wait_until;
use tokio::runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

/// How long the target may take until it accepts a first connection: whoever programs a Service's
/// address learns of its first pod a moment after that is ready.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// Clients of a Service that count honestly what they see.
#[derive(Debug, Parser)]
#[command(name = "load", version)]
enum Command {
    /// Waits until the target accepts connections, sends until SIGTERM or until the time is over,
    /// then prints what became of the requests.
    Run(Args),
    /// Sends SIGTERM to process 1.
    Stop,
    /// Sends SIGKILL to processes of this name.
    Kill { name: String },
    /// Takes memory until the kernel kills process 1 for it.
    Exhaust,
    /// Prints the names in a folder.
    List { folder: PathBuf },
    /// Prints what is at a path of an HTTP server.
    Get {
        #[arg(value_name = "IP:PORT")]
        server: SocketAddr,
        path: String,
    },
}

/// Which clients there are, each kind with its requests a second.
#[derive(Debug, clap::Args)]
struct Args {
    /// Where the requests go.
    #[arg(value_name = "IP:PORT")]
    target: SocketAddr,
    /// HTTP/1.1 over connections that are kept.
    #[arg(long, value_name = "RATE")]
    keep_alive: Option<Rate>,
    /// HTTP/1.1 over a connection for each request.
    #[arg(long, value_name = "RATE")]
    connection_each: Option<Rate>,
    /// HTTP/1.1 over a connection for each request, whose answer takes `--slow-takes`.
    #[arg(long, value_name = "RATE")]
    slow: Option<Rate>,
    /// How long a slow answer takes.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = parse_duration)]
    slow_takes: Duration,
    /// HTTP/2 without TLS, many requests on each connection.
    #[arg(long, value_name = "RATE")]
    http2: Option<Rate>,
    /// HTTP/3, many requests on each connection, to the same port by UDP; no certificate is verified.
    #[arg(long, value_name = "RATE")]
    http3: Option<Rate>,
    /// A client that sends one request and then keeps its connection, idle.
    #[arg(long)]
    idle: bool,
    /// How long a request may take before it has failed.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration)]
    limit: Duration,
    /// How long to send; without it, until SIGTERM.
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration)]
    time: Option<Duration>,
}

/// Requests a second: more than none.
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
        Command::Stop => process_actions::terminate_init()?,
        Command::Kill { name } => process_actions::kill(&name)?,
        Command::Exhaust => match process_actions::exhaust_memory()? {},
        Command::List { folder } => print!("{}", process_actions::list(&folder)?),
        Command::Get { server, path } => {
            print!("{}", runtime.block_on(process_actions::get(server, &path))?)
        }
    }
    Ok(())
}

async fn run(args: Args) -> Result<Report> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let (target, time) = (args.target, args.time);
    let load = args.load();
    ensure!(load.rate() > 0.0, "no clients: give a rate to a kind");
    let service = Arc::new(Service::at(target));
    wait_until(
        "the target accepts connections",
        CONNECT_TIMEOUT,
        || async { Ok(load.can_connect(&service).await) },
    )
    .await?;
    let running = load.start(&service);
    tokio::select! {
        () = sleep(time.unwrap_or(Duration::MAX)) => {}
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
    fn load(self) -> Load {
        let Self {
            target: _,
            keep_alive,
            connection_each,
            slow,
            slow_takes,
            http2,
            http3,
            idle,
            limit,
            time: _,
        } = self;
        let mut load = load().request_timeout(limit);
        if let Some(Rate(rate)) = keep_alive {
            load = load.keep_alive(rate);
        }
        if let Some(Rate(rate)) = connection_each {
            load = load.connection_per_request(rate);
        }
        if let Some(Rate(rate)) = slow {
            load = load.slow(rate, slow_takes);
        }
        if let Some(Rate(rate)) = http2 {
            load = load.http2(rate);
        }
        if let Some(Rate(rate)) = http3 {
            load = load.http3(rate);
        }
        if idle { load.idle() } else { load }
    }
}

// === impl Rate ===

impl std::str::FromStr for Rate {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.parse() {
            Ok(rate) if rate > 0.0 && f64::is_finite(rate) => Ok(Self(rate)),
            _ => Err("requests a second are a number above zero, such as 200 or 0.5"),
        }
    }
}
