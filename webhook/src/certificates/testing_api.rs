//! What tests and the rotation simulator outside of this crate use of [`super`].

pub use super::cluster::{Cluster, Secret, SecretData, StoreCall, StoreError, Webhooks};
pub use super::in_memory::issue;
pub use super::metrics::Metrics;
pub use super::reconciler::result::{ReconcileError, ReconcileResult};
pub use super::reconciler::{CertificateReconciler, Mode};
pub use super::resolver::CertResolver;
pub use pki::bundle::Bundle;
pub use pki::ca::Ca;
pub use pki::certified_key::CertifiedKeyPair;
pub use pki::lifetimes::Lifetimes;
