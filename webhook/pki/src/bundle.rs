//! A set of CA certificates, as a `caBundle` or a `ca.crt` holds it.

use std::fmt;
use std::time::SystemTime;

use indexmap::IndexMap;
use pem::{EncodeConfig, LineEnding, Pem};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::subject;
use super::x509::CertificateInfo;

/// A set of certificates, in the order in which they were read; equal to one with the same certificates in another
/// order. It is read from objects that others can write, so no operation may take quadratic time.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Bundle(IndexMap<CertificateDer<'static>, Traits>);

/// What decisions need to know of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traits {
    /// True for a CA that this or another process of envoy-drainer created.
    pub is_issued_by_us: bool,
    /// `None` if the certificate is malformed.
    pub not_after: Option<SystemTime>,
}

// === impl Bundle ===

impl Bundle {
    /// Reads every certificate in `pem`, each once, and ignores anything else, as the API server does.
    /// <https://pkg.go.dev/crypto/x509#CertPool.AppendCertsFromPEM>
    pub fn read(pem: &[u8]) -> Self {
        CertificateDer::pem_slice_iter(pem)
            .filter_map(Result::ok)
            .collect()
    }

    /// Formats the certificates as PEM.
    pub fn pem(&self) -> String {
        let config = EncodeConfig::new().set_line_ending(LineEnding::LF);
        let block = |der: &CertificateDer<'_>| Pem::new("CERTIFICATE", der.as_ref());
        self.iter()
            .map(|der| pem::encode_config(&block(der), config))
            .collect()
    }

    /// Returns true if there is no certificate.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of certificates.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if this certificate is in the bundle.
    pub fn contains(&self, certificate: &CertificateDer<'_>) -> bool {
        self.0.contains_key(certificate)
    }

    /// Returns true if every certificate of `other` is in the bundle.
    pub fn contains_all(&self, other: &Self) -> bool {
        other.iter().all(|certificate| self.contains(certificate))
    }

    /// The certificates, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &CertificateDer<'static>> {
        self.0.keys()
    }

    /// Appends the certificates of `other` that are missing.
    pub fn union(mut self, other: &Self) -> Self {
        for (der, traits) in &other.0 {
            // Cheaper than to clone those that are there.
            if !self.contains(der) {
                self.0.insert(der.clone(), *traits);
            }
        }
        self
    }

    /// The certificates that are not in `other`.
    pub fn without(&self, other: &Self) -> Self {
        self.filter(|der, _| !other.contains(der))
    }

    /// The CAs that this or another process of envoy-drainer created.
    pub fn issued_by_us(&self) -> Self {
        self.filter(|_, traits| traits.is_issued_by_us)
    }

    /// The certificates that have expired at `now`. A malformed one never does.
    pub fn expired(&self, now: SystemTime) -> Self {
        self.filter(|_, traits| traits.is_expired(now))
    }

    /// The first certificates, `limit` at most.
    pub fn first(&self, limit: usize) -> Self {
        self.iter().take(limit).cloned().collect()
    }

    /// The certificates of which `keep` is true.
    pub fn filter(&self, mut keep: impl FnMut(&CertificateDer<'static>, &Traits) -> bool) -> Self {
        let all = self.0.iter().filter(|(der, traits)| keep(der, traits));
        Self(all.map(|(der, traits)| (der.clone(), *traits)).collect())
    }
}

// === impl Traits ===

impl Traits {
    /// Returns true if the certificate has expired at `now`. A malformed one never does.
    pub fn is_expired(&self, now: SystemTime) -> bool {
        self.not_after.is_some_and(|end| end <= now)
    }

    fn read(der: &CertificateDer<'_>) -> Self {
        let info = CertificateInfo::read(der).ok();
        let is_issued_by_us = |info| subject::is_issued_by_us(der, info);
        Self {
            is_issued_by_us: info.as_ref().is_some_and(is_issued_by_us),
            not_after: info.map(|info| info.not_after),
        }
    }
}

