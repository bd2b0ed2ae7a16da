//! The pods that are left alone, whatever they ask for.

use super::decide::PodContext;
use super::defaults::Defaults;
use super::diagnostics::{Code, Diagnostic};
use super::plan::sidecar_container::DRAINER_NAME;
use super::pod::{Container, PodView};
use super::settings::keys::{MANAGED_BY, MIRROR, STATUS};
use super::status;

/// The container by which Envoy Gateway and Contour drain their Envoys.
const SHUTDOWN_MANAGER: &str = "shutdown-manager";

/// Tells why a pod that asks is left alone, if it is.
pub(super) fn skip_reason(
    pod: &PodView<'_>,
    facts: &PodContext<'_>,
    defaults: &Defaults,
) -> Option<Diagnostic> {
    let namespace = facts.namespace.or_else(|| pod.namespace());
    let status = pod.annotation(STATUS);
    let is_injected = status.is_some_and(status::records_injection);
    let mut named = pod.all_containers().filter(|c| c.name() == DRAINER_NAME);
    if named.any(|container| is_injected || is_drainer(container)) {
        return Some(Code::AlreadyInjected.diagnostic("the pod has a drainer already"));
    }
    if namespace == Some("kube-system") {
        return Some(Code::SystemNamespace.diagnostic("pods in `kube-system` are never changed"));
    }
    if namespace == Some(&defaults.release_namespace) {
        let detail = format!(
            "pods in `{}`, envoy-drainer's own namespace, are never changed",
            defaults.release_namespace
        );
        return Some(Code::ReleaseNamespace.diagnostic(detail));
    }
    if pod.is_for_windows() {
        return Some(Code::WindowsPod.diagnostic("the pod runs on Windows"));
    }
    if pod.annotation(MIRROR).is_some() {
        return Some(Code::MirrorPod.diagnostic("the pod mirrors a static pod"));
    }
    if is_injected {
        let detail = format!("`{STATUS}` says that the pod has a drainer, but it has none");
        return Some(
            Code::StatusAlone
                .diagnostic(detail)
                .for_annotations(["status"]),
        );
    }
    existing_drainer(pod)
}

/// True for the arguments that our drainers have, and no other container of their name.
fn is_drainer(container: &Container<'_>) -> bool {
    let args = container.args.as_deref().unwrap_or_default();
    args.first().is_some_and(|arg| **arg == *"serve")
        && args.iter().any(|arg| arg.starts_with("--token="))
}

