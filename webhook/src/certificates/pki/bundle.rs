//! The certificates that clients trust, as a `caBundle` or a `ca.crt` lists them.

use std::collections::HashSet;
use std::fmt;
use std::time::SystemTime;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::ca;
use super::x509::CertificateInfo;

/// A set of certificates, in the order in which they were found. Others write what it is read from, so that no
/// operation may take time with the square of their number.
#[derive(Clone, Default)]
pub struct Bundle {
    anchors: Vec<Anchor>,
    /// The DER of all of them.
    der_set: HashSet<Vec<u8>>,
}

/// A certificate, and what decides over it.
#[derive(Clone)]
struct Anchor {
    der: CertificateDer<'static>,
    is_issued_by_us: bool,
    /// It cannot be read here, or is longer than any that is made here, and has our CAs' name in it: clients
    /// that read it try it for our leaves.
    is_lookalike: bool,
    /// `None` if that cannot be read.
    not_after: Option<SystemTime>,
}

// === impl Bundle ===

impl Bundle {
    /// Reads every certificate that is in `pem`, each once. What is none is passed over, as the API
    /// server does. <https://pkg.go.dev/crypto/x509#CertPool.AppendCertsFromPEM>
    #[must_use]
    pub fn read(pem: &[u8]) -> Self {
        CertificateDer::pem_slice_iter(pem)
            .filter_map(Result::ok)
            .collect()
    }

    /// Writes it as PEM.
    #[must_use]
    pub fn pem(&self) -> String {
        self.to_string()
    }

    /// Returns true if it has no certificate.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.anchors.is_empty()
    }

    /// Returns true if it has this certificate.
    #[must_use]
    pub fn contains(&self, certificate: &CertificateDer<'_>) -> bool {
        self.der_set.contains(&certificate[..])
    }

    /// Returns true if it has all that `other` has.
    #[must_use]
    pub fn contains_all(&self, other: &Self) -> bool {
        other.iter().all(|certificate| self.contains(certificate))
    }

    /// Its certificates.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &CertificateDer<'static>> {
        self.anchors.iter().map(|anchor| &anchor.der)
    }

    /// Adds what it lacks of `other`, at its end.
    #[must_use]
    pub fn union(mut self, other: &Self) -> Self {
        for anchor in &other.anchors {
            self.add(anchor.clone());
        }
        self
    }

    /// Keeps those certificates for which `keep` is true.
    #[must_use]
    pub fn filter(&self, mut keep: impl FnMut(&CertificateDer<'static>) -> bool) -> Self {
        self.filter_anchors(|anchor| keep(&anchor.der))
    }

    /// Those of our own line.
    #[must_use]
    pub fn issued_by_us(&self) -> Self {
        self.filter_anchors(|anchor| anchor.is_issued_by_us)
    }

    /// Those that cannot be read or are too long, and have the name of our own line in them. None of them was
    /// made here.
    #[must_use]
    pub fn lookalikes(&self) -> Self {
        self.filter_anchors(|anchor| anchor.is_lookalike)
    }

    /// Those that are valid at `now`.
    #[must_use]
    pub fn valid(&self, now: SystemTime) -> Self {
        self.filter_anchors(|anchor| anchor.not_after.is_some_and(|end| now < end))
    }

    /// Those that have expired at `now`. One that cannot be read never does.
    #[must_use]
    pub fn expired(&self, now: SystemTime) -> Self {
        self.filter_anchors(|anchor| anchor.not_after.is_some_and(|end| end <= now))
    }

    /// Those that end after `end`, or whose end cannot be read.
    #[must_use]
    pub fn outliving(&self, end: SystemTime) -> Self {
        self.filter_anchors(|anchor| anchor.not_after.is_none_or(|not_after| end < not_after))
    }

    /// Its first certificates, so many at most.
    #[must_use]
    pub fn first(&self, most: usize) -> Self {
        self.anchors.iter().take(most).cloned().collect()
    }

    /// Its last certificates, so many at most.
    #[must_use]
    pub fn last(&self, most: usize) -> Self {
        let passed = self.anchors.len().saturating_sub(most);
        self.anchors.iter().skip(passed).cloned().collect()
    }

    fn filter_anchors(&self, mut keep: impl FnMut(&Anchor) -> bool) -> Self {
        let kept = self.anchors.iter().filter(|anchor| keep(anchor));
        kept.cloned().collect()
    }

    fn add(&mut self, anchor: Anchor) {
        if self.der_set.insert(anchor.der.to_vec()) {
            self.anchors.push(anchor);
        }
    }
}

