//! For whom output is.

use clap::ValueEnum;

/// The flag that chooses.
#[derive(Debug, clap::Args)]
pub struct OutputArgs {
    /// For whom to write.
    #[arg(
        short,
        long,
        value_name = "FORMAT",
        env = "ENVOY_DRAINER_OUTPUT",
        value_enum,
        default_value_t
    )]
    pub output: OutputFormat,
}

/// For whom output is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
}
