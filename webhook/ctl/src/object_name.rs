//! The name of an object, as reports have it.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
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

/// The controller of an object of this kind (a pod or a ReplicaSet), or the object itself if it has
/// none. The Deployment of a pod is derived from the name of its ReplicaSet.
pub(crate) fn owner_name(kind: &str, object: &ObjectMeta) -> ObjectName {
    let subject = |kind: &str, name: &str| ObjectName::new(kind, object.namespace.as_deref(), name);
    let mut references = object.owner_references.iter().flatten();
    let Some(owner) = references.find(|reference| reference.controller == Some(true)) else {
        return subject(kind, object.name.as_deref().unwrap_or_default());
    };
    let hash = || object.labels.as_ref()?.get("pod-template-hash");
    let deployment = || owner.name.strip_suffix(&**hash()?)?.strip_suffix('-');
    match deployment() {
        Some(deployment) if owner.kind == "ReplicaSet" => subject("Deployment", deployment),
        _ => subject(&owner.kind, &owner.name),
    }
}

// === impl ObjectName ===

impl ObjectName {
    pub fn new(kind: &str, namespace: Option<&str>, name: &str) -> Self {
        Self {
            kind: kind.to_owned(),
            namespace: namespace.map(ToOwned::to_owned),
            name: name.to_owned(),
        }
    }

    pub fn cluster_scoped(kind: &str, name: &str) -> Self {
        Self::new(kind, None, name)
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
