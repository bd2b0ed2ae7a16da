//! Objects of a cluster as arguments: `pod/NAME`, `deploy/NAME`.

use anyhow::anyhow;
use k8s_openapi::api::core::v1::Pod;
use kube::core::GroupVersionKind;
use serde::Deserialize;
use serde_json::Value;

use crate::kubernetes::ClusterReader;
use crate::pod_status::drainer;

/// The kinds with pods: API group, kind, and short name in kubectl. All are of the version `v1`.
const KINDS: [(&str, &str, &str); 8] = [
    ("", "Pod", "po"),
    ("apps", "Deployment", "deploy"),
    ("apps", "StatefulSet", "sts"),
    ("apps", "DaemonSet", "ds"),
    ("apps", "ReplicaSet", "rs"),
    ("", "ReplicationController", "rc"),
    ("batch", "Job", "job"),
    ("batch", "CronJob", "cj"),
];

/// Endings of files, which are no objects even where there is no such file.
const FILE_ENDINGS: [&str; 3] = [".yaml", ".yml", ".json"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ObjectArg {
    kind: GroupVersionKind,
    name: String,
}

#[derive(Debug)]
pub(super) struct ClusterObject {
    /// Such as `deployment/edge`.
    pub(super) name: String,
    /// The object without its status.
    pub(super) value: Value,
    /// The object, if it is a pod, which may run already, unlike those of a template.
    pub(super) pod: Option<Pod>,
}

// === impl ObjectArg ===

impl ObjectArg {
    /// Parses `KIND/NAME`, where KIND is singular, plural or short, perhaps with its API group as kubectl prints it; `None`
    /// for anything else.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (wanted, name) = text.split_once('/')?;
        let is_file = FILE_ENDINGS.iter().any(|ending| name.ends_with(ending));
        if name.is_empty() || name.contains('/') || is_file {
            return None;
        }
        let wanted = wanted.to_lowercase();
        let (wanted, group) = wanted.split_once('.').unwrap_or((&wanted, ""));
        let is_wanted = |(of, kind, short): &&(&str, &str, &str)| {
            let singular = wanted.strip_suffix('s').unwrap_or(wanted);
            let is_name = [wanted, singular].contains(&&*kind.to_lowercase()) || wanted == *short;
            is_name && (group.is_empty() || group == *of)
        };
        let (group, kind, _) = KINDS.iter().find(is_wanted)?;
        Some(Self {
            kind: GroupVersionKind::gvk(group, "v1", kind),
            name: name.to_owned(),
        })
    }

    /// Reads the object.
    ///
    /// # Errors
    /// If there is none, or it cannot be read.
    pub(super) async fn read(
        &self,
        reader: &ClusterReader,
        namespace: &str,
    ) -> anyhow::Result<ClusterObject> {
        let Self { kind, name } = self;
        let object = reader.object(kind, namespace, name).await;
        let object = object.map_err(|error| anyhow!("{}: {error}", reader.server()))?;
        let object = object
            .ok_or_else(|| anyhow!("the namespace `{namespace}` has no {} `{name}`", kind.kind))?;
        let mut value = serde_json::to_value(&object)?;
        let pod = (kind.kind == "Pod")
            .then(|| Pod::deserialize(&value))
            .transpose()?;
        if let Some(object) = value.as_object_mut() {
            object.shift_remove("status");
        }
        if let Some(metadata) = value["metadata"].as_object_mut() {
            metadata.shift_remove("managedFields");
        }
        Ok(ClusterObject {
            name: format!("{}/{name}", kind.kind.to_lowercase()),
            value,
            pod,
        })
    }
}

// === impl ClusterObject ===

impl ClusterObject {
    /// Returns true for a pod with a drainer.
    pub(super) fn has_drainer(&self) -> bool {
        self.pod.as_ref().and_then(drainer).is_some()
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
            ("deployment.batch/a", None),
            ("deploy/a.yaml", None),
            ("deploy/a/b", None),
            ("deploy/", None),
            ("./deploy/a", None),
            ("deploy", None),
            ("service/a", None),
            ("-", None),
        ] {
            let kind = ObjectArg::parse(text).map(|object| object.kind.kind);
            assert_eq!(kind.as_deref(), want, "{text}");
        }
    }
}
