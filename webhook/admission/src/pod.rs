//! The fields of a pod on which the decision depends, borrowed from the bytes of its manifest.
//!
//! All other fields are skipped unread, so none is lost. `null` means missing, as it does to the API server.
//! The bound `'de: 'a` of the structs lets all of their fields borrow.

mod hook;
mod value;

use std::collections::BTreeSet;
use std::path::Path;

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use self::value::{bounded_text, bounded_texts, object};
use super::decode::{DecodeError, bounded_list, decode};
use super::excerpt::{excerpt, list};
use super::names::{self, MAX_NAME_LEN, is_dns_label};

pub use self::hook::{DRAIN_PATHS, Hook, HookRequest};
pub(super) use self::value::{Entries, Scalar, Text};

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(bound = "'de: 'a")]
pub struct PodView<'a> {
    pub(super) metadata: Option<ObjectMeta<'a>>,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) spec: PodSpec<'a>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", bound = "'de: 'a")]
pub(super) struct ObjectMeta<'a> {
    pub name: Option<Text<'a>>,
    pub generate_name: Option<Text<'a>>,
    pub namespace: Option<Text<'a>>,
    pub annotations: Option<Entries<'a>>,
    pub labels: Option<Entries<'a>>,
    #[serde(default, deserialize_with = "bounded_list")]
    pub owner_references: Option<Vec<OwnerReference<'a>>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", bound = "'de: 'a")]
pub(super) struct OwnerReference<'a> {
    pub api_version: Option<Text<'a>>,
    pub kind: Option<Text<'a>>,
    pub name: Option<Text<'a>>,
    pub uid: Option<Text<'a>>,
    pub controller: Option<bool>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", bound = "'de: 'a")]
pub(super) struct PodSpec<'a> {
    #[serde(default, deserialize_with = "bounded_list")]
    pub containers: Option<Vec<Container<'a>>>,
    #[serde(default, deserialize_with = "bounded_list")]
    pub init_containers: Option<Vec<Container<'a>>>,
    #[serde(default, deserialize_with = "bounded_list")]
    pub volumes: Option<Vec<Volume<'a>>>,
    pub termination_grace_period_seconds: Option<i64>,
    pub restart_policy: Option<Text<'a>>,
    pub host_network: Option<bool>,
    pub automount_service_account_token: Option<bool>,
    pub node_selector: Option<Entries<'a>>,
    pub os: Option<NameOnly<'a>>,
    pub security_context: Option<SecurityContext<'a>>,
    pub resources: Option<Resources<'a>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", bound = "'de: 'a")]
pub struct Container<'a> {
    #[serde(default, deserialize_with = "bounded_text::<_, MAX_NAME_LEN>")]
    pub(super) name: Option<Text<'a>>,
    pub(super) image: Option<Text<'a>>,
    #[serde(default, deserialize_with = "bounded_texts")]
    pub(super) command: Option<Vec<Text<'a>>>,
    #[serde(default, deserialize_with = "bounded_texts")]
    pub(super) args: Option<Vec<Text<'a>>>,
    #[serde(default, deserialize_with = "bounded_list")]
    pub(super) ports: Option<Vec<ContainerPort<'a>>>,
    pub(super) restart_policy: Option<Text<'a>>,
    pub(super) restart_policy_rules: Option<IgnoredAny>,
    #[serde(default, deserialize_with = "object")]
    pub(super) lifecycle: Option<Lifecycle<'a>>,
    pub(super) readiness_probe: Option<Probe<'a>>,
    pub(super) liveness_probe: Option<&'a RawValue>,
    pub(super) startup_probe: Option<&'a RawValue>,
    #[serde(default, deserialize_with = "bounded_list")]
    pub(super) volume_mounts: Option<Vec<VolumeMount<'a>>>,
    pub(super) security_context: Option<SecurityContext<'a>>,
    pub(super) resources: Option<Resources<'a>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(bound = "'de: 'a")]
pub(super) struct NameOnly<'a> {
    pub name: Option<Text<'a>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", bound = "'de: 'a")]
pub(super) struct ContainerPort<'a> {
    pub name: Option<Text<'a>>,
    pub container_port: Option<u16>,
    pub protocol: Option<Text<'a>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", bound = "'de: 'a")]
