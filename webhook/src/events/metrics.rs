//! Metrics of Events.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use crate::metrics::{Labels, RESULTS, Registry, export_zeros, metrics, result};

metrics! {
    /// The metrics of Events: writes by result, and what no Event counts. Clones count together.
    #[derive(Debug, Clone)]
    pub struct Metrics {
        writes: Family<Labels<1>, Counter>, "event_writes",
            "Writes of Events on the owners of pods, by result";
        pub(super) dropped: Counter, "events_dropped",
            "Occurrences that no Event counts, because of a limit";
    }
}

// === impl Metrics ===

impl Metrics {
    /// Creates the metrics and adds them to `registry`.
    pub fn register(registry: &mut Registry) -> Self {
        let this = Self::registered(registry);
        export_zeros(&this.writes, "result", &RESULTS);
        this
    }

    /// Counts the write of an Event.
    pub(super) fn count_write(&self, is_written: bool) {
        self.writes.get_or_create(&result(is_written)).inc();
    }
}
