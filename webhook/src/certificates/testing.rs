//! Fixtures of the unit tests: CAs, each with a letter.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use pki::bundle::Bundle;
use pki::ca::Ca;
use pki::clock::wall_clock;
use pki::lifetimes::Lifetimes;
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::CertificateDer;
use tokio::time::Instant;

use super::ca_secret::CaSecret;
use super::propagation::ObservedBundles;
use super::rotation::RotationInputs;

pub(super) const DAY: Duration = Duration::from_secs(24 * 60 * 60);
pub(super) const MINUTE: Duration = Duration::from_secs(60);

/// CAs, each with a letter, so that the content of Secrets and bundles can be written as words.
///
/// | letter | CA |
/// | --- | --- |
/// | `o` | old: due for rotation |
/// | `y` | young |
/// | `n` | new |
/// | `x` | expired |
/// | `s`, `z` | foreign: valid, expired |
///
/// A Secret is a word each for the active, the next, the retired and the distrusted CAs: in `"y n ox"`, `y` signs, `n`
/// signs next, `o` and `x` are retired. Of bundles there is a word for each webhook: in `"yn y"`, the first has both. A
/// dash is for none.
pub(super) struct Fixtures {
    pub(super) now: SystemTime,
    pub(super) lifetimes: Lifetimes,
    cas: Vec<(char, Arc<Ca>)>,
    foreign: [(char, CertificateDer<'static>); 2],
}

// === impl Fixtures ===

impl Fixtures {
    pub(super) fn new() -> Self {
        let (now, lifetimes) = (wall_clock(), Lifetimes::default());
        let created = |letter, age: u32| {
            let ca = Ca::try_new(now - DAY * age, lifetimes.ca());
            (letter, Arc::new(ca.unwrap()))
        };
        let foreign = |letter, end: Option<SystemTime>| {
            let mut params = CertificateParams::new(["a".to_owned()]).unwrap();
            params.not_after = end.map_or(params.not_after, Into::into);
            let key = KeyPair::generate().unwrap();
            (letter, params.self_signed(&key).unwrap().into())
        };
        Self {
            now,
            lifetimes,
            cas: vec![
                created('o', 300),
                created('y', 10),
                created('n', 0),
                created('x', 400),
            ],
            foreign: [foreign('s', None), foreign('z', Some(now - DAY * 32))],
        }
    }

    pub(super) fn ca(&self, letter: char) -> Arc<Ca> {
        let mut all = self.cas.iter();
        let (_, ca) = all.find(|(name, _)| *name == letter).unwrap();
        Arc::clone(ca)
    }

    /// The CAs with these letters.
    pub(super) fn bundle(&self, letters: &str) -> Bundle {
        let der = |letter| {
            let mut foreign = self.foreign.iter();
            match foreign.find(|(name, _)| *name == letter) {
                Some((_, der)) => der.clone(),
                None => self.ca(letter).der().clone(),
            }
        };
        letters.chars().map(der).collect()
    }

    /// Active, next, retired and distrusted CAs, with a dash for none.
    pub(super) fn ca_secret(&self, letters: &str, retired_at: SystemTime) -> CaSecret {
        let mut words = letters.split(' ');
        let mut one = || {
            let letter = words.next().unwrap().chars().next().unwrap();
            (letter != '-').then(|| self.ca(letter))
        };
        let (active, next) = (one(), one());
        CaSecret {
            active,
            next,
            retired: self.bundle(words.next().unwrap_or_default().trim_matches('-')),
            distrusted: self.bundle(words.next().unwrap_or_default()),
            retired_at,
            is_abandoned: false,
            requested_rotation: None,
            started_rotation: None,
            unusable_keys: Vec::new(),
        }
    }

    /// Observes `first`, then `last`, and `last` again after `wait`.
    pub(super) fn observed_bundles(
        &self,
        first: &str,
        last: &str,
        wait: Duration,
    ) -> ObservedBundles {
        let mut observed = ObservedBundles::default();
        let written = self.now - DAY;
        let now = Instant::now();
        let read = |state: &str| -> Vec<_> {
            let each = state.split(' ').filter(|word| !word.is_empty());
            each.map(|word| self.bundle(word.trim_matches('-')))
                .collect()
        };
        observed.observe(read(first), Some(written), now);
        let now = now + Duration::from_millis(1);
        observed.observe(read(last), Some(written), now);
        observed.observe(read(last), Some(written), now + wait);
        observed
    }

    /// The inputs of a decision, where this process has observed the last retirement for a day, and the Service has an
    /// endpoint.
    pub(super) fn inputs<'a>(
        &'a self,
        ca_secret: &'a CaSecret,
        observed: &'a ObservedBundles,
        in_use: &'a Bundle,
    ) -> RotationInputs<'a> {
        RotationInputs {
            ca_secret,
            retired_for: DAY,
            has_endpoint: true,
            observed,
            in_use,
            now: self.now,
            lifetimes: &self.lifetimes,
        }
    }

    /// The letters of the CAs in a bundle, in alphabetical order.
    pub(super) fn letters_of(&self, bundle: &Bundle) -> String {
        let own = self.cas.iter().map(|(letter, ca)| (letter, ca.der()));
        let all = own.chain(self.foreign.iter().map(|(letter, der)| (letter, der)));
        let found = all.filter(|(_, der)| bundle.contains(der));
        let mut letters: Vec<_> = found.map(|(letter, _)| *letter).collect();
        letters.sort_unstable();
        letters.into_iter().collect()
    }
}
