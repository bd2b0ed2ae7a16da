//! Objects of a cluster, and how their pods are admitted: with the defaults of its installation, and only in selected
//! namespaces.

use std::collections::BTreeMap;

use admission::keys::INJECTION;
use admission::{Code, Defaults, Diagnostic, objects};
use anyhow::{Context, anyhow, bail};
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::api::DynamicObject;
use kube::core::{Expression, GroupVersionKind, SelectorExt};
use kubernetes::{ClusterReader, ReadError};
use serde::Deserialize;
use serde_json::Value;

use crate::check::Severity;
use crate::check::installation::Installation;
use crate::check::namespaces::opt_in_command;
use crate::check::webhook_configuration::{ALL, ENABLED, is_opt_in, opt_in, requirements};
use crate::cli::installation::{ServeArgs, find_deployment, find_installation};
use crate::cli::object_arg::{GATEWAY, ObjectArg};
use crate::offline::{Input, ManifestContext};
use crate::pod_status::drainer;

/// The labels with which controllers of the Gateway API, and Envoy Gateway, name the Gateway of a workload.
/// <https://gateway-api.sigs.k8s.io/geps/gep-1762/>
const GATEWAY_LABEL: &str = "gateway.networking.k8s.io/gateway-name";
const ENVOY_GATEWAY_LABEL: &str = "gateway.envoyproxy.io/owning-gateway-name";

/// The labels and kinds by which a Gateway's workloads are found.
const GATEWAY_WORKLOADS: [(&str, &str); 4] = [
    (GATEWAY_LABEL, "Deployment"),
    (GATEWAY_LABEL, "DaemonSet"),
    (ENVOY_GATEWAY_LABEL, "Deployment"),
    (ENVOY_GATEWAY_LABEL, "DaemonSet"),
];

/// The namespace of the Gateway, where Envoy Gateway's workloads are in its own.
const GATEWAY_NAMESPACE_LABEL: &str = "gateway.envoyproxy.io/owning-gateway-namespace";

/// The maximum number of ConfigMaps that are read for an object.
const MAX_CONFIG_MAPS: usize = 16;

#[derive(Debug)]
pub(super) struct ClusterObject {
    /// The object without its status, named as in `deployment/edge`.
    pub(super) input: Input,
    pub(super) namespace: String,
    /// The object, if it is a pod, which may run already, unlike those of a template.
    pub(super) pod: Option<Pod>,
    /// The ConfigMaps that its pods mount.
    pub(super) context: ManifestContext,
}

// === impl ObjectArg ===

impl ObjectArg {
    /// Returns the objects to explain, with their namespaces: the object itself, or the workloads of a Gateway.
    ///
    /// # Errors
    /// If these cannot be listed, or there are none.
    pub(super) async fn resolve(
        &self,
        reader: &ClusterReader,
        namespace: &str,
    ) -> anyhow::Result<Vec<(Self, String)>> {
        if self.kind.kind != GATEWAY {
            return Ok(vec![(self.clone(), namespace.to_owned())]);
        }
        let mut found = Vec::new();
        for (label, kind) in GATEWAY_WORKLOADS {
            let kind = GroupVersionKind::gvk("apps", "v1", kind);
            let labels = format!("{label}={}", self.name);
            for DynamicObject { metadata, .. } in reader.objects(&kind, &labels).await? {
                let labels = metadata.labels.unwrap_or_default();
                let own = metadata.namespace.unwrap_or_default();
                let is_its = labels.get(GATEWAY_NAMESPACE_LABEL).unwrap_or(&own) == namespace;
                let (kind, name) = (kind.clone(), metadata.name.unwrap_or_default());
                let workload = (Self { kind, name }, own);
                if is_its && !found.contains(&workload) {
                    found.push(workload);
                }
            }
        }
        if found.is_empty() {
            bail!(
                "no Deployment or DaemonSet has the label `{GATEWAY_LABEL}` or `{ENVOY_GATEWAY_LABEL}` of the Gateway `{}` in `{namespace}`",
                self.name
            );
        }
        Ok(found)
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
        let mut value = object
            .ok_or_else(|| anyhow!("the namespace `{namespace}` has no {} `{name}`", kind.kind))?;
        // Before it is decoded: any client writes times into them, even such as cannot be.
        if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.shift_remove("managedFields");
        }
        let pod = (kind.kind == "Pod")
            .then(|| Pod::deserialize(&value))
            .transpose()?;
        if let Some(object) = value.as_object_mut() {
            object.shift_remove("status");
        }
        let name = format!("{}/{name}", kind.kind.to_lowercase());
        let bytes = value.to_string().into_bytes();
        Ok(ClusterObject {
            input: Input { name, bytes },
            namespace: namespace.to_owned(),
            pod,
            context: read_config_maps(reader, namespace, &value).await,
        })
    }
}

