//! The Services of type LoadBalancer in front of pods.

use std::collections::BTreeMap;

use admission::{Code, Diagnostic};
use k8s_openapi::api::core::v1::Service;

/// Returns true for a Service of type LoadBalancer.
pub fn is_load_balancer(service: &Service) -> bool {
    let spec = service.spec.as_ref();
    spec.is_some_and(|spec| spec.type_.as_deref() == Some("LoadBalancer"))
}

/// Returns a warning about the first of them that selects pods of a namespace with these labels.
pub fn in_front(
    services: &[Service],
    namespace: &str,
    labels: &BTreeMap<String, String>,
) -> Option<Diagnostic> {
    let selects = |service: &&Service| {
        let selector = service.spec.iter().flat_map(|spec| &spec.selector);
        let mut pairs = selector.flatten().peekable();
        is_load_balancer(service)
            && service.metadata.namespace.as_deref().unwrap_or_default() == namespace
            && pairs.peek().is_some()
            && pairs.all(|(key, value)| labels.get(key) == Some(value))
    };
    let service = services.iter().find(selects)?;
    let name = service.metadata.name.as_deref().unwrap_or_default();
    let detail =
        format!("the Service `{name}` of type LoadBalancer is in front, and `drain-delay` is 0s");
    Some(Code::LoadBalancerInFront.diagnostic(detail))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_the_load_balancer_that_selects_the_pods_is_in_front() {
        let found = |kind: &str, namespace: &str, selector: serde_json::Value| {
            let service = json!({
                "metadata": {"name": "edge", "namespace": namespace},
                "spec": {"type": kind, "selector": selector},
            });
            let services = [serde_json::from_value(service).unwrap()];
            let labels = BTreeMap::from([("app", "edge"), ("tier", "front")]);
            let labels = labels
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value.to_owned()));
            in_front(&services, "shop", &labels.collect()).is_some()
        };
        assert!(found("LoadBalancer", "shop", json!({"app": "edge"})));
        assert!(found(
            "LoadBalancer",
            "shop",
            json!({"app": "edge", "tier": "front"})
        ));
        assert!(!found(
            "LoadBalancer",
            "shop",
            json!({"app": "edge", "tier": "back"})
        ));
        assert!(!found("LoadBalancer", "shop", json!({})));
        assert!(!found("LoadBalancer", "other", json!({"app": "edge"})));
        assert!(!found("ClusterIP", "shop", json!({"app": "edge"})));
    }
}
