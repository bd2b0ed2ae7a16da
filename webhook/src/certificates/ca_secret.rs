//! The content of the CA Secret, mode `self`.

use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::cluster::{MAX_ROTATE_LEN, Secret, SecretData};
use super::pki::bundle::Bundle;
use super::pki::ca::Ca;

/// How many retired or distrusted CAs the Secret holds at most: it may hold 1 MiB. More were not created here, since no
/// more are created once half as many are trusted.
pub(super) const MAX_STORED_CAS: usize = 64;

/// Every CA that may have signed a leaf which is still served, PEM.
const CA_CRT: &str = "ca.crt";
const SIGNER: CaDataKeys = CaDataKeys {
    certificate: "signer.crt",
    key: "signer.key",
};
const NEXT: CaDataKeys = CaDataKeys {
    certificate: "next.crt",
    key: "next.key",
};
const STATE: &str = "state.json";
/// CAs whose keys have leaked, PEM.
const DISTRUSTED: &str = "distrusted.crt";
/// The last requested rotation that was started. Not a part of the state, which earlier releases write without it.
const ROTATED: &str = "rotated";
/// Every key of the Secret that is ours.
const KEYS: [&str; 8] = [
    CA_CRT,
    SIGNER.certificate,
    SIGNER.key,
    NEXT.certificate,
    NEXT.key,
    STATE,
    DISTRUSTED,
    ROTATED,
];

/// Our CAs: the active, the next and the retired ones.
#[derive(Debug, Clone, Default)]
pub(super) struct CaSecret {
    /// Signs leaves.
    pub(super) active: Option<Arc<Ca>>,
    /// Published, but does not sign until every API server trusts it.
    pub(super) next: Option<Arc<Ca>>,
    /// Do not sign any more, but their leaves may still be served.
    pub(super) retired: Bundle,
    /// CAs whose keys have leaked. They are removed from every `caBundle` as soon as no replica needs them. The active CA
    /// may be among them until the next one is activated.
    pub(super) distrusted: Bundle,
    /// When a CA was last retired or distrusted.
    pub(super) retired_at: Option<SystemTime>,
    /// The rotation that an operator requested, by annotation.
    pub(super) requested_rotation: Option<String>,
    /// The last requested rotation that was started.
    pub(super) started_rotation: Option<String>,
    /// Keys of the Secret that are not ours. The next write removes them, since they could fill the Secret so that no write
    /// would succeed.
    pub(super) foreign_keys: Vec<String>,
}

/// The keys of the Secret that hold one CA.
#[derive(Debug, Clone, Copy)]
struct CaDataKeys {
    certificate: &'static str,
    key: &'static str,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct State {
    /// Seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    retired_at: Option<u64>,
}

// === impl CaSecret ===

impl CaSecret {
    /// Reads the Secret, and returns the keys whose values are unusable. Their content is missing from the result, and is
    /// created again like anything that is missing. That includes a CA for which `can_sign` is false: it does not sign any
    /// more, and is trusted like any CA that signed before.
    pub(super) fn read(
        secret: &Secret,
        can_sign: impl Fn(&Ca) -> bool,
    ) -> (Self, Vec<&'static str>) {
        let data = &secret.data;
        let mut unusable = Vec::new();
        let mut pair = |pair: CaDataKeys| match pair.read(data) {
            Ok(Some(ca)) if !can_sign(&ca) => {
                unusable.push(pair.certificate);
                None
            }
            Ok(ca) => ca.map(Arc::new),
            Err(key) => {
                unusable.push(key);
                None
            }
        };
        let (active, next) = (pair(SIGNER), pair(NEXT));
        let state = match data.get(STATE).map(|json| serde_json::from_slice(json)) {
            Some(Ok(state)) => state,
            Some(Err(_)) => {
                unusable.push(STATE);
                State::default()
            }
            None => State::default(),
        };
        let listed = data.get(CA_CRT).map(|pem| Bundle::read(pem));
        let own = listed.as_ref().map(Bundle::issued_by_us);
        // CAs of others cannot be among our retired ones.
        if own != listed || own.as_ref().is_some_and(Bundle::is_empty) {
            unusable.push(CA_CRT);
        }
        let rotated = data
            .get(ROTATED)
            .filter(|value| value.len() <= MAX_ROTATE_LEN);
        let distrusted = data
            .get(DISTRUSTED)
            .map(|pem| Bundle::read(pem).issued_by_us());
        let foreign = data.keys().filter(|key| !KEYS.contains(&key.as_str()));
        let mut this = Self {
            active,
            next,
            retired: Bundle::default(),
            // Those that signed last come first.
            distrusted: distrusted.unwrap_or_default().first(MAX_STORED_CAS),
            retired_at: state.retired_at.and_then(from_unix_seconds),
            requested_rotation: secret.rotate.clone(),
            started_rotation: rotated.map(|value| String::from_utf8_lossy(value).into_owned()),
            foreign_keys: foreign.cloned().collect(),
        };
        let others = this.current().union(&this.distrusted);
        // More would leave no room for a new CA.
        this.retired = own
            .unwrap_or_default()
            .without(&others)
            .last(MAX_STORED_CAS);
        (this, unusable)
    }

