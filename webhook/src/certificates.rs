//! The certificate that the server shows: where it comes from, and how it changes while it serves.
//!
//! [`source`] is one of three: two [`files`], a certificate [`self_made`] in memory, or an [`authority`]
//! that lives in the cluster. That one decides every minute, and when something changes, from three
//! things that it looks at:
//!
//! ```text
//!  Secret ──────────┬─ keyring   our authorities (mode self)
//!                   └─ given     a certificate of another issuer (mode secret)
//!  caBundles ───────── live      what API servers trust, and since when
//!  the server ──────── showing   what is shown, and what it takes to trust it
//!
//!             rotation ─────────▶ Secret: publish, activate, adopt, forget
//!             anchors ──────────▶ caBundles: add what is used, take out what is not
//!             showing, leaf ────▶ serving: another certificate, once it is trusted
//!             readiness ────────▶ serving: called for the first time
//! ```
//!
//! What is decided is pure functions there, each with its table; [`cluster`] is what the calls must be,
//! and [`crate::kubernetes`] makes them. All rests on [`bundle`] (a set of certificates), [`ca`],
//! [`identity`] (a chain with its key), [`trust`] and [`issuer`] (whether a client trusts a chain) and [`x509`].

pub mod ca_bundle;
pub mod ca_secret;
pub mod cluster;
pub mod files;
pub mod in_memory;
pub mod lifetimes;
pub mod pki;
pub mod propagation;
pub mod readiness;
pub mod reconciler;
pub mod resolver;
pub mod rotation;
pub mod serving_policy;
pub mod source;
#[cfg(test)]
mod testing;
pub mod tls_secret;
