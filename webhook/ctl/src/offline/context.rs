//! What is known about the pods of manifests apart from these.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};

use admission::{Bootstrap, Diagnostic, EnvoyConfiguration, EnvoyConfigurations, PodView, objects};
use k8s_openapi::api::core::v1::Service;
use manifest::Manifest;
use serde::Deserialize;
use serde_json::Value;

use super::configuration::{ConfigMaps, file_of, read_bootstrap};
use crate::load_balancers::in_front;
use crate::object_name::ObjectName;

/// Where kubectl puts objects without a namespace, unless its context names another.
const DEFAULT_NAMESPACE: &str = "default";

/// What is known about the pods of manifests apart from these.
#[derive(Debug, Clone, Default)]
pub struct ManifestContext {
    /// Whether the webhook is to inject the drainers, which reads no configuration of Envoys.
    pub is_for_webhook: bool,
    /// Whether their namespace requests drainers for all of its Envoys.
    pub injects_all: bool,
    /// A secret from which tokens are derived, too; empty for none.
    pub token_seed: String,
    /// ConfigMaps, in which the configuration of Envoys may be, by namespace; for those without one that is empty.
    config_maps: BTreeMap<String, ConfigMaps>,
    /// The Services, as far as they could be read.
    pub services: Vec<Service>,
    /// The configurations by their texts, each of which is parsed once: many pods may have the same.
    parsed: RefCell<HashMap<String, Bootstrap>>,
}

// === impl ManifestContext ===

impl ManifestContext {
    /// Reads the ConfigMaps and the Services of type LoadBalancer of streams, as far as they can be read.
    pub fn read<'s>(streams: impl IntoIterator<Item = &'s [u8]>) -> Self {
        let mut found = Self::default();
        for document in streams.into_iter().flat_map(manifest::documents) {
            let text = String::from_utf8_lossy(document.bytes);
            if (text.contains("ConfigMap") || text.contains("LoadBalancer"))
                && let Ok(manifest) = Manifest::read(&document)
            {
                for object in objects(manifest.value()) {
                    found.add(object.namespace, object.value);
                }
            }
        }
        found
    }

    /// Adds an object, if it is a ConfigMap or a Service.
    pub fn add(&mut self, namespace: Option<&str>, object: &Value) {
        if object["kind"] == "Service"
            && object["apiVersion"] == "v1"
            && let Ok(mut service) = Service::deserialize(object)
        {
            let default = || DEFAULT_NAMESPACE.to_owned();
            service.metadata.namespace.get_or_insert_with(default);
            self.services.push(service);
        }
        let (Some("ConfigMap"), Some(data)) = (object["kind"].as_str(), object["data"].as_object())
        else {
            return;
        };
        let texts = data.iter();
        let texts = texts.filter_map(|(key, text)| Some((key.clone(), text.as_str()?.to_owned())));
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let namespace = namespace.unwrap_or_default().to_owned();
        let config_maps = self.config_maps.entry(namespace).or_default();
        config_maps.insert(name.to_owned(), texts.collect());
    }

    /// Reads the configurations of the containers of `pod`, whose JSON is `json`, in a namespace, as far as they are
    /// known.
    pub(crate) fn configurations(
        &self,
        namespace: Option<&str>,
        pod: &PodView<'_>,
        json: &Value,
    ) -> EnvoyConfigurations {
        let namespaces = [namespace.unwrap_or(DEFAULT_NAMESPACE), ""].into_iter();
        let config_maps = namespaces.filter_map(|name| self.config_maps.get(name));
        let config_maps: Vec<_> = config_maps.collect();
        let spec = &json["spec"];
        let known = pod.long_running_containers().filter_map(|(at, container)| {
            let arguments = container.flag("--config-yaml");
            let mounts = &spec[at.list.key()][at.index]["volumeMounts"];
            let file = file_of(container, mounts, &spec["volumes"], &config_maps);
            if arguments.is_none() && file.is_none() {
                return None;
            }
            let configuration = EnvoyConfiguration {
                arguments: arguments.map(|yaml| self.parse(yaml)).unwrap_or_default(),
                file: file.map(|(name, yaml)| (name.to_owned(), self.parse(yaml))),
            };
            Some((container.name().to_owned(), configuration))
        });
        known.collect()
    }

    /// Returns a warning about a load balancer in front of the pods of `object`, by a Service of the same namespace.
    pub(super) fn load_balancer(&self, object: &ObjectName, pod: &Value) -> Option<Diagnostic> {
        let labels = BTreeMap::deserialize(&pod["metadata"]["labels"]).ok()?;
        let namespace = object.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
        in_front(&self.services, namespace, &labels)
    }

    fn parse(&self, yaml: &str) -> Bootstrap {
        let mut parsed = self.parsed.borrow_mut();
        if let Some(bootstrap) = parsed.get(yaml) {
            return bootstrap.clone();
        }
        let bootstrap = read_bootstrap(yaml).unwrap_or_else(|reason| Bootstrap {
            admin: Some(Err(reason)),
            ..Bootstrap::default()
        });
        parsed.insert(yaml.to_owned(), bootstrap.clone());
        bootstrap
    }
}
