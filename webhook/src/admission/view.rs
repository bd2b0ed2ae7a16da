//! A pod's fields that decide, borrowed from the bytes of its manifest.
//!
//! Whatever is not listed here is skipped unread and therefore never lost. `null` and missing are
//! alike, as they are to the API server.

mod object;
mod text;
mod unread;

use std::path::Path;

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::annotations;
use super::envoy::{List, Place};
use object::from_objects;

pub(super) use text::{Entries, Scalar, Text};
pub use unread::Unread;

/// A pod, or the template of one.
#[derive(Debug, Default, Deserialize)]
#[serde(remote = "Self")]
pub struct PodView<'a> {
    #[serde(borrow)]
    pub(super) metadata: Option<Metadata<'a>>,
    #[serde(borrow, default, deserialize_with = "or_default")]
    pub(super) spec: Spec<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(remote = "Self", rename_all = "camelCase")]
pub(super) struct Metadata<'a> {
    #[serde(borrow)]
    pub name: Option<Text<'a>>,
    #[serde(borrow)]
    pub generate_name: Option<Text<'a>>,
    #[serde(borrow)]
    pub namespace: Option<Text<'a>>,
    #[serde(borrow)]
    pub annotations: Option<Entries<'a>>,
    #[serde(borrow)]
    pub labels: Option<Entries<'a>>,
    #[serde(borrow)]
    pub owner_references: Option<Vec<OwnerReference<'a>>>,
}

#[derive(Debug, Deserialize)]
#[serde(remote = "Self", rename_all = "camelCase")]
pub(super) struct OwnerReference<'a> {
    #[serde(borrow)]
    pub api_version: Option<Text<'a>>,
    #[serde(borrow)]
    pub kind: Option<Text<'a>>,
    #[serde(borrow)]
    pub name: Option<Text<'a>>,
    #[serde(borrow)]
    pub uid: Option<Text<'a>>,
    pub controller: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(remote = "Self", rename_all = "camelCase")]
pub(super) struct Spec<'a> {
    #[serde(borrow)]
    pub containers: Option<Vec<Container<'a>>>,
    #[serde(borrow)]
    pub init_containers: Option<Vec<Container<'a>>>,
    #[serde(borrow)]
    pub volumes: Option<Vec<Named<'a>>>,
    pub termination_grace_period_seconds: Option<i64>,
    pub host_network: Option<bool>,
    #[serde(borrow)]
    pub node_selector: Option<Entries<'a>>,
    #[serde(borrow)]
    pub os: Option<Named<'a>>,
    pub security_context: Option<SecurityContext>,
    #[serde(borrow)]
    pub resources: Option<Resources<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(remote = "Self", rename_all = "camelCase")]
pub(super) struct Container<'a> {
    #[serde(borrow)]
    pub name: Option<Text<'a>>,
    #[serde(borrow)]
    pub image: Option<Text<'a>>,
    #[serde(borrow)]
    pub command: Option<Vec<Text<'a>>>,
    #[serde(borrow)]
    pub args: Option<Vec<Text<'a>>>,
    /// Read only where the arguments refer to it: it may be long.
    #[serde(borrow)]
    pub env: Option<&'a RawValue>,
    #[serde(borrow)]
    pub ports: Option<Vec<Port<'a>>>,
    #[serde(borrow)]
    pub restart_policy: Option<Text<'a>>,
    #[serde(borrow)]
    pub lifecycle: Option<Lifecycle<'a>>,
    #[serde(borrow)]
    pub readiness_probe: Option<Probe<'a>>,
    #[serde(borrow)]
    pub volume_mounts: Option<Vec<VolumeMount<'a>>>,
    pub security_context: Option<SecurityContext>,
    #[serde(borrow)]
    pub resources: Option<Resources<'a>>,
}

#[derive(Debug, Deserialize)]
#[serde(remote = "Self")]
pub(super) struct Named<'a> {
    #[serde(borrow)]
    pub name: Option<Text<'a>>,
}

#[derive(Debug, Deserialize)]
#[serde(remote = "Self", rename_all = "camelCase")]
pub(super) struct Port<'a> {
    #[serde(borrow)]
    pub name: Option<Text<'a>>,
    pub container_port: Option<u16>,
    #[serde(borrow)]
    pub protocol: Option<Text<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(remote = "Self", rename_all = "camelCase")]
pub(super) struct Lifecycle<'a> {
    #[serde(borrow)]
    pub pre_stop: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
