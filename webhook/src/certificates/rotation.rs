//! How authorities follow each other, so that at no instant a leaf is shown which an API server does
//! not trust: publish the next one, see it trusted, wait, sign with it, and much later forget the old.
//!
//! Every replica decides this by itself. Nothing is done twice, since every decision starts from what
//! was read and is written only if that has not changed.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::bundle::Bundle;
use super::ca::Ca;
use super::keyring::Keyring;
use super::live::Live;

/// Longer is of no use, and dates must stay within what certificates can write.
const LONGEST: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// The lifetimes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetimes {
    ca: Duration,
    leaf: Duration,
    activation_delay: Duration,
}

/// Lifetimes that do not fit each other.
#[derive(Debug, thiserror::Error)]
pub enum BadLifetimes {
    /// An authority that lives for too long.
    #[error("ca-lifetime: at most {}h", LONGEST.as_secs() / 3600)]
    TooLong,
    /// A leaf would still be in use when its authority ends.
    #[error("ca-lifetime is less than three times leaf-lifetime: raise the one or lower the other")]
    Leaf,
    /// A leaf that is due when the Secret is lost would end before a new authority may sign the next.
    #[error(
        "leaf-lifetime is less than six times ca-activation-delay: raise the one or lower the other"
    )]
    ActivationDelay,
    /// No time at all.
    #[error("ca-activation-delay: give at least 100ms")]
    TooShort,
}

/// All that the decision rests on.
#[derive(Debug, Clone, Copy)]
pub struct Situation<'a> {
    /// What the Secret holds.
    pub keyring: &'a Keyring,
    /// For how long this process has seen the last retirement stand in the Secret. Its own stopwatch:
    /// neither a clock that jumps nor one that is off makes others lose a leaf in use.
    pub retired_for: Duration,
    /// What API servers trust.
    pub live: &'a Live,
    /// What clients must trust to trust what this process shows.
    pub in_use: &'a Bundle,
    /// The wall clock.
    pub now: SystemTime,
    /// The lifetimes.
    pub lifetimes: &'a Lifetimes,
}

/// What is to be done to the Secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    Rest,
    /// Take those of our own line that are trusted and unknown to the Secret among the retired: the
    /// Secret was lost, and their leaves may be in use.
    Adopt(Bundle),
    /// Make a new authority, and publish it before it signs.
    Publish(Reason),
    /// Sign with the published one.
    Activate,
    /// Forget these: no API server trusts them any more.
    Forget(Bundle),
}

/// Why a new authority is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// There is none: the Secret is new, lost or spoilt.
    Missing,
    /// The one that signs comes of age.
    Due,
}

/// Decides the next step.
#[must_use]
pub fn next(situation: &Situation<'_>) -> Step {
    let Situation {
        keyring,
        live,
        in_use,
        now,
        lifetimes,
        ..
    } = *situation;
    let known = keyring.all();
    let own: Bundle = live
        .bundles()
        .iter()
        .flat_map(|bundle| bundle.own(now).iter().cloned().collect::<Vec<_>>())
        .filter(|certificate| !known.contains(certificate))
        .collect();
    if !own.is_empty() {
        return Step::Adopt(own);
    }
    let usable = |ca: &Option<Ca>| ca.as_ref().is_some_and(|ca| now < ca.facts().not_after);
    if let Some(next) = keyring.next.as_ref().filter(|_| usable(&keyring.next)) {
        let anchor = Bundle::from(next.der().clone());
        return if live.has_settled(&anchor, in_use, lifetimes.activation_delay) {
            Step::Activate
        } else {
            Step::Rest
        };
    }
    match &keyring.signer {
        Some(signer) if usable(&keyring.signer) => {
            if now >= due(signer) {
                return Step::Publish(Reason::Due);
            }
        }
        _ => return Step::Publish(Reason::Missing),
    }
    let forgotten =
        overdue(situation).only(|der| !live.bundles().iter().any(|bundle| bundle.contains(der)));
    if forgotten.is_empty() {
        Step::Rest
    } else {
        Step::Forget(forgotten)
    }
}

