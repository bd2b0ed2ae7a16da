//! The program `drainer`, the sidecar that drains an Envoy: the commands `serve`, `drain` and `status`.

mod log;

use std::env;
use std::ffi::OsString;
use std::io::{self, Write};
use std::num::NonZeroU16;
use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use drainer::shutdown_manager::ManagerCommand::{self, Serve, Shutdown};
use drainer::{Config, DEFAULT_PORT, help, local_client, sidecar};
use rustix::process::{WaitOptions, wait};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Exit code for an invalid command line, from BSD's sysexits.h.
const EX_USAGE: u8 = 64;

fn main() -> ExitCode {
    let mut words = env::args_os().map(|word| word.to_string_lossy().into_owned());
    let (program, words) = (words.next().unwrap_or_default(), Vec::from_iter(words));
    let manager = ManagerCommand::recognize(&program, &words);
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    let args = env::args_os().skip(2);
    let result = match words[..] {
        // In the place of a shutdown manager, whose image the drainer's has replaced.
        _ if let Some(Serve(manager, flags)) = manager => {
            log::init(tracing::Level::INFO);
            serve(&Config::for_manager(manager, flags))
        }
        _ if let Some(Shutdown(manager, flags)) = manager => {
            let port = Config::for_manager(manager, &[]).settings.port;
            block_on(local_client::drain(port, flags))
        }
        ["--help" | "-h" | "help", ..] => print(&help()),
        ["--version" | "-V", ..] => print(concat!("drainer ", env!("CARGO_PKG_VERSION"), "\n")),
        ["serve" | "drain" | "status", "--help" | "-h", ..] => print(&help()),
        ["serve", ..] => match Config::parse(args) {
            Ok(config) => {
                log::init(config.log_level);
                serve(&config)
            }
            Err(errors) => return usage_error(&errors.join("\n")),
        },
        ["drain", ..] => drain(args),
        ["status", ..] => print_status(args),
        [other, ..] => {
            let error = format!("drainer: unknown command `{other}`; see drainer --help");
            return usage_error(&error);
        }
        [] => return usage_error("drainer: missing command; see drainer --help"),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("drainer: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn print(text: &str) -> anyhow::Result<()> {
    Ok(io::stdout().write_all(text.as_bytes())?)
}

fn usage_error(text: &str) -> ExitCode {
    eprintln!("{text}");
    ExitCode::from(EX_USAGE)
}

fn serve(config: &Config) -> anyhow::Result<()> {
    block_on(async {
        // First of all, since the kernel ignores a signal to PID 1 without a handler.
        let mut terminate = signal(SignalKind::terminate())?;
        let child = signal(SignalKind::child())?;
        tokio::select! {
            () = sidecar::run(config, terminate.recv()) => {}
            () = reap_orphans(child) => {}
        }
        Ok(())
    })
}

/// Reaps the processes whose parents have ended, which become children of process 1 of the container: those of hooks and
/// of `kubectl exec`.
async fn reap_orphans(mut child: Signal) {
    loop {
        while matches!(wait(WaitOptions::NOHANG), Ok(Some(_))) {}
        // Never `None`, which would mean that no further signal can arrive.
        child.recv().await;
    }
}

fn drain(args: impl Iterator<Item = OsString>) -> anyhow::Result<()> {
    let (port, json) = parse_client_args(args)?;
    ensure!(!json, "`drain` prints nothing: remove `--output`");
    block_on(local_client::drain(port, &[]))
}

fn print_status(args: impl Iterator<Item = OsString>) -> anyhow::Result<()> {
    let (port, json) = parse_client_args(args)?;
    let body = block_on(local_client::fetch_status(port))?;
    if json {
        return print(&format!("{}\n", String::from_utf8_lossy(&body)));
    }
    let status = serde_json::from_slice(&body).context("invalid status")?;
    print(&local_client::describe_status(&status))
}

/// Parses the arguments of `drain` and `status`: the drainer's port, and whether to print JSON.
fn parse_client_args(args: impl Iterator<Item = OsString>) -> anyhow::Result<(NonZeroU16, bool)> {
    use lexopt::prelude::*;

    let (mut port, mut json) = (DEFAULT_PORT, false);
    let mut parser = lexopt::Parser::from_args(args);
    while let Some(arg) = parser.next()? {
        match arg {
            Long("port") => {
                let text = parser.value()?.string()?;
                port = text.parse().with_context(|| format!("--port `{text}`"))?;
            }
            Short('o') | Long("output") => match &*parser.value()?.string()? {
                "json" => json = true,
                other => bail!("unknown output format `{other}`: only json is supported"),
            },
            other => return Err(other.unexpected().into()),
        }
    }
    Ok((port, json))
}

/// Runs a future on this thread alone, since more threads cost memory for each core of the node.
fn block_on<T>(future: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build()?;
    let result = runtime.block_on(future);
    // A host name may still be resolved, in a thread of its own: the exit does not wait for it.
    runtime.shutdown_background();
    result
}
