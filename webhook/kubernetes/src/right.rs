//! Rights in a cluster.

use std::fmt;

use k8s_openapi::api::authorization::v1::ResourceAttributes;

/// A right in the terms of RBAC: a verb, an API group, a resource and perhaps its subresource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Right(pub &'static str, pub &'static str, pub &'static str);

// === impl Right ===

impl Right {
    /// The attributes of an access review, in a namespace, or in the whole cluster.
    pub(crate) fn attributes(self, namespace: Option<&str>) -> ResourceAttributes {
        let Self(verb, group, resource) = self;
        let (resource, subresource) = match resource.split_once('/') {
            Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
            None => (resource, None),
        };
        ResourceAttributes {
            namespace: namespace.map(ToOwned::to_owned),
            verb: Some(verb.to_owned()),
            group: Some(group.to_owned()),
            resource: Some(resource.to_owned()),
            subresource,
            ..ResourceAttributes::default()
        }
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(verb, group, resource) = self;
        let dot = if group.is_empty() { "" } else { "." };
        write!(f, "{verb} {resource}{dot}{group}")
    }
}
