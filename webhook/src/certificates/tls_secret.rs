//! The TLS Secret of mode `secret`: a certificate that another issuer, such as cert-manager, issues and renews.
//! <https://kubernetes.io/docs/concepts/configuration/secret/#tls-secrets>

use std::time::SystemTime;

use anyhow::{Context, ensure};
use k8s_openapi::jiff::Timestamp;
use pki::bundle::Bundle;
use pki::certified_key::CertifiedKeyPair;
use pki::issuer;
use pki::lifetimes::CLOCK_SKEW_TOLERANCE;
use pki::verify;
use pki::x509::CertificateInfo;
use rustls::pki_types::CertificateDer;

use super::cluster::SecretData;
use super::serving_policy::ServedCertificate;

const TLS_CRT: &str = "tls.crt";
const TLS_KEY: &str = "tls.key";
const CA_CRT: &str = "ca.crt";

/// Reads a certificate for all of `names` that is trusted at `now` by API servers that trust `ca.crt`.
///
/// # Errors
/// When something is missing or unusable.
pub(super) fn read_tls_secret(
    data: &SecretData,
    names: &[String],
    now: SystemTime,
) -> anyhow::Result<ServedCertificate> {
    let get = |key| {
        let value = data.get(key);
        value.with_context(|| format!("the Secret has no `{key}`"))
    };
    let anchors = Bundle::read(get(CA_CRT)?);
    // Companies' bundles contain expired roots, which are not added to a `caBundle`.
    let anchors = anchors.without(&anchors.expired(now));
    ensure!(
        !anchors.is_empty(),
        "the Secret's `{CA_CRT}` has no certificate, or only expired ones"
    );
    let certified_key = CertifiedKeyPair::from_pem(get(TLS_CRT)?, get(TLS_KEY)?)
        .with_context(|| format!("cannot serve the Secret's `{TLS_CRT}` with its `{TLS_KEY}`"))?;
    ensure!(
        now < certified_key.not_after(),
        "the Secret's `{TLS_CRT}` has expired"
    );
    verify(certified_key.chain(), &anchors, names, now)?;
    Ok(ServedCertificate {
        certified_key,
        anchors,
        issued_by: None,
    })
}

