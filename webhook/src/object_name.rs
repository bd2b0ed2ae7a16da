//! The name of an object, as reports have it.

use std::fmt;

use serde::Serialize;

/// An object of a cluster or a manifest; displayed as `Deployment shop/front`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct ObjectName {
    /// Its kind, such as `Deployment`.
    pub kind: String,
    /// Its namespace; `null` for a cluster-scoped object, and for one whose document has no namespace.
    pub namespace: Option<String>,
    /// Its `name`, or in a manifest its `generateName`.
    pub name: String,
}

// === impl ObjectName ===

impl ObjectName {
    /// A cluster-scoped object.
    pub fn cluster_scoped(kind: &str, name: &str) -> Self {
        Self {
            kind: kind.to_owned(),
            namespace: None,
            name: name.to_owned(),
        }
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.kind)?;
        if let Some(namespace) = &self.namespace {
            write!(f, "{namespace}/")?;
        }
        f.write_str(&self.name)
    }
}
