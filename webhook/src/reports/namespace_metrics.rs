//! Metrics of drains by namespace, for alerts that go to the namespace's owners.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use admission::Cut;
use drainer::DrainSummary;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use crate::metrics::{Registry, register};

/// A label whose value is the name of a namespace, and another one.
type NamespaceLabels = [(&'static str, String); 2];

/// The number of namespaces with series of their own: at most ten series each.
const MAX_NAMESPACES: usize = 500;

/// Stands for all other namespaces. No namespace has this name, since a name begins with a letter or a digit.
const OTHERS: &str = "_others";

/// The metrics. Clones count together.
#[derive(Debug, Clone)]
pub(super) struct NamespaceMetrics {
    drains: Family<NamespaceLabels, Counter>,
    drain_cuts: Family<NamespaceLabels, Counter>,
    known: Arc<Mutex<BTreeSet<String>>>,
}

// === impl NamespaceMetrics ===

impl NamespaceMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        Self {
            drains: register(
                registry,
                "namespace_drains",
                "Drains that were reported, by the pod's namespace and outcome",
            ),
            drain_cuts: register(
                registry,
                "namespace_drain_cuts",
                "What drains cut, by the pod's namespace",
            ),
            known: Arc::default(),
        }
    }

    pub(super) fn count_drain(&self, namespace: &str, drain: &DrainSummary) {
        let namespace = self.label(namespace);
        let outcome: &str = drain.outcome.into();
        let labels = [
            ("namespace", namespace.clone()),
            ("outcome", outcome.to_owned()),
        ];
        self.drains.get_or_create(&labels).inc();
        for (what, number) in Cut::of(drain).into_iter().flat_map(Cut::numbers) {
            if number > 0 {
                let labels = [("namespace", namespace.clone()), ("what", what.to_owned())];
                self.drain_cuts.get_or_create(&labels).inc_by(number);
            }
        }
    }

    /// The value of the label of a namespace.
    fn label(&self, namespace: &str) -> String {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.contains(namespace) && known.len() >= MAX_NAMESPACES {
            return OTHERS.to_owned();
        }
        known.insert(namespace.to_owned());
        namespace.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use drainer::{DrainOutcome, Remaining};

    use super::*;
    use crate::metrics::{encode, registry};

    fn summary() -> DrainSummary {
        DrainSummary {
            outcome: DrainOutcome::Deadline,
            is_final: true,
            seconds: 60.0,
            seconds_to_failed_health: None,
            seconds_to_zero: None,
            seconds_to_last_new_connection: None,
            peak: 3,
            remaining: Some(Remaining {
                connections: 3,
                requests: Some(2),
                upgrades: Some(0),
                tcp: Some(0),
                ..Remaining::default()
            }),
            disagreement: None,
            witness: None,
            replacement: None,
        }
    }

    #[test]
    fn drains_are_counted_by_namespace_up_to_a_number() {
        let mut registry = registry();
        let metrics = NamespaceMetrics::register(&mut registry);
        for number in 0..MAX_NAMESPACES + 2 {
            metrics.count_drain(&format!("tenant-{number}"), &summary());
        }
        metrics.count_drain("tenant-0", &summary());
        let text = encode(&registry);
        for line in [
            r#"namespace_drains_total{namespace="tenant-0",outcome="deadline"} 2"#,
            r#"namespace_drain_cuts_total{namespace="tenant-0",what="requests"} 4"#,
            r#"namespace_drains_total{namespace="_others",outcome="deadline"} 2"#,
        ] {
            assert!(text.contains(line), "{line}");
        }
        let series = text.matches("namespace_drains_total{").count();
        assert_eq!(series, MAX_NAMESPACES + 1);
    }
}