/// What should stand in a `caBundle` instead of `found`; `None` if that is well.
///
/// It is only ever added to, but for certificates that have expired and those of `keyring` whose
/// leaves are out of use. Who else put a certificate there has a reason: a replica of another mode or
/// version, which serves on until it is replaced.
#[must_use]
pub fn bundle(found: &Bundle, wanted: &Bundle, gone: &Bundle, now: SystemTime) -> Option<Bundle> {
    let expired = found.expired(now);
    let kept = found.only(|der| !gone.contains(der) && !expired.contains(der));
    let right = kept.with(wanted);
    (right != *found).then_some(right)
}

/// The retired whose leaves are out of use, as far as this process knows: twice a leaf's lifetime after the last of them signed, as
/// a replica that sees neither the Secret nor the right time may show its leaf until that ends; and not
/// before every replica has had time to learn of it, whatever the time is thought to be.
#[must_use]
pub fn overdue(situation: &Situation<'_>) -> Bundle {
    let Situation {
        keyring,
        retired_for,
        in_use,
        now,
        lifetimes,
        ..
    } = *situation;
    let out_of_use = match (&keyring.signer, keyring.retired_at) {
        (Some(_), Some(at)) => {
            // Whoever wrote it may have written any time.
            let ago = now.duration_since(at).unwrap_or_default();
            ago >= lifetimes.leaf * 2 && retired_for >= lifetimes.activation_delay * 3
        }
        // Its key was lost, so the last that signed is among them.
        (None, _) | (_, None) => false,
    };
    let overdue = if out_of_use {
        keyring.retired.clone()
    } else {
        keyring.retired.expired(now)
    };
    overdue.only(|der| !in_use.contains(der))
}

/// When an authority is due to be replaced: when a third of its life is left, give or take a
/// fifteenth, so that not all releases of a fleet that was installed at once do it at once. The
/// replicas of one agree, as that is drawn from the certificate: from the second at which it ends.
#[must_use]
pub fn due(ca: &Ca) -> SystemTime {
    let facts = ca.facts();
    let validity = facts.not_after.duration_since(facts.not_before);
    // Half of it was before it was made.
    let life = validity.unwrap_or_default() / 2;
    let end = facts.not_after.duration_since(UNIX_EPOCH);
    // Fibonacci hashing: neighbours come far apart.
    let hash = end
        .unwrap_or_default()
        .as_secs()
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let drawn = u32::from(hash.to_be_bytes()[0]);
    facts.not_after - life * 4 / 15 - life * 2 / 15 * drawn / 255
}

impl Keyring {
    /// Takes a step at `now`.
    ///
    /// # Errors
    /// When the system gives no randomness for a new key.
    pub fn take(
        &mut self,
        step: Step,
        now: SystemTime,
        lifetimes: &Lifetimes,
    ) -> Result<(), rcgen::Error> {
        match step {
            Step::Rest => {}
            Step::Adopt(own) => self.retire(own.iter().cloned(), now),
            Step::Publish(_) => {
                let next = Ca::try_new(now, lifetimes.ca)?;
                if let Some(old) = self.next.replace(next) {
                    self.retire([old.der().clone()], now);
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
            }
        }
        Ok(())
    }
}

// === impl Lifetimes ===

impl Lifetimes {
    /// Takes lifetimes that leave time for one authority to follow the other.
    ///
    /// # Errors
    /// When they do not.
    pub fn try_new(
        ca: Duration,
        leaf: Duration,
        activation_delay: Duration,
    ) -> Result<Self, BadLifetimes> {
        if ca > LONGEST {
            return Err(BadLifetimes::TooLong);
        }
        if activation_delay < Duration::from_millis(100) {
            return Err(BadLifetimes::TooShort);
        }
        if ca < leaf.saturating_mul(3) {
            return Err(BadLifetimes::Leaf);
        }
        if leaf < activation_delay.saturating_mul(6) {
            return Err(BadLifetimes::ActivationDelay);
        }
        Ok(Self {
            ca,
            leaf,
            activation_delay,
        })
    }

    /// An authority's.
    #[must_use]
    pub fn ca(&self) -> Duration {
        self.ca
    }

    /// A leaf's.
    #[must_use]
    pub fn leaf(&self) -> Duration {
        self.leaf
    }

