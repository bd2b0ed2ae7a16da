//! The change of a pod's manifest, as explicit operations.
//!
//! A missing parent, and a `null` one, is made first, since a patch that does not apply would have the
//! pod refused.

use std::collections::BTreeMap;

use serde::Serialize;

use super::annotations::{INJECTED, STATUS};
use super::codes::{Code, Notice};
use super::envoy::{List, Place};
use super::patch::{Additions, Patch};
use super::plan::{DrainPlan, Sidecar};
use super::status;
use super::view::PodView;

/// A parent without members, and one without elements.
const MAP: BTreeMap<(), ()> = BTreeMap::new();
const LIST: [(); 0] = [];

/// In bytes: the most that the keys and values of all annotations may have together.
/// <https://github.com/kubernetes/kubernetes/blob/master/staging/src/k8s.io/apimachinery/pkg/api/validation/objectmeta.go>
const MOST_ANNOTATIONS: usize = 256 << 10;

/// The operations that give a pod its drainer.
pub(super) fn inject(plan: &DrainPlan, pod: &PodView<'_>, warnings: &mut Vec<Notice>) -> Patch {
    let spec = &pod.spec;
    let mut edits = Additions::new();
    edits.annotate(pod, status::injected(plan), warnings);
    let labels = pod
        .metadata
        .as_ref()
        .and_then(|metadata| metadata.labels.as_ref());
    edits.parent(["metadata", "labels"], labels.is_some(), MAP);
    edits.add(["metadata", "labels", INJECTED], "true");
    if spec.termination_grace_period_seconds != Some(plan.grace.to) {
        edits.add(["spec", "terminationGracePeriodSeconds"], plan.grace.to);
    }
    edits.parent(["spec", "volumes"], spec.volumes.is_some(), LIST);
    edits.add(["spec", "volumes", "-"], &plan.volume);
    // Before the drainer's container, which may move Envoy's.
    let Place { list, index } = plan.envoy.place;
    let (key, index) = (list.key(), &*index.to_string());
    let lifecycle = pod
        .container(plan.envoy.place)
        .and_then(|envoy| envoy.lifecycle.as_ref());
    edits.parent(["spec", key, index, "lifecycle"], lifecycle.is_some(), MAP);
    edits.add(["spec", key, index, "lifecycle", "preStop"], &plan.hook);
    match (plan.sidecar, list) {
        // Kubernetes ends native sidecars in reverse order: Envoy first.
        (Sidecar::Native, List::InitContainers) => edits.add(["spec", key, index], &plan.container),
        (Sidecar::Native, List::Containers) => {
            edits.parent(
                ["spec", "initContainers"],
                spec.init_containers.is_some(),
                LIST,
            );
            edits.add(["spec", "initContainers", "-"], &plan.container);
        }
        (Sidecar::Plain, _) => {
            edits.parent(["spec", "containers"], spec.containers.is_some(), LIST);
            edits.add(["spec", "containers", "-"], &plan.container);
        }
    }
    edits.into_patch()
}

/// The operations that tell in a pod why it was skipped.
pub(super) fn skip(code: Code, pod: &PodView<'_>, warnings: &mut Vec<Notice>) -> Patch {
    let mut edits = Additions::new();
    let status = status::skipped(code);
    if code.leaves_status() && pod.annotation(STATUS) != Some(&status) {
        edits.annotate(pod, status, warnings);
    }
    edits.into_patch()
}

// === impl Additions ===

impl Additions {
    /// Adds the status; where there is no room for it, the pod does without, since the API server would
    /// refuse the pod. A drainer is also known by its arguments.
    fn annotate(&mut self, pod: &PodView<'_>, status: String, warnings: &mut Vec<Notice>) {
        let present = pod
            .annotation(STATUS)
            .map_or(0, |present| STATUS.len() + present.len());
        let others = pod.annotations_size() - present;
        if others + STATUS.len() + status.len() > MOST_ANNOTATIONS {
            let detail = format!("the pod's other annotations have {others} bytes");
            warnings.push(Code::StatusLeftOut.about(detail));
            return;
        }
        self.parent(["metadata"], pod.metadata.is_some(), MAP);
        let annotations = pod
            .metadata
            .as_ref()
            .and_then(|metadata| metadata.annotations.as_ref());
        self.parent(["metadata", "annotations"], annotations.is_some(), MAP);
        self.add(["metadata", "annotations", STATUS], status);
    }

    /// Makes what other operations go below, unless it is there.
    fn parent<const N: usize>(&mut self, path: [&str; N], is_there: bool, empty: impl Serialize) {
        if !is_there {
            self.add(path, empty);
        }
    }
}