/// Reads the ConfigMaps that the pods of an object mount, as far as the user's rights allow.
async fn read_config_maps(
    reader: &ClusterReader,
    namespace: &str,
    object: &Value,
) -> ManifestContext {
    let mut found = ManifestContext::default();
    let kind = GroupVersionKind::gvk("", "v1", "ConfigMap");
    let templates = objects(object).into_iter().filter_map(|it| it.template);
    let volumes = templates.filter_map(|template| template.pod["spec"]["volumes"].as_array());
    let names = volumes.flatten();
    let names = names.filter_map(|volume| volume["configMap"]["name"].as_str());
    for name in names.take(MAX_CONFIG_MAPS) {
        if let Ok(Some(config_map)) = reader.object(&kind, namespace, name).await {
            found.add(Some(namespace), &config_map);
        }
    }
    found
}

// === impl ClusterObject ===

impl ClusterObject {
    /// Returns true for a pod with a drainer.
    pub(super) fn has_drainer(&self) -> bool {
        self.pod.as_ref().and_then(drainer).is_some()
    }
}

/// What decides on the pods of a namespace, besides the pods themselves.
#[derive(Debug)]
pub(super) struct ClusterAdmission {
    /// The defaults of the installation, or those of the flags if one is set or the installation could not be read.
    pub(super) defaults: Defaults,
    /// Why API servers do not call the webhook for these pods; `None` if they do, or if that is unknown.
    pub(super) exclusion: Option<Diagnostic>,
    /// Whether the namespace requests drainers for all of its Envoys.
    pub(super) injects_all: bool,
    /// The Services of the namespace, as far as they could be read.
    pub(super) services: Vec<Service>,
    /// What could not be read, and what is assumed instead: a sentence each.
    pub(super) warnings: Vec<String>,
}

/// The installation's defaults; an error says why they are unknown.
async fn defaults(reader: &ClusterReader, installation: &Installation) -> anyhow::Result<Defaults> {
    let namespace = &installation.namespace;
    let deployment = find_deployment(reader, installation).await?;
    let args = deployment.and_then(|deployment| ServeArgs::of_deployment(&deployment, namespace));
    let args = args.with_context(|| {
        format!("no Deployment in the namespace `{namespace}` runs `envoy-drainer serve`")
    })?;
    Ok(args?.defaults)
}

/// Why API servers do not call the webhook for pods of the namespace with these labels, by requirements of them.
fn exclusion(
    name: &str,
    labels: &BTreeMap<String, String>,
    requirements: &[Expression],
) -> Option<Diagnostic> {
    let unmet = requirements.iter().find(|it| !it.matches(labels))?;
    let reason = if is_opt_in(unmet) {
        let has = match labels.get(INJECTION) {
            None => format!("it has no label {INJECTION}"),
            Some(value) => format!("its label {INJECTION} is `{value}`, not `{ENABLED}`"),
        };
        format!("has not opted in: {has}; run `{}`", opt_in_command(name))
    } else {
        let required = format!("since the webhook configuration requires `{unmet}`");
        format!("is excluded, {required}: use another namespace")
    };
    Some(Code::NamespaceNotSelected.diagnostic(format!("the namespace `{name}` {reason}")))
}

// === impl ClusterAdmission ===

impl ClusterAdmission {
    /// Reads what the user's rights allow of the namespace, and of the installation that API servers call first.
    /// `flags` are the defaults of the flags.
    pub(super) async fn read(reader: &ClusterReader, namespace: &str, flags: &Defaults) -> Self {
        let services = reader.list(namespace, &BTreeMap::new()).await;
        let mut admission = Self {
            defaults: flags.clone(),
            exclusion: None,
            injects_all: false,
            services: services.unwrap_or_default(),
            warnings: Vec::new(),
        };
        let is_any_flag_set = *flags != Defaults::new(&*flags.image, &*flags.release_namespace);
        let mut selection = Ok(vec![opt_in()]);
        match find_installation(reader, None).await {
            Ok(installation) => {
                if !is_any_flag_set {
                    match defaults(reader, &installation).await {
                        Ok(defaults) => admission.defaults = defaults,
                        Err(reason) => admission.warn_of_defaults(&reason.to_string()),
                    }
                }
                selection = requirements(installation.pods_entry.namespace_selector.as_ref());
            }
            Err(result) if result.severity == Severity::Error => {
                let detail = format!("{}: install the chart", result.message);
                admission.exclusion = Some(Code::NamespaceNotSelected.diagnostic(detail));
                return admission;
            }
            Err(result) => admission.warn_of_defaults(&result.message),
        }
        let read = async { Ok::<_, ReadError>((selection?, reader.namespace(namespace).await?)) };
        match read.await {
            Ok((_, None)) => {}
            Ok((requirements, Some(read))) => {
                let labels = read.metadata.labels.unwrap_or_default();
                admission.exclusion = exclusion(namespace, &labels, &requirements);
                admission.injects_all = labels.get(INJECTION).is_some_and(|value| value == ALL);
            }
            Err(error) => admission.warnings.push(format!(
                "whether the namespace `{namespace}` has opted in is unknown, and assumed: {error}"
            )),
        }
        admission
    }

    fn warn_of_defaults(&mut self, reason: &str) {
        let assumed = "the installation's defaults are unknown, and those of the flags are used";
        self.warnings.push(format!("{assumed}: {reason}"));
    }
}