/// Verifies a chain, leaf first, as an API server that trusts `anchors` at `now`. A leaf that becomes valid within
/// [`CLOCK_SKEW_TOLERANCE`] is verified at that instant.
fn verify(
    chain: &[CertificateDer<'static>],
    anchors: &Bundle,
    names: &[String],
    now: SystemTime,
) -> anyhow::Result<()> {
    let leaf = chain.first();
    let leaf = leaf.context("the certificate chain has no certificate")?;
    let info = CertificateInfo::read(leaf)?;
    ensure!(
        info.has_extensions,
        "the Secret's `{TLS_CRT}` has no names: issue one with a subjectAltName (X.509 version 3)"
    );
    ensure!(
        info.not_before <= now + CLOCK_SKEW_TOLERANCE,
        "the Secret's `{TLS_CRT}` is valid only from {}; is the clock of this node right?",
        Timestamp::try_from(info.not_before).unwrap_or_default()
    );
    let at = now.max(info.not_before);
    // This fails for a moment while an issuer replaces both.
    verify::verify(chain, anchors, names, at)
        .with_context(|| format!("the Secret's `{TLS_CRT}` was not issued by its `{CA_CRT}`"))?;
    issuer::check(chain, anchors, at).with_context(|| {
        format!("API servers reject the Secret's `{TLS_CRT}` or a CA that signed it")
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use pki::clock::wall_clock;
    use rcgen::{
        BasicConstraints, CertificateParams, CustomExtension, ExtendedKeyUsagePurpose,
        GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose, NameConstraints,
    };
    use rustls::pki_types::pem::PemObject;

    const HOUR: Duration = Duration::from_secs(60 * 60);
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    /// A foreign CA, and a chain with intermediates.
    struct TestChain {
        root: String,
        chain: String,
        key: String,
    }

    fn new_chain(intermediates: usize, now: SystemTime) -> TestChain {
        let ca = |number: usize| {
            let mut params = CertificateParams::default();
            params
                .distinguished_name
                .push(rcgen::DnType::CommonName, format!("CA {number}"));
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            (params, KeyPair::generate().unwrap())
        };
        let (params, key) = ca(0);
        let root = params.self_signed(&key).unwrap().pem();
        let mut issuer = Issuer::new(params, key);
        let mut chain = String::new();
        for number in 1..=intermediates {
            let (params, key) = ca(number);
            chain = params.signed_by(&key, &issuer).unwrap().pem() + &chain;
            issuer = Issuer::new(params, key);
        }
        let mut params = CertificateParams::new(["a".to_owned()]).unwrap();
        params.not_before = (now - DAY).into();
        params.not_after = (now + DAY).into();
        let key = KeyPair::generate().unwrap();
        let leaf = params.signed_by(&key, &issuer).unwrap().pem();
        TestChain {
            root,
            chain: leaf + &chain,
            key: key.serialize_pem(),
        }
    }

    fn data(chain: &str, key: &str, anchors: &str) -> SecretData {
        [(TLS_CRT, chain), (TLS_KEY, key), (CA_CRT, anchors)]
            .map(|(key, pem)| (key.to_owned(), pem.into()))
            .into()
    }

    fn read(data: &SecretData, name: &str, now: SystemTime) -> Result<ServedCertificate, String> {
        let names: Vec<_> = name.split_whitespace().map(str::to_owned).collect();
        read_tls_secret(data, &names, now).map_err(|error| error.to_string())
    }

    #[test]
    fn missing_or_unusable_keys_are_named() {
        let now = wall_clock();
        let TestChain { root, chain, key } = new_chain(0, now);
        let complete = data(&chain, &key, &root);
        let secret = read(&complete, "a", now).unwrap();
        assert_eq!(secret.anchors, Bundle::read(root.as_bytes()));
        for (key, value, wanted) in [
            (TLS_CRT, None, "the Secret has no `tls.crt`"),
            (TLS_KEY, None, "the Secret has no `tls.key`"),
            (CA_CRT, None, "the Secret has no `ca.crt`"),
            (
                CA_CRT,
                Some(""),
                "the Secret's `ca.crt` has no certificate, or only expired ones",
            ),
            (
                TLS_KEY,
                Some("junk"),
                "cannot serve the Secret's `tls.crt` with its `tls.key`",
            ),
        ] {
            let mut data = complete.clone();
            match value {
                Some(value) => data.insert(key.into(), value.into()),
                None => data.remove(key),
            };
            assert_eq!(read(&data, "a", now).unwrap_err(), wanted);
        }
    }

    #[test]
    fn expired_anchors_are_ignored() {
        let now = wall_clock();
        let TestChain { root, chain, key } = new_chain(0, now);
        let old = {
            let mut params = CertificateParams::default();
            params.not_after = (now - DAY).into();
            let key = KeyPair::generate().unwrap();
            params.self_signed(&key).unwrap().pem()
        };
        let both = data(&chain, &key, &format!("{old}{root}"));
        let secret = read(&both, "a", now).unwrap();
        assert_eq!(secret.anchors, Bundle::read(root.as_bytes()));
        let error = read(&data(&chain, &key, &old), "a", now).unwrap_err();
        let wanted = "the Secret's `ca.crt` has no certificate, or only expired ones";
        assert_eq!(error, wanted);
    }

    #[test]
    fn certificate_of_another_ca_is_rejected() {
        let now = wall_clock();
        let [one, other, long] = [new_chain(0, now), new_chain(0, now), new_chain(2, now)];
        let self_signed = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap();
        let (self_signed, self_signed_key) = (
            self_signed.cert.pem(),
            self_signed.signing_key.serialize_pem(),
        );
        let both = format!("{}{}", other.root, one.root);
        let (first, _) = long
            .chain
            .split_at(long.chain.find("-----END").unwrap() + 26);
        let untrusted = "the Secret's `tls.crt` was not issued by its `ca.crt`";
        let expired = "the Secret's `tls.crt` has expired";
        for (data, names, at, wanted) in [
            (data(&one.chain, &one.key, &one.root), "", now, None),
            (data(&one.chain, &one.key, &both), "a", now, None),
            (
                data(&one.chain, &one.key, &other.root),
                "a",
                now,
                Some(untrusted),
            ),
            (
                data(&one.chain, &one.key, &one.root),
                "b",
                now,
                Some(untrusted),
            ),
            (
                data(&one.chain, &one.key, &one.root),
                "a b",
                now,
                Some(untrusted),
            ),
            // API servers trust only the root.
            (data(&long.chain, &long.key, &long.root), "a", now, None),
            (
                data(first, &long.key, &long.root),
                "a",
                now,
                Some(untrusted),
            ),
            // A self-signed certificate needs no CA.
            (
                data(&self_signed, &self_signed_key, &self_signed),
                "a",
                now,
                None,
            ),
            (
                data(&self_signed, &self_signed_key, &self_signed),
                "b",
                now,
                Some(untrusted),
            ),
            (
                data(&self_signed, &self_signed_key, &one.root),
                "a",
                now,
                Some(untrusted),
            ),
            // By a clock that is behind, and at its expiry.
            (
                data(&one.chain, &one.key, &one.root),
                "a",
                now - DAY - HOUR / 2,
                None,
            ),
            (
                data(&one.chain, &one.key, &one.root),
                "a",
                now + DAY,
                Some(expired),
            ),
        ] {
            let error = read(&data, names, at).err();
            assert_eq!(error.as_deref(), wanted, "{names:?} at {at:?}: {data:?}");
        }
    }

    /// A leaf for `a`, one intermediate and a root, each with changes.
    fn custom_chain(changes: [fn(&mut CertificateParams); 3], now: SystemTime) -> TestChain {
        let [change_leaf, change_intermediate, change_root] = changes;
        let ca = |name: &str, change: fn(&mut CertificateParams)| {
            let mut params = CertificateParams::default();
            params
                .distinguished_name
                .push(rcgen::DnType::CommonName, name);
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            change(&mut params);
            (params, KeyPair::generate().unwrap())
        };
        let (params, key) = ca("root", change_root);
        let root = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        let (params, key) = ca("intermediate", change_intermediate);
        let intermediate = params.signed_by(&key, &issuer).unwrap().pem();
        let issuer = Issuer::new(params, key);
        let mut params = CertificateParams::new(["a".to_owned()]).unwrap();
        params.not_before = (now - DAY).into();
        change_leaf(&mut params);
        let key = KeyPair::generate().unwrap();
        let leaf = params.signed_by(&key, &issuer).unwrap().pem();
        TestChain {
            root,
            chain: leaf + &intermediate,
            key: key.serialize_pem(),
        }
    }

    #[test]
    fn chain_that_go_rejects_is_rejected() {
        type Change = fn(&mut CertificateParams);
        let now = wall_clock();
        let (leaf, intermediate, root) = (0, 1, 2);
        let clients: Change = |params| {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        };
        let servers: Change = |params| {
            params.extended_key_usages = vec![
                ExtendedKeyUsagePurpose::ClientAuth,
                ExtendedKeyUsagePurpose::ServerAuth,
            ];
        };
        let no_ca: Change = |params| params.is_ca = IsCa::ExplicitNoCa;
        let absent: Change = |params| params.is_ca = IsCa::NoCa;
        let crl: Change = |params| params.key_usages = vec![KeyUsagePurpose::CrlSign];
        let sign: Change = |params| params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let alone: Change = |params| params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        let later: Change = |params| params.not_before = (wall_clock() + DAY * 60).into();
        let past: Change = |params| params.not_after = (wall_clock() - DAY).into();
        let unknown: Change = |params| {
            let mut extension = CustomExtension::from_oid_content(&[1, 3, 9], vec![5, 0]);
            extension.set_criticality(true);
            params.custom_extensions = vec![extension];
        };
        let others: Change = |params| {
            params.name_constraints = Some(NameConstraints {
                permitted_subtrees: vec![GeneralSubtree::DnsName("example.com".to_owned())],
                excluded_subtrees: Vec::new(),
            });
        };
        let untrusted = "was not issued by its `ca.crt`: ";
        for (name, at, change, wanted) in [
            ("unchanged", leaf, (|_| {}) as Change, ""),
            ("for clients", leaf, clients, untrusted),
            ("for both", leaf, servers, ""),
            ("later", leaf, later, "valid only from 20"),
            ("past", leaf, past, "has expired"),
            ("unknown", leaf, unknown, "UnsupportedCriticalExtension"),
            ("for clients", intermediate, clients, untrusted),
            ("for both", intermediate, servers, ""),
            ("no CA", intermediate, no_ca, untrusted),
            ("crl", intermediate, crl, "keyUsage lacks keyCertSign"),
            ("sign", intermediate, sign, ""),
            ("alone", intermediate, alone, ""),
            ("later", intermediate, later, untrusted),
            ("past", intermediate, past, untrusted),
            ("others", intermediate, others, untrusted),
            (
                "for clients",
                root,
                clients,
                "extendedKeyUsage lacks serverAuth",
            ),
            ("for both", root, servers, ""),
            ("no CA", root, no_ca, "do not say CA:TRUE"),
            ("no basicConstraints", root, absent, "do not say CA:TRUE"),
            ("crl", root, crl, "keyUsage lacks keyCertSign"),
            ("sign", root, sign, ""),
            ("later", root, later, "not valid yet"),
            ("others", root, others, untrusted),
        ] {
            let mut changes: [Change; 3] = [|_| {}; 3];
            changes[at] = change;
            let TestChain { root, chain, key } = custom_chain(changes, now);
            let result = read_tls_secret(&data(&chain, &key, &root), &["a".to_owned()], now);
            let row = format!("{name} of {at}: {result:?}");
            match (result, wanted) {
                (Ok(_), wanted) => assert_eq!(wanted, "", "{row}"),
                (Err(error), wanted) => {
                    let error = format!("{error:#}");
                    assert!(
                        !wanted.is_empty() && error.contains(wanted),
                        "{row}: {error}"
                    );
                }
            }
        }
    }

    #[test]
    fn second_usable_ca_suffices() {
        let now = wall_clock();
        let mut params = CertificateParams::default();
        let good = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        params.is_ca = IsCa::ExplicitNoCa;
        let bad_root = params.self_signed(&key).unwrap().pem();
        params.is_ca = good;
        let good_root = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        let params = CertificateParams::new(["a".to_owned()]).unwrap();
        let key = KeyPair::generate().unwrap();
        let leaf = params.signed_by(&key, &issuer).unwrap().pem();
        let both = data(&leaf, &key.serialize_pem(), &(bad_root + &good_root));
        read(&both, "a", now).unwrap();
    }

    #[test]
    fn certificate_without_names_is_reported() {
        // As `openssl x509 -req` creates it without extensions.
        let old = "-----BEGIN CERTIFICATE-----\n\
MIIBFDCBuwIUcRh3P/3b8fKQxGIretTrCaTc2ZIwCgYIKoZIzj0EAwIwDDEKMAgG\n\
A1UEAwwBYTAgFw0yNjExMjIwNTUzNThaGA8yMTI2MTAyOTA1NTM1OFowDDEKMAgG\n\
A1UEAwwBYTBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABJchjJ4ZskI3jXbsAyLj\n\
S3TaKwtzd3rDkZ/RVWpM25degHsPhXpXMYxn7EW/Fx3kptAlUa7lX5QajIOK2cXO\n\
zPgwCgYIKoZIzj0EAwIDSAAwRQIhALVsvALQ8TPhanj+zd753fu2tqAH253PfqkO\n\
ICoLGV02AiACzZw1aEz8nYIpkauvrv59ip3ixa8u16QU0L2Iv2Iqdg==\n\
-----END CERTIFICATE-----";
        let chain = [CertificateDer::from_pem_slice(old.as_bytes()).unwrap()];
        let anchors = Bundle::read(old.as_bytes());
        let result = verify(&chain, &anchors, &["a".to_owned()], wall_clock());
        let wanted = "the Secret's `tls.crt` has no names: issue one with a subjectAltName (X.509 version 3)";
        assert_eq!(result.unwrap_err().to_string(), wanted);
    }
}
