//! The sidecar of envoy-drainer, and the contract that the webhook writes: its flags and its paths.
//!
//! ```text
//! args ─► Config ─► Drain (one task, which alone talks to Envoy) + Server (the hooks' waiting room)
//!
//! GET /drained/TOKEN  (kubelet, for Envoy)          ─► Came.envoy_hook   ┐
//! `drainer drain`     (kubelet, over a Unix socket) ─► Came.drainer_hook ├─► Came::ending: what ends?
//! SIGTERM             (kubelet)                     ─► Came.sigterm      ┘
//!
//!   the pod        delay ─ t1: Marker, fail_health, drain_listeners (not while lone hooks go on)
//!                  ─ each look: Stats::count ─► Seen ─► Record ─► verdict, until Leave(Outcome)
//!   Envoy alone    fail_health, wait for the other hook ─► the hook returns
//!   the drainer    nothing is touched ─► the hook returns; where the port may have failed Envoy's
//!                  hook: as for the pod, without drain_listeners, and undone if the pod goes on
//!   resumed        the Marker says that the pod ended, Envoy is DRAINING: as for the pod, from t1 on
//!
//! Drain ─► Progress (watch) ─► every waiting hook gets its 200 ─► Summary: the last words
//! ```

mod admin_address;
mod bind;
mod client_activity;
mod config;
mod delay;
mod drain;
pub mod duration;
mod envoy;
mod exit_rules;
mod flags;
mod given;
pub mod hook;
mod http;
mod listener_selector;
mod marker;
mod progress;
mod quiet;
mod server;
pub mod sidecar;
pub mod status;
mod summary;
mod termination;
mod timing;
mod token;
mod value;

pub use admin_address::{AdminAddress, InvalidAddress};
pub use bind::{bind, listen};
pub use config::{Config, DEFAULT_PORT, RUN_DIR};
pub use exit_rules::{DrainOutcome, MAX_QUIET_WAIT};
pub use flags::flags_help;
pub use given::InvalidArgs;
pub use listener_selector::{ListenerSelector, parse_listeners};
pub use marker::{Marker, MarkerReason};
pub use progress::{DrainPhase, Progress};
pub use quiet::ReadinessProbe;
pub use summary::Remaining;
pub use timing::{Durations, InvalidTiming, MAX_DURATION, Timing, parse_idle_exit};
pub use token::Token;
pub use value::{InvalidValue, parse_port};
