//! The change of a pod's manifest, as explicit operations.
//!
//! A missing parent, and a `null` one, is made first, since a patch that does not apply would have the
//! pod refused.

use std::collections::BTreeMap;

use serde::Serialize;

use super::diagnostics::{Code, Diagnostic};
use super::patch::{Patch, PatchBuilder};
use super::plan::envoy_container::{ContainerList, ContainerRef};
use super::plan::{DrainPlan, SidecarMode};
use super::pod::PodView;
use super::settings::keys::{INJECTED, STATUS};
use super::status;

/// A parent without members, and one without elements.
const EMPTY_MAP: BTreeMap<(), ()> = BTreeMap::new();
const EMPTY_LIST: [(); 0] = [];

/// In bytes: the most that the keys and values of all annotations may have together.
/// <https://github.com/kubernetes/kubernetes/blob/master/staging/src/k8s.io/apimachinery/pkg/api/validation/objectmeta.go>
const MAX_ANNOTATIONS_SIZE: usize = 256 << 10;

/// The operations that give a pod its drainer.
pub(super) fn inject(plan: &DrainPlan, pod: &PodView<'_>, warnings: &mut Vec<Diagnostic>) -> Patch {
    let spec = &pod.spec;
    let mut edits = PatchBuilder::new();
    edits.set_status(pod, status::encode_injected(plan), warnings);
    let labels = pod
        .metadata
        .as_ref()
        .and_then(|metadata| metadata.labels.as_ref());
    edits.ensure_parent(["metadata", "labels"], labels.is_some(), EMPTY_MAP);
    edits.add(["metadata", "labels", INJECTED], "true");
    if spec.termination_grace_period_seconds != Some(plan.grace.to) {
        edits.add(["spec", "terminationGracePeriodSeconds"], plan.grace.to);
    }
    edits.ensure_parent(["spec", "volumes"], spec.volumes.is_some(), EMPTY_LIST);
    edits.add(["spec", "volumes", "-"], &plan.volume);
    // Before the drainer's container, which may move Envoy's.
    let ContainerRef { list, index } = plan.envoy.container_ref;
    let (key, index) = (list.key(), &*index.to_string());
    let lifecycle = pod
        .container(plan.envoy.container_ref)
        .and_then(|envoy| envoy.lifecycle.as_ref());
    edits.ensure_parent(
        ["spec", key, index, "lifecycle"],
        lifecycle.is_some(),
        EMPTY_MAP,
    );
    edits.add(["spec", key, index, "lifecycle", "preStop"], &plan.hook);
    match (plan.sidecar, list) {
        // Kubernetes ends native sidecars in reverse order: Envoy first.
        (SidecarMode::Native, ContainerList::InitContainers) => {
            edits.add(["spec", key, index], &plan.container)
        }
        (SidecarMode::Native, ContainerList::Containers) => {
            edits.ensure_parent(
                ["spec", "initContainers"],
                spec.init_containers.is_some(),
                EMPTY_LIST,
            );
            edits.add(["spec", "initContainers", "-"], &plan.container);
        }
        (SidecarMode::Plain, _) => {
            edits.ensure_parent(
                ["spec", "containers"],
                spec.containers.is_some(),
                EMPTY_LIST,
            );
            edits.add(["spec", "containers", "-"], &plan.container);
        }
    }
    edits.into_patch()
}

/// The operations that tell in a pod why it was skipped.
pub(super) fn skip(code: Code, pod: &PodView<'_>, warnings: &mut Vec<Diagnostic>) -> Patch {
    let mut edits = PatchBuilder::new();
    let status = status::encode_skipped(code);
    if code.is_recorded_in_status() && pod.annotation(STATUS) != Some(&status) {
        edits.set_status(pod, status, warnings);
    }
    edits.into_patch()
}

// === impl PatchBuilder ===

impl PatchBuilder {
    /// Adds the status; where there is no room for it, the pod does without, since the API server would
    /// refuse the pod. A drainer is also known by its arguments.
    fn set_status(&mut self, pod: &PodView<'_>, status: String, warnings: &mut Vec<Diagnostic>) {
        let present = pod
            .annotation(STATUS)
            .map_or(0, |present| STATUS.len() + present.len());
        let others = pod.annotations_size() - present;
        if others + STATUS.len() + status.len() > MAX_ANNOTATIONS_SIZE {
            let detail = format!("the pod's other annotations have {others} bytes");
            warnings.push(Code::StatusLeftOut.diagnostic(detail));
            return;
        }
        self.ensure_parent(["metadata"], pod.metadata.is_some(), EMPTY_MAP);
        let annotations = pod
            .metadata
            .as_ref()
            .and_then(|metadata| metadata.annotations.as_ref());
        self.ensure_parent(
            ["metadata", "annotations"],
            annotations.is_some(),
            EMPTY_MAP,
        );
        self.add(["metadata", "annotations", STATUS], status);
    }

    /// Makes what other operations go below, unless it is there.
    fn ensure_parent<const N: usize>(
        &mut self,
        path: [&str; N],
        is_there: bool,
        empty: impl Serialize,
    ) {
        if !is_there {
            self.add(path, empty);
        }
    }
}
