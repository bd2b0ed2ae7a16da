//! The content of the CA Secret, mode `self`.

use std::ops::Not;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pki::bundle::Bundle;
use pki::ca::Ca;
use serde::{Deserialize, Serialize};

use super::cluster::{MAX_ROTATE_LEN, Secret, SecretData};

/// How many retired CAs the Secret holds at most, and how many distrusted ones: it may be 1 MiB. The webhook does not
/// create so many, since a missing CA is not replaced once half as many are trusted.
pub(super) const MAX_STORED_CAS: usize = 64;

/// The CAs that API servers must trust, PEM: the active, the next and the retired ones.
const CA_CRT: &str = "ca.crt";
/// The certificate of the active CA, and its key.
const ACTIVE: [&str; 2] = ["active.crt", "active.key"];
/// The certificate of the next CA, and its key.
const NEXT: [&str; 2] = ["next.crt", "next.key"];
const STATE: &str = "state.json";
/// CAs that are to be in no `caBundle`, PEM.
const DISTRUSTED: &str = "distrusted.crt";
/// The last requested rotation that was started.
const ROTATED: &str = "rotated";

/// Our CAs: the active, the next, the retired and the distrusted ones.
#[derive(Debug, Clone)]
pub(super) struct CaSecret {
    /// Signs leaves.
    pub(super) active: Option<Arc<Ca>>,
    /// Published, but does not sign until every API server trusts it.
    pub(super) next: Option<Arc<Ca>>,
    /// Do not sign any more, but their leaves may still be served. The last retired comes first.
    pub(super) retired: Bundle,
    /// CAs whose keys have leaked, or whose leaves have expired. They are removed from every `caBundle` when every
    /// replica has had time to serve a leaf of another CA. The active CA may be among them until the next one is
    /// activated.
    pub(super) distrusted: Bundle,
    /// When a CA was last retired or distrusted; when the Secret was read, if it does not say.
    pub(super) retired_at: SystemTime,
    /// True if no certificate was served when the first CA of the Secret was created, though API servers trusted CAs of
    /// an earlier installation.
    pub(super) is_abandoned: bool,
    /// The rotation that an operator requested, by annotation.
    pub(super) requested_rotation: Option<String>,
    /// The last requested rotation that was started.
    pub(super) started_rotation: Option<String>,
    /// The keys whose values were unusable.
    pub(super) unusable_keys: Vec<&'static str>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct State {
    /// Seconds since 1970.
    retired_at: Option<u64>,
    #[serde(skip_serializing_if = "Not::not")]
    is_abandoned: bool,
}

// === impl CaSecret ===

impl CaSecret {
    /// Reads the Secret at `now`. What is unusable is missing from the result, and is created again like anything that
    /// is missing.
    pub(super) fn read(secret: &Secret, now: SystemTime) -> Self {
        let data = &secret.data;
        let mut unusable_keys = Vec::new();
        let mut read_ca = |[certificate, key]: [&'static str; 2]| {
            let pair = data.get(certificate).zip(data.get(key));
            let ca = pair.and_then(|(certificate, key)| Ca::from_pem(certificate, key).ok());
            let mut keys = [certificate, key].into_iter();
            if ca.is_none() {
                unusable_keys.extend(keys.find(|key| data.contains_key(*key)));
            }
            ca.map(Arc::new)
        };
        let (active, next) = (read_ca(ACTIVE), read_ca(NEXT));
        let state = data.get(STATE).map(|json| serde_json::from_slice(json));
        let state: State = state.and_then(Result::ok).unwrap_or_default();
        let retired_at = state.retired_at.and_then(from_unix_seconds);
        let read_bundle = |key| data.get(key).map(|pem| Bundle::read(pem));
        let listed = read_bundle(CA_CRT);
        // CAs of others cannot be among our retired ones.
        let own = listed.as_ref().map(Bundle::issued_by_us);
        if own != listed || own.as_ref().is_some_and(Bundle::is_empty) {
            unusable_keys.push(CA_CRT);
        }
        let rotated = data.get(ROTATED);
        let rotated = rotated.filter(|value| value.len() <= MAX_ROTATE_LEN);
        let distrusted = read_bundle(DISTRUSTED).unwrap_or_default();
        let mut this = Self {
            active,
            next,
            retired: Bundle::default(),
            distrusted: distrusted.issued_by_us().first(MAX_STORED_CAS),
            retired_at: retired_at.unwrap_or(now),
            is_abandoned: state.is_abandoned,
            requested_rotation: secret.rotate.clone(),
            started_rotation: rotated.map(|value| String::from_utf8_lossy(value).into_owned()),
            unusable_keys,
        };
        let others = this.current().union(&this.distrusted);
        // More would leave no room for a new CA.
        let retired = own.unwrap_or_default().without(&others);
        this.retired = retired.first(MAX_STORED_CAS);
        // Undated, they would never be removed.
        if retired_at.is_none() && !this.known_cas().without(&this.current()).is_empty() {
            this.unusable_keys.push(STATE);
        }
        this
    }

