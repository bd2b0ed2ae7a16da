//! The flags of the log, and its setup.

use std::io;
use std::panic;

use clap::ValueEnum;
use tracing::{Level, error};
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Not logged: kube logs whole responses that it cannot decode, which may be Secrets. Its errors say the rest.
/// <https://github.com/kube-rs/kube/blob/main/kube-client/src/client/mod.rs>
const SECRET_LOGGING_TARGET: &str = "kube_client::client";

/// Log level and format. Logs go to stderr.
#[derive(Debug, clap::Args)]
pub struct LogArgs {
    /// Log level: error, warn, info, debug or trace.
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log_level: Level,
    /// Log format.
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
    log_format: LogFormat,
}

/// Format of a log line.
#[derive(Debug, Clone, Copy, Default, ValueEnum)]
pub enum LogFormat {
    /// A JSON object per line.
    #[default]
    Json,
    /// Text, for people.
    Text,
}

// === impl LogArgs ===

impl LogArgs {
    /// Starts logging. Called once.
    pub fn start(self) {
        let Self {
            log_level,
            log_format,
        } = self;
        let log = tracing_subscriber::fmt()
            .with_max_level(log_level)
            .with_writer(io::stderr)
            .with_target(false);
        let filter = filter_fn(|event| event.target() != SECRET_LOGGING_TARGET);
        match log_format {
            LogFormat::Json => log.json().flatten_event(true).finish().with(filter).init(),
            LogFormat::Text => log.finish().with(filter).init(),
        }
        // Without the panic's message, which may quote what was being read: pods contain secrets.
        panic::set_hook(Box::new(|panic| {
            let location = panic.location().map(ToString::to_string);
            error!(location, "Panicked");
        }));
    }
}
