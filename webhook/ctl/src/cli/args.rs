//! Groups of flags that subcommands share.

pub mod cluster;
pub mod drainer_api;
pub mod files;
pub mod logs;
pub mod output;
pub mod pod_defaults;
pub mod tls;

use std::time::Duration;

use drainer::duration;

/// Formats the default of a flag.
fn format(default: Duration) -> String {
    duration::format(default).to_string()
}
