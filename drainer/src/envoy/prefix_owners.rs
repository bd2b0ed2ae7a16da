//! The listeners under which each HTTP stats prefix is used: `http.PREFIX.*` does not say which listener its requests
//! came from, `listener.X.http.PREFIX.downstream_rq_completed` does.

use std::collections::BTreeSet;

use super::listeners::EnvoyListeners;
use super::stats::{ListenersByName, Stats};

/// The prefixes by their owners. A prefix may have several, since connection managers may share one.
#[derive(Debug, Clone, Default)]
pub(crate) struct PrefixOwners {
    /// Those of which a counted listener is an owner.
    counted: BTreeSet<String>,
    /// Those of which an excluded listener is an owner.
    excluded: BTreeSet<String>,
    /// The owners, by their names in statistics: the listeners that speak HTTP, on a part of their connections at least.
    pub listeners: BTreeSet<String>,
}

// === impl PrefixOwners ===

impl PrefixOwners {
    /// Adds what a response shows.
    pub(crate) fn add(
        &mut self,
        stats: &Stats<'_>,
        listeners: &ListenersByName<'_>,
        known: &EnvoyListeners,
    ) {
        for (listener, prefix, _) in stats.completed_requests(listeners, known) {
            let prefixes = if known.excludes(listener) {
                &mut self.excluded
            } else {
                &mut self.counted
            };
            prefixes.insert(prefix.to_owned());
            self.listeners.insert(listener.to_owned());
        }
    }

    /// Returns true if an owner is known.
    pub(crate) fn has(&self, prefix: &str) -> bool {
        self.counted.contains(prefix) || self.excluded.contains(prefix)
    }

    /// Returns true if all owners are counted listeners.
    pub(crate) fn are_all_counted(&self, prefix: &str) -> bool {
        self.counted.contains(prefix) && !self.excluded.contains(prefix)
    }

    /// Returns true if all owners are excluded listeners.
    pub(crate) fn are_all_excluded(&self, prefix: &str) -> bool {
        self.excluded.contains(prefix) && !self.counted.contains(prefix)
    }
}