    /// How long an authority is trusted before it signs: longer than an API server is behind.
    #[must_use]
    pub fn activation_delay(&self) -> Duration {
        self.activation_delay
    }
}

impl Default for Lifetimes {
    /// A year, a week, two minutes.
    fn default() -> Self {
        const DAY: Duration = Duration::from_secs(24 * 60 * 60);
        Self {
            ca: 365 * DAY,
            leaf: 7 * DAY,
            activation_delay: Duration::from_secs(120),
        }
    }
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::CertificateDer;
    use tokio::time::Instant;

    use super::*;
    use crate::certificates::wall_clock;

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    const MINUTE: Duration = Duration::from_secs(60);

    /// The authorities of the tables, each by its letter: what their Secret and bundles hold is written
    /// as words.
    struct Cast {
        now: SystemTime,
        authorities: Vec<(char, Ca)>,
        stranger: CertificateDer<'static>,
    }

    impl Cast {
        fn new() -> Self {
            let now = wall_clock();
            let made = |letter, age: u32| {
                let ca = Ca::try_new(now - DAY * age, Lifetimes::default().ca);
                (letter, ca.unwrap())
            };
            let stranger = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap();
            Self {
                now,
                // Old enough to be due, young, just made, expired.
                authorities: vec![made('o', 300), made('y', 10), made('n', 0), made('x', 370)],
                stranger: stranger.cert.der().clone(),
            }
        }

        fn ca(&self, letter: char) -> Ca {
            let found = self.authorities.iter().find(|(name, _)| *name == letter);
            let (_, ca) = found.unwrap();
            Ca::from_pem(ca.pem().as_bytes(), ca.key_pem().as_bytes()).unwrap()
        }

        /// `s` is somebody else's.
        fn bundle(&self, letters: &str) -> Bundle {
            let der = |letter| match letter {
                's' => self.stranger.clone(),
                letter => self.ca(letter).der().clone(),
            };
            letters.chars().map(der).collect()
        }

        /// Signer, next and retired, with a dash for none.
        fn keyring(&self, letters: &str, retired_at: Option<SystemTime>) -> Keyring {
            let mut words = letters.split(' ');
            let mut one = || {
                let letter = words.next().unwrap().chars().next().unwrap();
                (letter != '-').then(|| self.ca(letter))
            };
            let (signer, next) = (one(), one());
            Keyring {
                signer,
                next,
                retired: self.bundle(words.next().unwrap_or_default()),
                retired_at,
            }
        }

        /// Two looks at bundles, so long apart.
        fn live(&self, first: &str, then: &str, wait: Duration) -> Live {
            let mut live = Live::default();
            let now = Instant::now();
            let read = |look: &str| -> Vec<_> {
                let each = look.split(' ').filter(|word| !word.is_empty());
                each.map(|word| self.bundle(word.trim_matches('-')))
                    .collect()
            };
            live.look(read(first), now);
            live.look(read(then), now);
            live.look(read(then), now + wait);
            live
        }

        fn named(&self, bundle: &Bundle) -> String {
            let all = self.authorities.iter();
            let found = all.filter(|(_, ca)| bundle.contains(ca.der()));
            let mut letters: Vec<_> = found.map(|(letter, _)| *letter).collect();
            letters.extend(bundle.contains(&self.stranger).then_some('s'));
            letters.sort_unstable();
            letters.into_iter().collect()
        }

        fn step(&self, step: &Step) -> String {
            match step {
                Step::Rest => "rest".into(),
                Step::Adopt(own) => format!("adopt {}", self.named(own)),
                Step::Publish(reason) => format!("publish {reason:?}"),
                Step::Activate => "activate".into(),
                Step::Forget(gone) => format!("forget {}", self.named(gone)),
            }
        }
    }

