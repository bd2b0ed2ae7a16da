//! Objects of a cluster in arguments: `KIND/NAME`, as kubectl takes and prints them.

use anyhow::bail;
use kube::core::GroupVersionKind;

/// The kinds with pods, and a Gateway, which stands for its workloads: API group, kind, and short name in kubectl. All
/// are of the version `v1`.
const KINDS: [(&str, &str, &str); 9] = [
    ("", "Pod", "po"),
    ("apps", "Deployment", "deploy"),
    ("apps", "StatefulSet", "sts"),
    ("apps", "DaemonSet", "ds"),
    ("apps", "ReplicaSet", "rs"),
    ("", "ReplicationController", "rc"),
    ("batch", "Job", "job"),
    ("batch", "CronJob", "cj"),
    ("gateway.networking.k8s.io", GATEWAY, "gtw"),
];

/// Endings of files, which are no objects even where there is no such file.
const FILE_ENDINGS: [&str; 3] = [".yaml", ".yml", ".json"];

/// The kind that stands for its workloads.
pub(super) const GATEWAY: &str = "Gateway";

/// An object as an argument names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectArg {
    pub kind: GroupVersionKind,
    pub name: String,
}

// === impl ObjectArg ===

impl ObjectArg {
    /// Parses `KIND/NAME`, where KIND is singular, plural or short, perhaps with its API group as kubectl prints it;
    /// `None` for anything else.
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
        let is_wanted = |(of, kind, short): &&(&str, &str, &str)| {
            let singular = wanted.strip_suffix('s').unwrap_or(wanted);
            let is_name = [wanted, singular].contains(&&*kind.to_lowercase()) || wanted == *short;
            is_name && (group.is_empty() || group == *of)
        };
        let Some((group, kind, _)) = KINDS.iter().find(is_wanted) else {
            let kinds = KINDS.map(|(_, kind, _)| kind.to_lowercase()).join(", ");
            bail!(
                "cannot read {written}/{name}: there is no such file, and the kind is none of {kinds}"
            );
        };
        Ok(Self {
            kind: GroupVersionKind::gvk(group, "v1", kind),
            name: name.to_owned(),
        })
    }
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
        for text in ["service/a", "deployment.batch/a", "rollout/a"] {
            let error = ObjectArg::parse(text).unwrap().unwrap_err().to_string();
            let start = format!(
                "cannot read {text}: there is no such file, and the kind is none of pod, deployment,"
            );
            assert!(error.starts_with(&start), "{error}");
        }
    }
}