pub(super) struct Lifecycle<'a> {
    pub pre_stop: Option<&'a RawValue>,
    pub post_start: Option<IgnoredAny>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", bound = "'de: 'a")]
pub(super) struct Probe<'a> {
    pub http_get: Option<ProbeAction<'a>>,
    pub tcp_socket: Option<ProbeAction<'a>>,
    pub grpc: Option<ProbeAction<'a>>,
    pub period_seconds: Option<u32>,
    pub failure_threshold: Option<u32>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(bound = "'de: 'a")]
pub(super) struct ProbeAction<'a> {
    pub port: Option<Scalar<'a>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", bound = "'de: 'a")]
pub(super) struct Volume<'a> {
    pub name: Option<Text<'a>>,
    pub empty_dir: Option<IgnoredAny>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", bound = "'de: 'a")]
pub(super) struct VolumeMount<'a> {
    #[serde(default, deserialize_with = "bounded_text::<_, MAX_NAME_LEN>")]
    pub name: Option<Text<'a>>,
    #[serde(default, deserialize_with = "bounded_text::<_, MAX_PATH_LEN>")]
    pub mount_path: Option<Text<'a>>,
    #[serde(default, deserialize_with = "bounded_text::<_, MAX_PATH_LEN>")]
    pub sub_path: Option<Text<'a>>,
    pub sub_path_expr: Option<Text<'a>>,
    pub read_only: Option<bool>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase", bound = "'de: 'a")]
pub(super) struct SecurityContext<'a> {
    pub run_as_user: Option<i64>,
    pub run_as_group: Option<i64>,
    pub capabilities: Option<&'a RawValue>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(bound = "'de: 'a")]
pub(super) struct Resources<'a> {
    pub requests: Option<ResourceList<'a>>,
    pub limits: Option<ResourceList<'a>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(bound = "'de: 'a")]
pub(super) struct ResourceList<'a> {
    pub cpu: Option<Scalar<'a>>,
    pub memory: Option<Scalar<'a>>,
    #[serde(rename = "ephemeral-storage")]
    pub ephemeral_storage: Option<Scalar<'a>>,
}

/// Reference to a container of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContainerRef {
    pub list: ContainerList,
    pub index: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContainerList {
    Containers,
    /// `spec.initContainers`, of which those with `restartPolicy: Always` run as long as the pod.
    InitContainers,
}

/// Maximum length of a mount's path, in bytes: Linux' `PATH_MAX`. A patch repeats it.
const MAX_PATH_LEN: usize = 4096;

/// Maximum length of a text of the pod in a message, in bytes.
pub(super) const MAX_MESSAGE_TEXT_LEN: usize = 64;

/// Maximum number of names in a message.
const MAX_LISTED_NAMES: usize = 16;

/// Maximum length of a hook that is read, in bytes, which bounds what it becomes in memory.
const MAX_HOOK_LEN: usize = 4096;

/// Kubernetes' default grace period, in seconds.
pub const DEFAULT_GRACE_PERIOD: i64 = 30;

/// Windows in the labels [`names::OS`] and in a pod's `os`.
const WINDOWS: &str = "windows";

/// Deserializes `null` like a missing field.
pub(super) fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Returns the last segment of an image's path, and its tag, or nothing.
pub(super) fn image_name(image: &str) -> (&str, &str) {
    let name = image.rsplit('/').next().unwrap_or_default();
    let name = name.split('@').next().unwrap_or_default();
    name.split_once(':').unwrap_or((name, ""))
}

// === impl PodView ===

impl<'a> PodView<'a> {
    /// Decodes a pod, or a pod template, from JSON.
    ///
    /// # Errors
    /// If a relevant field has another type or exceeds its limit.
    pub fn decode(json: &'a str) -> Result<Self, DecodeError> {
        decode(json)
    }

    /// Decodes only the metadata of a pod, or of a pod template; none if it cannot be decoded.
    pub(super) fn decode_metadata(json: &'a str) -> Self {
        #[derive(Deserialize)]
        struct MetadataOnly<'a> {
            #[serde(borrow)]
            metadata: Option<&'a RawValue>,
        }
        // The error of a long string in place of an object would repeat it.
        let is_object = json.starts_with('{');
        let pod = is_object.then(|| serde_json::from_str(json).ok());
        let metadata = pod.flatten().and_then(|pod: MetadataOnly<'a>| pod.metadata);
        Self {
            metadata: metadata.and_then(|metadata| decode(metadata.get()).ok()),
            ..Self::default()
        }
    }