    #[test]
    fn the_next_step_follows_from_the_secret_and_the_bundles() {
        let cast = Cast::new();
        let long = DAY * 15;
        // Secret, first look, last look, time between, since the last retirement, step.
        for (secret, first, then, wait, retired, wanted) in [
            // Nothing yet.
            ("- -", "", "", 0, None, "publish Missing"),
            ("- -", "- -", "- -", 0, None, "publish Missing"),
            ("- n", "- -", "- -", 9, None, "rest"),
            // Half of the webhooks is not all of them.
            ("- n", "- -", "n -", 9, None, "rest"),
            ("- n", "- -", "n n", 0, None, "activate"),
            // The same beside somebody else's certificate, which may be in use.
            ("- n", "s s", "ns s", 9, None, "rest"),
            ("- n", "s s", "ns sn", 1, None, "rest"),
            ("- n", "s s", "ns sn", 2, None, "activate"),
            // What was there before this process was may have come just then.
            ("- n", "ns sn", "ns sn", 1, None, "rest"),
            // Years of this.
            ("y -", "y y", "y y", 9, None, "rest"),
            ("y -", "- -", "- -", 9, None, "rest"),
            ("y -", "", "", 9, None, "rest"),
            ("o -", "o o", "o o", 9, None, "publish Due"),
            ("x -", "x x", "x x", 9, None, "publish Missing"),
            // The next takes over.
            ("o n", "o o", "o o", 9, None, "rest"),
            ("o n", "o o", "on o", 9, None, "rest"),
            ("o n", "o o", "on on", 1, None, "rest"),
            ("o n", "o o", "on no", 2, None, "activate"),
            ("o n", "", "", 9, None, "rest"),
            // One that came to nothing.
            ("o x", "o o", "ox ox", 9, None, "publish Due"),
            ("y x", "y y", "yx yx", 9, None, "rest"),
            // The old is forgotten when no leaf can be of it and nobody trusts it.
            ("y - o", "yo yo", "yo yo", 9, None, "rest"),
            ("y - o", "yo yo", "y y", 9, Some(DAY * 13), "rest"),
            ("y - o", "yo yo", "y yo", 9, Some(long), "rest"),
            ("y - o", "yo yo", "y y", 9, Some(long), "forget o"),
            ("y - ox", "yo yo", "yo yo", 9, Some(DAY), "forget x"),
            ("y - o", "", "", 9, Some(long), "forget o"),
            // The signer's key was lost, so the retired are in use.
            ("- - o", "o o", "o o", 9, Some(long), "publish Missing"),
            ("- n o", "on on", "on on", 1, Some(long), "rest"),
            ("- n o", "on on", "on on", 2, Some(long), "activate"),
            // The Secret was lost, or an old one came back.
            ("- -", "o o", "o o", 0, None, "adopt o"),
            ("- -", "osx -", "osx -", 0, None, "adopt o"),
            ("- -", "on s", "on y", 0, None, "adopt noy"),
            ("o -", "y y", "yo yo", 9, None, "adopt y"),
            ("- n", "no no", "no no", 9, None, "adopt o"),
        ] {
            let row = format!("{secret:?}, {first:?}, {then:?}, {wait} min, {retired:?}");
            let situation = Situation {
                keyring: &cast.keyring(secret, retired.map(|ago| cast.now - ago)),
                retired_for: DAY,
                live: &cast.live(first, then, MINUTE * wait),
                in_use: &Bundle::default(),
                now: cast.now,
                lifetimes: &Lifetimes::default(),
            };
            assert_eq!(cast.step(&next(&situation)), wanted, "{row}");
        }
    }

    #[test]
    fn a_step_makes_the_secret_what_the_next_one_starts_from() {
        let cast = Cast::new();
        let earlier = cast.now - DAY;
        for (secret, step, wanted) in [
            ("- -", Step::Rest, "- - "),
            ("- -", Step::Adopt(cast.bundle("oy")), "- - oy now"),
            ("y - o", Step::Publish(Reason::Due), "y new o"),
            ("y x o", Step::Publish(Reason::Missing), "y new ox now"),
            ("y n o", Step::Activate, "n - oy now"),
            ("- n o", Step::Activate, "n - o now"),
            ("y - ox", Step::Forget(cast.bundle("x")), "y - o"),
        ] {
            let mut keyring = cast.keyring(secret, Some(earlier));
            let row = format!("{secret:?} and {}", cast.step(&step));
            keyring.take(step, cast.now, &Lifetimes::default()).unwrap();
            let name = |ca: &Option<Ca>| match ca.as_ref().map(|ca| Bundle::from(ca.der().clone()))
            {
                Some(one) => match cast.named(&one).as_str() {
                    "" => "new".to_owned(),
                    known => known.to_owned(),
                },
                None => "-".to_owned(),
            };
            let when = match keyring.retired_at {
                Some(at) if at == cast.now => " now",
                _ => "",
            };
            let (signer, next) = (name(&keyring.signer), name(&keyring.next));
            let retired = cast.named(&keyring.retired);
            assert_eq!(format!("{signer} {next} {retired}{when}"), wanted, "{row}");
        }
    }

