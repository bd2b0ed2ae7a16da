//! What the Secret of mode `self` holds: our authorities.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::pki_types::CertificateDer;
use serde::{Deserialize, Serialize};

use super::cluster::{MAX_ROTATE_LEN, Secret, SecretData};
use super::lifetimes::Lifetimes;
use super::pki::bundle::Bundle;
use super::pki::ca::Ca;
use super::rotation::{MAX_STORED_CAS, RotationReason, Step};

/// Every authority that may have signed a leaf which is still shown, PEM.
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
/// The last rotation that was requested and begun. Not part of the state, which earlier releases write
/// without it.
const ROTATED: &str = "rotated";
/// Every key of the Secret.
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

/// Our authorities: the one that signs, the one that will, and those that did.
#[derive(Debug, Clone, Default)]
pub struct CaSecret {
    /// It signs.
    pub active: Option<Arc<Ca>>,
    /// It is published, and signs nothing until every API server trusts it.
    pub next: Option<Arc<Ca>>,
    /// They sign nothing any more; leaves that they signed may be shown still.
    pub retired: Bundle,
    /// Their keys have leaked: they leave every `caBundle` as soon as no replica needs them. The one that
    /// signs may be among them until another does.
    pub distrusted: Bundle,
    /// When the last of the retired or distrusted came to them.
    pub retired_at: Option<SystemTime>,
    /// The rotation that an operator requests.
    pub requested_rotation: Option<String>,
    /// The last requested rotation that was begun.
    pub started_rotation: Option<String>,
    /// Keys of the Secret that are not ours. The next write removes them: they could fill the Secret, so that
    /// no write would ever succeed.
    pub foreign_keys: Vec<String>,
}

/// The keys of the Secret under which an authority is stored.
#[derive(Debug, Clone, Copy)]
struct CaDataKeys {
    certificate: &'static str,
    key: &'static str,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct State {
    /// In seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    retired_at: Option<u64>,
}

// === impl CaSecret ===

impl CaSecret {
    /// Reads the Secret, and names the keys in it that cannot be used: what they should hold is
    /// missing then, and is made anew as anything else that is missing. So is a CA that is not `fit`: it
    /// signs no more, and is trusted as any other that signed before.
    #[must_use]
    pub fn read(secret: &Secret, fit: impl Fn(&Ca) -> bool) -> (Self, Vec<&'static str>) {
        let data = &secret.data;
        let mut unusable = Vec::new();
        let mut pair = |pair: CaDataKeys| match pair.read(data) {
            Ok(Some(ca)) if !fit(&ca) => {
                unusable.push(pair.certificate);
                None
            }
            Ok(ca) => ca.map(Arc::new),
            Err(key) => {
                unusable.push(key);
                None
            }
        };
        let (signer, next) = (pair(SIGNER), pair(NEXT));
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
        // No CA of another issuer is one that we could retire.
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
            active: signer,
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
        this.retired = own
            .unwrap_or_default()
            .filter(|certificate| !others.contains(certificate))
            // More would leave no room for a new one.
            .last(MAX_STORED_CAS);
        (this, unusable)
    }

