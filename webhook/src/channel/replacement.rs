//! Which Services of a pod have another ready endpoint, from the EndpointSlices of its namespace.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// The fields of an EndpointSlice that decide.
/// <https://kubernetes.io/docs/reference/kubernetes-api/service-resources/endpoint-slice-v1/>
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointSlice {
    metadata: Metadata,
    address_type: String,
    endpoints: Option<Vec<Endpoint>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Metadata {
    labels: Option<Labels>,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct Labels {
    #[serde(rename = "kubernetes.io/service-name")]
    service: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Endpoint {
    conditions: Option<Conditions>,
    target_ref: Option<TargetRef>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Conditions {
    ready: Option<bool>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct TargetRef {
    kind: String,
    uid: String,
}

/// The endpoints of all Services of a namespace, indexed by pod.
#[derive(Debug, Default)]
pub(super) struct NamespaceEndpoints {
    groups: Vec<EndpointGroup>,
    /// By the pod's UID: its groups, and how often it is ready in each.
    pods: BTreeMap<String, BTreeMap<GroupIndex, usize>>,
}

/// The endpoints of one Service in one address family: a dual-stack Service has two.
#[derive(Debug)]
struct EndpointGroup {
    service: String,
    /// The number of ready endpoints.
    ready: usize,
}

type GroupIndex = usize;

/// The answer about a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(super) struct ReplacementAnswer {
    /// The number of Services that select the pod.
    services: usize,
    /// Those without another ready endpoint, by name; some of them if they are many.
    unready: Vec<String>,
}

/// Maximum number of Services that an answer names.
const MAX_NAMED: usize = 8;

// === impl NamespaceEndpoints ===

impl NamespaceEndpoints {
    /// Indexes the slices of a namespace. One without a Service's label belongs to no Service.
    pub(super) fn new(slices: Vec<EndpointSlice>) -> Self {
        let mut this = Self::default();
        let mut indexes = BTreeMap::new();
        for slice in slices {
            let labels = slice.metadata.labels.unwrap_or_default();
            let Some(service) = labels.service else {
                continue;
            };
            let key = (service, slice.address_type);
            let index = *indexes.entry(key).or_insert_with_key(|(service, _)| {
                let service = service.clone();
                this.groups.push(EndpointGroup { service, ready: 0 });
                this.groups.len() - 1
            });
            for endpoint in slice.endpoints.into_iter().flatten() {
                // Never true of a terminating pod, unless the Service publishes addresses that are not ready. Without a
                // value it means true.
                let ready = endpoint.conditions.unwrap_or_default().ready;
                let ready = usize::from(ready.unwrap_or(true));
                this.groups[index].ready += ready;
                let target = endpoint.target_ref.unwrap_or_default();
                if target.kind == "Pod" {
                    let groups = this.pods.entry(target.uid).or_default();
                    *groups.entry(index).or_default() += ready;
                }
            }
        }
        this
    }

    /// The Services that select a pod, and those without another ready endpoint.
    pub(super) fn replacement_of(&self, uid: &str) -> ReplacementAnswer {
        let mut services = BTreeSet::new();
        let mut unready = BTreeSet::new();
        for (index, own) in self.pods.get(uid).into_iter().flatten() {
            let EndpointGroup { service, ready } = &self.groups[*index];
            services.insert(service);
            if ready <= own {
                unready.insert(service);
            }
        }
        ReplacementAnswer {
            services: services.len(),
            unready: unready.into_iter().take(MAX_NAMED).cloned().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// An endpoint of a pod.
    fn pod(uid: &str, ready: impl Into<Value>) -> Value {
        let mut endpoint = json!({
            "addresses": ["10.0.0.1"],
            "conditions": {"serving": true, "terminating": true},
            "targetRef": {"kind": "Pod", "namespace": "shop", "name": "edge-1", "uid": uid},
        });
        endpoint["conditions"]["ready"] = ready.into();
        endpoint
    }

    fn slice(service: &str, family: &str, endpoints: impl Into<Value>) -> Value {
        let labels = json!({"kubernetes.io/service-name": service});
        let mut slice = json!({"metadata": {"name": "s", "labels": labels}, "ports": null});
        slice["addressType"] = family.into();
        slice["endpoints"] = endpoints.into();
        slice
    }

    /// The answer about the pod with the UID `own`.
    fn answer(slices: Value) -> (usize, Vec<String>) {
        let slices = serde_json::from_value(slices).unwrap();
        let ReplacementAnswer { services, unready } =
            NamespaceEndpoints::new(slices).replacement_of("own");
        (services, unready)
    }

    #[test]
    fn every_service_needs_another_ready_endpoint() {
        let own = || pod("own", json!(false));
        let ready = || pod("new", json!(true));
        let starting = || pod("new", json!(false));
        let ipv4 = |service: &str, endpoints| slice(service, "IPv4", endpoints);
        let external = json!({"addresses": ["192.0.2.1"], "conditions": {"ready": true}});
        let node = json!({"targetRef": {"kind": "Node", "uid": "own"}});
        let table: [(&str, Value, usize, &[&str]); 14] = [
            ("no slice", json!([]), 0, &[]),
            (
                "the only pod",
                json!([ipv4("a", json!([own()]))]),
                1,
                &["a"],
            ),
            (
                "ready itself",
                json!([ipv4("a", json!([pod("own", json!(true))]))]),
                1,
                &["a"],
            ),
            (
                "not ready yet",
                json!([ipv4("a", json!([own(), starting()]))]),
                1,
                &["a"],
            ),
            ("ready", json!([ipv4("a", json!([own(), ready()]))]), 1, &[]),
            (
                "in another slice",
                json!([ipv4("a", json!([own()])), ipv4("a", json!([ready()]))]),
                1,
                &[],
            ),
            (
                "unknown is ready",
                json!([ipv4("a", json!([own(), pod("new", json!(null))]))]),
                1,
                &[],
            ),
            (
                "without conditions",
                json!([ipv4("a", json!([own(), {"addresses": []}]))]),
                1,
                &[],
            ),
            (
                "two Services",
                json!([
                    ipv4("a", json!([own(), ready()])),
                    ipv4("b", json!([own(), starting()]))
                ]),
                2,
                &["b"],
            ),
            (
                "a Service of others",
                json!([
                    ipv4("a", json!([own(), ready()])),
                    ipv4("b", json!([starting()]))
                ]),
                1,
                &[],
            ),
            (
                "dual-stack, ready in one family",
                json!([
                    ipv4("a", json!([own(), ready()])),
                    slice("a", "IPv6", json!([own(), starting()]))
                ]),
                1,
                &["a"],
            ),
            (
                "an address outside the cluster",
                json!([ipv4("a", json!([own(), external]))]),
                1,
                &[],
            ),
            ("no pod", json!([ipv4("a", json!([node]))]), 0, &[]),
            (
                "no Service",
                json!([{"metadata": {"labels": null}, "addressType": "IPv4", "endpoints": [own()]},
                    {"metadata": {}, "addressType": "IPv4", "endpoints": null}]),
                0,
                &[],
            ),
        ];
        for (case, slices, services, unready) in table {
            let unready = unready.iter().map(|&name| name.to_owned()).collect();
            assert_eq!(answer(slices), (services, unready), "{case}");
        }
    }

    #[test]
    fn an_endpoint_in_two_slices_does_not_replace_itself() {
        // As for a moment when the controller moves it.
        let own = json!([pod("own", json!(true))]);
        let slices = json!([slice("a", "IPv4", own.clone()), slice("a", "IPv4", own)]);
        assert_eq!(answer(slices), (1, vec!["a".to_owned()]));
    }

    #[test]
    fn answer_names_a_bounded_number_of_services() {
        let own = || json!([pod("own", json!(false))]);
        let slices = (0..100).map(|n| slice(&format!("s{n:02}"), "IPv4", own()));
        let (services, unready) = answer(slices.collect());
        assert_eq!((services, unready.len()), (100, MAX_NAMED));
    }
}