// === impl Anchor ===

impl From<CertificateDer<'static>> for Anchor {
    fn from(der: CertificateDer<'static>) -> Self {
        let facts = CertificateInfo::read(&der).ok();
        Self {
            is_issued_by_us: facts
                .as_ref()
                .is_some_and(|facts| ca::is_issued_by_us(&der, facts)),
            is_lookalike: (facts.is_none() || ca::is_too_long(&der))
                && ca::contains_our_subject(&der),
            not_after: facts.map(|facts| facts.not_after),
            der,
        }
    }
}

/// Equal are two that trust the same, in whatever order.
impl PartialEq for Bundle {
    fn eq(&self, other: &Self) -> bool {
        self.der_set == other.der_set
    }
}

impl Eq for Bundle {}

impl From<CertificateDer<'static>> for Bundle {
    fn from(certificate: CertificateDer<'static>) -> Self {
        [certificate].into_iter().collect()
    }
}

impl Extend<CertificateDer<'static>> for Bundle {
    /// Adds each that it lacks.
    fn extend<T: IntoIterator<Item = CertificateDer<'static>>>(&mut self, more: T) {
        for certificate in more {
            // Most are there already, and to read one takes longest.
            if !self.contains(&certificate) {
                self.add(certificate.into());
            }
        }
    }
}

impl FromIterator<Anchor> for Bundle {
    fn from_iter<T: IntoIterator<Item = Anchor>>(anchors: T) -> Self {
        let mut this = Self::default();
        for anchor in anchors {
            this.add(anchor);
        }
        this
    }
}

impl FromIterator<CertificateDer<'static>> for Bundle {
    fn from_iter<T: IntoIterator<Item = CertificateDer<'static>>>(certificates: T) -> Self {
        let mut this = Self::default();
        this.extend(certificates);
        this
    }
}

impl fmt::Display for Bundle {
    /// Writes PEM: lines of 64, as everyone does.
    /// <https://www.rfc-editor.org/rfc/rfc7468#section-3>
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for certificate in self.iter() {
            f.write_str("-----BEGIN CERTIFICATE-----\n")?;
            // 48 bytes are 64 characters.
            for line in certificate.chunks(48) {
                writeln!(f, "{}", STANDARD.encode(line))?;
            }
            f.write_str("-----END CERTIFICATE-----\n")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Bundle {
    /// Shows what tells certificates apart: the last bytes of their signatures.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ends = self.iter().map(|der| {
            let end = der.last_chunk::<4>().copied().unwrap_or_default();
            u32::from_be_bytes(end)
        });
        f.debug_list()
            .entries(ends.map(|end| format_args!("{end:08x}").to_string()))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;
    use crate::certificates::pki::ca::Ca;
    use crate::clock::wall_clock;

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    fn new_ca(lifetime: Duration) -> Bundle {
        let ca = Ca::try_new(wall_clock(), lifetime).unwrap();
        Bundle::from(ca.der().clone())
    }

    fn foreign_ca() -> Bundle {
        let stranger = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap();
        Bundle::from(stranger.cert.der().clone())
    }

    #[test]
    fn what_is_written_reads_back() {
        let [one, two] = [(); 2].map(|()| new_ca(DAY));
        let both = one.clone().union(&two);
        assert_eq!(Bundle::read(both.pem().as_bytes()), both);
        assert_eq!(Bundle::default().pem(), "");
        // As rcgen writes it, but for its line ends.
        let ca = Ca::try_new(wall_clock(), DAY).unwrap();
        let written = Bundle::from(ca.der().clone()).pem();
        assert_eq!(written, ca.pem().replace("\r\n", "\n"));
    }

