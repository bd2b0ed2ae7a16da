//! Which Services of a pod have another ready endpoint, from the EndpointSlices of its namespace.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::digest::sha256;

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
    serving: Option<bool>,
    terminating: Option<bool>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct TargetRef {
    kind: TargetKind,
    uid: String,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
enum TargetKind {
    Pod,
    #[default]
    #[serde(other)]
    Other,
}

/// The endpoints of all Services of a namespace. It takes 32 bytes for each that is a pod, whatever the
/// slices contain.
#[derive(Debug)]
pub(super) struct NamespaceEndpoints {
    groups: Vec<EndpointGroup>,
    /// Sorted by pod, and then by group; one for each of both.
    pods: Box<[PodEndpoints]>,
}

/// Builds [`NamespaceEndpoints`] from slices.
#[derive(Debug, Default)]
pub(super) struct NamespaceEndpointsBuilder {
    groups: Vec<EndpointGroup>,
    /// By Service and address family: a dual-stack Service has two groups of endpoints.
    indexes: BTreeMap<(String, String), GroupIndex>,
    pods: Vec<PodEndpoints>,
}

/// The endpoints of one Service in one address family.
#[derive(Debug)]
struct EndpointGroup {
    service: String,
    /// The number of ready endpoints.
    ready: u32,
}

type GroupIndex = usize;

/// The endpoints in one group that are the same pod: one, except while it moves from a slice to another.
#[derive(Debug)]
struct PodEndpoints {
    pod: UidDigest,
    group: GroupIndex,
    /// The number of ready ones.
    ready: u32,
    /// Whether all are terminating.
    is_terminating: bool,
}

/// Stands for a pod's UID, which is a text of any length in an EndpointSlice.
type UidDigest = [u8; 16];

/// The answer about a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(super) struct ReplacementAnswer {
    /// The number of Services that select the pod.
    services: usize,
    /// Those without another ready endpoint, by name; some of them if they are many.
    unready: Vec<String>,
    /// Whether all endpoints of the pod itself are terminating. Where they are not, the slices may be older than the
    /// pod's deletion, and so may those of another pod that was deleted at the same moment.
    terminating: bool,
}

/// Maximum number of Services that an answer names.
const MAX_NAMED: usize = 8;

// === impl EndpointSlice ===

impl EndpointSlice {
    /// The number of its endpoints.
    pub(super) fn endpoint_count(&self) -> usize {
        self.endpoints.as_ref().map_or(0, Vec::len)
    }
}

// === impl Conditions ===

impl Conditions {
    /// Whether new connections are to be routed here. Without values, yes. Where a Service publishes addresses that are
    /// not ready, `ready` is always true, and only the others tell.
    fn is_ready(&self) -> bool {
        self.ready.unwrap_or(true) && self.serving.unwrap_or(true) && !self.is_terminating()
    }

    fn is_terminating(&self) -> bool {
        self.terminating.unwrap_or(false)
    }
}

// === impl NamespaceEndpointsBuilder ===

impl NamespaceEndpointsBuilder {
    /// Adds a slice. One without a Service's label belongs to no Service.
    pub(super) fn add(&mut self, slice: EndpointSlice) {
        let labels = slice.metadata.labels.unwrap_or_default();
        let Some(service) = labels.service else {
            return;
        };
        let key = (service, slice.address_type);
        let groups = &mut self.groups;
        let group = *self.indexes.entry(key).or_insert_with_key(|(service, _)| {
            let service = service.clone();
            groups.push(EndpointGroup { service, ready: 0 });
            groups.len() - 1
        });
        for endpoint in slice.endpoints.into_iter().flatten() {
            let conditions = endpoint.conditions.unwrap_or_default();
            let ready = u32::from(conditions.is_ready());
            groups[group].ready += ready;
            let target = endpoint.target_ref.unwrap_or_default();
            if target.kind == TargetKind::Pod {
                self.pods.push(PodEndpoints {
                    pod: sha256(&target.uid),
                    group,
                    ready,
                    is_terminating: conditions.is_terminating(),
                });
            }
        }
    }

    /// The endpoints of the slices, so that a request need not search all of them.
    pub(super) fn build(self) -> NamespaceEndpoints {
        let Self {
            groups, mut pods, ..
        } = self;
        let key = |it: &PodEndpoints| (it.pod, it.group);
        pods.sort_unstable_by_key(key);
        pods.dedup_by(|next, kept| {
            let is_same = key(next) == key(kept);
            if is_same {
                kept.ready += next.ready;
                kept.is_terminating &= next.is_terminating;
            }
            is_same
        });
        let pods = pods.into_boxed_slice();
        NamespaceEndpoints { groups, pods }
    }
}

// === impl NamespaceEndpoints ===