    #[test]
    fn a_bundle_loses_nothing_but_what_is_out_of_use_or_has_expired() {
        let cast = Cast::new();
        // Found, wanted, out of use, right; a dash where it is right already.
        for (found, wanted, gone, right) in [
            ("", "y", "", "y"),
            ("y", "y", "", "-"),
            ("yn", "ny", "", "-"),
            ("y", "yn", "", "ny"),
            // Somebody else's stays, and so does one of our own line that nobody asks for.
            ("s", "y", "", "sy"),
            ("oy", "y", "", "-"),
            ("oy", "y", "o", "y"),
            ("oys", "y", "o", "sy"),
            ("xy", "y", "", "y"),
            // From mode `self` to `secret` and back: each adds its own to the other's.
            ("y", "s", "", "sy"),
            ("ys", "s", "", "-"),
            ("ys", "n", "", "nsy"),
            // Expired, and all there is.
            ("x", "x", "", "-"),
            ("", "", "", "-"),
        ] {
            let [found, wanted, gone] = [found, wanted, gone].map(|letters| cast.bundle(letters));
            let made = bundle(&found, &wanted, &gone, cast.now);
            let made = made.map_or("-".to_owned(), |made| cast.named(&made));
            assert_eq!(made, right, "{found:?} {wanted:?} {gone:?}");
        }
    }

    #[test]
    fn the_retired_are_overdue_after_two_leaves_by_the_clock_and_a_while_by_the_stopwatch() {
        let cast = Cast::new();
        for (secret, in_use, retired_at, retired_for, wanted) in [
            ("y - o", "", None, DAY, ""),
            ("y - o", "", Some(cast.now - DAY * 14), DAY, "o"),
            ("y - o", "", Some(cast.now - DAY * 13), DAY, ""),
            ("y - ox", "", Some(cast.now - DAY * 13), DAY, "x"),
            ("- - o", "", Some(cast.now - DAY * 14), DAY, ""),
            // The clock may have jumped.
            ("y - o", "", Some(cast.now - DAY * 99), MINUTE * 5, ""),
            ("y - o", "", Some(cast.now - DAY * 99), MINUTE * 6, "o"),
            ("y - o", "", Some(cast.now + DAY * 99), DAY, ""),
            (
                "y - o",
                "",
                SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(i64::MAX as u64)),
                DAY,
                "",
            ),
            // Whatever the Secret says, what is shown is in use.
            ("y - ox", "o", Some(cast.now - DAY * 99), DAY, "x"),
        ] {
            let keyring = cast.keyring(secret, retired_at);
            let situation = Situation {
                keyring: &keyring,
                retired_for,
                live: &Live::default(),
                in_use: &cast.bundle(in_use),
                now: cast.now,
                lifetimes: &Lifetimes::default(),
            };
            let overdue = cast.named(&overdue(&situation));
            assert_eq!(overdue, wanted, "{secret}, {retired_at:?}, {retired_for:?}");
        }
    }

    #[test]
    fn an_authority_is_due_when_about_a_third_of_its_life_is_left_and_all_agree_when() {
        let now = wall_clock();
        let life = DAY * 300;
        let made = |second| Ca::try_new(now + Duration::from_secs(second), life).unwrap();
        let authorities: Vec<_> = (0..20).map(made).collect();
        let dues: Vec<_> = authorities.iter().map(due).collect();
        for (ca, at) in authorities.iter().zip(&dues) {
            let left = ca.facts().not_after.duration_since(*at).unwrap();
            assert!(left >= life * 4 / 15 && left <= life * 6 / 15, "{left:?}");
            let stored = Ca::from_pem(ca.pem().as_bytes(), ca.key_pem().as_bytes()).unwrap();
            assert_eq!(due(&stored), *at);
        }
        let (first, last) = (dues.iter().min().unwrap(), dues.iter().max().unwrap());
        let spread = last.duration_since(*first).unwrap();
        assert!(spread > life / 10, "{spread:?}");
    }
}
