//! What a drain decides, and what it tells: when it ends, what it calls, its progress and its summary.

pub(crate) mod calls;
pub(crate) mod client_activity;
pub(crate) mod exit_rules;
pub(crate) mod health_failure;
pub(crate) mod progress;
pub(crate) mod replacement;
pub(crate) mod report;
pub(crate) mod summary;
