//! The change of a pod's manifest, as a JSON patch of explicit operations: an injection has `add`, `remove` for a shutdown
//! manager, and `move` for an Envoy that becomes a native sidecar; and the annotation `status`, in which it records what it does,
//! for operators and for the next admission.
//!
//! Parents that are missing or `null` are added first: if a patch does not apply, the API server rejects the
//! pod.

use std::collections::BTreeMap;
use std::fmt;

use json_patch::jsonptr::PointerBuf;
use k8s_openapi::api::core::v1::LifecycleHandler;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::diagnostics::{Code, Diagnostic};
use super::names::{CONTAINER_NAME, INJECTED, STATUS};
use super::plan::{DrainPlan, SidecarMode};
use super::pod::{Container, ContainerList, ContainerRef, PodView};
use super::settings::MAX_HOOKED_CONTAINERS;
use super::shutdown_manager::ManagerProduct;

/// A JSON patch, as text. <https://datatracker.ietf.org/doc/html/rfc6902>
///
/// Each operation is written as it is decided: an intermediate document would cost an admission a fifth of
/// its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patch(String);

/// The only writer of a [`Patch`].
pub(super) struct PatchBuilder(Vec<u8>);

/// An operation; `add` replaces a member that exists.
#[derive(Serialize)]
#[serde(tag = "op", rename_all = "lowercase")]
enum Operation<V> {
    Add { path: PointerBuf, value: V },
    Remove { path: PointerBuf },
    Move { from: PointerBuf, path: PointerBuf },
}

/// Initial size of the buffer, in bytes: what an injection takes, so that it need not grow.
const INITIAL_CAPACITY: usize = 4096;

/// A parent without members, and one without elements.
const EMPTY_MAP: BTreeMap<(), ()> = BTreeMap::new();
pub(super) const EMPTY_LIST: [(); 0] = [];

/// Maximum size of all keys and values of a pod's annotations together, in bytes.
/// <https://github.com/kubernetes/kubernetes/blob/master/staging/src/k8s.io/apimachinery/pkg/api/validation/objectmeta.go>
const MAX_ANNOTATIONS_SIZE: usize = 256 << 10;

/// Returns the patch that gives a pod its drainer, and a warning if the annotation `status` is left out. The pod is
/// without its shutdown manager, which the patch removes first. [`Removal`](super::removal::Removal) is the inverse.
pub(super) fn inject(plan: &DrainPlan, pod: &PodView<'_>) -> (Patch, Option<Diagnostic>) {
    let spec = &pod.spec;
    let mut patch = PatchBuilder::new();
    if let Some(manager) = plan.adopted {
        let ContainerRef { list, index } = manager.container_ref;
        patch.remove(["spec", list.key(), &index.to_string()]);
    }
    let status_left_out = patch.set_status(pod, injected_status(plan, pod));
    patch.ensure(["metadata", "labels"], pod.labels().is_some(), EMPTY_MAP);
    patch.add(["metadata", "labels", INJECTED], "true");
    if spec.termination_grace_period_seconds != Some(plan.grace.to) {
        patch.add(["spec", "terminationGracePeriodSeconds"], plan.grace.to);
    }
    if !plan.volumes.is_empty() {
        patch.ensure(["spec", "volumes"], spec.volumes.is_some(), EMPTY_LIST);
    }
    for volume in &plan.volumes {
        patch.add(["spec", "volumes", "-"], volume);
    }
    // The containers are changed before the drainer's is inserted and Envoy's is moved, since that changes indices.
    let envoy = plan.envoy.container_ref;
    let (key, index) = (envoy.list.key(), &*envoy.index.to_string());
    let container = pod.container(envoy);
    patch.set_pre_stop(pod, envoy, &plan.hook);
    for extra in &plan.extra_hooks {
        patch.set_pre_stop(pod, extra.container_ref, &extra.hook);
    }
    if plan.is_envoy_moved {
        patch.add(["spec", key, index, "restartPolicy"], "Always");
    }
    if !plan.added_args.is_empty() {
        let has_args = container.is_some_and(|envoy| envoy.args.is_some());
        patch.ensure(["spec", key, index, "args"], has_args, EMPTY_LIST);
    }
    for arg in &plan.added_args {
        patch.add(["spec", key, index, "args", "-"], arg);
    }
    let list = plan.sidecar.container_list();
    let has_list = spec.list(list).is_some();
    patch.ensure(["spec", list.key()], has_list, EMPTY_LIST);
    // An Envoy that moves comes to the end of the list, directly behind the drainer.
    let is_before_envoy = plan.is_before_envoy() && !plan.is_envoy_moved;
    let position = if is_before_envoy { index } else { "-" };
    patch.add(["spec", list.key(), position], &plan.container);
    if plan.is_envoy_moved {
        let end = ["spec", ContainerList::InitContainers.key(), "-"];
        patch.move_to(["spec", key, index], end);
    }
    (patch.finish(), status_left_out)
}

