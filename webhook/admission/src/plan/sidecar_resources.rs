//! The requests and limits of the drainer's container.

use drainer::SettingValue;
use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as QuantityText;

use crate::diagnostics::{Code, Diagnostics};
use crate::pod::{Container, PodView, Resources, Scalar};
use crate::quantity::Quantity;
use crate::settings::{SettingSource, Settings};

/// Request and limit of ephemeral storage, for a pod that sets it: room for the container's rotated logs, which
/// the kubelet counts. The drainer writes nothing else to disk.
const EPHEMERAL_STORAGE: (&str, &str) = ("16Mi", "64Mi");

/// Returns the drainer's resources: none, with a warning if they are annotated, where the pod has pod-level
/// resources, which the drainer's might exceed.
/// <https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/#pod-level-resource-specification>
pub(crate) fn requirements(
    pod: &PodView<'_>,
    settings: &Settings,
    diagnostics: &mut Diagnostics,
) -> Option<ResourceRequirements> {
    let own = &settings.resources;
    if pod.spec.resources.as_ref().is_some_and(Resources::is_set) {
        let mut names = ["cpu-request", "cpu-limit", "memory-request", "memory-limit"].into_iter();
        if names.any(|name| settings.source(name) == SettingSource::Annotation) {
            let detail = "the pod has `spec.resources`, so the drainer gets none of its own";
            diagnostics.warn(Code::ResourcesIgnored.diagnostic(detail));
        }
        return None;
    }
    let mut resources = vec![
        ("cpu", own.cpu_request.format(), own.cpu_limit.format()),
        (
            "memory",
            own.memory_request.format(),
            own.memory_limit.format(),
        ),
    ];
    if pod.all_containers().any(has_ephemeral_storage) {
        let (request, limit) = EPHEMERAL_STORAGE;
        resources.push(("ephemeral-storage", request.to_owned(), limit.to_owned()));
    }
    let is_guaranteed = pod.all_containers().all(is_guaranteed);
    let amounts = |(name, request, limit): (&str, String, String)| {
        let request = if is_guaranteed {
            limit.clone()
        } else {
            request
        };
        let amount = |text| (name.to_owned(), QuantityText(text));
        (amount(request), amount(limit))
    };
    let (requests, limits) = resources.into_iter().map(amounts).unzip();
    Some(ResourceRequirements {
        requests: Some(requests),
        limits: Some(limits),
        claims: None,
    })
}

/// Returns true if the container may be in a Guaranteed pod, which the drainer must not make Burstable.
/// <https://kubernetes.io/docs/concepts/workloads/pods/pod-qos/#guaranteed>
fn is_guaranteed(container: &Container<'_>) -> bool {
    let Some(Resources {
        requests,
        limits: Some(limits),
    }) = &container.resources
    else {
        return false;
    };
    let quantity = |scalar: Option<Scalar<'_>>| scalar?.text().parse::<Quantity>().ok();
    let requests = requests.as_ref();
    let equal = |request: Option<Scalar<'_>>, limit: Option<Scalar<'_>>| {
        let limit = quantity(limit).filter(Quantity::is_positive);
        // A missing request defaults to the limit.
        limit.is_some() && (request.is_none() || quantity(request) == limit)
    };
    equal(requests.and_then(|r| r.cpu), limits.cpu)
        && equal(requests.and_then(|r| r.memory), limits.memory)
}