    #[test]
    fn what_is_no_certificate_is_passed_over_and_none_counts_twice() {
        let [one, two] = [(); 2].map(|()| new_ca(DAY));
        let (one_pem, two_pem) = (one.pem(), two.pem());
        let key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        let broken = "-----BEGIN CERTIFICATE-----\n?\n-----END CERTIFICATE-----\n";
        let open = "-----BEGIN CERTIFICATE-----\nAAAA\n";
        let pem = format!("word\n{one_pem}{key}{broken}{two_pem}{one_pem}{open}");
        assert_eq!(Bundle::read(pem.as_bytes()), one.union(&two));
        for nothing in ["", "\n", "word", open] {
            assert!(Bundle::read(nothing.as_bytes()).is_empty(), "{nothing}");
        }
    }

    #[test]
    fn no_operation_takes_time_with_the_square_of_the_certificates() {
        let pem = |many: u32| {
            let block = |number: u32| {
                let der = [&[0x30, 4][..], &number.to_be_bytes()].concat();
                let text = STANDARD.encode(der);
                format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
            };
            (0..many).map(block).collect::<String>()
        };
        let took = |many: u32| {
            let pem = pem(many);
            let start = Instant::now();
            let bundle = Bundle::read(pem.as_bytes());
            let other = bundle.filter(|der| bundle.contains(der));
            assert_eq!(bundle.clone().union(&other), other);
            assert_eq!(bundle.iter().count(), usize::try_from(many).unwrap());
            start.elapsed()
        };
        let (few, many) = (took(2_000), took(32_000));
        assert!(many < few * 16 * 4, "{few:?}, {many:?}");
    }

    #[test]
    fn two_are_equal_that_trust_the_same() {
        let [one, two] = [(); 2].map(|()| new_ca(DAY));
        let both = one.clone().union(&two);
        assert_eq!(both, two.clone().union(&one));
        assert_ne!(both, one);
        assert_ne!(one, two);
        assert_eq!(both.clone().union(&one), both);
    }

    #[test]
    fn our_own_line_is_told_by_its_name_and_the_expired_by_their_end() {
        let now = wall_clock();
        let (own, brief, stranger) = (new_ca(2 * DAY), new_ca(DAY / 2), foreign_ca());
        let junk = Bundle::from(CertificateDer::from(vec![0x30, 0]));
        let all = own.clone().union(&brief).union(&stranger).union(&junk);
        assert_eq!(all.issued_by_us(), own.clone().union(&brief));
        assert_eq!(all.issued_by_us().valid(now), all.issued_by_us());
        assert_eq!(all.issued_by_us().valid(now + DAY), own);
        assert_eq!(all.valid(now), all.issued_by_us().union(&stranger));
        assert!(all.expired(now).is_empty());
        assert_eq!(all.expired(now + DAY), brief);
    }

    /// A CA of our name whose dates no strict reader takes: in `UTCTime`, the `Z` becomes an `A`.
    fn unreadable() -> Bundle {
        let mut der = Ca::try_new(wall_clock(), DAY).unwrap().der().to_vec();
        let dates = der.windows(2).position(|head| head == [0x17, 13]).unwrap();
        der[dates + 14] = b'A';
        Bundle::from(CertificateDer::from(der))
    }

    #[test]
    fn an_unreadable_certificate_with_our_name_resembles_our_own() {
        let junk = Bundle::from(CertificateDer::from(vec![0x30, 0]));
        let (own, forged) = (new_ca(DAY), unreadable());
        let all = own.union(&foreign_ca()).union(&junk).union(&forged);
        assert_eq!(all.lookalikes(), forged);
        assert!(forged.issued_by_us().is_empty());
    }
}
