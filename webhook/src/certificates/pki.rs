//! X.509 without a cluster: CAs, leaves, bundles, and how clients verify a chain.

pub(crate) mod bundle;
pub(crate) mod ca;
pub(crate) mod ca_check;
pub(crate) mod certified_key;
pub(crate) mod issuer;
pub(crate) mod leaf;
mod subject;
pub(crate) mod verify;
pub(crate) mod x509;