    /// Returns the data of every key, `None` for keys to remove.
    pub(super) fn write(&self) -> BTreeMap<String, Option<Vec<u8>>> {
        let state = State {
            retired_at: self.retired_at.map(unix_seconds),
        };
        let state = serde_json::to_vec(&state).expect("a struct of numbers can be JSON");
        let mut keys = BTreeMap::from([
            (CA_CRT, Some(self.trust_bundle().pem().into_bytes())),
            (STATE, Some(state)),
            (
                DISTRUSTED,
                (!self.distrusted.is_empty()).then(|| self.distrusted.pem().into_bytes()),
            ),
            (
                ROTATED,
                self.started_rotation.clone().map(String::into_bytes),
            ),
        ]);
        for (CaDataKeys { certificate, key }, ca) in [(SIGNER, &self.active), (NEXT, &self.next)] {
            let ca = ca.as_ref();
            keys.insert(certificate, ca.map(|ca| ca.pem().as_bytes().to_vec()));
            keys.insert(key, ca.map(|ca| ca.key_pem().into_bytes()));
        }
        let ours = keys.into_iter().map(|(key, value)| (key.to_owned(), value));
        let foreign = self.foreign_keys.iter().map(|key| (key.clone(), None));
        ours.chain(foreign).collect()
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
        self.retired = mem::take(&mut self.retired).union(&cas.without(&self.distrusted));
        self.retired_at = Some(now);
    }

    /// Distrusts every CA of the Secret, at `now`: a reader of the Secret has their keys.
    pub(super) fn distrust(&mut self, now: SystemTime) {
        self.distrusted = self.known_cas();
        self.retired = Bundle::default();
        self.retired_at = Some(now);
    }
}

// === impl CaDataKeys ===

impl CaDataKeys {
    /// Reads a CA; `None` if none is stored.
    ///
    /// # Errors
    /// The key whose value is unusable, or whose counterpart is missing.
    fn read(self, data: &SecretData) -> Result<Option<Ca>, &'static str> {
        match (data.get(self.certificate), data.get(self.key)) {
            (None, None) => Ok(None),
            (Some(certificate), Some(key)) => Ca::from_pem(certificate, key)
                .map(Some)
                .map_err(|_| self.certificate),
            (Some(_), None) => Err(self.certificate),
            (None, Some(_)) => Err(self.key),
        }
    }
}

