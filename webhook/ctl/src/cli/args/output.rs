//! The flags `--output` and `--color`.

use std::env;
use std::io::IsTerminal;

use clap::{ColorChoice, ValueEnum};

/// The format of the output.
#[derive(Debug, clap::Args)]
pub struct OutputArgs {
    /// Output format.
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t)]
    pub output: OutputFormat,
}

/// A format of the output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// Text, for people.
    #[default]
    Text,
    /// JSON, for programs.
    Json,
}

/// Whether the output has colors.
#[derive(Debug, clap::Args)]
pub struct ColorArgs {
    /// Whether to print colors; auto does on a terminal, unless NO_COLOR is set.
    #[arg(long, value_name = "WHEN", value_enum, default_value_t)]
    color: ColorChoice,
}

// === impl ColorArgs ===

impl ColorArgs {
    /// Returns true if the output to `stream` is to have colors.
    pub fn is_enabled_for(&self, stream: &impl IsTerminal) -> bool {
        match self.color {
            // <https://no-color.org>: any value but the empty one.
            ColorChoice::Auto => {
                stream.is_terminal() && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
            }
            ColorChoice::Always => true,
            ColorChoice::Never => false,
        }
    }
}
