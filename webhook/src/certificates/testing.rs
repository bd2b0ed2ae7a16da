//! The authorities of the tables.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::CertificateDer;
use tokio::time::Instant;

use super::ca_secret::CaSecret;
use super::lifetimes::Lifetimes;
use super::pki::bundle::Bundle;
use super::pki::ca;
use super::pki::ca::Ca;
use super::propagation::ObservedBundles;
use crate::clock::wall_clock;

pub(super) const DAY: Duration = Duration::from_secs(24 * 60 * 60);
pub(super) const MINUTE: Duration = Duration::from_secs(60);

/// The authorities of the tables, each by its letter: what their Secret and bundles hold is written
/// as words.
pub(super) struct Fixtures {
    pub(super) now: SystemTime,
    cas: Vec<(char, Arc<Ca>)>,
    foreign: [(char, CertificateDer<'static>); 2],
}

// === impl Fixtures ===

impl Fixtures {
    pub(super) fn new() -> Self {
        let now = wall_clock();
        let made = |letter, age: u32| {
            let ca = Ca::try_new(now - DAY * age, Lifetimes::default().ca());
            (letter, Arc::new(ca.unwrap()))
        };
        let ending = |end: SystemTime| {
            let mut params = ca::params();
            params.not_before = (now - DAY).into();
            params.not_after = end.into();
            let key = KeyPair::generate().unwrap();
            let pem = params.self_signed(&key).unwrap().pem();
            Arc::new(Ca::from_pem(pem.as_bytes(), key.serialize_pem().as_bytes()).unwrap())
        };
        let stranger = |letter, end: Option<SystemTime>| {
            let mut params = CertificateParams::new(["a".to_owned()]).unwrap();
            params.not_after = end.map_or(params.not_after, Into::into);
            let key = KeyPair::generate().unwrap();
            (letter, params.self_signed(&key).unwrap().into())
        };
        Self {
            now,
            // Old enough to be due, young, just made, expired, of a clock that was weeks ahead, of one that
            // was months ahead, of no release's making.
            cas: vec![
                made('o', 300),
                made('y', 10),
                made('n', 0),
                made('x', 370),
                ('w', ending(now + DAY * (365 + 26))),
                ('m', ending(now + DAY * (365 + 90))),
                ('h', ending(now + DAY * 365 * 20)),
            ],
            // Valid, expired.
            foreign: [stranger('s', None), stranger('z', Some(now - DAY))],
        }
    }

    pub(super) fn ca(&self, letter: char) -> Arc<Ca> {
        let mut all = self.cas.iter();
        let (_, ca) = all.find(|(name, _)| *name == letter).unwrap();
        Arc::clone(ca)
    }

    /// `s` and `z` are somebody else's.
    pub(super) fn bundle(&self, letters: &str) -> Bundle {
        let der = |letter| {
            let mut strangers = self.foreign.iter();
            match strangers.find(|(name, _)| *name == letter) {
                Some((_, stranger)) => stranger.clone(),
                None => self.ca(letter).der().clone(),
            }
        };
        letters.chars().map(der).collect()
    }

    /// Signer, next, retired and distrusted, with a dash for none.
    pub(super) fn ca_secret(&self, letters: &str, retired_at: Option<SystemTime>) -> CaSecret {
        let mut words = letters.split(' ');
        let mut one = || {
            let letter = words.next().unwrap().chars().next().unwrap();
            (letter != '-').then(|| self.ca(letter))
        };
        let (signer, next) = (one(), one());
        CaSecret {
            active: signer,
            next,
            retired: self.bundle(words.next().unwrap_or_default().trim_matches('-')),
            distrusted: self.bundle(words.next().unwrap_or_default()),
            retired_at,
            ..CaSecret::default()
        }
    }

    /// Two looks at bundles, and a third that finds the same so long after the second.
    pub(super) fn observed_bundles(
        &self,
        first: &str,
        then: &str,
        wait: Duration,
    ) -> ObservedBundles {
        let mut live = ObservedBundles::default();
        let written = self.now - DAY;
        let now = Instant::now();
        let read = |look: &str| -> Vec<_> {
            let each = look.split(' ').filter(|word| !word.is_empty());
            each.map(|word| self.bundle(word.trim_matches('-')))
                .collect()
        };
        live.observe(read(first), Some(written), now);
        let now = now + Duration::from_millis(1);
        live.observe(read(then), Some(written), now);
        live.observe(read(then), Some(written), now + wait);
        live
    }

    pub(super) fn letters_of(&self, bundle: &Bundle) -> String {
        let own = self.cas.iter().map(|(letter, ca)| (letter, ca.der()));
        let all = own.chain(self.foreign.iter().map(|(letter, der)| (letter, der)));
        let found = all.filter(|(_, der)| bundle.contains(der));
        let mut letters: Vec<_> = found.map(|(letter, _)| *letter).collect();
        letters.sort_unstable();
        letters.into_iter().collect()
    }
}
