//! Metrics of reports. Labels are names of enums.

use admission::{Cut, silent_connections};
use drainer::{DrainOutcome, DrainSummary, ReplacementOutcome, SetupWarningKind};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use strum::VariantNames;

use super::pod_termination::{TerminationCause, WorkloadKind};
use crate::metrics::{Labels, Registry, export_zeros, metrics};

metrics! {
    /// The metrics of reports. Clones count together.
    #[derive(Debug, Clone)]
    pub struct Metrics {
        reports: Family<Labels<1>, Counter>, "drain_reports",
            "Reports of drainers, by result; dropped ones are over the rate, of a pod that is not terminating, or lack their pod because the queue was full";
        drains: Family<Labels<3>, Counter>, "drains",
            "Drains that were reported, by outcome, cause of the pod's termination and kind of its workload";
        durations: Family<Labels<1>, Histogram> =
            Family::new_with_constructor((|| Histogram::new(BUCKETS)) as fn() -> Histogram),
            "termination_duration_seconds",
            "Time from the start of a pod's termination to the end of its drain, by outcome";
        times_to_zero: Histogram = Histogram::new(BUCKETS), "drain_time_to_zero_seconds",
            "Time from the start of a drain until at most exit-at-connections connections were open";
        times_to_last_new_connection: Histogram = Histogram::new(BUCKETS),
            "drain_time_to_last_new_connection_seconds",
            "Time from the start of a drain to its last new connection";
        drains_with_cuts: Family<Labels<1>, Counter>, "drains_with_cuts",
            "Drains that cut something, by kind of the workload";
        drain_cuts: Family<Labels<1>, Counter>, "drain_cuts",
            "What drains cut; connections if Envoy hides what they are used for; unknown counts drains without counts";
        disagreements: Family<Labels<1>, Counter>, "drain_disagreements",
            "Drains at whose end the kernel knew of more than Envoy's statistics, by what it knew";
        silent_connections: Counter, "drain_silent_connections",
            "Connections that drains of servers left open and silent: a stream among them was cut";
        replacement_waits: Family<Labels<1>, Counter>, "replacement_waits",
            "Waits for a replacement of a pod, by outcome";
        setup_warnings: Family<Labels<1>, Counter>, "setup_warnings",
            "Setup warnings of drainers: what in Envoy's configuration will impair drains";
    }
}

/// The results of reports.
const RESULTS: [&str; 2] = ["ok", "dropped"];

/// What the kernel may know beyond Envoy's statistics.
const DISAGREEMENTS: [&str; 3] = ["connections", "unaccepted", "undelivered_bytes"];

/// Upper bounds of durations, in seconds: around the default deadline, and up to an hour.
const BUCKETS: [f64; 15] = [
    1.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0, 300.0, 600.0, 1800.0, 3600.0,
];

// === impl Metrics ===

impl Metrics {
    /// Creates the metrics and adds them to `registry`.
    pub fn register(registry: &mut Registry) -> Self {
        let this = Self::registered(registry);
        export_zeros(&this.reports, "result", &RESULTS);
        export_zeros(&this.durations, "outcome", DrainOutcome::VARIANTS);
        export_zeros(&this.drains_with_cuts, "kind", WorkloadKind::VARIANTS);
        let whats = Cut::Unknown.numbers().map(|(what, _)| what);
        export_zeros(&this.drain_cuts, "what", &whats);
        export_zeros(&this.disagreements, "what", &DISAGREEMENTS);
        let waits = ReplacementOutcome::VARIANTS;
        export_zeros(&this.replacement_waits, "outcome", waits);
        export_zeros(&this.setup_warnings, "warning", SetupWarningKind::VARIANTS);
        this
    }

    /// Counts a report: dropped unless it is counted with all that it says.
    pub(super) fn count_report(&self, is_complete: bool) {
        let [ok, dropped] = RESULTS;
        let result = if is_complete { ok } else { dropped };
        self.reports.get_or_create(&[("result", result)]).inc();
    }

    /// Counts a drain whose numbers are limited.
    pub(super) fn count_drain(
        &self,
        drain: &DrainSummary,
        cause: TerminationCause,
        kind: WorkloadKind,
    ) {
        let outcome = ("outcome", drain.outcome.into());
        let (cause, kind) = (("cause", cause.into()), ("kind", kind.into()));
        self.drains.get_or_create(&[outcome, cause, kind]).inc();
        self.durations
            .get_or_create(&[outcome])
            .observe(drain.seconds);
        if let Some(seconds) = drain.seconds_to_zero {
            self.times_to_zero.observe(seconds);
        }
        if let Some(seconds) = drain.seconds_to_last_new_connection {
            self.times_to_last_new_connection.observe(seconds);
        }
        if let Some(cut) = Cut::of(drain) {
            if cut != Cut::Unknown {
                self.drains_with_cuts.get_or_create(&[kind]).inc();
            }
            for (what, number) in cut.numbers() {
                self.drain_cuts
                    .get_or_create(&[("what", what)])
                    .inc_by(number);
            }
        }
        self.silent_connections.inc_by(silent_connections(drain));
        let more = drain.disagreement.unwrap_or_default();
        let numbers = [more.connections, more.unaccepted, more.undelivered_bytes];
        for (what, number) in DISAGREEMENTS.into_iter().zip(numbers) {
            let drains = self.disagreements.get_or_create(&[("what", what)]);
            drains.inc_by(u64::from(number > 0));
        }
        if let Some(wait) = &drain.replacement {
            let labels = [("outcome", wait.outcome.into())];
            self.replacement_waits.get_or_create(&labels).inc();
        }
    }

    /// Counts a setup warning.
    pub(super) fn count_setup_warning(&self, warning: SetupWarningKind) {
        let labels = [("warning", warning.into())];
        self.setup_warnings.get_or_create(&labels).inc();
    }
}
