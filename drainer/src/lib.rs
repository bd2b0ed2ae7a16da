//! The contract between webhook and sidecar: the sidecar's arguments, paths and defaults. The sidecar
//! itself, which drains an Envoy before Kubernetes ends it, is behind [`sidecar`] and [`LocalClient`]; its state machine is
//! drawn in `docs/architecture.md`.

mod admin_address;
mod admin_call;
mod admin_search;
mod client_activity;
mod config;
mod drain;
pub mod duration;
mod envoy;
mod exit_rules;
#[cfg(fuzzing)]
pub mod fuzz;
mod health_failure;
mod health_failure_delay;
mod http_client;
mod listen_sockets;
mod listener_selector;
mod local_client;
mod log_limiter;
mod machine;
mod monitor;
mod progress;
mod readiness_probe;
mod replacement;
mod report;
mod server;
pub mod settings;
pub mod sidecar;
mod standby;
mod summary;
mod termination;
pub mod text;
mod timing;
mod token;
mod value;
mod webhook_client;

pub use admin_address::AdminAddress;
pub use config::{Config, InvalidArgs, WEBHOOK_TOKEN_DIR, WebhookAccess, flags_help};
pub use envoy::setup_warnings::SetupWarningKind;
pub use exit_rules::DrainOutcome;
pub use health_failure_delay::HealthFailureDelay;
pub use listener_selector::ListenerSelector;
pub use local_client::{LocalClient, describe_status};
pub use progress::{DrainPhase, Progress};
pub use readiness_probe::ReadinessProbe;
pub use report::Report;
pub use server::port::listen;
pub use settings::{DEFAULT_PORT, DrainSettings, SettingDefinition, SettingValue};
pub use summary::{DrainSummary, Remaining, ReplacementOutcome, ReplacementWait};
pub use timing::{Durations, MAX_DURATION, MAX_QUIET_WAIT, Timing};
pub use token::Token;
pub use value::{InvalidValue, SettingConflict};
