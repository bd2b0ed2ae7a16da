//! The listeners under which each HTTP stats prefix is used: `http.PREFIX.*` does not say which listener its requests
//! came from, `listener.X.http.PREFIX.downstream_rq_completed` does.

use std::collections::{BTreeMap, BTreeSet};

use super::listeners::EnvoyListeners;
use super::stats::{ListenersByName, Stats};

/// The prefixes by their owners. A prefix may have several, since connection managers may share one.
#[derive(Debug, Clone, Default)]
pub(crate) struct PrefixOwners {
    /// Whether a counted listener is an owner of the prefix, and whether an excluded one is.
    prefixes: BTreeMap<String, (bool, bool)>,
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
            let is_excluded = known.excludes(listener);
            let (counted, excluded) = self.prefixes.entry(prefix.to_owned()).or_default();
            *counted |= !is_excluded;
            *excluded |= is_excluded;
            self.listeners.insert(listener.to_owned());
        }
    }

    /// Returns true if an owner is known.
    pub(crate) fn has(&self, prefix: &str) -> bool {
        self.prefixes.contains_key(prefix)
    }

    /// Returns true if all owners are counted listeners.
    pub(crate) fn are_all_counted(&self, prefix: &str) -> bool {
        self.prefixes.get(prefix) == Some(&(true, false))
    }

    /// Returns true if all owners are excluded listeners.
    pub(crate) fn are_all_excluded(&self, prefix: &str) -> bool {
        self.prefixes.get(prefix) == Some(&(false, true))
    }
}
