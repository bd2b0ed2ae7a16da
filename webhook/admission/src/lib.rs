//! Admission: decides how a pod changes. It is pure: bytes in, bytes out, no client, clock or log.
//!
//! ```text
//! AdmissionReview bytes
//!   └ ReviewRequest ─► PodView, borrowed from the bytes; PodContext
//!       └ decide ─► eligibility ─► Decision::Skip: allowed, a warning with its code, annotation `status`
//!                ├► shutdown_manager   the pod without another product's drainer, if it asks for that
//!                ├► settings     the annotations over the Defaults; every bad value at once ─► Decision::Deny
//!                ├► plan         DrainPlan: Envoy's container, its admin, timings, grace period, the sidecar; or
//!                │               what is wrong with the pod, as Decision::Skip or Decision::Deny
//!                └► patch        DrainPlan ─► Patch, of `add` operations, at most one `remove` and one `move`
//!                     └ review::response::encode ─► AdmissionReview bytes: same uid, patch in base64
//! ```
//!
//! A workload is only checked ([`admit_workload`]): `decide` runs on its pod template, and all that is kept are the
//! warnings. `inject` and `explain` call [`decide()`] on manifests.
//!
//! Modules import downwards: `review`, `workload` → `decide` → `plan` → `settings` → `shutdown_manager` → `pod` → `diagnostics`, `limits`, `names`,
//! `quantity`.

mod context;
mod decide;
pub mod diagnostics;
mod eligibility;
mod excerpt;
mod limits;
mod names;
mod patch;
mod plan;
mod pod;
mod quantity;
mod review;
pub mod settings;
mod shutdown_manager;
mod sidecar_mode;
mod status;
mod workload;

pub use context::{PodContext, token};
pub use decide::{Decision, decide};
pub use diagnostics::{Code, Diagnostic, Effect};
pub use excerpt::needs_escape;
pub use names::{CONTAINER_NAME, REPORTING_CONTROLLER, WEBHOOK_AUDIENCE};
pub use patch::Patch;
pub use plan::admin_endpoint::{AdminAddressSource, AdminEndpoint};
pub use plan::envoy_container::{EnvoyContainer, EnvoyContainerSource};
pub use plan::extra_hooks::ExtraHook;
pub use plan::{DrainPlan, GracePeriod};
pub use pod::{ContainerList, ContainerRef, DEFAULT_GRACE_PERIOD, DecodeError, PodView};
pub use quantity::{DrainerResources, MemoryLimit, Quantity};
pub use review::owner_notification::{MAX_NOTE_LEN, Owner, SkippedPod};
pub use review::request::{InvalidReview, RequestMeta};
pub use review::response::{AdmissionOutcome, ReviewResponse, admit_pod};
pub use settings::defaults::{Defaults, DrainerApiDefaults, OnInvalid};
pub use settings::{
    ContainerName, ExistingHook, NativeSidecar, PodSettings, SettingRow, SettingSource, Settings,
};
pub use shutdown_manager::{ManagerProduct, ShutdownManager, VersionRange};
pub use sidecar_mode::SidecarMode;
pub use status::{RecordedInjection, RecordedSkip};
pub use workload::admit_workload;
pub use workload::misplaced::{MisplacedAnnotation, misplaced};
pub use workload::objects::{PodTemplate, WorkloadObject, objects};
