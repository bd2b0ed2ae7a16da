//! The Services of type LoadBalancer in front of pods.

use std::collections::BTreeMap;

use admission::{Code, Diagnostic};
use k8s_openapi::api::core::v1::Service;

/// Services of type LoadBalancer.
#[derive(Debug, Default)]
pub struct LoadBalancers(Vec<Service>);

// === impl LoadBalancers ===

impl LoadBalancers {
    /// Adds a Service, if it is of that type and selects pods.
    pub fn add(&mut self, service: Service) {
        let spec = service.spec.as_ref();
        let selects =
            spec.is_some_and(|spec| spec.selector.as_ref().is_some_and(|it| !it.is_empty()));
        if selects && spec.is_some_and(|spec| spec.type_.as_deref() == Some("LoadBalancer")) {
            self.0.push(service);
        }
    }

    /// Returns a warning about the first that selects pods of a namespace with these labels.
    pub fn in_front(
        &self,
        namespace: &str,
        labels: Option<&BTreeMap<String, String>>,
    ) -> Option<Diagnostic> {
        let labels = labels?;
        let selects = |service: &&Service| {
            let selector = service.spec.iter().flat_map(|spec| &spec.selector);
            let mut pairs = selector.flatten();
            service.metadata.namespace.as_deref() == Some(namespace)
                && pairs.all(|(key, value)| labels.get(key) == Some(value))
        };
        let service = self.0.iter().find(selects)?;
        let name = service.metadata.name.as_deref().unwrap_or_default();
        let detail = format!(
            "the Service `{name}` of type LoadBalancer is in front, and `drain-delay` is 0s"
        );
        Some(Code::LoadBalancerInFront.diagnostic(detail))
    }
}
