//! The contract between the webhook and the sidecar: the sidecar's arguments, paths and defaults. The sidecar itself, which
//! drains an Envoy before Kubernetes stops it, is behind [`sidecar`]; its commands in the same container are behind
//! [`local_client`]. `docs/dev/architecture.md` draws its state machine.

mod drain;
mod envoy;
#[cfg(fuzzing)]
pub mod fuzz;
mod http_client;
mod kernel;
pub mod local_client;
mod log_limiter;
mod machine;
mod server;
pub mod settings;
pub mod shutdown_manager;
pub mod sidecar;
pub mod text;
mod webhook_client;

pub use drain::exit_rules::DrainOutcome;
pub use drain::progress::{DrainPhase, Progress};
pub use drain::report::Report;
pub use drain::summary::{DrainSummary, Remaining, ReplacementOutcome, ReplacementWait};
pub use envoy::setup_warnings::SetupWarningKind;
pub use kernel::witness::{Disagreement, SoleWitness};
pub use server::port::listen;
pub use settings::admin_address::AdminAddress;
pub use settings::config::{ALL_PORTS, Config, WEBHOOK_TOKEN_DIR, WebhookAccess, help};
pub use settings::duration::{self, MAX_DURATION};
pub use settings::health_failure_delay::HealthFailureDelay;
pub use settings::listener_selector::ListenerSelector;
pub use settings::readiness_probe::ReadinessProbe;
pub use settings::timing::{MAX_QUIET_WAIT, Timing};
pub use settings::token::Token;
pub use settings::value::{InvalidValue, SettingConflict};
pub use settings::{DEFAULT_PORT, DrainSettings, SettingDefinition, SettingValue};