    /// The data of the Secret. Keys of others are not kept: they could fill the Secret so that no write would succeed.
    pub(super) fn write(&self) -> SecretData {
        let retired_at = self.retired_at.duration_since(UNIX_EPOCH);
        let state = State {
            retired_at: Some(retired_at.unwrap_or_default().as_secs()),
            is_abandoned: self.is_abandoned,
        };
        let state = serde_json::to_string(&state).expect("a struct of numbers can be JSON");
        let mut data = vec![(CA_CRT, self.trust_bundle().pem()), (STATE, state)];
        if !self.distrusted.is_empty() {
            data.push((DISTRUSTED, self.distrusted.pem()));
        }
        if let Some(rotation) = &self.started_rotation {
            data.push((ROTATED, rotation.clone()));
        }
        for ([certificate, key], ca) in [(ACTIVE, &self.active), (NEXT, &self.next)] {
            if let Some(ca) = ca {
                data.push((certificate, ca.pem()));
                data.push((key, ca.key_pem()));
            }
        }
        let data = data.into_iter();
        data.map(|(key, value)| (key.to_owned(), value.into_bytes()))
            .collect()
    }

    /// The active and the next CA.
    pub(super) fn current(&self) -> Bundle {
        let both = [&self.active, &self.next].into_iter().flatten();
        both.map(|ca| ca.der().clone()).collect()
    }

    /// The CAs that API servers must trust.
    pub(super) fn trust_bundle(&self) -> Bundle {
        self.current().union(&self.retired)
    }

    /// Every CA of the Secret.
    pub(super) fn known_cas(&self) -> Bundle {
        self.trust_bundle().union(&self.distrusted)
    }

    /// The distrusted CAs that do not sign any more.
    pub(super) fn inactive_distrusted(&self) -> Bundle {
        self.distrusted.without(&self.current())
    }

    /// Returns true if an operator requested a rotation that has not started.
    pub(super) fn is_rotation_requested(&self) -> bool {
        self.requested_rotation.is_some() && self.requested_rotation != self.started_rotation
    }

    /// Adds CAs that do not sign any more, at `now`.
    pub(super) fn retire(&mut self, cas: &Bundle, now: SystemTime) {
        self.retired = cas.without(&self.distrusted).union(&self.retired);
        self.retired_at = now;
    }

    /// Distrusts these CAs, at `now`.
    pub(super) fn distrust(&mut self, cas: &Bundle, now: SystemTime) {
        self.retired = self.retired.without(cas);
        self.distrusted = cas.clone().union(&self.distrusted);
        self.retired_at = now;
    }
}

