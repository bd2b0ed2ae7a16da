//! The listeners under which each HTTP stats prefix is used: `http.PREFIX.*` does not say which listener its requests
//! came from, `listener.X.http.PREFIX.downstream_rq_completed` does.

use std::collections::BTreeMap;

use super::listeners::EnvoyListeners;
use super::stats::{ListenersByName, Stats};

/// The owners of each prefix. A prefix may have several, since connection managers may share one.
#[derive(Debug, Clone, Default)]
pub(crate) struct PrefixOwners(BTreeMap<String, Owners>);

#[derive(Debug, Clone, Copy, Default)]
struct Owners {
    /// A counted listener is among them.
    counted: bool,
    /// An excluded listener is among them.
    excluded: bool,
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
            let owners = self.0.entry(prefix.to_owned()).or_default();
            let is_excluded = known.excludes(listener);
            owners.excluded |= is_excluded;
            owners.counted |= !is_excluded;
        }
    }

    /// Returns true if an owner is known.
    pub(crate) fn has(&self, prefix: &str) -> bool {
        self.0.contains_key(prefix)
    }

    /// Returns true if all owners are counted listeners.
    pub(crate) fn are_all_counted(&self, prefix: &str) -> bool {
        self.0.get(prefix).is_some_and(|owners| !owners.excluded)
    }

    /// Returns true if all owners are excluded listeners.
    pub(crate) fn are_all_excluded(&self, prefix: &str) -> bool {
        self.0.get(prefix).is_some_and(|owners| !owners.counted)
    }
}