/// Returns the patch that records in a pod why it was skipped, and a warning if there is no room for it.
pub(super) fn record_skip(reason: &Diagnostic, pod: &PodView<'_>) -> (Patch, Option<Diagnostic>) {
    let mut patch = PatchBuilder::new();
    let status = skipped_status(reason);
    let is_due = reason.code.is_recorded_in_status() && pod.annotation(STATUS) != Some(&status);
    let status_left_out = is_due.then(|| patch.set_status(pod, status)).flatten();
    (patch.finish(), status_left_out)
}

// === impl Patch ===

impl Default for Patch {
    fn default() -> Self {
        PatchBuilder::new().finish()
    }
}

impl Patch {
    pub fn is_empty(&self) -> bool {
        self.0 == "[]"
    }

    /// The patch as JSON: an array of operations.
    pub fn json(&self) -> &str {
        &self.0
    }

    /// The operations, for callers that apply them.
    pub fn operations(&self) -> json_patch::Patch {
        serde_json::from_str(&self.0).expect("it was written as a patch")
    }
}

// === impl PatchBuilder ===

impl PatchBuilder {
    pub(super) fn new() -> Self {
        let mut json = Vec::with_capacity(INITIAL_CAPACITY);
        json.push(b'[');
        Self(json)
    }

    /// Adds a value at a path of keys, which are escaped here.
    pub(super) fn add<const N: usize>(&mut self, path: [&str; N], value: impl Serialize) {
        let path = PointerBuf::from_tokens(path);
        self.push(&Operation::Add { path, value });
    }

    /// Removes the value at a path. It must exist in the pod that was reviewed.
    pub(super) fn remove<const N: usize>(&mut self, path: [&str; N]) {
        let path = PointerBuf::from_tokens(path);
        self.push(&Operation::<()>::Remove { path });
    }

    /// Sets the value at a path, or removes it.
    pub(super) fn set_or_remove<const N: usize>(
        &mut self,
        path: [&str; N],
        value: Option<&impl Serialize>,
    ) {
        match value {
            Some(value) => self.add(path, value),
            None => self.remove(path),
        }
    }

    /// Moves a value, whatever is in it, to another path.
    pub(super) fn move_to<const N: usize>(&mut self, from: [&str; N], path: [&str; N]) {
        let [from, path] = [from, path].map(PointerBuf::from_tokens);
        self.push(&Operation::<()>::Move { from, path });
    }

    fn push(&mut self, operation: &Operation<impl Serialize>) {
        if self.0.len() > 1 {
            self.0.push(b',');
        }
        serde_json::to_writer(&mut self.0, operation)
            .expect("writing to memory cannot fail, and the keys of Kubernetes' types are strings");
    }

    /// Adds what other operations add to, unless it exists.
    pub(super) fn ensure<const N: usize>(
        &mut self,
        path: [&str; N],
        exists: bool,
        empty: impl Serialize,
    ) {
        if !exists {
            self.add(path, empty);
        }
    }