#[serde(remote = "Self", rename_all = "camelCase")]
pub(super) struct Probe<'a> {
    #[serde(borrow)]
    pub http_get: Option<ProbeAction<'a>>,
    #[serde(borrow)]
    pub tcp_socket: Option<ProbeAction<'a>>,
    #[serde(borrow)]
    pub grpc: Option<ProbeAction<'a>>,
    pub period_seconds: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(remote = "Self")]
pub(super) struct ProbeAction<'a> {
    #[serde(borrow)]
    pub port: Option<Scalar<'a>>,
}

#[derive(Debug, Deserialize)]
#[serde(remote = "Self", rename_all = "camelCase")]
pub(super) struct VolumeMount<'a> {
    #[serde(borrow)]
    pub name: Option<Text<'a>>,
    #[serde(borrow)]
    pub mount_path: Option<Text<'a>>,
    #[serde(borrow)]
    pub sub_path: Option<Text<'a>>,
    #[serde(borrow)]
    pub sub_path_expr: Option<Text<'a>>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(remote = "Self", rename_all = "camelCase")]
pub(super) struct SecurityContext {
    pub run_as_user: Option<i64>,
    pub run_as_group: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(remote = "Self")]
pub(super) struct Resources<'a> {
    #[serde(borrow)]
    pub requests: Option<Amounts<'a>>,
    #[serde(borrow)]
    pub limits: Option<Amounts<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(remote = "Self")]
pub(super) struct Amounts<'a> {
    #[serde(borrow)]
    pub cpu: Option<Scalar<'a>>,
    #[serde(borrow)]
    pub memory: Option<Scalar<'a>>,
    #[serde(borrow, rename = "ephemeral-storage")]
    pub ephemeral_storage: Option<Scalar<'a>>,
}

from_objects! {
    PodView<'a>,
    Metadata<'a>,
    OwnerReference<'a>,
    Spec<'a>,
    Container<'a>,
    Named<'a>,
    Port<'a>,
    Lifecycle<'a>,
    Probe<'a>,
    ProbeAction<'a>,
    VolumeMount<'a>,
    SecurityContext,
    Resources<'a>,
    Amounts<'a>,
}

/// Reads `null` like a missing field.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

// === impl PodView ===

impl<'a> PodView<'a> {
    /// Reads a pod, or the template of one, from JSON.
    ///
    /// # Errors
    /// If a field that decides is not of its type.
    pub fn decode(json: &'a str) -> Result<Self, Unread> {
        serde_json::from_str(json).map_err(|error| Unread::find(json, &error))
    }

    /// Reads the metadata alone of what is no pod; nothing if that is to blame.
    pub(super) fn metadata_of(json: &'a str) -> Self {
        #[derive(Deserialize)]
        struct Object<'a> {
            #[serde(borrow)]
            metadata: Option<Metadata<'a>>,
        }
        let metadata = serde_json::from_str(json).map(|object: Object<'a>| object.metadata);
        Self {
            metadata: metadata.unwrap_or_default(),
            ..Self::default()
        }
    }

    /// The value of one of the annotations that decide.
    pub(super) fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.as_ref()?.annotations.as_ref()?.get(key)
    }

    /// The annotations that decide.
    pub(super) fn annotations(&self) -> impl Iterator<Item = (&str, &str)> {
        let annotations = self.metadata.iter().filter_map(|m| m.annotations.as_ref());
        annotations.flat_map(Entries::iter)
    }

    /// The value of one of the labels that decide.
    pub(super) fn label(&self, key: &str) -> Option<&str> {
        self.metadata.as_ref()?.labels.as_ref()?.get(key)
    }

    pub(super) fn namespace(&self) -> Option<&str> {
        self.metadata.as_ref()?.namespace.as_deref()
    }

    /// The pod's name, or what the API server will begin it with.
    pub(super) fn name(&self) -> Option<&str> {
        let metadata = self.metadata.as_ref()?;
        let name = metadata.name.as_deref().filter(|name| !name.is_empty());
        name.or(metadata.generate_name.as_deref())
    }

    pub(super) fn is_of_a_job(&self) -> bool {
        self.owners().any(|owner| {
            let group = owner.api_version.as_deref().unwrap_or_default();
            owner.kind.as_deref() == Some("Job") && group.starts_with("batch/")
        })
    }

    /// The one owner that made the pod and watches over it.
    pub(super) fn controller(&self) -> Option<&OwnerReference<'a>> {
        self.owners().find(|owner| owner.controller == Some(true))
    }

    fn owners(&self) -> impl Iterator<Item = &OwnerReference<'a>> {
        let owners = self.metadata.iter().flat_map(|m| &m.owner_references);
        owners.flatten()
    }

    pub(super) fn is_for_windows(&self) -> bool {
        let named = self.spec.os.as_ref().and_then(|os| os.name.as_deref());
        let selected = self
            .spec
            .node_selector
            .as_ref()
            .and_then(|selector| selector.get(annotations::OS));
        [named, selected].contains(&Some("windows"))
    }

    /// The container at a place that [`Self::staying`] gave.
    pub(super) fn container(&self, place: Place) -> Option<&Container<'a>> {
        self.list(place.list).get(place.index)
    }

    /// Every container of the pod, those that only run before the others among them.
    pub(super) fn all_containers(&self) -> impl Iterator<Item = &Container<'a>> {
        [List::InitContainers, List::Containers]
            .into_iter()
            .flat_map(|list| self.list(list))
    }

    /// The containers that live as long as the pod, with their places.
    pub(super) fn staying(&self) -> impl Iterator<Item = (Place, &Container<'a>)> {
        [List::Containers, List::InitContainers]
            .into_iter()
            .flat_map(|list| {
                let placed = self.list(list).iter().enumerate();
                placed
                    .filter(move |(_, c)| {
                        list == List::Containers || c.restart_policy.as_deref() == Some("Always")
                    })
                    .map(move |(index, c)| (Place { list, index }, c))
            })
    }

    fn list(&self, list: List) -> &[Container<'a>] {
        let containers = match list {
            List::Containers => &self.spec.containers,
            List::InitContainers => &self.spec.init_containers,
        };
        containers.as_deref().unwrap_or_default()
    }
}

