//! What tests and the rotation simulator outside of this crate use of [`super`].

pub use super::cluster::{Cluster, Secret, SecretData, StoreCall, StoreError, Webhooks};
pub use super::in_memory::InMemoryCa;
pub use super::lifetimes::Lifetimes;
pub use super::metrics::Metrics;
pub use super::pki::bundle::Bundle;
pub use super::pki::ca::Ca;
pub use super::pki::certified_key::CertifiedKeyPair;
pub use super::pki::verify::verify;
pub use super::reconciler::result::{ReconcileError, ReconcileResult};
pub use super::reconciler::{CertificateReconciler, Mode};
pub use super::resolver::CertResolver;
