//! Drains, as `envoy-drainer drains` shows them. Pure: pods and Events become records, rows and JSON.
//!
//! ```text
//! Pod: deletionTimestamp, the drainer's termination message ─► pods   ┐
//! Event with the reason DrainCut, which outlives the pod    ─► events ┴► DrainRecord ─► DrainLog: one of each drain
//!                                                                            └► DrainTable or JSON
//! ```

mod events;
mod log;
mod pods;
mod record;
mod table;

pub use log::DrainLog;
pub use pods::from_pod;
pub use record::{DrainRecord, RecordOutcome, RecordSource};
pub use table::DrainTable;