    pub(super) fn annotations(&self) -> Option<&Entries<'a>> {
        self.metadata.as_ref()?.annotations.as_ref()
    }

    /// Returns the value of a relevant annotation.
    pub(super) fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations()?.get(key)
    }

    pub(super) fn labels(&self) -> Option<&Entries<'a>> {
        self.metadata.as_ref()?.labels.as_ref()
    }

    /// Returns true if an annotation or a label configures the sidecar of a service mesh.
    pub(super) fn is_in_mesh(&self) -> bool {
        let mut entries = [self.annotations(), self.labels()].into_iter().flatten();
        entries.any(|entries| entries.iter().any(|(key, _)| names::is_of_mesh(key)))
    }

    pub(super) fn namespace(&self) -> Option<&str> {
        self.metadata.as_ref()?.namespace.as_deref()
    }

    /// Returns the pod's name, or else its `generateName`.
    pub(super) fn name(&self) -> Option<&str> {
        self.metadata.as_ref()?.name()
    }

    /// Returns true if an owner is of this kind of a group, which is given with its slash.
    pub(super) fn is_owned_by(&self, group: &str, kind: &str) -> bool {
        let owners = self.metadata.iter().flat_map(|it| &it.owner_references);
        owners.flatten().any(|owner| owner.is_a(group, kind))
    }

    /// Returns true if the pod runs on Windows by its `os` or its node selector. A RuntimeClass or an affinity may
    /// select such nodes too, but there are no Envoys for them since 2023.
    /// <https://www.envoyproxy.io/docs/envoy/latest/faq/windows/win_not_supported_features>
    pub(super) fn is_for_windows(&self) -> bool {
        let os = self.spec.os.as_ref().and_then(|os| os.name.as_deref());
        let selected = |key| self.spec.node_selector.as_ref()?.get(key);
        os == Some(WINDOWS) || names::OS.map(selected).contains(&Some(WINDOWS))
    }

    /// Returns true if the pod runs to completion, by its `restartPolicy`: pods of other owners than a Job may, too.
    pub(super) fn runs_to_completion(&self) -> bool {
        let policy = self.spec.restart_policy.as_deref();
        matches!(policy, Some("Never" | "OnFailure"))
    }

    pub(super) fn has_readiness_probe(&self) -> bool {
        let mut containers = self.long_running_containers();
        containers.any(|(_, container)| container.readiness_probe.is_some())
    }

    /// Returns why an API server rejects the pod for the name of a container.
    pub fn invalid_name(&self) -> Option<String> {
        let mut names = BTreeSet::new();
        self.all_containers().find_map(|container| {
            let name = container.name();
            match name {
                "" => Some(format!(
                    "a container has no name; its image is `{}`",
                    container.image()
                )),
                _ if !is_dns_label(name) => {
                    Some(format!("the container name `{name}` is no DNS label"))
                }
                _ if !names.insert(name) => Some(format!("two containers are named `{name}`")),
                _ => None,
            }
        })
    }

    /// Returns `terminationGracePeriodSeconds`, or Kubernetes' default.
    pub fn grace_period(&self) -> i64 {
        let seconds = self.spec.termination_grace_period_seconds;
        seconds.unwrap_or(DEFAULT_GRACE_PERIOD)
    }

    /// Returns true if the pod uses its node's network.
    pub fn uses_host_network(&self) -> bool {
        self.spec.host_network == Some(true)
    }

    /// Returns the container of a reference from [`Self::long_running_containers`].
    pub(super) fn container(&self, container_ref: ContainerRef) -> Option<&Container<'a>> {
        let ContainerRef { list, index } = container_ref;
        self.spec.list(list)?.get(index)
    }

    /// Returns the pod without the container `manager` and without the preStop hook of the container `envoy`, both of
    /// `spec.containers`.
    pub(super) fn without_manager(&self, manager: ContainerRef, envoy: ContainerRef) -> Self {
        let mut pod = self.clone();
        if let Some(containers) = &mut pod.spec.containers {
            if let Some(lifecycle) = &mut containers[envoy.index].lifecycle {
                lifecycle.pre_stop = None;
            }
            containers.remove(manager.index);
        }
        pod
    }

    /// Iterates over all containers of the pod, init containers included, with their places.
    pub(super) fn located_containers(
        &self,
    ) -> impl Iterator<Item = (ContainerRef, &Container<'a>)> {
        let lists = [ContainerList::Containers, ContainerList::InitContainers];
        lists.into_iter().flat_map(|list| {
            let containers = self.spec.list(list).into_iter().flatten().enumerate();
            containers.map(move |(index, it)| (ContainerRef { list, index }, it))
        })
    }

    /// Returns the container of this name, be it an init container.
    pub(super) fn find_container(&self, name: &str) -> Option<(ContainerRef, &Container<'a>)> {
        let mut containers = self.located_containers();
        containers.find(|(_, container)| container.name() == name)
    }

    /// Iterates over all containers of the pod, init containers included.
    pub(super) fn all_containers(&self) -> impl Iterator<Item = &Container<'a>> {
        let lists = [&self.spec.init_containers, &self.spec.containers];
        lists.into_iter().flatten().flatten()
    }

    /// Returns true if a container has this name, be it an init container.
    pub fn has_container(&self, name: &str) -> bool {
        self.find_container(name).is_some()
    }

    pub(super) fn has_volume(&self, name: &str) -> bool {
        let mut volumes = self.spec.volumes.iter().flatten();
        volumes.any(|volume| volume.name.as_deref() == Some(name))
    }

    /// Returns the container of this name, if it runs as long as the pod.
    pub(super) fn long_running(&self, name: &str) -> Option<(ContainerRef, &Container<'a>)> {
        let mut containers = self.long_running_containers();
        containers.find(|(_, container)| container.name() == name)
    }

    /// Iterates over the containers that run as long as the pod: all but init containers that complete.
    pub fn long_running_containers(&self) -> impl Iterator<Item = (ContainerRef, &Container<'a>)> {
        self.located_containers().filter(|(at, container)| {
            at.list == ContainerList::Containers
                || container.restart_policy.as_deref() == Some("Always")
        })
    }
}

