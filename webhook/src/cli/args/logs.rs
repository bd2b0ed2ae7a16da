//! How the program logs.

use std::io;
use std::panic;

use clap::ValueEnum;
use tracing::{Level, error};
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// It logs whole answers that it cannot decode, and one may be a Secret. What it has to say is told by
/// its errors too.
/// <https://github.com/kube-rs/kube/blob/main/kube-client/src/client/mod.rs>
const SECRET_LOGGING_TARGET: &str = "kube_client::client";

/// What is logged, and how. Logs go to stderr.
#[derive(Debug, clap::Args)]
pub struct LogArgs {
    /// What is logged: error, warn, info, debug or trace.
    #[arg(
        long,
        value_name = "LEVEL",
        env = "ENVOY_DRAINER_LOG_LEVEL",
        default_value = "info"
    )]
    log_level: Level,
    /// How it is written.
    #[arg(
        long,
        value_name = "FORMAT",
        env = "ENVOY_DRAINER_LOG_FORMAT",
        value_enum,
        default_value_t
    )]
    log_format: LogFormat,
}

/// How a log line is written.
#[derive(Debug, Clone, Copy, Default, ValueEnum)]
pub enum LogFormat {
    /// A JSON object a line.
    #[default]
    Json,
    /// Words, for a person.
    Text,
}

// === impl LogArgs ===

impl LogArgs {
    /// Starts logging. To be called once.
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
        // Without the panic's message, which may quote what was being read: a pod has secrets.
        panic::set_hook(Box::new(|panic| {
            let at = panic.location().map(ToString::to_string);
            error!(at, "Panicked");
        }));
    }
}
