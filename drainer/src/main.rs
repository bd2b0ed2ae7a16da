//! The program `drainer`, the sidecar that drains an Envoy: the commands `serve`, `drain` and `status`.

use std::env;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use drainer::{Config, RUN_DIR, flags_help, hook, sidecar};
use tokio::signal::unix::{SignalKind, signal};

/// Exit code for an invalid command line, from BSD's sysexits.h.
const EX_USAGE: u8 = 64;

fn main() -> ExitCode {
    let mut args = env::args_os().skip(1).peekable();
    let command = args.next();
    let command = command.as_deref().map(|command| command.to_string_lossy());
    let is_help = |arg: &OsString| arg == "--help" || arg == "-h";
    let wants_help = args.peek().is_some_and(is_help);
    let result = match command.as_deref() {
        Some("--help" | "-h" | "help") => print(&help()),
        Some("--version" | "-V") => print(concat!("drainer ", env!("CARGO_PKG_VERSION"), "\n")),
        Some("serve" | "drain" | "status") if wants_help => print(&help()),
        Some("serve") => match Config::parse(args) {
            Ok(config) => serve(&config),
            Err(error) => return usage_error(&format!("{error}\n")),
        },
        Some("drain") => drain(args),
        Some("status") => print_status(args),
        Some(other) => {
            return usage_error(&format!("drainer: unknown command `{other}`\n\n{}", help()));
        }
        None => return usage_error(&format!("drainer: missing command\n\n{}", help())),
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
    print!("{text}");
    Ok(())
}

fn usage_error(text: &str) -> ExitCode {
    eprint!("{text}");
    ExitCode::from(EX_USAGE)
}

fn help() -> String {
    format!(
        "Drains Envoy before Kubernetes terminates it.\n\n\
         drainer serve FLAGS                       run as the sidecar; exits when SIGTERM was received and the \
         drain has ended\n\
         drainer drain [--run-dir DIR]             the sidecar's preStop hook; reports that the container \
         terminates, and waits until the hook may return\n\
         drainer status [--run-dir DIR] [-o json]  print the status of the drain\n\n\
         Flags of serve:\n{}",
        flags_help(),
    )
}

fn serve(config: &Config) -> anyhow::Result<()> {
    tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_target(false)
        .with_current_span(false)
        .with_span_list(false)
        .with_max_level(config.log_level)
        .init();
    block_on(async {
        // First of all, since the kernel ignores a signal to PID 1 without a handler.
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let sigterm = async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        sidecar::run(config, sigterm).await
    })
}

fn drain(args: impl Iterator<Item = OsString>) -> anyhow::Result<()> {
    let ClientArgs { run_dir, json } = ClientArgs::parse(args)?;
    if json {
        bail!("`drain` prints nothing: remove `--output`");
    }
    block_on(hook::drain(&run_dir))
}

fn print_status(args: impl Iterator<Item = OsString>) -> anyhow::Result<()> {
    let ClientArgs { run_dir, json } = ClientArgs::parse(args)?;
    let body = block_on(hook::fetch_status(&run_dir))?;
    let mut out = io::stdout().lock();
    if json {
        out.write_all(&body)?;
        out.write_all(b"\n")?;
    } else {
        let status = serde_json::from_slice(&body).context("invalid status")?;
        out.write_all(hook::describe_status(&status).as_bytes())?;
    }
    Ok(())
}

/// The arguments of `drain` and `status`.
struct ClientArgs {
    run_dir: PathBuf,
    json: bool,
}

// === impl ClientArgs ===

impl ClientArgs {
    fn parse(args: impl Iterator<Item = OsString>) -> anyhow::Result<Self> {
        use lexopt::Arg::{Long, Short};

        let mut parsed = Self {
            run_dir: RUN_DIR.into(),
            json: false,
        };
        let mut parser = lexopt::Parser::from_args(args);
        while let Some(arg) = parser.next()? {
            match arg {
                Long("run-dir") => parsed.run_dir = parser.value()?.into(),
                Short('o') | Long("output") => match parser.value()?.to_string_lossy().as_ref() {
                    "json" => parsed.json = true,
                    other => bail!("unknown output format `{other}`: only json is supported"),
                },
                other => return Err(other.unexpected().into()),
            }
        }
        Ok(parsed)
    }
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
