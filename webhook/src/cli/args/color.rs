//! Whether output is in colours.

use std::env;
use std::io::IsTerminal;

use clap::ValueEnum;

/// When colours are written.
#[derive(Debug, clap::Args)]
pub struct ColorArgs {
    /// When to write colours; auto is on a terminal, unless NO_COLOR is set.
    #[arg(
        long,
        value_name = "WHEN",
        env = "ENVOY_DRAINER_COLOR",
        value_enum,
        default_value_t
    )]
    color: ColorChoice,
}

#[derive(Debug, Clone, Copy, Default, ValueEnum)]
enum ColorChoice {
    #[default]
    Auto,
    Always,
    Never,
}

// === impl ColorArgs ===

impl ColorArgs {
    /// True if what goes to `stream` is to have colours.
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
