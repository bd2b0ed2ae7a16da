//! What the Secret of mode `self` holds: our authorities.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::pki_types::CertificateDer;
use serde::{Deserialize, Serialize};

use super::bundle::Bundle;
use super::ca::Ca;
use super::cluster::{Data, LONGEST_ROTATE, Secret};
use super::lifetimes::Lifetimes;
use super::rotation::{MOST_KNOWN, Reason, Step};

/// Every authority that may have signed a leaf which is still shown, PEM.
const CA_CRT: &str = "ca.crt";
const SIGNER: Pair = Pair {
    certificate: "signer.crt",
    key: "signer.key",
};
const NEXT: Pair = Pair {
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
pub struct Keyring {
    /// It signs.
    pub signer: Option<Arc<Ca>>,
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
    pub requested: Option<String>,
    /// The last requested rotation that was begun.
    pub rotated: Option<String>,
    /// Keys of the Secret that are not ours. The next write removes them: they could fill the Secret, so that
    /// no write would ever succeed.
    pub foreign: Vec<String>,
}

/// The keys of the Secret under which an authority is stored.
#[derive(Debug, Clone, Copy)]
struct Pair {
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

// === impl Keyring ===

impl Keyring {
    /// Reads the Secret, and names the keys in it that cannot be used: what they should hold is
    /// missing then, and is made anew as anything else that is missing. So is a CA that is not `fit`: it
    /// signs no more, and is trusted as any other that signed before.
    #[must_use]
    pub fn read(secret: &Secret, fit: impl Fn(&Ca) -> bool) -> (Self, Vec<&'static str>) {
        let data = &secret.data;
        let mut unusable = Vec::new();
        let mut pair = |pair: Pair| match pair.read(data) {
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
        let own = listed.as_ref().map(Bundle::own);
        // No CA of another issuer is one that we could retire.
        if own != listed || own.as_ref().is_some_and(Bundle::is_empty) {
            unusable.push(CA_CRT);
        }
        let rotated = data
            .get(ROTATED)
            .filter(|value| value.len() <= LONGEST_ROTATE);
        let distrusted = data.get(DISTRUSTED).map(|pem| Bundle::read(pem).own());
        let foreign = data.keys().filter(|key| !KEYS.contains(&key.as_str()));
        let mut this = Self {
            signer,
            next,
            retired: Bundle::default(),
            // Those that signed last come first.
            distrusted: distrusted.unwrap_or_default().first(MOST_KNOWN),
            retired_at: state.retired_at.and_then(time),
            requested: secret.rotate.clone(),
            rotated: rotated.map(|value| String::from_utf8_lossy(value).into_owned()),
            foreign: foreign.cloned().collect(),
        };
        let others = this.current().with(&this.distrusted);
        this.retired = own
            .unwrap_or_default()
            .only(|certificate| !others.contains(certificate))
            // More would leave no room for a new one.
            .last(MOST_KNOWN);
        (this, unusable)
    }

    /// Writes it: every key of the Secret, with `None` for those that it shall not have.
    #[must_use]
    pub fn write(&self) -> BTreeMap<String, Option<Vec<u8>>> {
        let state = State {
            retired_at: self.retired_at.map(seconds),
        };
        let state = serde_json::to_vec(&state).expect("a struct of numbers is JSON");
        let mut keys = BTreeMap::from([
            (CA_CRT, Some(self.all().pem().into_bytes())),
            (STATE, Some(state)),
            (
                DISTRUSTED,
                (!self.distrusted.is_empty()).then(|| self.distrusted.pem().into_bytes()),
            ),
            (ROTATED, self.rotated.clone().map(String::into_bytes)),
        ]);
        for (Pair { certificate, key }, ca) in [(SIGNER, &self.signer), (NEXT, &self.next)] {
            let ca = ca.as_ref();
            keys.insert(certificate, ca.map(|ca| ca.pem().as_bytes().to_vec()));
            keys.insert(key, ca.map(|ca| ca.key_pem().into_bytes()));
        }
        let ours = keys.into_iter().map(|(key, value)| (key.to_owned(), value));
        let foreign = self.foreign.iter().map(|key| (key.clone(), None));
        ours.chain(foreign).collect()
    }

    /// Those that sign or will.
    #[must_use]
    pub fn current(&self) -> Bundle {
        let both = [&self.signer, &self.next].into_iter().flatten();
        both.map(|ca| ca.der().clone()).collect()
    }

    /// What clients must trust.
    #[must_use]
    pub fn all(&self) -> Bundle {
        self.current().with(&self.retired)
    }

    /// All of them.
    #[must_use]
    pub fn known(&self) -> Bundle {
        self.all().with(&self.distrusted)
    }

    /// Those that are distrusted and sign no more.
    #[must_use]
    pub fn leaked(&self) -> Bundle {
        let current = self.current();
        self.distrusted.only(|der| !current.contains(der))
    }

    /// Returns true if an operator requests a rotation that has not begun.
    #[must_use]
    pub fn is_rotation_requested(&self) -> bool {
        self.requested.is_some() && self.requested != self.rotated
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
        self.distrusted = self.known();
        self.retired = Bundle::default();
        self.retired_at = Some(now);
    }

    /// Takes a step at `now`. A new CA is for leaves of these names.
    ///
    /// # Errors
    /// When the system gives no randomness for a new key.
    pub fn take(
        &mut self,
        step: Step,
        now: SystemTime,
        lifetimes: &Lifetimes,
        names: &[String],
    ) -> Result<(), rcgen::Error> {
        match step {
            Step::Rest | Step::Crowd(_) => {}
            Step::Adopt(own) => self.retire(own.iter().cloned(), now),
            Step::Date => self.retired_at = Some(now),
            Step::Publish(reason) => {
                if reason == Reason::Requested {
                    self.distrust(now);
                }
                if self.requested.is_some() {
                    self.rotated.clone_from(&self.requested);
                }
                let next = Ca::try_new_for(names, now, lifetimes.ca())?;
                if let Some(old) = self.next.replace(Arc::new(next)) {
                    let old = Bundle::from(old.der().clone());
                    if reason == Reason::Outlives {
                        // It never signed for us.
                        self.distrusted = self.distrusted.clone().with(&old);
                    }
                    self.retire(old.iter().cloned(), now);
                }
            }
            Step::Activate => {
                if let Some(next) = self.next.take() {
                    let old = self.signer.replace(next);
                    self.retire(old.map(|old| old.der().clone()), now);
                }
            }
            Step::Forget(gone) => {
                self.retired = self.retired.only(|der| !gone.contains(der));
                self.distrusted = self.distrusted.only(|der| !gone.contains(der));
            }
        }
        Ok(())
    }
}

// === impl Pair ===

impl Pair {
    /// Reads an authority; `None` where none is stored.
    ///
    /// # Errors
    /// Names the key whose value is unusable, or lacks its other half.
    fn read(self, data: &Data) -> Result<Option<Ca>, &'static str> {
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

fn seconds(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// `None` for a number that is no time.
fn time(seconds: u64) -> Option<SystemTime> {
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

    fn data(keyring: &Keyring) -> Data {
        let keys = keyring.write().into_iter();
        keys.filter_map(|(key, value)| Some((key, value?)))
            .collect()
    }

    fn read(data: &Data) -> (Keyring, Vec<&'static str>) {
        Keyring::read(
            &Secret {
                version: String::new(),
                data: data.clone(),
                rotate: Some("today".to_owned()),
                obstacle: None,
            },
            |_| true,
        )
    }

    fn full() -> Keyring {
        Keyring {
            signer: Some(ca()),
            next: Some(ca()),
            retired: Bundle::from(ca().der().clone()),
            distrusted: Bundle::from(ca().der().clone()),
            retired_at: time(1_700_000_000),
            requested: None,
            rotated: Some("yesterday".to_owned()),
            foreign: Vec::new(),
        }
    }

    fn der(ca: Option<&Arc<Ca>>) -> Option<&CertificateDer<'static>> {
        ca.map(|ca| ca.der())
    }

    #[test]
    fn what_is_written_reads_back() {
        let alone = Keyring {
            signer: Some(ca()),
            ..Keyring::default()
        };
        for keyring in [full(), alone, Keyring::default()] {
            let (read, unusable) = read(&data(&keyring));
            assert_eq!(der(read.signer.as_ref()), der(keyring.signer.as_ref()));
            assert_eq!(der(read.next.as_ref()), der(keyring.next.as_ref()));
            assert_eq!(read.retired, keyring.retired);
            assert_eq!(read.distrusted, keyring.distrusted);
            assert_eq!(read.retired_at, keyring.retired_at);
            assert_eq!(read.all(), keyring.all());
            assert_eq!(read.rotated, keyring.rotated);
            assert_eq!(read.requested.as_deref(), Some("today"));
            let wanted: &[_] = if keyring.all().is_empty() {
                &[CA_CRT]
            } else {
                &[]
            };
            assert_eq!(unusable, wanted);
        }
    }

    #[test]
    fn an_empty_secret_holds_nothing() {
        let (read, unusable) = read(&Data::new());
        assert!(read.all().is_empty() && read.retired_at.is_none());
        assert!(unusable.is_empty());
    }

    #[test]
    fn what_is_unusable_is_named_and_the_rest_is_kept() {
        type Spoil = fn(&mut Data);
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
            assert_eq!(read.all().iter().count(), left, "row {row}");
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
        let (read, unusable) = read(&Data::from(everything));
        assert_eq!(unusable, ["signer.crt", "next.crt", "state.json", "ca.crt"]);
        assert!(read.all().is_empty());
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
        let mut keyring = Keyring {
            requested: Some("today".to_owned()),
            ..before.clone()
        };
        let (now, lifetimes) = (wall_clock(), Lifetimes::default());
        assert!(keyring.is_rotation_requested() && !before.is_rotation_requested());
        let publish = Step::Publish(Reason::Requested);
        keyring.take(publish, now, &lifetimes, &[]).unwrap();
        assert!(!keyring.is_rotation_requested());
        assert_eq!(keyring.distrusted, before.known());
        assert!(keyring.retired.is_empty());
        assert_eq!(
            der(keyring.signer.as_ref()),
            der(before.signer.as_ref()),
            "it signs until the next one does"
        );
        let next = Bundle::from(der(keyring.next.as_ref()).unwrap().clone());
        keyring.take(Step::Activate, now, &lifetimes, &[]).unwrap();
        assert_eq!(keyring.all(), next);
        assert_eq!(keyring.leaked(), before.known());
        let (read, unusable) = read(&data(&keyring));
        assert_eq!((read.leaked(), read.all()), (before.known(), next));
        assert!(unusable.is_empty());
        // An earlier release adopts it, and knows nothing of those that are distrusted.
        let mut adopted = data(&keyring);
        adopted.insert(CA_CRT.into(), keyring.known().pem().into_bytes());
        assert!(
            Keyring::read(
                &Secret {
                    data: adopted,
                    version: String::new(),
                    rotate: None,
                    obstacle: None,
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
        let mut keyring = Keyring {
            retired: retired(),
            distrusted: retired(),
            ..full()
        };
        let signed = keyring.current();
        let publish = Step::Publish(Reason::Requested);
        let lifetimes = Lifetimes::default();
        keyring
            .take(publish, wall_clock(), &lifetimes, &[])
            .unwrap();
        let (read, _) = read(&data(&keyring));
        assert!(read.distrusted.contains_all(&signed));
        assert_eq!(read.distrusted.iter().count(), MOST_KNOWN);
    }

    #[test]
    fn a_number_that_is_no_time_is_none() {
        for (seconds, wanted) in [(u64::MAX, None), (i64::MAX as u64, time(i64::MAX as u64))] {
            let state = format!("{{\"retiredAt\":{seconds}}}").into_bytes();
            let (read, unusable) = read(&Data::from([(STATE.to_owned(), state)]));
            assert_eq!((read.retired_at, unusable.len()), (wanted, 0), "{seconds}");
        }
    }
}
