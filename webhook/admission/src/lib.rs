//! Admission: decides how a pod changes. It is pure: bytes in, bytes out, no client, clock or log.
//!
//! ```text
//! AdmissionReview bytes
//!   └ review::decode_review ─► PodView, borrowed from the bytes; PodContext
//!       └ decide ─► Decision::Skip: allowed, a warning with its code, annotation `status`
//!                ├► repair             a pod that has its drainer: what was changed of that ─► Decision::Repair
//!                ├► shutdown_manager   the pod without another product's drainer, if it asks for that
//!                ├► settings::parse    the annotations over the Defaults; every bad value at once ─► Decision::Deny
//!                ├► plan         DrainPlan: Envoy's container, its admin, timings, grace period, the sidecar; or
//!                │               what is wrong with the pod, as Decision::Skip or Decision::Deny
//!                └► patch        DrainPlan ─► Patch, of `add` operations, at most one `remove` and one `move` in an injection
//!                     └ review::respond ─► AdmissionReview bytes: same uid, patch in base64
//! ```
//!
//! A workload is only checked ([`admit_workload`]): `decide` runs on its pod template, and all that is kept are the
//! warnings. `inject` and `explain` call [`decide()`] on manifests.
//!
//! Modules import downwards: `workload` → `review` → `decide` → `repair`, `removal` → `patch` → `plan` → `settings` →
//! `shutdown_manager` → `pod` → `decode`, `diagnostics`, `names`, `quantity` → `excerpt`.

mod cut;
mod decide;
mod decode;
pub mod diagnostics;
mod excerpt;
mod names;
mod patch;
mod plan;
mod pod;
mod quantity;
#[cfg(test)]
mod remedies;
mod removal;
mod repair;
mod review;
pub mod settings;
mod shutdown_manager;
mod workload;

/// Keys of annotations and labels.
pub mod keys {
    pub use crate::names::{INJECT, INJECTED, INJECTION, PREFIX, STATUS};
    pub use crate::settings::parse::{inject_requested, lint_names, parse_value};
}

pub use cut::{Cut, CutCounts, DRAIN_CUT, SUMMARY_ANNOTATION, silent_connections};
pub use decide::{Decision, already_injected, decide};
pub use decode::DecodeError;
pub use diagnostics::{Code, Diagnostic, Effect};
pub use excerpt::{excerpt, list, plural};
pub use names::{CONTAINER_NAME, REPORTING_CONTROLLER, WEBHOOK_AUDIENCE};
pub use patch::{Patch, RecordedInjection, RecordedSkip};
pub use plan::{
    AUTOSCALER_LIMIT, AdminAddressSource, AdminCandidates, AdminEndpoint, Bootstrap,
    DEFAULT_DRAIN_TIME, DrainPlan, EnvoyConfiguration, EnvoyConfigurations, EnvoyContainer,
    EnvoyContainerSource, ExtraHook, GracePeriod, PodContext, SidecarMode, known_envoys, token,
};
pub use pod::{
    Container, ContainerList, ContainerRef, DEFAULT_GRACE_PERIOD, DRAIN_PATHS, Hook, HookRequest,
    PodView,
};
pub use quantity::{CpuLimit, DrainerResources, MemoryLimit, Quantity};
pub use removal::remove;
pub use repair::changes;
pub use review::{
    AdmissionOutcome, InvalidReview, MAX_NOTE_LEN, Owner, RequestMeta, ReviewResponse, SkippedPod,
    admit_pod,
};
pub use settings::{
    ContainerName, Defaults, DrainerApiDefaults, ExistingHook, Maxima, NativeSidecar, OnInvalid,
    PodSettings, PullPolicy, SettingRow, SettingSource, Settings,
};
pub use shutdown_manager::{ManagerProduct, ShutdownManager, is_drop_in};
pub use workload::admit_workload;
pub use workload::misplaced::{MisplacedAnnotation, misplaced};
pub use workload::objects::{PodTemplate, WorkloadObject, objects};
