//! A drill: pods are disrupted under load, and what was lost is counted. Pure: `cli::drill` acts on the cluster.
//!
//! ```text
//! Workload, Disruption ──▶ rights that are needed, and when the disruption is complete
//! ClientMix ─────────────▶ load::Load ──▶ LoadJob in a Job of the cluster, or here
//! pods as they are watched ──▶ PodLog ──┐
//! load::Report ─────────────────────────┴▶ DrillReport ──▶ text, JSON, JUnit, HTML with a chart
//! ```

pub mod chart;
pub mod disruption;
pub mod html;
pub mod job;
pub mod junit;
pub mod mix;
pub mod pods;
mod render;
pub mod report;
pub mod workload;

pub use render::to_text;