// === impl ObjectMeta ===

impl<'a> ObjectMeta<'a> {
    /// Returns the object's name, or else its `generateName`.
    pub(super) fn name(&self) -> Option<&str> {
        let name = self.name.as_deref().filter(|name| !name.is_empty());
        name.or(self.generate_name.as_deref())
    }

    /// Returns the owner that controls the object.
    pub(super) fn controller(&self) -> Option<&OwnerReference<'a>> {
        let mut owners = self.owner_references.iter().flatten();
        owners.find(|owner| owner.controller == Some(true))
    }
}

// === impl PodSpec ===

impl<'a> PodSpec<'a> {
    pub(super) fn list(&self, list: ContainerList) -> Option<&[Container<'a>]> {
        let containers = match list {
            ContainerList::Containers => &self.containers,
            ContainerList::InitContainers => &self.init_containers,
        };
        containers.as_deref()
    }

    /// Returns true unless the pod keeps the ServiceAccount plugin from mounting a token in its containers.
    /// <https://kubernetes.io/docs/tasks/configure-pod-container/configure-service-account/#opt-out-of-api-credential-automounting>
    pub(super) fn automounts_token(&self) -> bool {
        self.automount_service_account_token != Some(false)
    }
}

// === impl OwnerReference ===

impl OwnerReference<'_> {
    fn is_a(&self, group: &str, kind: &str) -> bool {
        let api_version = self.api_version.as_deref().unwrap_or_default();
        self.kind.as_deref() == Some(kind) && api_version.starts_with(group)
    }
}

// === impl ContainerList ===

impl ContainerList {
    /// Returns the list's key in a pod's `spec`.
    pub fn key(self) -> &'static str {
        match self {
            Self::Containers => "containers",
            Self::InitContainers => "initContainers",
        }
    }
}

// === impl Container ===

impl<'a> Container<'a> {
    /// Returns its name, or nothing.
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    /// Returns its image, or nothing.
    pub fn image(&self) -> &str {
        self.image.as_deref().unwrap_or_default()
    }

