//! Envoy's statistics, as `/stats?format=json` returns them: parsed, bounded, ordered by name.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::listeners::EnvoyListeners;

/// The request of a poll, for every statistic that the drainer reads, percent-encoded where Envoy's query parser
/// requires it.
///
/// Gauges and counters are in one request, so that Envoy walks its statistics once. Envoy's filter is
/// an RE2 *search*, hence the anchors.
pub(crate) const POLL_PATH: &str = "/stats?format=json&filter=%5E(\
    server%5C.(live%7Cparent_connections%7Chot_restart_epoch)%7C\
    listener%5C..*%5C.downstream_(pre_cx_active%7Ccx_active%7Ccx_total)%7C\
    http%5C..*%5C.downstream_(cx_active%7Ccx_tx_bytes_buffered%7Crq_active%7Ccx_upgrades_active%7C\
    cx_http%5B123%5D_total%7Ccx_http3_active)%7C\
    http%5C..*%5C.health_check%5C.request_total%7C\
    listener%5C..*%5C.http%5C..*%5C.downstream_rq_completed%7C\
    tcp%5C..*%5C.downstream_cx_total%7C\
    udp%5C..*%5C.downstream_sess_active)%24&usedonly";

/// The parameter at the end of [`POLL_PATH`], which a request for hidden statistics leaves out. It makes Envoy's walk 9
/// times cheaper (measured at 10,000 clusters) and leaves out statistics that were never updated, which are zero unless
/// `HiddenStats` has them.
pub(crate) const USED_ONLY: &str = "&usedonly";

/// The request for the owners of HTTP prefixes alone. Without [`USED_ONLY`], since a request that has no response yet
/// has not updated its statistic; counters alone take Envoy a third of the time.
pub(crate) const OWNERS_PATH: &str = "/stats?format=json&type=Counters&filter=\
    %5Elistener%5C..*%5C.http%5C..*%5C.downstream_rq_completed%24";

/// The statistics of one response that have a name, ordered by it. Entries are read one by one: what is left out takes no
/// memory, where two bytes would become 40.
pub(crate) struct Stats<'a>(Vec<(Cow<'a, str>, u64)>);

#[derive(Deserialize)]
struct StatsBody<'a> {
    #[serde(borrow)]
    stats: Stats<'a>,
}

/// A gauge or counter; the summary of histograms has no name.
#[derive(Deserialize)]
struct StatsEntry<'a> {
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    value: Option<u64>,
}

/// The statistics of one listener.
#[derive(Default, Clone, Copy)]
pub(crate) struct ListenerCounts {
    /// `downstream_pre_cx_active`: connections before their filter chain.
    pub pre_active: u64,
    /// `downstream_cx_active`.
    pub active: u64,
    /// `downstream_cx_total`.
    pub total: u64,
}

/// The statistics of listeners by their name in statistics.
pub(crate) type ListenersByName<'a> = BTreeMap<&'a str, ListenerCounts>;

// === impl Stats ===

impl<'a> Stats<'a> {
    /// Parses the body of a response to `/stats?format=json`.
    ///
    /// # Errors
    /// If it is not such a body. Also if a statistic is not a number from 0 to 2^64 - 1, since an unknown number is not
    /// zero.
    pub(crate) fn read(body: &'a [u8]) -> Result<Self, serde_json::Error> {
        let StatsBody { stats } = serde_json::from_slice(body)?;
        Ok(stats)
    }

    /// Iterates over the statistics whose names begin with `family`, split at the last dot: what is before it without
    /// `family`, what is after it, value.
    pub(crate) fn family(&self, family: &'static str) -> impl Iterator<Item = (&str, &str, u64)> {
        let all = self.0.iter();
        all.filter_map(move |(stat, value)| {
            let (owner, stat) = stat.strip_prefix(family)?.rsplit_once('.')?;
            Some((owner, stat, *value))
        })
    }

    /// Returns the value of a statistic; `None` if the response does not have it.
    pub(crate) fn get(&self, name: &str) -> Option<u64> {
        let at = self.0.binary_search_by_key(&name, |(name, _)| name).ok()?;
        Some(self.0[at].1)
    }