    /// Writes it: every key of the Secret, with `None` for those that it shall not have.
    #[must_use]
    pub fn write(&self) -> BTreeMap<String, Option<Vec<u8>>> {
        let state = State {
            retired_at: self.retired_at.map(unix_seconds),
        };
        let state = serde_json::to_vec(&state).expect("a struct of numbers is JSON");
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

    /// Those that sign or will.
    #[must_use]
    pub fn current(&self) -> Bundle {
        let both = [&self.active, &self.next].into_iter().flatten();
        both.map(|ca| ca.der().clone()).collect()
    }

    /// What clients must trust.
    #[must_use]
    pub fn trust_bundle(&self) -> Bundle {
        self.current().union(&self.retired)
    }

    /// All of them.
    #[must_use]
    pub fn known_cas(&self) -> Bundle {
        self.trust_bundle().union(&self.distrusted)
    }

    /// Those that are distrusted and sign no more.
    #[must_use]
    pub fn inactive_distrusted(&self) -> Bundle {
        let current = self.current();
        self.distrusted.filter(|der| !current.contains(der))
    }

    /// Returns true if an operator requests a rotation that has not begun.
    #[must_use]
    pub fn is_rotation_requested(&self) -> bool {
        self.requested_rotation.is_some() && self.requested_rotation != self.started_rotation
    }

    /// Adds authorities that sign no more, at `now`.
    pub fn retire(
        &mut self,
        more: impl IntoIterator<Item = CertificateDer<'static>>,
        now: SystemTime,
    ) {
        let distrusted = &self.distrusted;
        let more = more.into_iter().filter(|der| !distrusted.contains(der));
        self.retired.extend(more);
        self.retired_at = Some(now);
    }

    /// Distrusts every authority that the Secret holds, at `now`: whoever read it has their keys.
    fn distrust(&mut self, now: SystemTime) {
        self.distrusted = self.known_cas();
        self.retired = Bundle::default();
        self.retired_at = Some(now);
    }

    /// Takes a step at `now`. A new CA is for leaves of these names.
    ///
    /// # Errors
    /// When the system gives no randomness for a new key.
    pub fn apply(
        &mut self,
        step: Step,
        now: SystemTime,
        lifetimes: &Lifetimes,
        names: &[String],
    ) -> Result<(), rcgen::Error> {
        match step {
            Step::None | Step::TooManyCas(_) => {}
            Step::AdoptOrphans(own) => self.retire(own.iter().cloned(), now),
            Step::DateRetirement => self.retired_at = Some(now),
            Step::PublishNext(reason) => {
                if reason == RotationReason::Requested {
                    self.distrust(now);
                }
                if self.requested_rotation.is_some() {
                    self.started_rotation.clone_from(&self.requested_rotation);
                }
                let next = Ca::try_new_for(names, now, lifetimes.ca())?;
                if let Some(old) = self.next.replace(Arc::new(next)) {
                    let old = Bundle::from(old.der().clone());
                    if reason == RotationReason::Outlives {
                        // It never signed for us.
                        self.distrusted = self.distrusted.clone().union(&old);
                    }
                    self.retire(old.iter().cloned(), now);
                }
            }
            Step::ActivateNext => {
                if let Some(next) = self.next.take() {
                    let old = self.active.replace(next);
                    self.retire(old.map(|old| old.der().clone()), now);
                }
            }
            Step::PruneRetired(gone) => {
                self.retired = self.retired.filter(|der| !gone.contains(der));
                self.distrusted = self.distrusted.filter(|der| !gone.contains(der));
            }
        }
        Ok(())
    }
}

// === impl CaDataKeys ===

impl CaDataKeys {
    /// Reads an authority; `None` where none is stored.
    ///
    /// # Errors
    /// Names the key whose value is unusable, or lacks its other half.
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

/// `None` for a number that is no time.
fn from_unix_seconds(seconds: u64) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::wall_clock;

    const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

    fn ca() -> Arc<Ca> {
        Arc::new(Ca::try_new(wall_clock(), YEAR).unwrap())
    }

