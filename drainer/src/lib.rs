//! The sidecar of envoy-drainer, and the contract that the webhook writes: its flags and its paths.

pub mod address;
pub mod config;
pub mod duration;
pub mod ending;
pub mod envoy;
mod http;
pub mod listeners;
pub mod server_info;
pub mod stats;
pub mod timing;
pub mod verdict;

pub use address::AdminAddress;
pub use config::{Config, ListenerSelector, ReadinessProbe, Token};
pub use timing::{Durations, Timing};
