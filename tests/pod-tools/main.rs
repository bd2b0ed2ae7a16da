//! Programs for pods whose images have no shell: the app behind a sidecar Envoy, another product's webhook, and
//! actions on processes and files.

mod app;
mod mutate;
mod process_actions;

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;
use tokio::runtime;

/// Programs for pods whose images have no shell.
#[derive(Debug, Parser)]
#[command(name = "pod-tools", version)]
enum Command {
    /// Serves as an app behind a sidecar Envoy, through which each request makes two calls to the outside.
    App(app::Args),
    /// Serves as another product's mutating webhook.
    Mutate(mutate::Args),
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
    /// Sends an HTTP server, which echoes it, 1 MiB, and reads the response in 26 s.
    ReadSlowly {
        #[arg(value_name = "IP:PORT")]
        server: SocketAddr,
    },
}

fn main() -> Result<()> {
    let command = Command::parse();
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    match command {
        Command::App(args) => runtime.block_on(app::run(args))?,
        Command::Mutate(args) => runtime.block_on(mutate::run(args))?,
        Command::Kill { name } => process_actions::kill(&name)?,
        Command::Exhaust => match process_actions::exhaust_memory()? {},
        Command::List { folder } => print!("{}", process_actions::list(&folder)?),
        Command::Get { server, path } => {
            print!("{}", runtime.block_on(process_actions::get(server, &path))?)
        }
        Command::ReadSlowly { server } => process_actions::read_slowly(server)?,
    }
    Ok(())
}
