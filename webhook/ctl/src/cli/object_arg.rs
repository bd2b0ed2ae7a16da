//! Objects of a cluster in arguments: `KIND/NAME`, as kubectl takes and prints them.

use std::fmt;

use anyhow::bail;
use kube::core::GroupVersionKind;

use crate::restart::ARGO;

/// The kinds with pods, and a Gateway, which stands for its workloads: API group, version, kind, and short name in
/// kubectl.
const KINDS: [(&str, &str, &str, &str); 10] = [
    ("", "v1", "Pod", "po"),
    ("apps", "v1", "Deployment", "deploy"),
    ("apps", "v1", "StatefulSet", "sts"),
    ("apps", "v1", "DaemonSet", "ds"),
    ("apps", "v1", "ReplicaSet", "rs"),
    ("", "v1", "ReplicationController", "rc"),
    ("batch", "v1", "Job", "job"),
    ("batch", "v1", "CronJob", "cj"),
    (ARGO, "v1alpha1", "Rollout", "ro"),
    ("gateway.networking.k8s.io", "v1", GATEWAY, "gtw"),
];

/// Endings of files, which are no objects even where there is no such file.
const FILE_ENDINGS: [&str; 3] = [".yaml", ".yml", ".json"];

/// The kind that stands for its workloads.
pub(super) const GATEWAY: &str = "Gateway";

/// An object as an argument names it; displayed as `Deployment edge`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectArg {
    pub kind: GroupVersionKind,
    pub name: String,
}

// === impl ObjectArg ===

impl ObjectArg {
    /// Parses `KIND/NAME`, where KIND is singular, plural or short, perhaps with its API group as kubectl prints it, or
    /// the `KIND.VERSION.GROUP` of a custom resource; `None` for anything else.
    ///
    /// # Errors
    /// If the kind is unknown.
    pub fn parse(text: &str) -> Option<anyhow::Result<Self>> {
        let (wanted, name) = text.split_once('/')?;
        let is_file = FILE_ENDINGS.iter().any(|ending| name.ends_with(ending));
        let is_kind = wanted.starts_with(|first: char| first.is_ascii_alphabetic());
        if !is_kind || name.is_empty() || name.contains('/') || is_file {
            return None;
        }
        Some(Self::of_kind(wanted, name))
    }

    fn of_kind(written: &str, name: &str) -> anyhow::Result<Self> {
        let wanted = written.to_lowercase();
        let (wanted, group) = wanted.split_once('.').unwrap_or((&wanted, ""));
        let is_wanted = |(of, _, kind, short): &&(&str, &str, &str, &str)| {
            let singular = wanted.strip_suffix('s').unwrap_or(wanted);
            let is_name = [wanted, singular].contains(&&*kind.to_lowercase()) || wanted == *short;
            is_name && (group.is_empty() || group == *of)
        };
        let known = KINDS.iter().find(is_wanted);
        let known = known.map(|(group, v, kind, _)| GroupVersionKind::gvk(group, v, kind));
        let Some(kind) = known.or_else(|| custom_resource(written)) else {
            let kinds = KINDS.map(|(_, _, kind, _)| kind.to_lowercase()).join(", ");
            bail!(
                "cannot read {written}/{name}: there is no such file, and the kind is none of {kinds}"
            );
        };
        let name = name.to_owned();
        Ok(Self { kind, name })
    }
}

impl fmt::Display for ObjectArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.kind, self.name)
    }
}

/// A custom resource such as `clonesets.v1alpha1.apps.kruise.io`.
fn custom_resource(written: &str) -> Option<GroupVersionKind> {
    let (kind, rest) = written.split_once('.')?;
    let (version, group) = rest.split_once('.')?;
    let is_version = version.starts_with('v') && version.ends_with(|it: char| it.is_ascii_digit());
    let kind = kind.strip_suffix('s').unwrap_or(kind);
    (is_version && group.contains('.')).then(|| GroupVersionKind::gvk(group, version, kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_named_as_in_kubectl() {
        for (text, want) in [
            ("pod/a", Some("Pod")),
            ("po/a", Some("Pod")),
            ("pods/a", Some("Pod")),
            ("deploy/a.b", Some("Deployment")),
            ("deployment/a", Some("Deployment")),
            ("deployments/a", Some("Deployment")),
            ("sts/a", Some("StatefulSet")),
            ("statefulset/a", Some("StatefulSet")),
            ("daemonset/a", Some("DaemonSet")),
            ("cronjob/a", Some("CronJob")),
            ("job/a", Some("Job")),
            ("Deployment/a", Some("Deployment")),
            ("deployment.apps/a", Some("Deployment")),
            ("rollout/a", Some("Rollout")),
            ("ro/a", Some("Rollout")),
            ("rollouts.argoproj.io/a", Some("Rollout")),
            ("clonesets.v1alpha1.apps.kruise.io/a", Some("cloneset")),
            ("clonesets.v1alpha1.apps.kruise.io/a.yaml", None),
            ("deploy/a.yaml", None),
            ("deploy/a/b", None),
            ("deploy/", None),
            ("./deploy/a", None),
            ("deploy", None),
            ("-", None),
        ] {
            let kind = ObjectArg::parse(text).map(|object| object.unwrap().kind.kind);
            assert_eq!(kind.as_deref(), want, "{text}");
        }
        for text in [
            "service/a",
            "deployment.batch/a",
            "cloneset/a",
            "cloneset.apps.kruise.io/a",
        ] {
            let error = ObjectArg::parse(text).unwrap().unwrap_err().to_string();
            let start = format!(
                "cannot read {text}: there is no such file, and the kind is none of pod, deployment,"
            );
            assert!(error.starts_with(&start), "{error}");
        }
    }
}