impl NamespaceEndpoints {
    /// The Services that select a pod, and those without another ready endpoint.
    pub(super) fn replacement_of(&self, uid: &str) -> ReplacementAnswer {
        let own = self.of_pod(sha256(uid));
        let mut services = BTreeSet::new();
        let mut unready = BTreeSet::new();
        for endpoints in own {
            let EndpointGroup { service, ready } = &self.groups[endpoints.group];
            services.insert(service);
            if *ready <= endpoints.ready {
                unready.insert(service);
            }
        }
        ReplacementAnswer {
            services: services.len(),
            unready: unready.into_iter().take(MAX_NAMED).cloned().collect(),
            terminating: own.iter().all(|endpoints| endpoints.is_terminating),
        }
    }

    /// The endpoints of a pod, by group.
    fn of_pod(&self, pod: UidDigest) -> &[PodEndpoints] {
        let start = self.pods.partition_point(|it| it.pod < pod);
        let end = self.pods.partition_point(|it| it.pod <= pod);
        &self.pods[start..end]
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
            "conditions": {"serving": true, "terminating": false},
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

    fn endpoints(slices: Value) -> NamespaceEndpoints {
        let slices: Vec<EndpointSlice> = serde_json::from_value(slices).unwrap();
        let mut endpoints = NamespaceEndpointsBuilder::default();
        for slice in slices {
            endpoints.add(slice);
        }
        endpoints.build()
    }

    /// The answer about the pod with the UID `own`.
    fn answer(slices: Value) -> ReplacementAnswer {
        endpoints(slices).replacement_of("own")
    }

    fn services(slices: Value) -> (usize, Vec<String>) {
        let answer = answer(slices);
        (answer.services, answer.unready)
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
        for (case, slices, count, unready) in table {
            let unready = unready.iter().map(|&name| name.to_owned()).collect();
            assert_eq!(services(slices), (count, unready), "{case}");
        }
    }

    #[test]
    fn an_endpoint_in_two_slices_does_not_replace_itself() {
        // As for a moment when the controller moves it.
        let own = json!([pod("own", json!(true))]);
        let slices = json!([slice("a", "IPv4", own.clone()), slice("a", "IPv4", own)]);
        assert_eq!(services(slices), (1, vec!["a".to_owned()]));
    }

    #[test]
    fn each_pod_is_found_among_others() {
        // Pod n is in the Services up to n, in two slices each, and alone in the last.
        let pods = |service: usize| -> Vec<_> {
            let pods = (service..100).flat_map(|n| [n, n]);
            pods.map(|n| pod(&n.to_string(), true)).collect()
        };
        let slices = (0..100).map(|n| slice(&format!("s{n:02}"), "IPv4", pods(n)));
        let endpoints = endpoints(slices.collect());
        assert_eq!(endpoints.pods.len(), (1..=100).sum::<usize>());
        for n in 0..100 {
            let answer = endpoints.replacement_of(&n.to_string());
            let unready: &[&str] = if n == 99 { &["s99"] } else { &[] };
            assert_eq!(answer.services, n + 1);
            assert_eq!(answer.unready, unready);
            assert_eq!(endpoints.of_pod(sha256(&n.to_string())).len(), n + 1);
        }
        assert_eq!(endpoints.replacement_of("other").services, 0);
    }

    #[test]
    fn answer_names_a_bounded_number_of_services() {
        let own = || json!([pod("own", json!(false))]);
        let slices = (0..100).map(|n| slice(&format!("s{n:02}"), "IPv4", own()));
        let (count, unready) = services(slices.collect());
        assert_eq!((count, unready.len()), (100, MAX_NAMED));
    }

    #[test]
    fn another_endpoint_must_serve_and_stay() {
        // A Service that publishes addresses that are not ready has only ready endpoints.
        let another = |conditions: Value| {
            let mut new = pod("new", true);
            for (name, value) in conditions.as_object().unwrap() {
                new["conditions"][name] = value.clone();
            }
            json!([slice("a", "IPv4", json!([pod("own", false), new]))])
        };
        for (conditions, is_ready) in [
            (json!({}), true),
            (json!({"serving": null, "terminating": null}), true),
            (json!({"serving": false}), false),
            (json!({"terminating": true}), false),
            (json!({"serving": false, "terminating": true}), false),
        ] {
            let (_, unready) = services(another(conditions.clone()));
            assert_eq!(unready.is_empty(), is_ready, "{conditions}");
        }
    }

    #[test]
    fn pod_is_terminating_if_all_its_endpoints_are() {
        let own = |terminating: Value| {
            let mut own = pod("own", false);
            own["conditions"]["terminating"] = terminating;
            own
        };
        let others = || pod("new", true);
        for (endpoints, want) in [
            (json!([own(json!(true)), others()]), true),
            (json!([own(json!(false)), others()]), false),
            (json!([own(json!(null))]), false),
            (json!([own(json!(true)), own(json!(false))]), false),
            (json!([others()]), true),
        ] {
            let slices = json!([slice("a", "IPv4", endpoints.clone())]);
            assert_eq!(answer(slices).terminating, want, "{endpoints}");
        }
    }
}
