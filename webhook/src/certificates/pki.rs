//! X.509, without a cluster: CAs, leaves, bundles, and whether a client trusts a chain.

pub mod bundle;
pub mod ca;
pub mod ca_check;
pub mod certified_key;
pub mod issuer;
pub mod leaf;
pub mod verify;
pub mod x509;
