//! Metrics of reports. Labels are names of enums: none is a name of an object.

use ctl::cut::Cut;
use drainer::{DrainOutcome, DrainSummary, ReplacementOutcome, SetupWarningKind};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use strum::VariantNames;

use super::pod_termination::{TerminationCause, WorkloadKind};
use crate::metrics::Registry;

/// The metrics of reports. Clones count together.
#[derive(Debug, Clone)]
pub struct Metrics {
    reports: Family<ReportLabels, Counter>,
    drains: Family<DrainLabels, Counter>,
    durations: Family<OutcomeLabels, Histogram>,
    times_to_zero: Histogram,
    drains_with_cuts: Family<KindLabels, Counter>,
    drain_cuts: Family<CutLabels, Counter>,
    replacement_waits: Family<OutcomeLabels, Counter>,
    setup_warnings: Family<WarningLabels, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReportLabels {
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DrainLabels {
    outcome: &'static str,
    cause: &'static str,
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CutLabels {
    what: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WarningLabels {
    warning: &'static str,
}

/// Upper bounds of durations, in seconds: around the default deadline, and up to an hour.
const BUCKETS: [f64; 15] = [
    1.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0, 300.0, 600.0, 1800.0, 3600.0,
];

// === impl Metrics ===

impl Metrics {
    /// Creates the metrics and adds them to `registry`.
    pub fn register(registry: &mut Registry) -> Self {
        let histogram = || Histogram::new(BUCKETS);
        let this = Self {
            reports: Family::default(),
            drains: Family::default(),
            durations: Family::new_with_constructor(histogram),
            times_to_zero: histogram(),
            drains_with_cuts: Family::default(),
            drain_cuts: Family::default(),
            replacement_waits: Family::default(),
            setup_warnings: Family::default(),
        };
        registry.register(
            "drain_reports",
            "Reports of drainers, by result; dropped ones are over the rate, of a pod that nothing terminates, or lack their pod because the queue was full",
            this.reports.clone(),
        );
        registry.register(
            "drains",
            "Drains that were reported, by outcome, cause of the pod's termination and kind of its workload",
            this.drains.clone(),
        );
        registry.register(
            "drain_duration_seconds",
            "Time from the start of a pod's termination to the end of its drain, by outcome",
            this.durations.clone(),
        );
        registry.register(
            "drain_time_to_zero_seconds",
            "Time from the start of a drain until at most exit-at-connections connections were open",
            this.times_to_zero.clone(),
        );
        registry.register(
            "drains_with_cuts",
            "Drains that reached their deadline and cut something, by kind of the workload",
            this.drains_with_cuts.clone(),
        );
        registry.register(
            "drain_cuts",
            "What drains cut at their deadline; connections where Envoy hides what they are used for",
            this.drain_cuts.clone(),
        );
        registry.register(
            "replacement_waits",
            "Waits for a replacement of a pod, by outcome",
            this.replacement_waits.clone(),
        );
        registry.register(
            "setup_warnings",
            "Warnings of drainers, at their start, about a setup of Envoy that will impair drains",
            this.setup_warnings.clone(),
        );
        this.export_zeros();
        this
    }

    /// Exports at zero what has few labels, so that the first failure is an increase.
    fn export_zeros(&self) {
        for result in [true, false].map(result_name) {
            drop(self.reports.get_or_create(&ReportLabels { result }));
        }
        for outcome in DrainOutcome::VARIANTS {
            drop(self.durations.get_or_create(&OutcomeLabels { outcome }));
        }
        for kind in WorkloadKind::ALL.map(WorkloadKind::name) {
            drop(self.drains_with_cuts.get_or_create(&KindLabels { kind }));
        }
        for (what, _) in cut_numbers(Cut::default()) {
            drop(self.drain_cuts.get_or_create(&CutLabels { what }));
        }
        for outcome in ReplacementOutcome::VARIANTS {
            let labels = OutcomeLabels { outcome };
            drop(self.replacement_waits.get_or_create(&labels));
        }
        for warning in SetupWarningKind::VARIANTS {
            drop(
                self.setup_warnings
                    .get_or_create(&WarningLabels { warning }),
            );
        }
    }

    /// Counts a report: dropped unless it is counted with all that it says.
    pub(super) fn count_report(&self, is_complete: bool) {
        let result = result_name(is_complete);
        self.reports.get_or_create(&ReportLabels { result }).inc();
    }

    /// Counts a drain whose numbers are limited.
    pub(super) fn count_drain(
        &self,
        drain: &DrainSummary,
        cause: TerminationCause,
        kind: WorkloadKind,
    ) {
        let outcome = drain.outcome.into();
        let (cause, kind) = (cause.name(), kind.name());
        let labels = DrainLabels {
            outcome,
            cause,
            kind,
        };
        self.drains.get_or_create(&labels).inc();
        let duration = self.durations.get_or_create(&OutcomeLabels { outcome });
        duration.observe(drain.seconds);
        if let Some(seconds) = drain.seconds_to_zero {
            self.times_to_zero.observe(seconds);
        }
        if let Some(cut) = Cut::of(drain) {
            self.drains_with_cuts
                .get_or_create(&KindLabels { kind })
                .inc();
            for (what, number) in cut_numbers(cut) {
                self.drain_cuts
                    .get_or_create(&CutLabels { what })
                    .inc_by(number);
            }
        }
        if let Some(wait) = &drain.replacement {
            let outcome = wait.outcome.into();
            let waits = &self.replacement_waits;
            waits.get_or_create(&OutcomeLabels { outcome }).inc();
        }
    }

    /// Counts a setup warning.
    pub(super) fn count_setup_warning(&self, warning: SetupWarningKind) {
        let warning = warning.into();
        let labels = WarningLabels { warning };
        self.setup_warnings.get_or_create(&labels).inc();
    }
}

fn result_name(is_complete: bool) -> &'static str {
    if is_complete { "ok" } else { "dropped" }
}

fn cut_numbers(cut: Cut) -> [(&'static str, u64); 4] {
    let Cut {
        requests,
        upgrades,
        tcp,
        connections,
    } = cut;
    [
        ("requests", requests),
        ("upgrades", upgrades),
        ("tcp", tcp),
        ("connections", connections),
    ]
}
