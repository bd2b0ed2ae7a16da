//! The fields of a workload that matter for its pods, borrowed from its JSON.

use std::fmt;

use json_patch::jsonptr::Pointer;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::objects;
use crate::decode::{DecodeError, decode_part};
use crate::names::PREFIX;
use crate::pod::{OwnerReference, Scalar, Text, or_default};

/// A workload, or another object in its form.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound = "'de: 'a")]
pub(super) struct WorkloadView<'a> {
    pub api_version: Option<Text<'a>>,
    pub kind: Option<Text<'a>>,
    metadata: Option<&'a RawValue>,
    spec: Option<WorkloadSpec<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound = "'de: 'a")]
struct WorkloadSpec<'a> {
    template: Option<&'a RawValue>,
    job_template: Option<JobTemplate<'a>>,
    /// A Deployment's.
    strategy: Option<&'a RawValue>,
    /// A DaemonSet's.
    update_strategy: Option<&'a RawValue>,
    /// A Deployment's.
    pod_replacement_policy: Option<Text<'a>>,
}

/// The fields of a workload's strategy that decide when replacements of its pods start.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", bound = "'de: 'a")]
pub(super) struct Strategy<'a> {
    #[serde(rename = "type")]
    pub kind: Option<Text<'a>>,
    pub rolling_update: Option<RollingUpdate<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound = "'de: 'a")]
pub(super) struct RollingUpdate<'a> {
    /// A number or a percentage.
    pub max_surge: Option<Scalar<'a>>,
}

#[derive(Deserialize)]
#[serde(bound = "'de: 'a")]
struct JobTemplate<'a> {
    metadata: Option<&'a RawValue>,
    spec: Option<JobSpec<'a>>,
}

#[derive(Deserialize)]
#[serde(bound = "'de: 'a")]
struct JobSpec<'a> {
    template: Option<&'a RawValue>,
}

/// A pod template, of which only the metadata is read.
#[derive(Default, Deserialize)]
#[serde(default)]
struct TemplateView {
    #[serde(deserialize_with = "or_default")]
    metadata: MetadataKeys,
}

/// The identity of a workload.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", bound = "'de: 'a")]
pub(super) struct WorkloadMetadata<'a> {
    name: Option<Text<'a>>,
    generate_name: Option<Text<'a>>,
    owner_references: Option<Vec<OwnerReference<'a>>>,
}

/// Decodes part of a document; the default if it is missing or cannot be decoded.
pub(super) fn decode_or_default<'a, T: Deserialize<'a> + Default>(json: Option<&'a RawValue>) -> T {
    let decoded = json.and_then(|json| serde_json::from_str(json.get()).ok());
    decoded.unwrap_or_default()
}

// === impl WorkloadView ===

impl<'a> WorkloadView<'a> {
    /// Decodes the workload's identity.
    ///
    /// # Errors
    /// If a field has another type or exceeds its limit.
    pub(super) fn metadata(&self) -> Result<WorkloadMetadata<'a>, DecodeError> {
        let json = self.metadata.map(RawValue::get);
        json.map_or_else(|| Ok(WorkloadMetadata::default()), decode_part)
    }

    /// Reads every `metadata` of the object and its templates, each with its path.
    pub(super) fn all_metadata(&self) -> [(&'static Pointer, MetadataKeys); 4] {
        let of_template = |template| decode_or_default::<TemplateView>(template).metadata;
        let spec = self.spec.as_ref();
        let job = spec.and_then(|spec| spec.job_template.as_ref());
        let job_spec = job.and_then(|job| job.spec.as_ref());
        let job_template = job_spec.and_then(|spec| spec.template);
        let template = spec.and_then(|spec| spec.template);
        [
            ("/metadata", decode_or_default(self.metadata)),
            (
                "/spec/jobTemplate/metadata",
                decode_or_default(job.and_then(|job| job.metadata)),
            ),
            (
                "/spec/jobTemplate/spec/template/metadata",
                of_template(job_template),
            ),
            ("/spec/template/metadata", of_template(template)),
        ]
        .map(|(path, metadata)| (Pointer::from_static(path), metadata))
    }

    /// Decodes the strategy of a Deployment or of a DaemonSet; the default if it is missing or cannot be decoded.
    pub(super) fn strategy(&self) -> Strategy<'a> {
        let spec = self.spec.as_ref();
        decode_or_default(spec.and_then(|spec| spec.strategy.or(spec.update_strategy)))
    }

    /// The field `podReplacementPolicy`.
    pub(super) fn pod_replacement_policy(&self) -> Option<&str> {
        self.spec.as_ref()?.pod_replacement_policy.as_deref()
    }

    /// Returns the pod template of a known kind, as JSON, and whether its pods are a Job's.
    pub(super) fn pod_template(&self, version: &str, kind: &str) -> Option<(&'a str, bool)> {
        objects::template_path(version, kind)?;
        let spec = self.spec.as_ref()?;
        let template = match kind {
            "CronJob" => spec.job_template.as_ref()?.spec.as_ref()?.template?,
            _ => spec.template?,
        };
        Some((template.get(), matches!(kind, "Job" | "CronJob")))
    }
}

