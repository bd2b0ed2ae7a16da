//! X.509 without a cluster: CAs, leaves, bundles, and how clients verify a chain.

pub mod bundle;
pub mod ca;
pub mod certified_key;
pub mod clock;
pub mod issuer;
pub mod leaf;
pub mod lifetimes;
mod subject;
pub mod verify;
pub mod x509;
