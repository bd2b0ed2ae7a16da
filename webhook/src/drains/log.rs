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

#[cfg(test)]
mod tests {
    use drainer::DrainOutcome;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    const DRAINING: RecordOutcome = RecordOutcome::Draining;
    const UNKNOWN: RecordOutcome = RecordOutcome::Unknown;
    const DEADLINE: RecordOutcome = RecordOutcome::Ended(DrainOutcome::Deadline);

    /// A record of the pod with this uid, at this second.
    fn record(source: RecordSource, outcome: RecordOutcome, uid: &str, at: i64) -> DrainRecord {
        DrainRecord {
            time: Some(Time(Timestamp::from_second(at).unwrap())),
            namespace: "shop".to_owned(),
            pod: "web-0".to_owned(),
            uid: Some(uid.to_owned()),
            workload: None,
            outcome,
            seconds: None,
            cut: None,
            source,
            drains: 1,
            summary: None,
        }
    }

    #[test]
    fn each_drain_is_shown_once_at_its_start_and_end() {
        use RecordSource::{Event, Pod};
        // Records of one pod in the order in which they are added, which ones are shown, and the last one.
        let table = [
            (
                vec![(Pod, DRAINING), (Pod, DRAINING)],
                vec![0],
                (Pod, DRAINING),
            ),
            (
                vec![
                    (Pod, DRAINING),
                    (Event, DEADLINE),
                    (Pod, DEADLINE),
                    (Pod, DEADLINE),
                ],
                vec![0, 2],
                (Pod, DEADLINE),
            ),
            (
                vec![(Event, DEADLINE), (Event, DEADLINE)],
                vec![0],
                (Event, DEADLINE),
            ),
            (
                vec![(Event, DEADLINE), (Pod, DEADLINE)],
                vec![0],
                (Pod, DEADLINE),
            ),
            (
                vec![(Event, DEADLINE), (Pod, UNKNOWN)],
                vec![0],
                (Event, DEADLINE),
            ),
            (
                vec![(Pod, UNKNOWN), (Event, DEADLINE)],
                vec![0, 1],
                (Event, DEADLINE),
            ),
            (
                vec![(Pod, DRAINING), (Pod, UNKNOWN)],
                vec![0, 1],
                (Pod, UNKNOWN),
            ),
        ];
        for (records, shown, last) in table {
            let mut log = DrainLog::default();
            let is_shown = |(_, (source, outcome)): &(usize, &(RecordSource, RecordOutcome))| {
                log.add(record(*source, *outcome, "a", 1)).is_some()
            };
            let found = records.iter().enumerate().filter(is_shown);
            assert_eq!(
                found.map(|(n, _)| n).collect::<Vec<_>>(),
                shown,
                "{records:?}"
            );
            let all = log.records();
            assert_eq!(all.len(), 1);
            assert_eq!((all[0].source, all[0].outcome), last, "{records:?}");
        }
    }

    #[test]
    fn event_is_shown_again_when_it_stands_for_more_drains() {
        let mut log = DrainLog::default();
        let event = record(RecordSource::Event, DEADLINE, "a", 1);
        assert!(log.add(event.clone()).is_some());
        assert!(log.add(DrainRecord { drains: 2, ..event }).is_some());
    }

    #[test]
    fn pods_of_the_same_name_have_their_own_drains() {
        let mut log = DrainLog::default();
        for (uid, at) in [("b", 2), ("a", 1)] {
            assert!(
                log.add(record(RecordSource::Pod, DEADLINE, uid, at))
                    .is_some()
            );
        }
        let uids: Vec<_> = log
            .records()
            .iter()
            .map(|record| record.uid.clone())
            .collect();
        assert_eq!(uids, [Some("a".to_owned()), Some("b".to_owned())]);
    }

    #[test]
    fn first_drains_are_forgotten_beyond_the_limit() {
        let mut log = DrainLog::default();
        for n in 0..=MAX_DRAINS {
            log.add(record(RecordSource::Pod, DEADLINE, &n.to_string(), 1));
        }
        assert_eq!((log.records().len(), log.forgotten()), (MAX_DRAINS, 1));
    }
}