    fn data(keyring: &CaSecret) -> SecretData {
        let keys = keyring.write().into_iter();
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
    fn what_is_written_reads_back() {
        let alone = CaSecret {
            active: Some(ca()),
            ..CaSecret::default()
        };
        for keyring in [full(), alone, CaSecret::default()] {
            let (read, unusable) = read(&data(&keyring));
            assert_eq!(der(read.active.as_ref()), der(keyring.active.as_ref()));
            assert_eq!(der(read.next.as_ref()), der(keyring.next.as_ref()));
            assert_eq!(read.retired, keyring.retired);
            assert_eq!(read.distrusted, keyring.distrusted);
            assert_eq!(read.retired_at, keyring.retired_at);
            assert_eq!(read.trust_bundle(), keyring.trust_bundle());
            assert_eq!(read.started_rotation, keyring.started_rotation);
            assert_eq!(read.requested_rotation.as_deref(), Some("today"));
            let wanted: &[_] = if keyring.trust_bundle().is_empty() {
                &[CA_CRT]
            } else {
                &[]
            };
            assert_eq!(unusable, wanted);
        }
    }

    #[test]
    fn an_empty_secret_holds_nothing() {
        let (read, unusable) = read(&SecretData::new());
        assert!(read.trust_bundle().is_empty() && read.retired_at.is_none());
        assert!(unusable.is_empty());
    }

    #[test]
    fn what_is_unusable_is_named_and_the_rest_is_kept() {
        type Spoil = fn(&mut SecretData);
        let junk = || b"junk".to_vec();
        let table: [(Spoil, &[&str], usize); 7] = [
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
                    // The one's certificate with the other's key.
                    let next = data["next.key"].clone();
                    data.insert("signer.key".into(), next);
                },
                &["signer.crt"],
                3,
            ),
        ];
        for (row, (spoil, wanted, left)) in table.into_iter().enumerate() {
            let mut data = data(&full());
            spoil(&mut data);
            let (read, unusable) = read(&data);
            assert_eq!(unusable, wanted, "row {row}");
            // An authority whose key is lost is trusted on: it may have signed.
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
    fn somebody_elses_certificate_is_none_of_the_retired() {
        let keyring = full();
        let mut data = data(&keyring);
        let stranger = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap();
        let listed = data.get_mut("ca.crt").unwrap();
        listed.extend(stranger.cert.pem().into_bytes());
        let (read, unusable) = read(&data);
        assert_eq!(unusable, ["ca.crt"]);
        assert_eq!(read.retired, keyring.retired);
    }

    #[test]
    fn a_requested_rotation_distrusts_what_the_secret_held() {
        let before = full();
        let mut keyring = CaSecret {
            requested_rotation: Some("today".to_owned()),
            ..before.clone()
        };
        let (now, lifetimes) = (wall_clock(), Lifetimes::default());
        assert!(keyring.is_rotation_requested() && !before.is_rotation_requested());
        let publish = Step::PublishNext(RotationReason::Requested);
        keyring.apply(publish, now, &lifetimes, &[]).unwrap();
        assert!(!keyring.is_rotation_requested());
        assert_eq!(keyring.distrusted, before.known_cas());
        assert!(keyring.retired.is_empty());
        assert_eq!(
            der(keyring.active.as_ref()),
            der(before.active.as_ref()),
            "it signs until the next one does"
        );
        let next = Bundle::from(der(keyring.next.as_ref()).unwrap().clone());
        keyring
            .apply(Step::ActivateNext, now, &lifetimes, &[])
            .unwrap();
        assert_eq!(keyring.trust_bundle(), next);
        assert_eq!(keyring.inactive_distrusted(), before.known_cas());
        let (read, unusable) = read(&data(&keyring));
        assert_eq!(
            (read.inactive_distrusted(), read.trust_bundle()),
            (before.known_cas(), next)
        );
        assert!(unusable.is_empty());
        // An earlier release adopts it, and knows nothing of those that are distrusted.
        let mut adopted = data(&keyring);
        adopted.insert(CA_CRT.into(), keyring.known_cas().pem().into_bytes());
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
    fn of_many_distrusted_those_that_signed_last_are_kept() {
        let retired = || (0..100).map(|_| ca().der().clone()).collect();
        let mut keyring = CaSecret {
            retired: retired(),
            distrusted: retired(),
            ..full()
        };
        let signed = keyring.current();
        let publish = Step::PublishNext(RotationReason::Requested);
        let lifetimes = Lifetimes::default();
        keyring
            .apply(publish, wall_clock(), &lifetimes, &[])
            .unwrap();
        let (read, _) = read(&data(&keyring));
        assert!(read.distrusted.contains_all(&signed));
        assert_eq!(read.distrusted.iter().count(), MAX_STORED_CAS);
    }

    #[test]
    fn a_number_that_is_no_time_is_none() {
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
