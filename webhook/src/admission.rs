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

pub use admin::{Admin, AdminFoundBy};
pub use amounts::{Amounts, InvalidAmount, InvalidResources, RequestAboveLimit, Resources};
pub use answer::{About, Answer, Outcome, answer};
pub use astray::{Stray, astray};
pub use codes::{Code, Effect, Notice};
pub use container::NAME as CONTAINER_NAME;
pub use defaults::{Defaults, OnInvalid};
pub use envoy::{Envoy, FoundBy, List, Place};
pub use mutate::{Facts, Verdict, mutate};
pub use object::{Object, Template, objects};
pub use patch::Patch;
pub use plan::{DrainPlan, Grace, Sidecar};
pub use quantity::{InvalidQuantity, Quantity};
pub use review::NotAReview;
pub(crate) use settings::misread;
pub use settings::{ExistingHook, NativeSidecar, Setting, Settings, Share, Shown, Source};
pub use status::skipped_for;
pub use token::token;
pub use undrained::{LONGEST_NOTE, Owner, Undrained};
pub use view::{PodView, Unread};
pub use workload::advise;