// === impl WorkloadMetadata ===

impl WorkloadMetadata<'_> {
    /// Returns the workload's name, or else its `generateName`.
    pub(super) fn name(&self) -> &str {
        let name = self.name.as_deref().or(self.generate_name.as_deref());
        name.unwrap_or_default()
    }

    /// Returns true for an object that a controller creates, such as the ReplicaSet of a Deployment and the Job
    /// of a CronJob: the warnings were on its owner.
    pub(super) fn has_controller(&self) -> bool {
        let mut owners = self.owner_references.iter().flatten();
        owners.any(|owner| owner.controller == Some(true))
    }
}

/// What is checked in a `metadata`, read in one pass: it may be as large as a request.
#[derive(Default)]
pub(super) struct MetadataKeys {
    pub own: MapKeys,
    pub annotations: MapKeys,
    pub labels: MapKeys,
}

/// What is checked in one map: a `metadata` itself, its annotations or its labels.
#[derive(Default)]
pub(super) struct MapKeys {
    /// The keys under [`PREFIX`] without it, in their order, at most [`MAX_KEYS`].
    pub names: Vec<String>,
    /// How many there are.
    pub count: usize,
    /// Whether `inject` is among them and not `null`.
    pub requests_injection: bool,
}

/// Maximum number of keys of one map that are kept. More are an attack.
const MAX_KEYS: usize = 128;

/// A type that is deserialized from a map, entry by entry.
trait ReadEntries: Default {
    /// Reads the value of a key.
    fn read_value<'de, A: MapAccess<'de>>(
        &mut self,
        key: &str,
        map: &mut A,
    ) -> Result<(), A::Error>;
}

/// Deserializes a map into `T`.
fn read_entries<'de, D: Deserializer<'de>, T: ReadEntries>(deserializer: D) -> Result<T, D::Error> {
    struct EntriesVisitor<T>(T);

    impl<'de, T: ReadEntries> Visitor<'de> for EntriesVisitor<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a map")
        }

        fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<T, A::Error> {
            while let Some(key) = map.next_key::<Text<'de>>()? {
                self.0.read_value(&key, &mut map)?;
            }
            Ok(self.0)
        }
    }

    deserializer.deserialize_map(EntriesVisitor(T::default()))
}

// === impl MetadataKeys ===

impl ReadEntries for MetadataKeys {
    fn read_value<'de, A: MapAccess<'de>>(
        &mut self,
        key: &str,
        map: &mut A,
    ) -> Result<(), A::Error> {
        let keys = match key {
            "annotations" => &mut self.annotations,
            "labels" => &mut self.labels,
            key => return self.own.read_value(key, map),
        };
        *keys = map.next_value::<Option<MapKeys>>()?.unwrap_or_default();
        Ok(())
    }
}

impl<'de> Deserialize<'de> for MetadataKeys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_entries(deserializer)
    }
}

// === impl MapKeys ===

impl ReadEntries for MapKeys {
    fn read_value<'de, A: MapAccess<'de>>(
        &mut self,
        key: &str,
        map: &mut A,
    ) -> Result<(), A::Error> {
        let Some(name) = key.strip_prefix(PREFIX) else {
            map.next_value::<IgnoredAny>()?;
            return Ok(());
        };
        let value: &RawValue = map.next_value()?;
        self.requests_injection |= name == "inject" && value.get() != "null";
        self.count += 1;
        if self.names.len() < MAX_KEYS {
            self.names.push(name.to_owned());
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for MapKeys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_entries(deserializer)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn keys_of_a_map_are_bounded() {
        let keys = (0..200).map(|n| (format!("{PREFIX}{n}"), json!("")));
        let json = Value::Object(keys.collect()).to_string();
        let keys: MapKeys = serde_json::from_str(&json).unwrap();
        assert_eq!((keys.names.len(), keys.count), (MAX_KEYS, 200));
    }
}
