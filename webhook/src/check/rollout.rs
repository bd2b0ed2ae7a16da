//! Whether a Deployment is on its way from one version to the next, and whether it gets on.

use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition};

/// How far a Deployment has come with its newest version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rollout {
    /// All replicas are of that version.
    Complete,
    /// Some are not, or not only those.
    Progressing,
    /// The same, for longer than it may be (`progressDeadlineSeconds`).
    DeadlineExceeded,
}

// === impl Rollout ===

impl Rollout {
    /// Reads a Deployment as `kubectl rollout status` does.
    /// <https://github.com/kubernetes/kubectl/blob/master/pkg/polymorphichelpers/rollout_status.go>
    #[must_use]
    pub fn of(deployment: &Deployment) -> Self {
        let spec = deployment.spec.as_ref();
        let wanted = spec.and_then(|spec| spec.replicas).unwrap_or(1);
        let Some(status) = &deployment.status else {
            return Self::Complete;
        };
        let updated = status.updated_replicas.unwrap_or(0);
        let all = status.replicas.unwrap_or(0);
        let is_late = |condition: &DeploymentCondition| {
            condition.type_ == "Progressing"
                && condition.reason.as_deref() == Some("ProgressDeadlineExceeded")
        };
        if updated >= wanted && updated >= all {
            Self::Complete
        } else if status.conditions.iter().flatten().any(is_late) {
            Self::DeadlineExceeded
        } else {
            Self::Progressing
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_rollout_is_done_when_all_replicas_are_of_the_newest_version() {
        let late = json!([{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}]);
        let table = [
            (
                json!({"replicas": 2, "updatedReplicas": 2}),
                Rollout::Complete,
            ),
            (
                json!({"replicas": 2, "updatedReplicas": 1}),
                Rollout::Progressing,
            ),
            // A field that is 0 is left out.
            (json!({"replicas": 2}), Rollout::Progressing),
            // All of the newest are there, and so is one that they are to replace.
            (
                json!({"replicas": 3, "updatedReplicas": 2}),
                Rollout::Progressing,
            ),
            (
                json!({"replicas": 3, "updatedReplicas": 1, "conditions": late}),
                Rollout::DeadlineExceeded,
            ),
            (
                json!({"replicas": 2, "updatedReplicas": 2, "conditions": late}),
                Rollout::Complete,
            ),
        ];
        for (status, want) in table {
            let spec = json!({"replicas": 2, "selector": {}, "template": {}});
            let deployment = json!({"spec": spec, "status": status});
            let deployment = serde_json::from_value(deployment).unwrap();
            assert_eq!(Rollout::of(&deployment), want, "{status}");
        }
        assert_eq!(Rollout::of(&Deployment::default()), Rollout::Complete);
    }
}
