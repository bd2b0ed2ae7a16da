//! Subcommands of envoy-drainer: `check`, `drains`, `explain`, `inject` and `lint`.
//!
//! ```text
//!  cli    check, drains         explain, inject
//!            │                    │        │
//!            ▼                    │        ▼
//!       kubernetes  (the cluster) ◀     offline ──▶ manifest (YAML)
//!            │                    │        │
//!            └──────▶ admission: settings, plan, patch ◀──┘
//! ```

#![warn(clippy::match_bool, clippy::print_stderr, clippy::print_stdout)]

pub mod check;
pub mod cli;
pub mod drains;
pub mod lint;
pub mod load_balancers;
pub mod object_name;
pub mod offline;
pub mod pod_status;
pub mod restart;
pub mod running_pod;
pub mod runtime;
pub mod signals;
pub mod text;