impl From<CertificateDer<'static>> for Bundle {
    fn from(certificate: CertificateDer<'static>) -> Self {
        [certificate].into_iter().collect()
    }
}

impl FromIterator<CertificateDer<'static>> for Bundle {
    fn from_iter<T: IntoIterator<Item = CertificateDer<'static>>>(certificates: T) -> Self {
        let mut this = Self::default();
        for der in certificates {
            // Many repeat each other, and parsing one is the most expensive part.
            this.0
                .entry(der)
                .or_insert_with_key(|der| Traits::read(der));
        }
        this
    }
}

impl fmt::Debug for Bundle {
    /// Formats the last four bytes of each signature, which is enough to tell certificates apart: `[23f03418]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ends = self.iter().map(|der| {
            let end = der.last_chunk::<4>().copied().unwrap_or_default();
            let end = u32::from_be_bytes(end);
            fmt::from_fn(move |f| write!(f, "{end:08x}"))
        });
        f.debug_list().entries(ends).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;
    use crate::ca::Ca;
    use crate::clock::wall_clock;

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    fn new_ca(lifetime: Duration) -> Bundle {
        let ca = Ca::try_new(wall_clock(), lifetime).unwrap();
        Bundle::from(ca.der().clone())
    }

    fn foreign_ca() -> Bundle {
        let foreign = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap();
        Bundle::from(foreign.cert.der().clone())
    }

    #[test]
    fn pem_round_trips() {
        let [one, two] = [(); 2].map(|()| new_ca(DAY));
        let both = one.clone().union(&two);
        assert_eq!(Bundle::read(both.pem().as_bytes()), both);
        assert_eq!(Bundle::default().pem(), "");
        // Equal to what OpenSSL and rcgen write, but for line ends.
        let ca = Ca::try_new(wall_clock(), DAY).unwrap();
        let written = Bundle::from(ca.der().clone()).pem();
        assert_eq!(written, ca.pem().replace("\r\n", "\n"));
    }

    #[test]
    fn non_certificates_and_duplicates_are_ignored() {
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
    fn no_operation_takes_quadratic_time() {
        let pem_of = |many: u32| {
            let block = |number: u32| {
                let der = [&[0x30, 4][..], &number.to_be_bytes()].concat();
                pem::encode(&Pem::new("CERTIFICATE", der))
            };
            (0..many).map(block).collect::<String>()
        };
        let elapsed = |many: u32| {
            let pem = pem_of(many);
            let start = Instant::now();
            let bundle = Bundle::read(pem.as_bytes());
            let other = bundle.without(&Bundle::default());
            assert_eq!(bundle.clone().union(&other), other);
            assert_eq!(bundle.len(), usize::try_from(many).unwrap());
            start.elapsed()
        };
        let (few, many) = (elapsed(2_000), elapsed(32_000));
        assert!(many < few * 16 * 4, "{few:?}, {many:?}");
    }

    #[test]
    fn equality_ignores_order() {
        let [one, two] = [(); 2].map(|()| new_ca(DAY));
        let both = one.clone().union(&two);
        assert_eq!(both, two.clone().union(&one));
        assert_ne!(both, one);
        assert_ne!(one, two);
        assert_eq!(both.clone().union(&one), both);
    }

    #[test]
    fn our_cas_are_recognized_by_subject() {
        let now = wall_clock();
        let (own, short, foreign) = (new_ca(2 * DAY), new_ca(DAY / 2), foreign_ca());
        let junk = Bundle::from(CertificateDer::from(vec![0x30, 0]));
        let all = own.clone().union(&short).union(&foreign).union(&junk);
        assert_eq!(all.issued_by_us(), own.clone().union(&short));
        assert!(all.expired(now).is_empty());
        assert_eq!(all.expired(now + DAY), short);
    }
}
