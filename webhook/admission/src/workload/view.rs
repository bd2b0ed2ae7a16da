//! The fields of a workload that matter for its pods, borrowed from its JSON.

use json_patch::jsonptr::Pointer;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::objects;
use crate::pod::{Items, OwnerReference, Text, from_objects};

/// A workload, or another object in its form.
#[derive(Deserialize)]
#[serde(remote = "Self", rename_all = "camelCase", bound = "'de: 'a")]
pub(super) struct WorkloadView<'a> {
    pub api_version: Option<Text<'a>>,
    pub kind: Option<Text<'a>>,
    metadata: Option<&'a RawValue>,
    spec: Option<WorkloadSpec<'a>>,
}

#[derive(Deserialize)]
#[serde(remote = "Self", rename_all = "camelCase", bound = "'de: 'a")]
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
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Strategy {
    #[serde(rename = "type")]
    pub kind: Option<String>,
    pub rolling_update: Option<RollingUpdate>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RollingUpdate {
    /// A number or a percentage.
    pub max_surge: Option<serde_json::Value>,
}

#[derive(Deserialize)]
#[serde(remote = "Self", bound = "'de: 'a")]
struct JobTemplate<'a> {
    metadata: Option<&'a RawValue>,
    spec: Option<JobSpec<'a>>,
}

#[derive(Deserialize)]
#[serde(remote = "Self", bound = "'de: 'a")]
struct JobSpec<'a> {
    template: Option<&'a RawValue>,
}

/// A pod template, of which only the metadata is read.
#[derive(Default, Deserialize)]
struct TemplateView<M> {
    metadata: Option<M>,
}

/// The identity of a workload.
#[derive(Default, Deserialize)]
#[serde(remote = "Self", rename_all = "camelCase", bound = "'de: 'a")]
pub(super) struct WorkloadMetadata<'a> {
    name: Option<Text<'a>>,
    generate_name: Option<Text<'a>>,
    owner_references: Option<Items<OwnerReference<'a>>>,
}

from_objects! {
    WorkloadView<'a>,
    WorkloadSpec<'a>,
    JobTemplate<'a>,
    JobSpec<'a>,
    WorkloadMetadata<'a>,
}

/// Decodes part of a document; the default if it is missing or cannot be decoded.
fn decode_or_default<'a, T: Deserialize<'a> + Default>(json: Option<&'a RawValue>) -> T {
    json.and_then(|json| serde_json::from_str(json.get()).ok())
        .unwrap_or_default()
}

// === impl WorkloadView ===

impl<'a> WorkloadView<'a> {
    /// Decodes the workload's identity.
    ///
    /// # Errors
    /// If a field has another type or exceeds its limit.
    pub(super) fn metadata(&self) -> Result<WorkloadMetadata<'a>, serde_json::Error> {
        let json = self.metadata.map(RawValue::get);
        json.map_or_else(|| Ok(WorkloadMetadata::default()), serde_json::from_str)
    }

    /// Decodes every `metadata` of the object and its templates, each with its path; the default for one that is
    /// missing or cannot be decoded.
    pub(super) fn all_metadata<M: Deserialize<'a> + Default>(&self) -> [(&'static Pointer, M); 4] {
        let of_template = |template| {
            let template: TemplateView<M> = decode_or_default(template);
            template.metadata.unwrap_or_default()
        };
        let spec = self.spec.as_ref();
        let job = spec.and_then(|spec| spec.job_template.as_ref());
        let job_spec = job.and_then(|job| job.spec.as_ref());
        let path = Pointer::from_static;
        [
            (path("/metadata"), decode_or_default(self.metadata)),
            (
                path("/spec/jobTemplate/metadata"),
                decode_or_default(job.and_then(|job| job.metadata)),
            ),
            (
                path("/spec/jobTemplate/spec/template/metadata"),
                of_template(job_spec.and_then(|spec| spec.template)),
            ),
            (
                path("/spec/template/metadata"),
                of_template(spec.and_then(|spec| spec.template)),
            ),
        ]
    }

    /// Decodes the strategy of a Deployment or of a DaemonSet; the default if it is missing or cannot be decoded.
    pub(super) fn strategy(&self) -> Strategy {
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
