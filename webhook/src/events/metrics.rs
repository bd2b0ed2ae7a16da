//! Metrics of Events: writes by result, and what no Event counts.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use crate::metrics::{Registry, ResultLabels};

/// The metrics of Events. Clones count together.
#[derive(Debug, Clone)]
pub struct Metrics {
    writes: Family<ResultLabels, Counter>,
    dropped: Counter,
}

// === impl Metrics ===

impl Metrics {
    /// Creates the metrics and adds them to `registry`.
    pub fn register(registry: &mut Registry) -> Self {
        let this = Self {
            writes: Family::default(),
            dropped: Counter::default(),
        };
        registry.register(
            "event_writes",
            "Writes of Events on the owners of pods, by result",
            this.writes.clone(),
        );
        registry.register(
            "events_dropped",
            "What happened to pods and no Event counts, because of a limit",
            this.dropped.clone(),
        );
        // Exported at zero, so that the first failure is an increase.
        for labels in &ResultLabels::ALL {
            let _ = this.writes.get_or_create(labels);
        }
        this
    }

    /// Counts a write of an Event.
    pub(super) fn count_write(&self, is_ok: bool) {
        self.writes.get_or_create(&ResultLabels::new(is_ok)).inc();
    }

    /// Counts what no Event counts.
    pub(super) fn count_dropped(&self) {
        self.dropped.inc();
    }
}