/// A drainer that came with the pod. Both products call it the same; the label tells them apart.
fn existing_drainer(pod: &PodView<'_>) -> Option<Diagnostic> {
    let is_manager = |container: &Container<'_>| container.name() == SHUTDOWN_MANAGER;
    pod.long_running_containers()
        .find(|(_, container)| is_manager(container))?;
    if pod.label(MANAGED_BY) == Some("envoy-gateway") {
        let detail = "Envoy Gateway's pods have a drainer of their own, `shutdown-manager`";
        return Some(Code::EnvoyGatewayPod.diagnostic(detail));
    }
    let mut others = pod
        .long_running_containers()
        .filter(|(_, container)| !is_manager(container));
    others.find(|(_, container)| container.pre_stop().is_some())?;
    let detail = "Contour's pods have a drainer of their own, `shutdown-manager`";
    Some(Code::ContourPod.diagnostic(detail))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::admission::token;

    fn skip_code_of(pod: &Value, namespace: Option<&str>) -> Option<Code> {
        let pod = pod.to_string();
        let pod = PodView::decode(&pod).unwrap();
        let facts = PodContext {
            namespace,
            in_job: false,
            token: token(b""),
        };
        skip_reason(&pod, &facts, &Defaults::new("", "drainers")).map(|notice| notice.code)
    }

    /// A pod whose required node affinity has these terms of key, operator and values.
    fn with_node_affinity(terms: &[&[(&str, &str, &[&str])]]) -> Value {
        let expression = |(key, operator, values): &(&str, &str, &[&str])| json!({"key": key, "operator": operator, "values": values});
        let term = |expressions: &&[(&str, &str, &[&str])]| {
            let expressions: Vec<_> = expressions.iter().map(expression).collect();
            json!({"matchExpressions": expressions})
        };
        let terms: Vec<_> = terms.iter().map(term).collect();
        let required = json!({"nodeSelectorTerms": terms});
        let affinity = json!({"requiredDuringSchedulingIgnoredDuringExecution": required});
        json!({"spec": {"affinity": {"nodeAffinity": affinity}}})
    }

    #[test]
    fn a_pod_is_left_alone_for_what_it_is() {
        let ours = ["serve", "--port=9902", "--token=0123456789abcdef"];
        let status = |status: &str| json!({"metadata": {"annotations": {STATUS: status}}});
        let hooked = json!({"name": "envoy", "lifecycle": {"preStop": {}}});
        let manager = json!({"name": "shutdown-manager", "lifecycle": {"preStop": {}}});
        let table = [
            (json!({}), None),
            (
                json!({"spec": {"containers": [{"name": DRAINER_NAME, "args": ours}]}}),
                Some(Code::AlreadyInjected),
            ),
            (
                json!({"spec": {"initContainers": [{"name": DRAINER_NAME, "args": ours}]}}),
                Some(Code::AlreadyInjected),
            ),
            (
                json!({
                    "metadata": {"annotations": {STATUS: "{}"}},
                    "spec": {"containers": [{"name": DRAINER_NAME}]},
                }),
                Some(Code::AlreadyInjected),
            ),
            (
                json!({"spec": {"containers": [{"name": DRAINER_NAME}]}}),
                None,
            ),
            (
                json!({"spec": {"containers": [{"name": DRAINER_NAME, "args": ["serve", "--port=1"]}]}}),
                None,
            ),
            (
                json!({"spec": {"containers": [{"name": "other", "args": ours}]}}),
                None,
            ),
            (
                status(r#"{"version":"0.1.0","sidecar":"native"}"#),
                Some(Code::StatusAlone),
            ),
            (status("by hand"), Some(Code::StatusAlone)),
            (status(r#"{"skipped":"DRN009"}"#), None),
            (
                json!({"spec": {"os": {"name": "windows"}}}),
                Some(Code::WindowsPod),
            ),
            (
                json!({"spec": {"nodeSelector": {"kubernetes.io/os": "windows"}}}),
                Some(Code::WindowsPod),
            ),
            (
                json!({"spec": {"nodeSelector": {"beta.kubernetes.io/os": "windows"}}}),
                Some(Code::WindowsPod),
            ),
            (
                json!({"spec": {"os": {"name": "linux"}, "nodeSelector": {"kubernetes.io/os": "linux"}}}),
                None,
            ),
            (
                with_node_affinity(&[&[("kubernetes.io/os", "In", &["windows"])]]),
                Some(Code::WindowsPod),
            ),
            (
                with_node_affinity(&[
                    &[
                        ("a", "Exists", &[]),
                        ("beta.kubernetes.io/os", "In", &["windows"]),
                    ],
                    &[("kubernetes.io/os", "In", &["windows"])],
                ]),
                Some(Code::WindowsPod),
            ),
            // Another term may hold, or another value.
            (
                with_node_affinity(&[&[("kubernetes.io/os", "In", &["windows"])], &[]]),
                None,
            ),
            (
                with_node_affinity(&[&[("kubernetes.io/os", "In", &["windows", "linux"])]]),
                None,
            ),
            (
                with_node_affinity(&[&[("kubernetes.io/os", "NotIn", &["windows"])]]),
                None,
            ),
            (
                with_node_affinity(&[&[("kubernetes.io/os", "In", &[])]]),
                None,
            ),
            (with_node_affinity(&[]), None),
            (
                json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": ""}}}),
                Some(Code::MirrorPod),
            ),
            (
                json!({"metadata": {"labels": {MANAGED_BY: "envoy-gateway"}}, "spec": {"containers": [manager]}}),
                Some(Code::EnvoyGatewayPod),
            ),
            (
                json!({"metadata": {"labels": {MANAGED_BY: "envoy-gateway"}}, "spec": {"containers": [hooked]}}),
                None,
            ),
            (
                json!({"spec": {"containers": [manager, hooked]}}),
                Some(Code::ContourPod),
            ),
            (
                json!({"spec": {"containers": [manager, {"name": "envoy"}]}}),
                None,
            ),
            (json!({"spec": {"containers": [hooked]}}), None),
        ];
        for (pod, code) in table {
            assert_eq!(skip_code_of(&pod, Some("shop")), code, "{pod}");
        }
    }

    #[test]
    fn a_pod_is_left_alone_for_where_it_is() {
        let table = [
            (Some("kube-system"), None, Some(Code::SystemNamespace)),
            (Some("drainers"), None, Some(Code::ReleaseNamespace)),
            (None, Some("drainers"), Some(Code::ReleaseNamespace)),
            (Some("shop"), Some("kube-system"), None),
            (None, None, None),
        ];
        for (known, in_manifest, code) in table {
            let pod = json!({"metadata": {"namespace": in_manifest}});
            assert_eq!(skip_code_of(&pod, known), code, "{known:?} {in_manifest:?}");
        }
    }
}
