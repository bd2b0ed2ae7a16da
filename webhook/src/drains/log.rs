//! The drains that are known, each of them once.

use std::collections::VecDeque;

use k8s_openapi::api::core::v1::{Event, Pod};
use k8s_openapi::jiff::Timestamp;

use super::{DrainRecord, RecordOutcome, RecordSource, events, pods};

/// The maximum number of drains, of less than 10 KiB each. Beyond it the first ones are forgotten.
const MAX_DRAINS: usize = 5_000;

/// The drains of pods and Events. A drain that is in both is listed once, as its pod has it.
#[derive(Debug, Default)]
pub struct DrainLog {
    records: VecDeque<DrainRecord>,
    forgotten: usize,
}

/// What a record adds to another one of the same drain.
#[derive(Debug, PartialEq, Eq)]
enum Update {
    /// It is to be shown.
    News,
    /// More about a drain whose end has been shown.
    Detail,
    /// Nothing.
    Nothing,
}

// === impl DrainLog ===

impl DrainLog {
    /// Adds the drain of a pod. Returns its record if that is to be shown: a drain that was unknown, or has ended.
    pub fn add_pod(&mut self, pod: &Pod, now: Timestamp) -> Option<&DrainRecord> {
        self.add(pods::drain_of(pod, now)?)
    }

    /// Adds the drain of an Event. Returns its record if that is to be shown: a drain that was unknown, or an Event that
    /// stands for more drains than before.
    pub fn add_event(&mut self, event: &Event) -> Option<&DrainRecord> {
        self.add(events::drain_of(event)?)
    }

    /// The drains, the newest last.
    pub fn records(&self) -> Vec<&DrainRecord> {
        let mut records: Vec<_> = self.records.iter().collect();
        records.sort_by(|a, b| a.time.cmp(&b.time));
        records
    }

    /// How many drains were forgotten.
    pub fn forgotten(&self) -> usize {
        self.forgotten
    }

    fn add(&mut self, record: DrainRecord) -> Option<&DrainRecord> {
        let mut records = self.records.iter();
        let Some(index) = records.position(|known| known.is_same(&record)) else {
            if self.records.len() == MAX_DRAINS {
                self.records.pop_front();
                self.forgotten += 1;
            }
            self.records.push_back(record);
            return self.records.back();
        };
        let known = &mut self.records[index];
        let update = known.update(&record);
        if update != Update::Nothing {
            *known = record;
        }
        (update == Update::News).then_some(known)
    }
}

// === impl DrainRecord ===

impl DrainRecord {
    /// Returns true for records of one pod.
    fn is_same(&self, other: &Self) -> bool {
        let is_other_uid =
            || matches!((&self.uid, &other.uid), (Some(one), Some(two)) if one != two);
        (&self.pod, &self.namespace) == (&other.pod, &other.namespace) && !is_other_uid()
    }

    /// What `new` adds to this record.
    fn update(&self, new: &Self) -> Update {
        use RecordOutcome::{Draining, Ended, Unknown};
        use RecordSource::{Event, Pod};
        match ((self.source, self.outcome), (new.source, new.outcome)) {
            ((Pod, Ended(_)), (Pod, Ended(_))) if self.time != new.time => Update::News,
            ((Pod, Ended(_)), (Pod, Draining)) => Update::News,
            ((Pod, Draining), (Pod, Ended(_) | Unknown)) => Update::News,
            ((Pod, Unknown), (Pod, Ended(_)) | (Event, _)) => Update::News,
            ((Event, _), (Pod, Ended(_))) => Update::Detail,
            ((Event, _), (Event, _)) if self.drains != new.drains => Update::News,
            _ => Update::Nothing,
        }
    }
}
