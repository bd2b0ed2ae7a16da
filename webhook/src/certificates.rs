//! The TLS certificate of the webhook: where it comes from, and how it is renewed while the server runs.
//!
//! A certificate comes from the cluster (modes `self` and `secret`), or from a CA in memory for tests and for one's
//! own machine: `in_memory`. In a cluster, `reconciler` runs at least once a minute: it observes three things,
//! decides by pure functions, and acts.
//!
//! ```text
//!  observe                                 decide                    act
//!  CA Secret ─────── ca_secret, tls_secret ─► rotation ────────► CA Secret: adopt, create, activate, distrust, prune
//!  caBundles ─────── propagation ───────────► ca_bundle ───────► caBundles: add trusted CAs, remove distrusted ones
//!  served certificate ──────────────────────► serving_policy ──► resolver: switch once the CA is propagated
//! ```
//!
//! `cluster` is the trait of the calls to the API server, which [`crate::api_clients`] implements. The crate [`pki`] is
//! X.509 without a cluster.

mod ca_bundle;
mod ca_secret;
pub(crate) mod cluster;
pub(crate) mod in_memory;
pub(crate) mod metrics;
mod propagation;
pub(crate) mod reconciler;
pub(crate) mod resolver;
mod rotation;
mod serving_policy;
#[cfg(test)]
mod testing;
pub mod testing_api;
mod tls_secret;
