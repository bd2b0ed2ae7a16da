//! Verifies a chain as a client of the webhook does.

use std::time::SystemTime;

use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, Error, RootCertStore};

use super::bundle::Bundle;
use super::x509::CertificateInfo;

/// Verifies a chain, leaf first, as a client that trusts `bundle` and calls the server by each of `names` at `now`.
///
/// # Errors
/// Why the client closes the connection.
pub fn verify(
    chain: &[CertificateDer<'_>],
    bundle: &Bundle,
    names: &[String],
    now: SystemTime,
) -> Result<(), Error> {
    verify_chain(chain, bundle, now)?;
    let leaf = chain.first().ok_or(Error::NoCertificatesPresented)?;
    let leaf = ParsedCertificate::try_from(leaf)?;
    names.iter().try_for_each(|name| {
        let name = ServerName::try_from(&name[..]);
        let name = name.map_err(|_| CertificateError::NotValidForName)?;
        verify_server_name(&leaf, &name)
    })
}

/// Verifies the signatures and the validity of a chain.
///
/// API servers accept more than rustls does, so what they may trust is accepted here: a leaf that is itself in the
/// bundle, whatever its extensions, and signature algorithms that are unknown here.
///
/// # Errors
/// Why the client closes the connection.
pub fn verify_chain(
    chain: &[CertificateDer<'_>],
    bundle: &Bundle,
    now: SystemTime,
) -> Result<(), Error> {
    let Some((leaf, intermediates)) = chain.split_first() else {
        return Err(Error::NoCertificatesPresented);
    };
    let since = now.duration_since(SystemTime::UNIX_EPOCH);
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(bundle.iter().cloned());
    let signed = verify_server_cert_signed_by_trust_anchor(
        &ParsedCertificate::try_from(leaf)?,
        &roots,
        intermediates,
        UnixTime::since_unix_epoch(since.unwrap_or_default()),
        ring::default_provider()
            .signature_verification_algorithms
            .all,
    );
    match signed {
        Err(_) if bundle.contains(leaf) => {
            let info = CertificateInfo::read(leaf).map_err(|_| CertificateError::BadEncoding)?;
            Ok(info.check_validity(now)?)
        }
        // A signature algorithm that cannot be verified here. API servers know more, such as P-521.
        Err(Error::InvalidCertificate(
            CertificateError::UnsupportedSignatureAlgorithmContext { .. }
            | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. },
        )) => Ok(()),
        signed => signed,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
    use rustls::pki_types::pem::PemObject;

    use super::*;
    use crate::clock::wall_clock;

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

    #[test]
    fn leaf_in_the_bundle_is_trusted_while_valid() {
        let now = wall_clock();
        // As `openssl req -x509` creates it.
        let mut params = CertificateParams::new(["a".to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.not_before = (now - DAY).into();
        params.not_after = (now + DAY).into();
        let create = |params: &CertificateParams| {
            let key = KeyPair::generate().unwrap();
            [params.self_signed(&key).unwrap().der().clone()]
        };
        let (chain, other) = (create(&params), create(&params));
        let bundle: Bundle = chain.iter().cloned().collect();
        assert_eq!(verify(&chain, &bundle, &["a".into()], now), Ok(()));
        for (chain, name, now, wanted) in [
            (&chain, "a", now - 2 * DAY, CertificateError::NotValidYet),
            (&chain, "a", now + DAY, CertificateError::Expired),
        ] {
            assert_eq!(
                verify(chain, &bundle, &[name.into()], now),
                Err(wanted.into())
            );
        }
        assert!(verify(&chain, &bundle, &["b".into()], now).is_err());
        assert!(verify(&other, &bundle, &["a".into()], now).is_err());
    }

    #[test]
    fn unsupported_algorithms_are_accepted() {
        // A CA with a P-521 key, and a leaf of it.
        let anchors = "-----BEGIN CERTIFICATE-----\n\
MIIB/zCCAWCgAwIBAgIUXElT8w+D2Acp99iKecCDkRjhutcwCgYIKoZIzj0EAwIw\n\
EDEOMAwGA1UEAwwFbGFyZ2UwIBcNMjYxMTIyMDIzOTEyWhgPMjEyNjEwMjkwMjM5\n\
MTJaMBAxDjAMBgNVBAMMBWxhcmdlMIGbMBAGByqGSM49AgEGBSuBBAAjA4GGAAQB\n\
YOnvs21h7Xe9HN22sArpJFyVXxJjiA/2V2PJewLOSJG0U4D7bqNFPTDxrf+B7V4v\n\
f58lnANNaRuXwS9j2KUWjoYBEdZpskS50hq/iZkssUv0ZiHI0xqRBEvY5lScm/ae\n\
35tgn47TwpcDbHy2Yhpy+6VVkytHMt7VEjCO/QFR+7r5d1CjUzBRMB0GA1UdDgQW\n\
BBSd9ZFvbJA4ImbSiQUIFA37OxJhGDAfBgNVHSMEGDAWgBSd9ZFvbJA4ImbSiQUI\n\
FA37OxJhGDAPBgNVHRMBAf8EBTADAQH/MAoGCCqGSM49BAMCA4GMADCBiAJCAIJC\n\
AKkqSR48H7rvkxmNvp++1YHQ+mBcBNmj4vE59m/EsloAg8CaTnsfvQNtVc4UhvBs\n\
nN6XIG5eY2I4n7nZvWYxAkIBZsxx4D4q/ZsA0JcBZ7eRbjqIDYjL+JXjKKVw8fl8\n\
C/vLiWWDshCOPaNLq85Qk0TSSgCVZOeeHLH27ZPqOqYVUy0=\n\
-----END CERTIFICATE-----";
        let leaf = "-----BEGIN CERTIFICATE-----\n\
MIIB1DCCATagAwIBAgIUZJgDgWMn55tv6FzZu9GEyTy0eKMwCgYIKoZIzj0EAwIw\n\
EDEOMAwGA1UEAwwFbGFyZ2UwIBcNMjYxMTIyMDIzOTEyWhgPMjEyNjEwMjkwMjM5\n\
MTJaMAwxCjAIBgNVBAMMAWEwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAAR+zkyy\n\
Xa+ETotLfzileVazbWtaqUoiFJcF7CfE2Cjy4PLXxLr6FCB4Yua6wTkjlvdcv9J3\n\
AHAKmr1YR+MWWNu+o3AwbjAMBgNVHREEBTADggFhMBMGA1UdJQQMMAoGCCsGAQUF\n\
BwMBMAkGA1UdEwQCMAAwHQYDVR0OBBYEFNdAxVG4VyV8Eaat5qUC1lSYmXlOMB8G\n\
A1UdIwQYMBaAFJ31kW9skDgiZtKJBQgUDfs7EmEYMAoGCCqGSM49BAMCA4GLADCB\n\
hwJCAJTcYEGzdg1gYz1EQi2+2xhxfEhJIgrrEfUTu5jCfUl/xKTRgX43s0n/GovC\n\
0rQHshVP3Ui5A049Yn0YlgvfPjTXAkFHmV8n1WNjymY69rQcvKlVpvX76724qApc\n\
pq9Tma6p1CXJLljMz2UTJQ66l9lEMGgMY9xrGG+tk7A3Yu1FYb2x/Q==\n\
-----END CERTIFICATE-----";
        let chain = [CertificateDer::from_pem_slice(leaf.as_bytes()).unwrap()];
        let bundle = Bundle::read(anchors.as_bytes());
        let now = wall_clock();
        assert_eq!(verify(&chain, &bundle, &["a".into()], now), Ok(()));
        let later = now + 100 * YEAR;
        assert!(
            verify(&chain, &bundle, &["a".into()], later).is_err(),
            "it has expired"
        );
    }
}