fn unix_seconds(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// `None` for a number that is out of range.
fn from_unix_seconds(seconds: u64) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificates::lifetimes::Lifetimes;
    use crate::certificates::rotation::{RotationReason, Step, apply};
    use crate::clock::wall_clock;
    use rustls::pki_types::CertificateDer;

    const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

    fn ca() -> Arc<Ca> {
        Arc::new(Ca::try_new(wall_clock(), YEAR).unwrap())
    }

    fn data(ca_secret: &CaSecret) -> SecretData {
        let keys = ca_secret.write().into_iter();
        keys.filter_map(|(key, value)| Some((key, value?)))
            .collect()
    }

    fn read(data: &SecretData) -> (CaSecret, Vec<&'static str>) {
        CaSecret::read(
            &Secret {
                resource_version: String::new(),
                data: data.clone(),
                rotate: Some("today".to_owned()),
                unwritable_reason: None,
            },
            |_| true,
        )
    }

    fn full() -> CaSecret {
        CaSecret {
            active: Some(ca()),
            next: Some(ca()),
            retired: Bundle::from(ca().der().clone()),
            distrusted: Bundle::from(ca().der().clone()),
            retired_at: from_unix_seconds(1_700_000_000),
            requested_rotation: None,
            started_rotation: Some("yesterday".to_owned()),
            foreign_keys: Vec::new(),
        }
    }

    fn der(ca: Option<&Arc<Ca>>) -> Option<&CertificateDer<'static>> {
        ca.map(|ca| ca.der())
    }

    #[test]
    fn content_round_trips() {
        let alone = CaSecret {
            active: Some(ca()),
            ..CaSecret::default()
        };
        for ca_secret in [full(), alone, CaSecret::default()] {
            let (read, unusable) = read(&data(&ca_secret));
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
        assert!(read.trust_bundle().is_empty() && read.retired_at.is_none());
        assert!(unusable.is_empty());
    }

    #[test]
    fn unusable_keys_are_named_and_the_rest_kept() {
        type Corrupt = fn(&mut SecretData);
        let junk = || b"junk".to_vec();
        let table: [(Corrupt, &[&str], usize); 7] = [
            (
                |data| drop(data.insert("signer.crt".into(), b"junk".into())),
                &["signer.crt"],
                3,
            ),
            (
                |data| drop(data.insert("signer.key".into(), b"junk".into())),
                &["signer.crt"],
                3,
            ),
            (|data| drop(data.remove("signer.key")), &["signer.crt"], 3),
            (|data| drop(data.remove("next.crt")), &["next.key"], 3),
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
                    data.insert("signer.key".into(), next);
                },
                &["signer.crt"],
                3,
            ),
        ];
        for (row, (corrupt, wanted, left)) in table.into_iter().enumerate() {
            let mut data = data(&full());
            corrupt(&mut data);
            let (read, unusable) = read(&data);
            assert_eq!(unusable, wanted, "row {row}");
            // A CA without its key stays trusted: it may have signed.
            assert_eq!(read.trust_bundle().iter().count(), left, "row {row}");
        }
        let everything = [
            "ca.crt",
            "signer.crt",
            "signer.key",
            "next.crt",
            "next.key",
            "state.json",
        ]
        .map(|key| (key.to_owned(), junk()));
        let (read, unusable) = read(&SecretData::from(everything));
        assert_eq!(unusable, ["signer.crt", "next.crt", "state.json", "ca.crt"]);
        assert!(read.trust_bundle().is_empty());
    }

    #[test]
    fn foreign_ca_is_not_among_the_retired() {
        let ca_secret = full();
        let mut data = data(&ca_secret);
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
        let (read, unusable) = read(&data(&ca_secret));
        assert_eq!(
            (read.inactive_distrusted(), read.trust_bundle()),
            (before.known_cas(), next)
        );
        assert!(unusable.is_empty());
        // As an earlier release adopts it, which does not know the distrusted CAs.
        let mut adopted = data(&ca_secret);
        adopted.insert(CA_CRT.into(), ca_secret.known_cas().pem().into_bytes());
        assert!(
            CaSecret::read(
                &Secret {
                    data: adopted,
                    resource_version: String::new(),
                    rotate: None,
                    unwritable_reason: None,
                },
                |_| true
            )
            .0
            .retired
            .is_empty()
        );
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
        let (read, _) = read(&data(&ca_secret));
        assert!(read.distrusted.contains_all(&current));
        assert_eq!(read.distrusted.iter().count(), MAX_STORED_CAS);
    }

    #[test]
    fn out_of_range_time_is_ignored() {
        for (seconds, wanted) in [
            (u64::MAX, None),
            (i64::MAX as u64, from_unix_seconds(i64::MAX as u64)),
        ] {
            let state = format!("{{\"retiredAt\":{seconds}}}").into_bytes();
            let (read, unusable) = read(&SecretData::from([(STATE.to_owned(), state)]));
            assert_eq!((read.retired_at, unusable.len()), (wanted, 0), "{seconds}");
        }
    }
}