    /// Returns the last segment of the image's path, and its tag, or nothing: `envoy` and `v1.36` of
    /// `docker.io/envoyproxy/envoy:v1.36@sha256:0`.
    pub(super) fn image_name(&self) -> (&str, &str) {
        image_name(self.image())
    }

    /// Returns the words of its command line before the flags: `tini`, `--` and `envoy` of `tini -- envoy -c FILE`.
    pub(super) fn programs(&self) -> impl Iterator<Item = &str> {
        let is_flag = |word: &&str| word.starts_with('-') && *word != "--";
        self.command_line().take_while(move |word| !is_flag(word))
    }

    /// Returns the program of its command line, the last of [`programs`](Self::programs). Without one, the image's entry
    /// point gets the flags.
    pub(super) fn program(&self) -> Option<&str> {
        self.programs().last()
    }

    /// Returns true if it is granted one of these capabilities. Their list is read as text, which nothing escapes.
    pub(super) fn has_capability(&self, names: &[&str]) -> bool {
        let capabilities = self.security_context.and_then(|it| it.capabilities);
        let text = capabilities.map_or("", RawValue::get);
        let after = text.split_once("\"add\"").map_or("", |(_, rest)| rest);
        let after = after.trim_start_matches(|c: char| c == ':' || c.is_whitespace());
        let list = after.strip_prefix('[').unwrap_or_default();
        let added = list.split(']').next().unwrap_or_default();
        names.iter().any(|name| added.contains(name))
    }

    /// Returns the number of the port that the container declares under this name.
    pub fn port_named(&self, name: &str) -> Option<u16> {
        let mut ports = self.ports.iter().flatten();
        let port = ports.find(|port| port.name.as_deref() == Some(name));
        port?.container_port
    }

    /// Returns the TCP ports that the container declares.
    pub fn tcp_ports(&self) -> impl Iterator<Item = u16> {
        let tcp = self.declared_tcp_ports();
        tcp.filter_map(|port| port.container_port)
    }

    /// Returns its declarations of TCP ports.
    pub(super) fn declared_tcp_ports(&self) -> impl Iterator<Item = &ContainerPort<'a>> {
        self.ports.iter().flatten().filter(|port| port.is_tcp())
    }

    /// Returns the ports that its probes call by number.
    pub(super) fn probed_ports(&self) -> impl Iterator<Item = u16> {
        let readiness = self.readiness_probe.as_ref().and_then(Probe::port_number);
        let others = [self.liveness_probe, self.startup_probe];
        let others = others.into_iter().flatten().filter_map(called_port);
        readiness.into_iter().chain(others)
    }

    /// Returns the ports that its probes and its preStop hook, which has the same actions, call by number.
    pub(super) fn called_ports(&self) -> impl Iterator<Item = u16> {
        self.probed_ports()
            .chain(self.pre_stop().and_then(called_port))
    }

    /// Returns true if the container declares no port, or only this TCP port.
    pub(super) fn declares_no_port_but(&self, number: u16) -> bool {
        let mut ports = self.ports.iter().flatten();
        ports.all(|port| port.is_tcp() && port.container_port == Some(number))
    }

    /// Returns the words of its command and its arguments.
    pub fn command_line(&self) -> impl Iterator<Item = &str> {
        let words = self.command.iter().chain(&self.args).flatten();
        words.map(|word| &**word)
    }

    /// Returns the value of a flag in the command line: the next word, or what follows `=` or a space in the same word,
    /// as Envoy reads it.
    pub fn flag(&self, flag: &str) -> Option<&str> {
        let mut words = self.command_line();
        while let Some(word) = words.next() {
            match word.strip_prefix(flag) {
                Some("") => return words.next(),
                Some(value) if value.starts_with(['=', ' ']) => return Some(&value[1..]),
                _ => {}
            }
        }
        None
    }

    /// Returns true if its arguments have a configuration for Envoy.
    pub(super) fn has_configuration_flag(&self) -> bool {
        let mut flags = ["-c", "--config-path", "--config-yaml"].into_iter();
        flags.any(|flag| self.flag(flag).is_some())
    }

    /// Returns the preStop hook, as it is written.
    pub fn pre_stop(&self) -> Option<&'a RawValue> {
        self.lifecycle.as_ref()?.pre_stop
    }

    /// Returns the preStop hook, unless it is too long to be read.
    pub(super) fn short_hook(&self) -> Option<Hook<'a>> {
        let hook = self.pre_stop();
        let hook = hook.filter(|hook| hook.get().len() <= MAX_HOOK_LEN)?;
        Hook::parse(hook)
    }
}

