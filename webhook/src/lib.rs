//! The admission webhook of envoy-drainer, and its command line.
//!
//! ```text
//!  cli       serve                                check, drains    explain, inject
//!              │                                        │               │
//!      ┌───────┼───────────────┐                        │               ▼
//!      ▼       ▼               ▼                        │            offline ──▶ manifest
//!   server   events       certificates                  │               │         YAML
//!      │       ▲ Events        ▲ CA Secret, caBundles   │               │
//!      │       └─ kubernetes ──┘ ◀──────────────────────┤               │
//!      │          calls of a client                     │               │
//!      ▼                                                ▼               ▼
//!  admission: review → decide → settings → plan → patch ◀───────────────┘
//! ```
//!
//! An AdmissionReview arrives at [`server`] (TLS, limits) and is answered by [`admission`], which is pure: it uses no
//! client, socket or clock. Skipped pods are queued for [`events`]. [`certificates`] reconciles the CA Secret and the
//! caBundles, and serves the certificate. Drainers call [`channel`], on a port of its own, and what they report is
//! counted by [`reports`]. [`kubernetes`] implements their calls to the API server. [`cli`] connects the parts: [`cli::serve`] runs the webhook, the other subcommands use the
//! same pure functions. Each module that counts registers its own metrics in the registry of [`metrics`].

pub mod admission;
pub mod certificates;
pub mod channel;
pub mod check;
pub mod cli;
pub mod clock;
pub mod cut;
pub mod drains;
pub mod events;
pub mod kubernetes;
pub mod manifest;
pub mod metrics;
pub mod object_name;
pub mod offline;
pub mod printable;
mod rate_limit;
pub mod reports;
pub mod running_pod;
pub mod server;
pub mod signals;
pub mod token;
mod token_bucket;