    pub(super) fn set_pre_stop(
        &mut self,
        pod: &PodView<'_>,
        of: ContainerRef,
        hook: &LifecycleHandler,
    ) {
        let (key, index) = (of.list.key(), &*of.index.to_string());
        let container = pod.container(of);
        let has_lifecycle = container.is_some_and(|container| container.lifecycle.is_some());
        self.ensure(["spec", key, index, "lifecycle"], has_lifecycle, EMPTY_MAP);
        self.add(["spec", key, index, "lifecycle", "preStop"], hook);
    }

    /// Sets the annotation `status`. Where it does not fit, it is left out with a warning, since the API
    /// server would reject the pod; a drainer is recognized by its arguments as well.
    pub(super) fn set_status(&mut self, pod: &PodView<'_>, status: String) -> Option<Diagnostic> {
        let present = pod.annotation(STATUS);
        let present = present.map_or(0, |present| STATUS.len() + present.len());
        let others = pod.annotations().map_or(0, |all| all.size) - present;
        if others + STATUS.len() + status.len() > MAX_ANNOTATIONS_SIZE {
            let detail = format!("the pod's other annotations have {others} bytes");
            return Some(Code::StatusLeftOut.diagnostic(detail));
        }
        self.ensure(["metadata"], pod.metadata.is_some(), EMPTY_MAP);
        let has_annotations = pod.annotations().is_some();
        self.ensure(["metadata", "annotations"], has_annotations, EMPTY_MAP);
        self.add(["metadata", "annotations", STATUS], status);
        None
    }

    pub(super) fn finish(mut self) -> Patch {
        self.0.push(b']');
        Patch(String::from_utf8(self.0).expect("JSON is written in UTF-8"))
    }
}

/// The version of this program, which a status records.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Maximum length of a replaced hook that the status repeats, in bytes. All annotations of a pod together may have
/// 256 KiB.
const MAX_HOOK_LEN: usize = 4096;

/// The status of a pod that requested a drainer and was skipped.
#[derive(Serialize, Deserialize)]
struct SkippedStatus {
    skipped: String,
    /// The diagnostic's detail, where the code alone does not tell what to change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// Why a pod was skipped, as its status records it. Displayed as `DRN008: Envoy's container has a preStop hook
/// already`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordedSkip {
    pub code: Code,
    /// The diagnostic's detail, if it is recorded.
    reason: Option<String>,
}

/// The status of a pod that has a drainer: what was done to it, as far as the drainer's own arguments do not tell.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RecordedInjection {
    /// The version that injected the drainer; empty if it is not recorded.
    pub version: String,
    pub(super) sidecar: Option<SidecarMode>,
    /// The name of Envoy's container; empty if it is not recorded.
    pub container: String,
    pub(super) grace: RecordedGrace,
    /// What Envoy's container became, if it was moved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub envoy: Option<SidecarMode>,
    /// Its index among the pod's containers before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) moved_from: Option<usize>,
    /// What was added to the `args` of Envoy's container.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) added_args: Vec<String>,
    /// The containers whose SIGTERM waits for the drain.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub extra_hooks: Vec<String>,
    /// As it was written; a string that is no hook if it was too long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) replaced_hook: Option<Box<RawValue>>,
    /// The product whose shutdown manager was removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adopted: Option<ManagerProduct>,
}

/// The pod's grace period in seconds: its own, if it had one, and the injected one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RecordedGrace {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<i64>,
    pub to: i64,
}

