//! The authorities of the tables.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::CertificateDer;
use tokio::time::Instant;

use super::bundle::Bundle;
use super::ca::{self, Ca};
use super::keyring::Keyring;
use super::lifetimes::Lifetimes;
use super::live::Live;
use crate::clock::wall_clock;

pub(super) const DAY: Duration = Duration::from_secs(24 * 60 * 60);
pub(super) const MINUTE: Duration = Duration::from_secs(60);

/// The authorities of the tables, each by its letter: what their Secret and bundles hold is written
/// as words.
pub(super) struct Cast {
    pub(super) now: SystemTime,
    authorities: Vec<(char, Arc<Ca>)>,
    strangers: [(char, CertificateDer<'static>); 2],
}

// === impl Cast ===

impl Cast {
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
            authorities: vec![
                made('o', 300),
                made('y', 10),
                made('n', 0),
                made('x', 370),
                ('w', ending(now + DAY * (365 + 26))),
                ('m', ending(now + DAY * (365 + 90))),
                ('h', ending(now + DAY * 365 * 20)),
            ],
            // Valid, expired.
            strangers: [stranger('s', None), stranger('z', Some(now - DAY))],
        }
    }

    pub(super) fn ca(&self, letter: char) -> Arc<Ca> {
        let mut all = self.authorities.iter();
        let (_, ca) = all.find(|(name, _)| *name == letter).unwrap();
        Arc::clone(ca)
    }

    /// `s` and `z` are somebody else's.
    pub(super) fn bundle(&self, letters: &str) -> Bundle {
        let der = |letter| {
            let mut strangers = self.strangers.iter();
            match strangers.find(|(name, _)| *name == letter) {
                Some((_, stranger)) => stranger.clone(),
                None => self.ca(letter).der().clone(),
            }
        };
        letters.chars().map(der).collect()
    }

    /// Signer, next, retired and distrusted, with a dash for none.
    pub(super) fn keyring(&self, letters: &str, retired_at: Option<SystemTime>) -> Keyring {
        let mut words = letters.split(' ');
        let mut one = || {
            let letter = words.next().unwrap().chars().next().unwrap();
            (letter != '-').then(|| self.ca(letter))
        };
        let (signer, next) = (one(), one());
        Keyring {
            signer,
            next,
            retired: self.bundle(words.next().unwrap_or_default().trim_matches('-')),
            distrusted: self.bundle(words.next().unwrap_or_default()),
            retired_at,
            ..Keyring::default()
        }
    }

    /// Two looks at bundles, and a third that finds the same so long after the second.
    pub(super) fn live(&self, first: &str, then: &str, wait: Duration) -> Live {
        let mut live = Live::default();
        let written = self.now - DAY;
        let now = Instant::now();
        let read = |look: &str| -> Vec<_> {
            let each = look.split(' ').filter(|word| !word.is_empty());
            each.map(|word| self.bundle(word.trim_matches('-')))
                .collect()
        };
        live.look(read(first), Some(written), now);
        let now = now + Duration::from_millis(1);
        live.look(read(then), Some(written), now);
        live.look(read(then), Some(written), now + wait);
        live
    }

    pub(super) fn named(&self, bundle: &Bundle) -> String {
        let own = self
            .authorities
            .iter()
            .map(|(letter, ca)| (letter, ca.der()));
        let all = own.chain(self.strangers.iter().map(|(letter, der)| (letter, der)));
        let found = all.filter(|(_, der)| bundle.contains(der));
        let mut letters: Vec<_> = found.map(|(letter, _)| *letter).collect();
        letters.sort_unstable();
        letters.into_iter().collect()
    }
}
