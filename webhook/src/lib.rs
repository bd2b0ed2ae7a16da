//! The admission webhook of envoy-drainer.
//!
//! ```text
//!   serve
//!      ├─────────┬────────────┬──────────────────────┐
//!      ▼         ▼            ▼                      ▼
//!   server     events    certificates ──▶ pki   drainer_api, reports
//!      │         ▲            ▲                      ▲
//!      │         └────── api_clients ────────────────┘
//!      ▼
//!   admission: review → decide → settings → plan → patch
//! ```
//!
//! An AdmissionReview arrives at [`server`] (TLS, limits) and is answered by [`admission`], which is pure: it uses no
//! client, socket or clock. Skipped pods are queued for [`events`], which writes Events about them. [`certificates`]
//! reconciles the CA Secret and the caBundles, and serves the certificate. Drainers call [`drainer_api`], on a port of
//! its own, and [`reports`] counts what they report. [`api_clients`] makes the calls of these modules to the API
//! server. [`serve`] connects the parts; its flags are in [`flags`]. [`cli`] adds the subcommands of other crates. Each
//! module that counts registers its own metrics in the registry of [`metrics`].

pub mod api_clients;
pub mod certificates;
pub mod cli;
pub mod drainer_api;
pub mod events;
pub mod metrics;
mod rate_limit;
pub mod reports;
pub mod serve;
pub mod server;
pub mod token;
