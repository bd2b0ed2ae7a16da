//! The admission webhook of envoy-drainer, and its command line.
//!
//! ```text
//!             AdmissionReview                     Secret, caBundle          pods, nodes, …
//!                    │                                   │                        │
//!  server            ▼              kubernetes           ▼                        ▼
//!    TLS, limits, metrics ◀─ certificates ◀── the calls of a client: objects, events, survey
//!                    │                                   ▲                        │
//!  admission         ▼                                   │                        ▼
//!    review → settings → Envoy → plan → patch        events: of pods          check: what is well
//!                    ▲       └── undrained pods ──▶  without a drainer
//!  manifest          │
//!    YAML → the same pure functions → YAML: `inject`, and `explain` by offline
//! ```
//!
//! [`admission`] is pure, and knows nothing of clients, sockets or clocks. [`commands`] puts the parts
//! together, by what [`args`] reads.

pub mod admission;
pub mod certificates;
pub mod check;
pub mod cli;
pub mod clock;
pub mod events;
pub mod kubernetes;
pub mod manifest;
pub mod metrics;
pub mod offline;
pub mod printable;
pub mod server;
pub mod signals;
pub mod token;
mod token_bucket;
