//! The flags of the log, and its setup.

use std::io::{self, Write};
use std::panic;

use clap::ValueEnum;
use drainer::text::needs_escape;
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

/// Writes lines to stderr, with escapes in addition to those of JSON, which has none for C1 and bidirectional controls.
struct LogWriter;

// === impl LogArgs ===

impl LogArgs {
    /// Starts logging. Called once.
    pub fn start(self) {
        let log = tracing_subscriber::fmt()
            .with_max_level(self.log_level)
            .with_writer(|| LogWriter)
            .with_target(false);
        let filter = filter_fn(|event| event.target() != SECRET_LOGGING_TARGET);
        match self.log_format {
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

/// Escapes each character that [`needs_escape`] within the strings of JSON. The line breaks between its values stay.
pub fn printable_json(json: &str) -> String {
    let mut printable = String::with_capacity(json.len());
    for char in json.chars() {
        if needs_escape(char) && char != '\n' {
            let units = char.encode_utf16(&mut [0; 2]).to_vec();
            printable.extend(units.iter().map(|unit| format!("\\u{unit:04x}")));
        } else {
            printable.push(char);
        }
    }
    printable
}

// === impl LogWriter ===

impl Write for LogWriter {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        let printable = printable_json(&String::from_utf8_lossy(lines));
        io::stderr().write_all(printable.as_bytes())?;
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