// === impl Container ===

impl Container<'_> {
    pub(super) fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    /// The number of a port that the container declares by name.
    pub(super) fn port_named(&self, name: &str) -> Option<u16> {
        let mut ports = self.ports.iter().flatten();
        ports
            .find(|port| port.name.as_deref() == Some(name))?
            .container_port
    }

    pub(super) fn declares_tcp(&self, number: u16) -> bool {
        let is_tcp = |port: &Port<'_>| matches!(port.protocol.as_deref(), None | Some("" | "TCP"));
        let mut ports = self.ports.iter().flatten();
        ports.any(|port| port.container_port == Some(number) && is_tcp(port))
    }

    pub(super) fn pre_stop(&self) -> Option<&RawValue> {
        self.lifecycle.as_ref()?.pre_stop
    }
}

// === impl VolumeMount ===

impl VolumeMount<'_> {
    /// Where the volume is mounted.
    pub(super) fn path(&self) -> Option<&Path> {
        let path = self.mount_path.as_deref().filter(|path| !path.is_empty());
        path.map(Path::new)
    }
}

// === impl Resources ===

impl Resources<'_> {
    /// True if CPU or memory is requested or limited.
    pub(super) fn is_set(&self) -> bool {
        let mut lists = [&self.requests, &self.limits].into_iter().flatten();
        lists.any(|amounts| amounts.cpu.is_some() || amounts.memory.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_is_as_good_as_missing() {
        let text = r#"{"metadata": null, "spec": null}"#;
        for text in [
            "{}",
            text,
            r#"{"metadata": {"annotations": null, "ownerReferences": null}}"#,
        ] {
            let pod = PodView::decode(text).unwrap();
            assert_eq!(
                (pod.name(), pod.annotation("a"), pod.is_of_a_job()),
                (None, None, false),
                "{text}"
            );
            assert_eq!(pod.all_containers().count(), 0);
        }
    }

    #[test]
    fn a_list_is_no_object() {
        let spec = |container: &str| format!(r#"{{"spec": {{"containers": [{container}]}}}}"#);
        for text in [
            r#"[{}, {}]"#,
            r#"{"metadata": [null, null, null, null, null, null]}"#,
            &spec(r#"{"lifecycle": [null]}"#),
            &spec(r#"{"resources": [null, null]}"#),
            &spec(r#"{"readinessProbe": {"httpGet": ["8080"]}}"#),
        ] {
            assert!(PodView::decode(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_job_is_known_by_kind_and_group() {
        for (owners, of_a_job) in [
            (r#"[{"apiVersion": "batch/v1", "kind": "Job"}]"#, true),
            (
                r#"[{"apiVersion": "apps/v1", "kind": "ReplicaSet"}, {"apiVersion": "batch/v1", "kind": "Job"}]"#,
                true,
            ),
            (
                r#"[{"apiVersion": "example.com/v1", "kind": "Job"}]"#,
                false,
            ),
            ("[{}]", false),
        ] {
            let pod = format!(r#"{{"metadata": {{"ownerReferences": {owners}}}}}"#);
            assert_eq!(
                PodView::decode(&pod).unwrap().is_of_a_job(),
                of_a_job,
                "{owners}"
            );
        }
    }
}