/// Formats the names of containers for a message.
pub(super) fn format_names(containers: &[(ContainerRef, &Container<'_>)]) -> String {
    let quoted = |(_, container): &(_, &Container<'_>)| {
        format!("`{}`", excerpt(container.name(), MAX_NAME_LEN))
    };
    match containers {
        [] => "none".to_owned(),
        _ => list(containers.iter().map(quoted), MAX_LISTED_NAMES),
    }
}

// === impl ContainerPort ===

impl ContainerPort<'_> {
    pub(super) fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    fn is_tcp(&self) -> bool {
        matches!(self.protocol.as_deref(), None | Some("" | "TCP"))
    }
}

// === impl Probe ===

impl<'a> Probe<'a> {
    /// Returns the port that it connects to: its number or name.
    pub(super) fn port(&self) -> Option<Scalar<'a>> {
        let actions = [&self.http_get, &self.tcp_socket, &self.grpc];
        actions.into_iter().flatten().next()?.port
    }

    fn port_number(&self) -> Option<u16> {
        self.port()?.text().parse().ok()
    }
}

/// Returns the port that a probe or a hook calls by number.
fn called_port(probe: &RawValue) -> Option<u16> {
    serde_json::from_str::<Probe<'_>>(probe.get())
        .ok()?
        .port_number()
}

// === impl VolumeMount ===

impl VolumeMount<'_> {
    /// Returns the path at which the volume is mounted, unless it is empty.
    pub(super) fn path(&self) -> Option<&Path> {
        let path = self.mount_path.as_deref().filter(|path| !path.is_empty());
        path.map(Path::new)
    }
}

// === impl Resources ===

impl Resources<'_> {
    /// Returns true if CPU or memory is requested or limited.
    pub(super) fn is_set(&self) -> bool {
        let mut lists = [&self.requests, &self.limits].into_iter().flatten();
        lists.any(|amounts| amounts.cpu.is_some() || amounts.memory.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_means_missing() {
        let text = r#"{"metadata": null, "spec": null}"#;
        for text in [
            "{}",
            text,
            r#"{"metadata": {"annotations": null, "ownerReferences": null}}"#,
        ] {
            let pod = PodView::decode(text).unwrap();
            assert_eq!((pod.name(), pod.annotation("a")), (None, None), "{text}");
            assert!(!pod.is_owned_by("batch/", "Job"), "{text}");
            assert_eq!(pod.all_containers().count(), 0);
            assert_eq!(pod.grace_period(), 30);
        }
    }

    #[test]
    fn null_in_a_list_of_strings_is_empty() {
        let text =
            r#"{"spec": {"containers": [{"command": [null, "a"], "args": ["--name", null]}]}}"#;
        let pod = PodView::decode(text).unwrap();
        let (_, container) = pod.long_running_containers().next().unwrap();
        assert!(container.command_line().eq(["", "a", "--name", ""]));
    }

    #[test]
    fn names_that_an_api_server_rejects_are_found() {
        for (containers, want) in [
            (r#"[{"name": "a"}, {"name": "b"}]"#, None),
            (
                r#"[{"name": "a"}, {"image": "b"}]"#,
                Some("a container has no name; its image is `b`"),
            ),
            (
                r#"[{"name": "A"}]"#,
                Some("the container name `A` is no DNS label"),
            ),
            (
                r#"[{"name": "a"}, {"name": "a"}]"#,
                Some("two containers are named `a`"),
            ),
        ] {
            let pod = format!(r#"{{"spec": {{"containers": {containers}}}}}"#);
            let found = PodView::decode(&pod).unwrap().invalid_name();
            assert_eq!(found.as_deref(), want, "{containers}");
        }
    }

    #[test]
    fn job_is_recognized_by_kind_and_group() {
        for (owners, is_owned_by_job) in [
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
                PodView::decode(&pod).unwrap().is_owned_by("batch/", "Job"),
                is_owned_by_job,
                "{owners}"
            );
        }
    }
}
