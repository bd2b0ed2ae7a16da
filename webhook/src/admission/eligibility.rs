//! The pods that are left alone, whatever they ask for.

use super::annotations::{MANAGED_BY, MIRROR, STATUS};
use super::codes::{Code, Notice};
use super::container;
use super::defaults::Defaults;
use super::mutate::Facts;
use super::status;
use super::view::PodView;

/// The container by which Envoy Gateway and Contour drain their Envoys.
const SHUTDOWN_MANAGER: &str = "shutdown-manager";

/// Tells why a pod that asks is left alone, if it is.
pub(super) fn skip(pod: &PodView<'_>, facts: &Facts<'_>, defaults: &Defaults) -> Option<Notice> {
    let namespace = facts.namespace.or_else(|| pod.namespace());
    let has_status = || {
        pod.annotation(STATUS)
            .is_some_and(status::tells_of_injection)
    };
    if pod.all_containers().any(|c| c.name() == container::NAME) || has_status() {
        return Some(Code::AlreadyInjected.about("the pod has a drainer already"));
    }
    if namespace == Some("kube-system") {
        return Some(Code::SystemNamespace.about("pods in `kube-system` are never changed"));
    }
    if namespace == Some(&defaults.release_namespace) {
        let detail = format!(
            "pods in `{}`, envoy-drainer's own namespace, are never changed",
            defaults.release_namespace
        );
        return Some(Code::ReleaseNamespace.about(detail));
    }
    if pod.is_for_windows() {
        return Some(Code::WindowsPod.about("the pod runs on Windows"));
    }
    if pod.annotation(MIRROR).is_some() {
        return Some(Code::MirrorPod.about("the pod mirrors a static pod"));
    }
    own_drainer(pod)
}

/// A drainer that came with the pod. Both products call it the same; the label tells them apart.
fn own_drainer(pod: &PodView<'_>) -> Option<Notice> {
    let (_, _) = pod.staying().find(|(_, c)| c.name() == SHUTDOWN_MANAGER)?;
    if pod.label(MANAGED_BY) == Some("envoy-gateway") {
        return Some(
            Code::EnvoyGatewayPod
                .about("Envoy Gateway's pods have a drainer of their own, `shutdown-manager`"),
        );
    }
    let hooked =
        |name, c: &super::view::Container<'_>| name != SHUTDOWN_MANAGER && c.pre_stop().is_some();
    pod.staying().any(|(_, c)| hooked(c.name(), c)).then(|| {
        Code::ContourPod.about("Contour's pods have a drainer of their own, `shutdown-manager`")
    })
}
