//! The drains that are known, each of them once.

use k8s_openapi::api::core::v1::{Event, Pod};
use k8s_openapi::jiff::Timestamp;

use super::record::{DrainRecord, RecordOutcome, RecordSource};
use super::{events, pods};

/// The maximum number of drains, of less than 10 KiB each. Beyond it the oldest are forgotten.
const MAX_DRAINS: usize = 5_000;

/// The drains of pods and Events. A drain that is in both is listed once, as its pod has it.
#[derive(Debug, Default)]
pub struct DrainLog {
    records: Vec<DrainRecord>,
    forgotten: usize,
}

/// What a record adds to another one of the same drain.
#[derive(Debug, PartialEq, Eq)]
enum Update {
    /// It is to be shown.
    Print,
    /// More about a drain whose end has been shown.
    Detail,
    /// Nothing.
    Nothing,
}

// === impl DrainLog ===

impl DrainLog {
    /// Adds the drain of a pod. Returns its record if that is to be shown: a drain that was unknown, or has ended.
    pub fn add_pod(&mut self, pod: &Pod, now: Timestamp) -> Option<DrainRecord> {
        self.add(pods::from_pod(pod, now)?)
    }

    /// Adds the drains of an Event. Returns the records that are to be shown: drains that were unknown, or more of them
    /// than before.
    pub fn add_event(&mut self, event: &Event) -> Vec<DrainRecord> {
        let drains = events::drains_of(event);
        drains.filter_map(|record| self.add(record)).collect()
    }

    /// The drains, the newest last.
    pub fn records(&self) -> Vec<&DrainRecord> {
        let mut records: Vec<_> = self.records.iter().collect();
        records.sort_by(|a, b| a.time.cmp(&b.time));
        records
    }

    /// How often a drain was forgotten.
    pub fn forgotten(&self) -> usize {
        self.forgotten
    }

    fn add(&mut self, record: DrainRecord) -> Option<DrainRecord> {
        let mut records = self.records.iter_mut();
        if let Some(known) = records.find(|known| known.is_same(&record)) {
            let update = known.update(&record);
            if update != Update::Nothing {
                *known = record;
            }
            return (update == Update::Print).then(|| known.clone());
        }
        self.records.push(record.clone());
        if self.records.len() > MAX_DRAINS {
            let times = self.records.iter().map(|record| &record.time);
            let first = times.enumerate().min_by_key(|(_, time)| *time)?.0;
            self.records.remove(first);
            self.forgotten += 1;
            if first == MAX_DRAINS {
                return None;
            }
        }
        Some(record)
    }
}

// === impl DrainRecord ===

impl DrainRecord {
    /// Returns true for records of one pod, or of the drains after that pod's.
    fn is_same(&self, other: &Self) -> bool {
        let is_same_name = (&self.namespace, &self.pod) == (&other.namespace, &other.pod);
        let is_other_uid = self.uid.is_some() && other.uid.is_some() && self.uid != other.uid;
        is_same_name && self.follows == other.follows && !is_other_uid
    }

    /// What `new` adds to this record.
    fn update(&self, new: &Self) -> Update {
        use RecordOutcome::{Draining, Ended, Killed, Unknown};
        use RecordSource::{Event, Pod};
        match ((self.source, self.outcome), (new.source, new.outcome)) {
            ((Pod, Ended(_)), (Pod, Ended(_))) if self.time != new.time => Update::Print,
            ((Pod, Ended(_)), (Pod, Draining)) => Update::Print,
            ((Pod, Draining), (Pod, Ended(_) | Killed | Unknown)) => Update::Print,
            ((Pod, Killed | Unknown), (Pod, Ended(_)) | (Event, _)) => Update::Print,
            ((Event, _), (Pod, Ended(_))) => Update::Detail,
            ((Event, _), (Event, _)) if self.drains != new.drains => Update::Print,
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
            pod: Some("web-0".to_owned()),
            follows: None,
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
    fn later_drains_of_an_event_have_a_row_beside_the_pod() {
        let first = record(RecordSource::Event, DEADLINE, "a", 1);
        let later = |drains| DrainRecord {
            pod: None,
            follows: first.pod.clone(),
            drains,
            ..first.clone()
        };
        for mut log in [DrainLog::default(), {
            let mut log = DrainLog::default();
            log.add(record(RecordSource::Pod, DEADLINE, "a", 1));
            log
        }] {
            log.add(first.clone());
            for (drains, is_shown) in [(1, true), (1, false), (3, true), (3, false)] {
                let shown = log.add(later(drains));
                assert_eq!(shown, is_shown.then(|| later(drains)), "{drains}");
            }
            let drains: Vec<_> = log.records().iter().map(|record| record.drains).collect();
            assert_eq!(drains, [1, 3]);
        }
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
    fn oldest_drains_are_forgotten_beyond_the_limit() {
        let mut log = DrainLog::default();
        let drain = |outcome, uid: &str, at: usize| {
            let at = i64::try_from(at).unwrap();
            record(RecordSource::Pod, outcome, uid, at)
        };
        assert!(log.add(drain(DRAINING, "0", 0)).is_some());
        for n in 1..=MAX_DRAINS {
            assert!(log.add(drain(DEADLINE, &n.to_string(), n)).is_some());
        }
        let records = log.records();
        assert_eq!((records.len(), log.forgotten()), (MAX_DRAINS, 1));
        assert_eq!(records[0].uid.as_deref(), Some("1"));
        assert_eq!(log.add(drain(DRAINING, "0", 0)), None, "it was shown");
        let ended = drain(DEADLINE, "0", MAX_DRAINS + 1);
        assert!(log.add(ended).is_some(), "it ends");
        assert_eq!(log.add(drain(DEADLINE, "1", 1)), None, "it was shown");
        assert_eq!(log.records().len(), MAX_DRAINS);
    }
}
