//! A drill: pods are disrupted under load, and what was lost is counted.
//!
//! ```text
//! Workload, Disruption ──▶ rights that are needed, and when the disruption is complete
//! LoadArgs ──────────────▶ load::Load ──▶ LoadJob in a Job of the cluster, or here
//! pods as they are watched ──▶ PodLog ──┐
//! load::Report ─────────────────────────┴▶ DrillReport ──▶ text, JSON, JUnit
//! ```
//!
//! These are pure. What acts on the cluster is `session`, which [`cli`] starts, with `disrupt`, `load_run` and
//! `workload_client`.

#![warn(clippy::match_bool, clippy::print_stderr, clippy::print_stdout)]

pub mod cli;
mod disrupt;
mod disruption;
mod drill_command;
#[cfg(test)]
mod fake_api;
mod files;
mod job;
mod junit;
mod load_args;
mod load_command;
mod load_run;
mod pods;
mod render;
pub mod report;
mod session;
mod workload;
mod workload_client;