/// `None` for a number that is out of range.
fn from_unix_seconds(seconds: u64) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificates::rotation::{RotationReason, Step, apply};
    use pki::clock::wall_clock;
    use pki::lifetimes::Lifetimes;
    use rustls::pki_types::CertificateDer;

    const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

    /// A whole second, as the Secret holds it.
    fn now() -> SystemTime {
        from_unix_seconds(1_700_000_000).unwrap()
    }

    fn ca() -> Arc<Ca> {
        Arc::new(Ca::try_new(wall_clock(), YEAR).unwrap())
    }

    fn read(data: &SecretData) -> (CaSecret, Vec<&'static str>) {
        let secret = Secret {
            resource_version: String::new(),
            data: data.clone(),
            rotate: Some("today".to_owned()),
        };
        let mut read = CaSecret::read(&secret, now());
        let unusable = std::mem::take(&mut read.unusable_keys);
        (read, unusable)
    }

    fn empty() -> CaSecret {
        let (read, _) = read(&SecretData::new());
        CaSecret {
            requested_rotation: None,
            ..read
        }
    }

    fn full() -> CaSecret {
        CaSecret {
            active: Some(ca()),
            next: Some(ca()),
            retired: Bundle::from(ca().der().clone()),
            distrusted: Bundle::from(ca().der().clone()),
            retired_at: now(),
            requested_rotation: None,
            started_rotation: Some("yesterday".to_owned()),
            ..empty()
        }
    }

    fn der(ca: Option<&Arc<Ca>>) -> Option<&CertificateDer<'static>> {
        ca.map(|ca| ca.der())
    }

    #[test]
    fn content_round_trips() {
        let alone = CaSecret {
            active: Some(ca()),
            ..empty()
        };
        for ca_secret in [full(), alone, empty()] {
            let (read, unusable) = read(&ca_secret.write());
            assert_eq!(der(read.active.as_ref()), der(ca_secret.active.as_ref()));
            assert_eq!(der(read.next.as_ref()), der(ca_secret.next.as_ref()));
            assert_eq!(read.retired, ca_secret.retired);
            assert_eq!(read.distrusted, ca_secret.distrusted);
            assert_eq!(read.retired_at, ca_secret.retired_at);
            assert_eq!(read.trust_bundle(), ca_secret.trust_bundle());
            assert_eq!(read.started_rotation, ca_secret.started_rotation);
            assert_eq!(read.requested_rotation.as_deref(), Some("today"));
            let wanted: &[_] = if ca_secret.trust_bundle().is_empty() {
                &[CA_CRT]
            } else {
                &[]
            };
            assert_eq!(unusable, wanted);
        }
    }

    #[test]
    fn empty_secret_holds_nothing() {
        let (read, unusable) = read(&SecretData::new());
        assert!(read.known_cas().is_empty() && read.retired_at == now());
        assert!(unusable.is_empty());
    }

    #[test]
    fn unusable_keys_are_named_and_the_rest_kept() {
        type Corrupt = fn(&mut SecretData);
        let junk = || b"junk".to_vec();
        let table: [(Corrupt, &[&str], usize); 8] = [
            (
                |data| drop(data.insert("active.crt".into(), b"junk".into())),
                &["active.crt"],
                3,
            ),
            (
                |data| drop(data.insert("active.key".into(), b"junk".into())),
                &["active.crt"],
                3,
            ),
            (|data| drop(data.remove("active.key")), &["active.crt"], 3),
            (|data| drop(data.remove("next.crt")), &["next.key"], 3),
            (|data| drop(data.remove("state.json")), &["state.json"], 3),
            (
                |data| drop(data.insert("state.json".into(), b"junk".into())),
                &["state.json"],
                3,
            ),
            (
                |data| drop(data.insert("ca.crt".into(), b"junk".into())),
                &["ca.crt"],
                2,
            ),
            (
                |data| {
                    // The active CA's certificate with the next CA's key.
                    let next = data["next.key"].clone();
                    data.insert("active.key".into(), next);
                },
                &["active.crt"],
                3,
            ),
        ];
        for (row, (corrupt, wanted, left)) in table.into_iter().enumerate() {
            let mut data = full().write();
            corrupt(&mut data);
            let (read, unusable) = read(&data);
            assert_eq!(unusable, wanted, "row {row}");
            // A CA without its key stays trusted: it may have signed.
            assert_eq!(read.trust_bundle().iter().count(), left, "row {row}");
        }
        let everything = [
            "ca.crt",
            "active.crt",
            "active.key",
            "next.crt",
            "next.key",
            "state.json",
        ]
        .map(|key| (key.to_owned(), junk()));
        let (read, unusable) = read(&SecretData::from(everything));
        let wanted = ["active.crt", "next.crt", "ca.crt"];
        assert_eq!(unusable, wanted);
        assert!(read.trust_bundle().is_empty());
    }

    #[test]
    fn foreign_ca_is_not_among_the_retired() {
        let ca_secret = full();
        let mut data = ca_secret.write();
        let foreign = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap();
        let listed = data.get_mut("ca.crt").unwrap();
        listed.extend(foreign.cert.pem().into_bytes());
        let (read, unusable) = read(&data);
        assert_eq!(unusable, ["ca.crt"]);
        assert_eq!(read.retired, ca_secret.retired);
    }

    #[test]
    fn requested_rotation_distrusts_all_stored_cas() {
        let before = full();
        let mut ca_secret = CaSecret {
            requested_rotation: Some("today".to_owned()),
            ..before.clone()
        };
        let (now, lifetimes) = (wall_clock(), Lifetimes::default());
        assert!(ca_secret.is_rotation_requested() && !before.is_rotation_requested());
        let create = Step::CreateNext(RotationReason::Requested);
        apply(create, &mut ca_secret, now, &lifetimes, &[]).unwrap();
        assert!(!ca_secret.is_rotation_requested());
        assert_eq!(ca_secret.distrusted, before.known_cas());
        assert!(ca_secret.retired.is_empty());
        assert_eq!(
            der(ca_secret.active.as_ref()),
            der(before.active.as_ref()),
            "it signs until the next one does"
        );
        let next = Bundle::from(der(ca_secret.next.as_ref()).unwrap().clone());
        apply(Step::ActivateNext, &mut ca_secret, now, &lifetimes, &[]).unwrap();
        assert_eq!(ca_secret.trust_bundle(), next);
        assert_eq!(ca_secret.inactive_distrusted(), before.known_cas());
        let (read, unusable) = read(&ca_secret.write());
        assert_eq!(
            (read.inactive_distrusted(), read.trust_bundle()),
            (before.known_cas(), next)
        );
        assert!(unusable.is_empty());
    }

    #[test]
    fn last_signers_of_many_distrusted_are_kept() {
        let retired = || (0..100).map(|_| ca().der().clone()).collect();
        let mut ca_secret = CaSecret {
            retired: retired(),
            distrusted: retired(),
            ..full()
        };
        let current = ca_secret.current();
        let create = Step::CreateNext(RotationReason::Requested);
        let lifetimes = Lifetimes::default();
        apply(create, &mut ca_secret, wall_clock(), &lifetimes, &[]).unwrap();
        let (read, _) = read(&ca_secret.write());
        assert!(read.distrusted.contains_all(&current));
        assert_eq!(read.distrusted.iter().count(), MAX_STORED_CAS);
    }

    #[test]
    fn out_of_range_time_is_ignored() {
        for (seconds, wanted) in [(u64::MAX, now()), (1, UNIX_EPOCH + Duration::from_secs(1))] {
            let state = format!("{{\"retiredAt\":{seconds}}}").into_bytes();
            let (read, unusable) = read(&SecretData::from([(STATE.to_owned(), state)]));
            assert_eq!((read.retired_at, unusable.len()), (wanted, 0), "{seconds}");
        }
    }
}
