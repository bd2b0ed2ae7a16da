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

mod admin;
mod amounts;
pub mod annotations;
mod answer;
mod astray;
mod bootstrap;
mod clash;
pub mod codes;
mod container;
mod defaults;
mod edit;
mod eligibility;
mod envoy;
mod excerpt;
mod mutate;
mod object;
mod patch;
mod places;
mod plan;
mod probes;
mod quantity;
mod resources;
mod review;
mod settings;
mod socket;
mod status;
mod token;
mod undrained;
mod view;
mod workload;

pub use admin::{AdminAddressSource, AdminEndpoint};
pub use amounts::{
    DrainerResources, InvalidAmount, InvalidResources, RequestAboveLimit, ResourceAmounts,
};
pub use answer::{AdmissionOutcome, RequestMeta, ReviewResponse, admit_pod};
pub use astray::{MisplacedAnnotation, misplaced};
pub use codes::{Code, Diagnostic, Effect};
pub use container::DRAINER_NAME as CONTAINER_NAME;
pub use defaults::{Defaults, OnInvalid};
pub use envoy::{ContainerList, ContainerRef, EnvoyContainer, EnvoyContainerSource};
pub use mutate::{Decision, PodContext, decide};
pub use object::{PodTemplate, WorkloadObject, objects};
pub use patch::Patch;
pub use plan::{DrainPlan, GracePeriod, SidecarMode};
pub use quantity::{InvalidQuantity, Quantity};
pub use review::InvalidReview;
pub(crate) use settings::check_value;
pub use settings::{
    ExistingHook, NativeSidecar, ResourceSetting, Setting, SettingRow, SettingSource, Settings,
};
pub use status::skip_code;
pub use token::token;
pub use undrained::{MAX_NOTE_LEN, Owner, SkippedPod};
pub use view::{DecodeError, PodView};
pub use workload::admit_workload;
