//! The ends of pods, as a watch shows them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ctl::drains::{self, DrainRecord};
use ctl::pod_status::is_ready;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

/// The pods of a workload that have been deleted, by uid: a StatefulSet gives the next pod the same name.
#[derive(Debug, Default)]
pub(super) struct PodLog {
    ends: BTreeMap<String, PodEnd>,
    /// The names of those that exist, by uid.
    existing: BTreeMap<String, String>,
}

/// The end of a pod, with the times at which it was seen.
#[derive(Debug, Clone, PartialEq)]
pub struct PodEnd {
    pub name: String,
    /// t0: it was deleted.
    pub deleted_at: Instant,
    /// It was not ready.
    pub unready_at: Option<Instant>,
    /// It was gone.
    pub gone_at: Option<Instant>,
    /// Its last drain; `None` without a drainer.
    pub drain: Option<DrainRecord>,
}

// === impl PodLog ===

impl PodLog {
    /// Takes in a pod that exists, or has changed. Returns its end if it has begun to terminate.
    pub(super) fn observe(
        &mut self,
        pod: &Pod,
        now: Instant,
        wall_clock: Timestamp,
    ) -> Option<&PodEnd> {
        let uid = pod.metadata.uid.clone()?;
        let name = pod.metadata.name.clone().unwrap_or_default();
        self.existing.insert(uid.clone(), name.clone());
        pod.metadata.deletion_timestamp.as_ref()?;
        let is_new = !self.ends.contains_key(&uid);
        let end = self.ends.entry(uid).or_insert_with(|| PodEnd {
            name,
            deleted_at: now,
            unready_at: None,
            gone_at: None,
            drain: None,
        });
        if !is_ready(pod) {
            end.unready_at.get_or_insert(now);
        }
        if let Some(record) = drains::from_pod(pod, wall_clock) {
            end.drain = Some(record);
        }
        is_new.then_some(end)
    }

    /// Takes in a pod that is gone, in its last state. Returns its end if that was not known.
    pub(super) fn observe_gone(
        &mut self,
        pod: &Pod,
        now: Instant,
        wall_clock: Timestamp,
    ) -> Option<&PodEnd> {
        self.observe(pod, now, wall_clock);
        self.record_gone(pod.metadata.uid.as_ref()?, now)
    }

    /// Takes in all pods that exist: others are gone, even if the watch has missed that.
    pub(super) fn observe_all(&mut self, uids: &BTreeSet<String>, now: Instant) {
        for uid in self.uids().difference(uids) {
            self.record_gone(uid, now);
        }
    }

    /// The uids of the pods that exist.
    pub(super) fn uids(&self) -> BTreeSet<String> {
        self.existing.keys().cloned().collect()
    }

    /// The names of the pods that exist.
    pub(super) fn names(&self) -> BTreeSet<String> {
        self.existing.values().cloned().collect()
    }

    /// The ends so far, the earliest first.
    pub(super) fn ends(&self) -> Vec<PodEnd> {
        let mut ends: Vec<_> = self.ends.values().cloned().collect();
        ends.sort_by(|a, b| (a.deleted_at, &a.name).cmp(&(b.deleted_at, &b.name)));
        ends
    }

    /// How many pods have been deleted and still exist.
    pub(super) fn terminating(&self) -> usize {
        let ends = self.ends.values();
        ends.filter(|end| end.gone_at.is_none()).count()
    }

    fn record_gone(&mut self, uid: &str, now: Instant) -> Option<&PodEnd> {
        self.existing.remove(uid);
        let end = self.ends.get_mut(uid)?;
        let is_new = end.gone_at.is_none();
        end.gone_at.get_or_insert(now);
        is_new.then_some(end)
    }
}

// === impl PodEnd ===

impl PodEnd {
    /// t2: the drain ended, by the drainer's summary.
    pub fn drained_at(&self) -> Option<Instant> {
        let summary = self.drain.as_ref()?.summary.as_ref()?;
        let took = Duration::try_from_secs_f64(summary.seconds).ok()?;
        self.deleted_at.checked_add(took)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(uid: &str, is_deleted: bool, is_ready: bool, state: &Value) -> Pod {
        let mut pod = json!({
            "metadata": {"name": "edge-1", "namespace": "shop", "uid": uid},
            "spec": {
                "containers": [{"name": "envoy"}],
                "initContainers": [{"name": "envoy-drainer", "restartPolicy": "Always"}],
            },
            "status": {
                "conditions": [{"type": "Ready", "status": if is_ready { "True" } else { "False" }}],
                "initContainerStatuses": [{
                    "name": "envoy-drainer", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                    "state": state,
                }],
            },
        });
        if is_deleted {
            pod["metadata"]["deletionTimestamp"] = json!("2026-01-02T10:01:15Z");
        }
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn end_has_the_first_time_of_each_step() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let running = json!({"running": {"startedAt": "2026-01-02T08:00:01Z"}});
        let message = r#"{"outcome":"idle","seconds":5.5,"peak":3}"#;
        let ended = json!({"terminated": {
            "exitCode": 0, "finishedAt": "2026-01-02T10:00:06Z", "message": message,
        }});
        let mut log = PodLog::default();
        let observe = |log: &mut PodLog, second, pod: &Pod| {
            log.observe(pod, at(second), Timestamp::UNIX_EPOCH)
                .is_some()
        };
        assert!(!observe(&mut log, 0, &pod("a", false, true, &running)));
        assert_eq!(log.ends(), []);
        assert!(observe(&mut log, 1, &pod("a", true, true, &running)));
        assert!(!observe(&mut log, 2, &pod("a", true, false, &running)));
        observe(&mut log, 3, &pod("a", true, false, &running));
        assert_eq!(log.terminating(), 1);
        // The next pod of the same name.
        observe(&mut log, 7, &pod("b", false, true, &running));
        let last = pod("a", true, false, &ended);
        log.observe_gone(&last, at(8), Timestamp::UNIX_EPOCH);
        log.observe_all(&["b".to_owned()].into(), at(9));
        assert_eq!(log.terminating(), 0);

        let [end] = &log.ends()[..] else {
            panic!("{log:?}");
        };
        assert_eq!(end.deleted_at, at(1));
        assert_eq!(end.unready_at, Some(at(2)));
        assert_eq!(end.drained_at(), Some(at(1) + Duration::from_millis(5500)));
        assert_eq!(end.gone_at, Some(at(8)));
    }

    #[test]
    fn pod_whose_end_was_missed_is_gone_with_the_next_list() {
        let mut log = PodLog::default();
        let now = Instant::now();
        log.observe(
            &pod("a", true, true, &json!({})),
            now,
            Timestamp::UNIX_EPOCH,
        );
        log.observe_all(&BTreeSet::new(), now + Duration::from_secs(1));
        assert_eq!(log.ends()[0].gone_at, Some(now + Duration::from_secs(1)));
        assert_eq!(log.ends()[0].drained_at(), None);
    }
}
