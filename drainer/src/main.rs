//! The drainer's command line: `serve`, `drain` and `status`.

use std::env;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use drainer::{Config, RUN_DIR, flags_help, hook, sidecar, status};
use tokio::signal::unix::{SignalKind, signal};

/// The exit code for a wrong command line, as BSD's sysexits.h has it.
const EX_USAGE: u8 = 64;

fn main() -> ExitCode {
    let mut args = env::args_os().skip(1).peekable();
    let command = args.next();
    let command = command.as_deref().map(|command| command.to_string_lossy());
    let asks_help = |arg: &OsString| arg == "--help" || arg == "-h";
    let run = match command.as_deref() {
        Some("--help" | "-h" | "help") => print_help(),
        Some("--version" | "-V") => {
            println!("drainer {}", env!("CARGO_PKG_VERSION"));
            Ok(ExitCode::SUCCESS)
        }
        Some("serve" | "drain" | "status") if args.peek().is_some_and(asks_help) => print_help(),
        Some("serve") => serve(args),
        Some("drain") => drain(args),
        Some("status") => print_status(args),
        other => {
            let what = other.map_or("no command".to_owned(), |other| {
                format!("no command `{other}`")
            });
            eprint!("drainer: {what}\n\n{}", help());
            Ok(ExitCode::from(EX_USAGE))
        }
    };
    run.unwrap_or_else(|error| {
        eprintln!("drainer: {error:#}");
        ExitCode::FAILURE
    })
}

fn print_help() -> anyhow::Result<ExitCode> {
    print!("{}", help());
    Ok(ExitCode::SUCCESS)
}

fn help() -> String {
    format!(
        "Ends Envoy without losing a request.\n\n\
         drainer serve FLAGS          run as a sidecar, until SIGTERM and the end of the drain\n\
         drainer drain [--run-dir]    the sidecar's preStop hook: wait for the end of the drain\n\
         drainer status [--run-dir] [-o json]\n                             show what it is doing\n\n\
         Flags of serve, each also read from DRAINER_ and its name in capitals:\n{}",
        flags_help(),
    )
}

fn serve(args: impl Iterator<Item = OsString>) -> anyhow::Result<ExitCode> {
    let config = match Config::parse(args, |name| env::var_os(name)) {
        Ok(config) => config,
        Err(error) => {
            eprintln!("{error}");
            return Ok(ExitCode::from(EX_USAGE));
        }
    };
    tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_target(false)
        .with_current_span(false)
        .with_span_list(false)
        .with_max_level(config.log_level)
        .init();
    block_on(async {
        // First of all: the kernel ignores a signal to PID 1 that has no handler.
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let sigterm = async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        sidecar::run(&config, sigterm).await?;
        Ok(ExitCode::SUCCESS)
    })
}

fn drain(args: impl Iterator<Item = OsString>) -> anyhow::Result<ExitCode> {
    let Command {
        run_dir,
        json: false,
    } = Command::parse(args)?
    else {
        bail!("drain has no output")
    };
    block_on(async {
        hook::drain(&run_dir).await?;
        Ok(ExitCode::SUCCESS)
    })
}

fn print_status(args: impl Iterator<Item = OsString>) -> anyhow::Result<ExitCode> {
    let Command { run_dir, json } = Command::parse(args)?;
    block_on(async {
        let answer = status::fetch(&run_dir).await?;
        let mut out = io::stdout().lock();
        if json {
            out.write_all(&answer)?;
            out.write_all(b"\n")?;
        } else {
            let status = serde_json::from_slice(&answer).context("the drainer's status")?;
            out.write_all(status::describe(&status).as_bytes())?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// What `drain` and `status` are told.
struct Command {
    run_dir: PathBuf,
    json: bool,
}

// === impl Command ===

impl Command {
    fn parse(args: impl Iterator<Item = OsString>) -> anyhow::Result<Self> {
        use lexopt::Arg::{Long, Short};

        let mut asked = Self {
            run_dir: env::var_os("DRAINER_RUN_DIR").map_or_else(|| RUN_DIR.into(), PathBuf::from),
            json: false,
        };
        let mut parser = lexopt::Parser::from_args(args);
        while let Some(arg) = parser.next()? {
            match arg {
                Long("run-dir") => asked.run_dir = parser.value()?.into(),
                Short('o') | Long("output") => match parser.value()?.to_string_lossy().as_ref() {
                    "json" => asked.json = true,
                    other => bail!("unknown output `{other}`: json, or leave it out"),
                },
                other => return Err(other.unexpected().into()),
            }
        }
        Ok(asked)
    }
}

/// Runs on this thread alone: more would cost memory on each core of the node.
fn block_on<T>(future: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build()?.block_on(future)
}