    /// Returns the listeners by their name in statistics, without those of single workers. The connections of Envoy's admin
    /// interface are left out; a listener with the `stat_prefix` `admin` adds its own to the same statistics.
    pub(crate) fn listeners(&self, known: &EnvoyListeners) -> ListenersByName<'_> {
        let mut listeners = ListenersByName::new();
        for (name, stat, value) in self.family("listener.") {
            match stat {
                "downstream_pre_cx_active" => listeners.entry(name).or_default().pre_active = value,
                "downstream_cx_active" => listeners.entry(name).or_default().active = value,
                "downstream_cx_total" => listeners.entry(name).or_default().total = value,
                _ => {}
            }
        }
        let main_thread = listeners.remove("admin.main_thread").unwrap_or_default();
        if let Some(admin) = listeners.get_mut("admin") {
            admin.active = admin.active.saturating_sub(main_thread.active);
            admin.total = admin.total.saturating_sub(main_thread.total);
        }
        // A listener whose own name ends in `.worker_N` is in the dump.
        let is_worker = |name: &&str| match name.rsplit_once(".worker_") {
            Some((listener, worker)) if !known.contains(name) => {
                worker.bytes().all(|b| b.is_ascii_digit()) && listeners.contains_key(listener)
            }
            _ => false,
        };
        let workers: Vec<_> = listeners.keys().copied().filter(is_worker).collect();
        // The workers are in the order of their names.
        listeners.retain(|name, _| workers.binary_search(name).is_err());
        listeners
    }

    /// Iterates over the numbers of completed requests, by listener and HTTP prefix.
    pub(crate) fn completed_requests<'s>(
        &'s self,
        listeners: &'s ListenersByName<'s>,
        known: &'s EnvoyListeners,
    ) -> impl Iterator<Item = (&'s str, &'s str, u64)> {
        let all = self.family("listener.");
        let completed = all.filter(|(_, stat, _)| *stat == "downstream_rq_completed");
        completed.flat_map(move |(pair, _, completed)| {
            // Both halves may contain `.http.`: the first one must be the name of a listener.
            let parts = pair.match_indices(".http.");
            let split = parts.map(|(at, infix)| (&pair[..at], &pair[at + infix.len()..]));
            split
                .filter(|(name, _)| listeners.contains_key(name) || known.contains(name))
                .map(move |(listener, prefix)| (listener, prefix, completed))
        })
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Stats<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Self(Vec::new()))
    }
}

impl<'de: 'a, 'a> Visitor<'de> for Stats<'a> {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of statistics")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<Self, A::Error> {
        while let Some(StatsEntry { name, value }) = list.next_element()? {
            if !name.is_empty() {
                let no_number = || A::Error::custom("a statistic without a number");
                self.0.push((name, value.ok_or_else(no_number)?));
            }
        }
        self.0.sort_unstable();
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_responses_are_errors() {
        for body in [
            "",
            "OK\n",
            "{}",
            "<html>",
            r#"{"stats":[{"name":"#,
            r#"{"stats":{}}"#,
            r#"{"stats":[{"name":"x"}]}"#,
            r#"{"stats":[{"name":"x","value":null}]}"#,
            r#"{"stats":[{"name":"x","value":"0"}]}"#,
            r#"{"stats":[{"name":"x","value":-1}]}"#,
            r#"{"stats":[{"name":"x","value":0.0}]}"#,
            r#"{"stats":[{"name":"x","value":18446744073709551616}]}"#,
            r#"{"stats":[{"name":"x","value":{}}]}"#,
        ] {
            assert!(Stats::read(body.as_bytes()).is_err(), "{body}");
        }
    }

    #[test]
    fn response_alone_bounds_the_number_of_statistics() {
        let stat = |port| format!(r#"{{"name":"listener.[__]_{port}.x","value":1}}"#);
        let all: Vec<_> = (0..100_000).map(stat).collect();
        let body = format!(r#"{{"stats":[{},{{"histograms":{{}}}}]}}"#, all.join(","));
        let stats = Stats::read(body.as_bytes()).unwrap();
        assert_eq!(stats.family("listener.").count(), all.len());
    }
}
