//! The contract between webhook and sidecar: the sidecar's arguments, paths and defaults. The sidecar
//! itself, which drains an Envoy before Kubernetes terminates it, is behind [`sidecar`] and [`hook`].
//!
//! ```text
//! arguments ─► Config ─► Drain (one task, makes all calls to Envoy) + Server (where hooks wait)
//!
//! GET /drained/TOKEN  (kubelet, for Envoy)          ─► envoy_hook   ┐ TerminationSignals::decide
//! `drainer drain`     (kubelet, over a Unix socket) ─► drainer_hook ├─► TerminationScope: what terminates?
//! SIGTERM             (kubelet)                     ─► sigterm      ┘
//!
//!   Pod             drain delay ─ wait for a replacement ─ Marker, fail_health, drain_listeners (while repeated calls of Envoy's
//!                   hook prove nothing: without drain_listeners; with HealthFailure: fail_health later)
//!                   ─ each poll: Stats ─► Snapshot ─► DrainHistory ─► ExitDecision, until
//!                   Exit(DrainOutcome)
//!   EnvoyOnly       fail_health, wait for the other signal ─► the hook returns
//!   DrainerOnly     Envoy is left as it is ─► the hook returns
//!   PodUnconfirmed  the port may have lost Envoy's hook: as Pod, without drain_listeners, and undone if
//!                   the pod is not terminating
//!   PodResumed      the Marker has PodTerminating and Envoy is DRAINING: as Pod, after fail_health
//!
//! Drain ─► DrainSummary (log, termination message) ─► Progress (watch) ─► every waiting hook gets its 200 ─► Report, to the webhook
//! ```

mod admin_address;
mod client_activity;
mod config;
mod drain;
pub mod duration;
mod envoy;
mod exit_rules;
mod health_failure;
pub mod hook;
mod http;
mod listener_selector;
mod marker;
mod progress;
mod quiet;
mod replacement;
mod report;
mod server;
pub mod settings;
pub mod sidecar;
mod summary;
mod termination;
mod timing;
mod token;
mod value;
mod webhook_client;

pub use admin_address::AdminAddress;
pub use config::{Config, InvalidArgs, RUN_DIR, WEBHOOK_TOKEN_DIR, WebhookAccess, flags_help};
pub use envoy::setup_warnings::SetupWarningKind;
pub use exit_rules::{DrainOutcome, MAX_QUIET_WAIT};
pub use health_failure::HealthFailureDelay;
pub use listener_selector::ListenerSelector;
pub use marker::{Marker, MarkerReason};
pub use progress::{DrainPhase, Progress};
pub use quiet::ReadinessProbe;
pub use replacement::{ReplacementOutcome, ReplacementWait};
pub use report::Report;
pub use server::port::listen;
pub use settings::{DEFAULT_PORT, DrainSettings, SettingDefinition, SettingValue};
pub use summary::{Cut, DrainSummary, Remaining};
pub use timing::{Durations, MAX_DURATION, Timing};
pub use token::Token;
pub use value::{InvalidValue, SettingConflict};
