//! The requests and limits of the drainer's container.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Amount;

use super::codes::{Code, Notice};
use super::quantity::Quantity;
use super::settings::{Setting, Settings, Source};
use super::view::{Container, PodView, Resources, Scalar};

/// Ephemeral storage, for a pod that accounts for it: room for the container's rotated logs, which
/// the kubelet counts in. The drainer writes nothing else to disk.
const EPHEMERAL_STORAGE: (&str, &str) = ("16Mi", "64Mi");

/// Settles the drainer's resources; none where the pod has a budget as a whole, which they could
/// burst. <https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/#pod-level-resource-specification>
pub(super) fn requirements(
    pod: &PodView<'_>,
    settings: &Settings,
    warnings: &mut Vec<Notice>,
) -> Option<ResourceRequirements> {
    let shares = [("cpu", &settings.cpu), ("memory", &settings.memory)];
    if pod.spec.resources.as_ref().is_some_and(Resources::is_set) {
        let annotated = |setting: &Setting<Quantity>| setting.source == Source::Annotation;
        if shares
            .iter()
            .any(|(_, share)| annotated(&share.request) || annotated(&share.limit))
        {
            let detail = "the pod has `spec.resources`, so the drainer gets none of its own";
            warnings.push(Code::ResourcesIgnored.about(detail));
        }
        return None;
    }
    let guaranteed = pod.all_containers().all(is_guaranteed);
    let mut requests = BTreeMap::new();
    let mut limits = BTreeMap::new();
    let mut put = |name: &str, request: &str, limit: &str| {
        let request = if guaranteed { limit } else { request };
        requests.insert(name.to_owned(), Amount(request.to_owned()));
        limits.insert(name.to_owned(), Amount(limit.to_owned()));
    };
    for (name, share) in shares {
        put(
            name,
            &share.request.value.to_string(),
            &share.limit.value.to_string(),
        );
    }
    if pod.all_containers().any(has_ephemeral_storage) {
        let (request, limit) = EPHEMERAL_STORAGE;
        put("ephemeral-storage", request, limit);
    }
    Some(ResourceRequirements {
        requests: Some(requests),
        limits: Some(limits),
        claims: None,
    })
}

/// True if the container may be in a Guaranteed pod, which the drainer must not make Burstable.
/// <https://kubernetes.io/docs/concepts/workloads/pods/pod-qos/#guaranteed>
fn is_guaranteed(container: &Container<'_>) -> bool {
    let Some(Resources {
        requests,
        limits: Some(limits),
    }) = &container.resources
    else {
        return false;
    };
    let amount = |scalar: Option<Scalar<'_>>| scalar?.text().parse::<Quantity>().ok();
    let requests = requests.as_ref();
    let equal = |request: Option<Scalar<'_>>, limit: Option<Scalar<'_>>| {
        let limit = amount(limit).filter(Quantity::is_positive);
        // A request that is missing becomes the limit.
        limit.is_some() && (request.is_none() || amount(request) == limit)
    };
    equal(requests.and_then(|r| r.cpu), limits.cpu)
        && equal(requests.and_then(|r| r.memory), limits.memory)
}

fn has_ephemeral_storage(container: &Container<'_>) -> bool {
    let lists = container
        .resources
        .iter()
        .flat_map(|r| [&r.requests, &r.limits]);
    lists
        .flatten()
        .any(|amounts| amounts.ephemeral_storage.is_some())
}
