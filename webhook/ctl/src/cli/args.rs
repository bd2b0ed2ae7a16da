//! Groups of flags that subcommands share.

pub mod channel;
pub mod cluster;
pub mod files;
pub mod logs;
pub mod output;
pub mod pod_defaults;
pub mod tls;