fn has_ephemeral_storage(container: &Container<'_>) -> bool {
    let resources = container.resources.iter();
    let mut amounts = resources
        .flat_map(|it| [&it.requests, &it.limits])
        .flatten();
    amounts.any(|amounts| amounts.ephemeral_storage.is_some())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::names::PREFIX;
    use crate::settings::ParsedSettings;
    use crate::settings::defaults::Defaults;

    /// The drainer's resources as JSON, and the codes of the warnings.
    fn resolve_resources(pod: &Value) -> (Value, Vec<Code>) {
        let pod = pod.to_string();
        let pod = PodView::decode(&pod).unwrap();
        let settings = ParsedSettings::parse(&pod, false, &Defaults::new("", ""), &[]).settings;
        let mut diagnostics = Diagnostics::default();
        let resources = requirements(&pod, &settings, &mut diagnostics);
        let codes = diagnostics
            .warnings
            .iter()
            .map(|warning| warning.code)
            .collect();
        (serde_json::to_value(resources).unwrap(), codes)
    }

    fn resources_beside(resources: &[Value]) -> Value {
        let containers: Vec<_> = resources
            .iter()
            .map(|r| json!({ "resources": r }))
            .collect();
        resolve_resources(&json!({"spec": {"containers": containers, "initContainers": null}})).0
    }

    #[test]
    fn requests_equal_limits_only_in_a_guaranteed_pod() {
        let full = |request: &str, limit: &str| json!({"requests": {"cpu": request, "memory": "1Gi"}, "limits": {"cpu": limit, "memory": "1Gi"}});
        let limits_only = json!({"limits": {"cpu": 1, "memory": "64Mi"}});
        let table = [
            (vec![full("1", "1000m")], true),
            (vec![limits_only.clone()], true),
            (vec![full("1", "1"), limits_only.clone()], true),
            (vec![full("1", "1001m")], false),
            (vec![full("1", "1"), json!(null)], false),
            (vec![json!({"limits": {"cpu": "1"}})], false),
            (vec![json!({"limits": {"cpu": "0", "memory": "0"}})], false),
            (
                vec![json!({"requests": {"cpu": "1", "memory": "1Gi"}})],
                false,
            ),
            (
                vec![json!({"limits": {"cpu": "much", "memory": "1Gi"}})],
                false,
            ),
        ];
        for (containers, guaranteed) in table {
            let resources = resources_beside(&containers);
            let equal = resources["requests"] == resources["limits"];
            assert_eq!(equal, guaranteed, "{containers:?}: {resources}");
            assert_eq!(
                resources["limits"],
                json!({"cpu": "100m", "memory": "64Mi"})
            );
        }
    }

    #[test]
    fn init_container_counts_for_guaranteed() {
        let guaranteed = json!({"resources": {"limits": {"cpu": "1", "memory": "1Gi"}}});
        let pod =
            |init: Value| json!({"spec": {"containers": [guaranteed], "initContainers": [init]}});
        let requests = |pod: &Value| resolve_resources(pod).0["requests"]["cpu"].clone();
        assert_eq!(requests(&pod(guaranteed.clone())), "100m");
        assert_eq!(requests(&pod(json!({}))), "25m");
    }

    #[test]
    fn ephemeral_storage_is_set_where_others_set_it() {
        for other in [
            json!({"requests": {"ephemeral-storage": "1Gi"}}),
            json!({"limits": {"ephemeral-storage": "1Gi"}}),
        ] {
            let resources = resources_beside(&[json!({}), other]);
            assert_eq!(resources["requests"]["ephemeral-storage"], "16Mi");
            assert_eq!(resources["limits"]["ephemeral-storage"], "64Mi");
        }
    }

    #[test]
    fn pod_level_resources_leave_the_drainers_out() {
        let annotated = json!({"annotations": {format!("{PREFIX}cpu-limit"): "1"}});
        let table = [
            (
                json!({"limits": {"memory": "1Gi"}}),
                json!({}),
                true,
                vec![],
            ),
            (
                json!({"requests": {"cpu": "1"}}),
                annotated,
                true,
                vec![Code::ResourcesIgnored],
            ),
            (
                json!({"requests": {}, "limits": null}),
                json!({}),
                false,
                vec![],
            ),
            (
                json!({"limits": {"hugepages-2Mi": "2Mi"}}),
                json!({}),
                false,
                vec![],
            ),
        ];
        for (pod_level, metadata, is_none, codes) in table {
            let (resources, warnings) = resolve_resources(
                &json!({"metadata": metadata, "spec": {"containers": [], "resources": pod_level}}),
            );
            assert_eq!(
                (resources.is_null(), warnings),
                (is_none, codes),
                "{pod_level}"
            );
        }
    }
}
