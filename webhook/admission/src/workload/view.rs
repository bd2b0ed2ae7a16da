//! The fields of a workload that matter for its pods, borrowed from its JSON.

use json_patch::jsonptr::Pointer;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::decode::{DecodeError, decode_part, from_json};
use crate::pod::{ObjectMeta, PodView, Scalar, Text};

/// A workload, or another object in its form, such as the template of a CronJob's Jobs.
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
    replicas: Option<&'a RawValue>,
    template: Option<&'a RawValue>,
    job_template: Option<Box<WorkloadView<'a>>>,
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

/// The metadata of an object, or of a template, and its path.
type Metadata<'p, 'a> = (&'p Pointer, ObjectMeta<'a>);

/// Decodes part of a document; the default if it is missing or cannot be decoded.
fn decode_or_default<'a, T: Deserialize<'a> + Default>(json: Option<&'a RawValue>) -> T {
    let decoded = json.and_then(|json| from_json(json.get()).ok());
    decoded.unwrap_or_default()
}

// === impl WorkloadView ===

impl<'a> WorkloadView<'a> {
    /// Decodes the workload's metadata.
    ///
    /// # Errors
    /// If a field has another type or exceeds its limit.
    pub(super) fn metadata(&self) -> Result<ObjectMeta<'a>, DecodeError> {
        let json = self.metadata.map(RawValue::get);
        json.map_or_else(|| Ok(ObjectMeta::default()), decode_part)
    }

    /// Reads every `metadata` of the object and its templates, each with its path, but for that of the template at a path
    /// where the `pod` is known: to decode it takes the most time.
    pub(super) fn all_metadata(
        &self,
        pod: Option<&Metadata<'_, 'a>>,
    ) -> [Metadata<'static, 'a>; 4] {
        let of_template = |path: &str, spec: Option<&WorkloadSpec<'a>>| {
            if let Some((_, metadata)) = pod.filter(|(at, _)| at.as_str() == path) {
                return metadata.clone();
            }
            let template = spec.and_then(|spec| spec.template);
            let pod = template.map(|template| PodView::decode_metadata(template.get()));
            pod.and_then(|pod| pod.metadata).unwrap_or_default()
        };
        let spec = self.spec.as_ref();
        let job = spec.and_then(|spec| spec.job_template.as_ref());
        let job_metadata = decode_or_default(job.and_then(|job| job.metadata));
        let in_job = job.and_then(|job| job.spec.as_ref());
        let in_job = of_template("/spec/jobTemplate/spec/template", in_job);
        let of_pods = of_template("/spec/template", spec);
        [
            ("/metadata", decode_or_default(self.metadata)),
            ("/spec/jobTemplate/metadata", job_metadata),
            ("/spec/jobTemplate/spec/template/metadata", in_job),
            ("/spec/template/metadata", of_pods),
        ]
        .map(|(path, metadata)| (Pointer::from_static(path), metadata))
    }

    /// Decodes the strategy of a Deployment or of a DaemonSet; the default if it is missing or cannot be decoded.
    pub(super) fn strategy(&self) -> Strategy<'a> {
        let spec = self.spec.as_ref();
        decode_or_default(spec.and_then(|spec| spec.strategy.or(spec.update_strategy)))
    }

    /// Returns true if it has one replica, which is the default.
    pub(super) fn has_one_replica(&self) -> bool {
        let replicas = self.spec.as_ref().and_then(|spec| spec.replicas);
        replicas.is_none_or(|replicas| replicas.get() == "1")
    }

    /// The field `podReplacementPolicy`.
    pub(super) fn pod_replacement_policy(&self) -> Option<&str> {
        self.spec.as_ref()?.pod_replacement_policy.as_deref()
    }

    /// Returns the pod template of a known kind, as JSON, and whether its pods are a Job's.
    pub(super) fn pod_template(&self, kind: &str) -> Option<(&'a str, bool)> {
        let spec = self.spec.as_ref()?;
        let template = match kind {
            "CronJob" => spec.job_template.as_ref()?.spec.as_ref()?.template?,
            _ => spec.template?,
        };
        Some((template.get(), matches!(kind, "Job" | "CronJob")))
    }
}