/// Encodes the status of a pod that gets a drainer.
fn injected_status(plan: &DrainPlan, pod: &PodView<'_>) -> String {
    let too_long = || serde_json::from_str(r#""too long to repeat""#).expect("it is a JSON string");
    let recorded = RecordedInjection {
        version: VERSION.to_owned(),
        sidecar: Some(plan.sidecar),
        container: plan.envoy.name.clone(),
        grace: RecordedGrace {
            from: pod.spec.termination_grace_period_seconds,
            to: plan.grace.to,
        },
        envoy: plan.is_envoy_moved.then_some(SidecarMode::Native),
        moved_from: plan
            .is_envoy_moved
            .then_some(plan.envoy.container_ref.index),
        added_args: plan.added_args.clone(),
        extra_hooks: plan
            .extra_hooks
            .iter()
            .map(|it| it.container.clone())
            .collect(),
        replaced_hook: plan
            .replaced_hook
            .clone()
            .map(|hook| match hook.get().len() {
                ..=MAX_HOOK_LEN => hook,
                _ => too_long(),
            }),
        adopted: plan.adopted.map(|manager| manager.product),
    };
    recorded.to_json()
}

/// Encodes the status of a pod that is skipped.
fn skipped_status(reason: &Diagnostic) -> String {
    let Diagnostic { code, detail, .. } = reason;
    let is_named = *code == Code::UnknownShutdownManager;
    serde_json::to_string(&SkippedStatus {
        skipped: code.to_string(),
        reason: is_named.then(|| detail.clone()),
    })
    .expect("strings always serialize")
}

/// Finds the drainer's container: that of its name which the status records, or which has its arguments. Another
/// container of that name has not.
pub(super) fn find_drainer<'p, 'a>(
    pod: &'p PodView<'a>,
) -> Option<(ContainerRef, &'p Container<'a>)> {
    let is_recorded = pod.annotation(STATUS).is_some_and(records_injection);
    let is_drainer = |container: &Container<'_>| {
        let args = container.args.as_deref().unwrap_or_default();
        args.first().is_some_and(|arg| **arg == *"serve")
            && args.iter().any(|arg| arg.starts_with("--token="))
    };
    let mut containers = pod.located_containers();
    containers.find(|(_, it)| it.name() == CONTAINER_NAME && (is_recorded || is_drainer(it)))
}

/// Returns true unless the status records a skip: that pod is decided again, since another webhook may have
/// added the Envoy that was missing.
pub(super) fn records_injection(status: &str) -> bool {
    serde_json::from_str::<SkippedStatus>(status).is_err()
}

// === impl RecordedInjection ===

impl RecordedInjection {
    /// Reads the status of a pod; nothing is recorded in one that cannot be read.
    pub fn read(status: &str) -> Self {
        serde_json::from_str(status).unwrap_or_default()
    }

    pub(super) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("strings, numbers and JSON always serialize")
    }

    /// The version that injected the drainer, if it is another one than this program's.
    pub fn other_version(&self) -> Option<&str> {
        Some(&*self.version).filter(|version| !version.is_empty() && *version != VERSION)
    }

    /// Returns true if a container's hook is recorded.
    pub(super) fn hooks(&self, container: &str) -> bool {
        // A status that was forged may name more.
        let mut others = self.extra_hooks.iter().take(MAX_HOOKED_CONTAINERS);
        container == self.container || others.any(|name| name == container)
    }

    /// The status of a pod.
    pub(super) fn of(pod: &PodView<'_>) -> Self {
        Self::read(pod.annotation(STATUS).unwrap_or_default())
    }
}

// === impl RecordedSkip ===

impl RecordedSkip {
    /// Reads the status of a pod; `None` if it was not skipped or the code is unknown.
    pub fn read(status: &str) -> Option<Self> {
        let SkippedStatus { skipped, reason } = serde_json::from_str(status).ok()?;
        let mut codes = Code::ALL.iter().copied();
        let code = codes.find(|code| code.to_string() == skipped)?;
        Some(Self { code, reason })
    }
}

impl fmt::Display for RecordedSkip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, reason } = self;
        let sentence = || code.sentence().trim_end_matches('.');
        let reason = reason.as_deref().unwrap_or_else(sentence);
        write!(f, "{code}: {reason}")
    }
}
