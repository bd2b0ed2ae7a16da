//! The sidecar of envoy-drainer, and the contract that the webhook writes: its flags and its paths.
//!
//! ```text
//! args ─► Config ─► Drain (one task, which alone talks to Envoy) + Server (the hooks' waiting room)
//!
//! GET /drained/TOKEN  (kubelet, for Envoy)          ─► Came.envoy_hook   ┐
//! `drainer drain`     (kubelet, over a Unix socket) ─► Came.drainer_hook ├─► Came::ending: what ends?
//! SIGTERM             (kubelet)                     ─► Came.sigterm      ┘
//!
//!   the pod        delay ─ t1: Marker, fail_health, drain_listeners
//!                  ─ each look: Stats::count ─► Seen ─► Record ─► verdict, until Leave(Outcome)
//!   Envoy alone    fail_health, wait for the other hook ─► the hook returns
//!   the drainer    nothing is touched ─► the hook returns
//!
//! Drain ─► Progress (watch) ─► every waiting hook gets its 200 ─► Summary: the last words
//! ```

pub mod address;
mod bind;
mod caller;
pub mod config;
pub mod delay;
pub mod drain;
pub mod duration;
pub mod ending;
pub mod envoy;
mod flags;
mod given;
pub mod hook;
mod http;
pub mod listeners;
pub mod marker;
pub mod progress;
pub mod quiet;
pub mod server;
pub mod server_info;
pub mod sidecar;
pub mod stats;
pub mod status;
pub mod summary;
pub mod timing;
pub mod token;
pub mod verdict;
pub mod warnings;

pub use address::AdminAddress;
pub use bind::bind;
pub use config::{Config, ListenerSelector, ReadinessProbe, Token};
pub use timing::{Durations, Timing};
