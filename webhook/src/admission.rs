//! Admission: what a pod becomes. Pure: bytes in, bytes out, no client, clock or log.
//!
//! ```text
//! AdmissionReview bytes
//!   └ review ──► PodView, borrowed from the bytes; Facts
//!       └ mutate ─► eligibility ──► Verdict::Skip: allowed, a warning with its code, annotation `status`
//!                ├► Settings      the annotations over the Defaults; every bad value at once
//!                ├► DrainPlan     Envoy's container, its admin, timings, grace, the drainer's container
//!                └► edit          DrainPlan ─► Patch
//!                     └ answer ─► AdmissionReview bytes: the same uid, the patch in base64
//! ```
//!
//! [`mutate`] serves manifests as well: of a pod's template it asks no more than of a pod.

mod amounts;
mod decide;
mod defaults;
pub mod diagnostics;
mod edit;
mod eligibility;
mod excerpt;
mod owner_notification;
mod patch;
mod plan;
mod pod;
mod quantity;
mod review;
pub mod settings;
mod status;
mod token;
mod workload;

pub use amounts::{
    DrainerResources, InvalidAmount, InvalidResources, RequestAboveLimit, ResourceAmounts,
};
pub use decide::{Decision, PodContext, decide};
pub use defaults::{Defaults, OnInvalid};
pub use diagnostics::{Code, Diagnostic, Effect};
pub use owner_notification::{MAX_NOTE_LEN, Owner, SkippedPod};
pub use patch::Patch;
pub use plan::admin_endpoint::{AdminAddressSource, AdminEndpoint};
pub use plan::envoy_container::{
    ContainerList, ContainerRef, EnvoyContainer, EnvoyContainerSource,
};
pub use plan::sidecar_container::DRAINER_NAME as CONTAINER_NAME;
pub use plan::{DrainPlan, GracePeriod, SidecarMode};
pub use pod::{DecodeError, PodView};
pub use quantity::{InvalidQuantity, Quantity};
pub use review::request::InvalidReview;
pub use review::response::{AdmissionOutcome, RequestMeta, ReviewResponse, admit_pod};
pub use settings::{
    ExistingHook, NativeSidecar, ResourceSetting, Setting, SettingRow, SettingSource, Settings,
};
pub use status::skip_code;
pub use token::token;
pub use workload::admit_workload;
pub use workload::misplaced::{MisplacedAnnotation, misplaced};
pub use workload::objects::{PodTemplate, WorkloadObject, objects};
