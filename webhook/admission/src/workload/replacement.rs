//! Whether a workload starts the replacement of a pod while that terminates, so that `wait-for-replacement` can end.

use super::view::{RollingUpdate, WorkloadView};

/// Returns why replacements start too late, after the pod has terminated, at least in a rollout; `None` if they start
/// earlier.
pub(super) fn delayed_replacement_reason(
    kind: &str,
    workload: &WorkloadView<'_>,
) -> Option<&'static str> {
    let reason = match kind {
        // Its pods have fixed names, so there is at most one of each.
        "StatefulSet" => "a StatefulSet replaces a pod after it has terminated",
        "DaemonSet" if !has_max_surge(workload.strategy().rolling_update) => {
            "a DaemonSet without `maxSurge` replaces a pod after it has terminated"
        }
        "Deployment" if workload.strategy().kind.as_deref() == Some("Recreate") => {
            "with the strategy `Recreate`, a rollout starts new pods after the old ones have terminated"
        }
        // <https://kubernetes.io/docs/concepts/workloads/controllers/deployment/#pod-replacement-policy>
        "Deployment" if workload.pod_replacement_policy() == Some("TerminationComplete") => {
            "with `podReplacementPolicy: TerminationComplete`, a pod is replaced after it has terminated"
        }
        _ => return None,
    };
    Some(reason)
}

/// Returns true if a rolling update starts pods before it ends others.
fn has_max_surge(rolling_update: Option<RollingUpdate<'_>>) -> bool {
    let max_surge = rolling_update.and_then(|update| update.max_surge);
    max_surge.is_some_and(|max_surge| !matches!(&*max_surge.text(), "0" | "0%"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn replacements_are_late_by_kind_and_strategy() {
        let surge = |value| json!({"updateStrategy": {"rollingUpdate": {"maxSurge": value}}});
        let table = [
            ("Deployment", json!({}), None),
            (
                "Deployment",
                json!({"strategy": {"type": "RollingUpdate"}}),
                None,
            ),
            (
                "Deployment",
                json!({"strategy": {"type": "Recreate"}}),
                Some("`Recreate`, a rollout starts"),
            ),
            (
                "Deployment",
                json!({"podReplacementPolicy": "TerminationStarted"}),
                None,
            ),
            (
                "Deployment",
                json!({"podReplacementPolicy": "TerminationComplete"}),
                Some("`podReplacementPolicy: TerminationComplete`"),
            ),
            (
                "Deployment",
                json!({"strategy": 7, "podReplacementPolicy": null}),
                None,
            ),
            ("StatefulSet", json!({}), Some("StatefulSet")),
            ("DaemonSet", json!({}), Some("`maxSurge`")),
            ("DaemonSet", surge(json!(0)), Some("`maxSurge`")),
            ("DaemonSet", surge(json!("0%")), Some("`maxSurge`")),
            ("DaemonSet", surge(json!(1)), None),
            ("DaemonSet", surge(json!("10%")), None),
            ("ReplicaSet", json!({}), None),
            ("Job", json!({"podReplacementPolicy": "Failed"}), None),
        ];
        for (kind, spec, want) in table {
            let object = json!({"kind": kind, "spec": spec}).to_string();
            let view = serde_json::from_str(&object).unwrap();
            let reason = delayed_replacement_reason(kind, &view);
            match (&reason, want) {
                (Some(reason), Some(want)) => assert!(reason.contains(want), "{reason}"),
                _ => assert_eq!(reason, want, "{object}"),
            }
        }
    }
}
