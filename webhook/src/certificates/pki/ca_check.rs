//! Whether clients trust what a CA signs, tried before it signs: a Secret may hold anything.

use std::time::{Duration, SystemTime};

use rustls::Error;

use super::bundle::Bundle;
use super::ca::Ca;
use super::leaf;
use super::verify;
use crate::certificates::lifetimes::MIN_CLOCK_SKEW;

/// A leaf that is only tried lives for this long.
const TEST_LEAF_LIFETIME: Duration = Duration::from_secs(60);

/// Why a CA cannot sign.
#[derive(Debug, thiserror::Error)]
pub enum CaCheckError {
    /// Its extensions are not those of a CA for servers.
    #[error("it is no CA for certificates of servers")]
    Extensions,
    /// It is not valid yet, by more than clocks are apart.
    #[error("it is not valid yet")]
    NotValidYet,
    /// Clients that trust it refuse its leaf.
    #[error("its leaf is not trusted by clients that trust it")]
    Untrusted(#[source] Error),
}

/// Signs a leaf for `names`, and verifies it as a client that trusts `ca`.
///
/// The end of `ca` is not judged, which the rotation does. A beginning up to an hour after `now` counts as
/// the past: a CA that is made here has begun a whole lifetime ago, so that more is no matter of clocks.
///
/// # Errors
/// Why the client refuses it.
pub fn check(ca: &Ca, names: &[String], now: SystemTime) -> Result<(), CaCheckError> {
    let facts = ca.info();
    if !facts.can_sign {
        return Err(CaCheckError::Extensions);
    }
    if facts.not_before > now + MIN_CLOCK_SKEW {
        return Err(CaCheckError::NotValidYet);
    }
    let within = facts
        .not_after
        .checked_sub(TEST_LEAF_LIFETIME)
        .unwrap_or(now);
    // It may live for less than the leaf: then its beginning is the one time that is surely within.
    let at = now.min(within).max(facts.not_before);
    // Names that no leaf can have say nothing of the CA: issuing fails, and says so.
    let Ok(leaf) = leaf::issue(ca, names, at, TEST_LEAF_LIFETIME) else {
        return Ok(());
    };
    let trusted = Bundle::from(ca.der().clone());
    verify::verify_chain(leaf.chain(), &trusted, at).map_err(CaCheckError::Untrusted)
}

#[cfg(test)]
mod tests {
    use rcgen::{
        BasicConstraints, CertificateParams, CidrSubnet, CustomExtension, ExtendedKeyUsagePurpose,
        GeneralSubtree, IsCa, KeyPair, KeyUsagePurpose, NameConstraints,
    };

    use super::*;
    use crate::certificates::pki::ca;
    use crate::clock::wall_clock;

    const HOUR: Duration = Duration::from_secs(60 * 60);
    const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

    fn names() -> Vec<String> {
        vec!["envoy-drainer.drainers.svc".to_owned()]
    }

    fn ca_with(change: impl FnOnce(&mut CertificateParams)) -> Ca {
        let now = wall_clock();
        let mut params = ca::params();
        params.not_before = (now - YEAR).into();
        params.not_after = (now + YEAR).into();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Ca::from_pem(pem.as_bytes(), key.serialize_pem().as_bytes()).unwrap()
    }

    fn constraints(permitted: &[&str], excluded: &[&str]) -> Option<NameConstraints> {
        let trees = |names: &[&str]| {
            let names = names.iter().map(|name| (*name).to_owned());
            names.map(GeneralSubtree::DnsName).collect()
        };
        Some(NameConstraints {
            permitted_subtrees: trees(permitted),
            excluded_subtrees: trees(excluded),
        })
    }

    #[test]
    fn a_ca_that_clients_refuse_cannot_sign() {
        type Change = fn(&mut CertificateParams);
        let now = wall_clock();
        let table: [(&str, Change, bool); 15] = [
            ("as made here", |_| {}, true),
            ("no CA", |params| params.is_ca = IsCa::ExplicitNoCa, false),
            ("silent", |params| params.is_ca = IsCa::NoCa, false),
            (
                "any path",
                |params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained),
                true,
            ),
            (
                "no key usage",
                |params| params.key_usages = Vec::new(),
                true,
            ),
            (
                "another key usage",
                |params| params.key_usages = vec![KeyUsagePurpose::CrlSign],
                false,
            ),
            (
                "for clients",
                |params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth],
                false,
            ),
            (
                "an extension that no CA here has",
                |params| {
                    let extension = CustomExtension::from_oid_content(&[1, 3, 9], vec![5, 0]);
                    params.custom_extensions = vec![extension];
                },
                false,
            ),
            (
                "our names",
                |params| params.name_constraints = constraints(&["svc"], &[]),
                true,
            ),
            (
                "other names",
                |params| params.name_constraints = constraints(&["example.com"], &[]),
                false,
            ),
            (
                "not our names",
                |params| params.name_constraints = constraints(&[], &["svc"]),
                false,
            ),
            (
                "no addresses",
                |params| {
                    params.name_constraints = Some(NameConstraints {
                        permitted_subtrees: vec![],
                        excluded_subtrees: vec![GeneralSubtree::IpAddress(CidrSubnet::V4(
                            [0; 4], [0; 4],
                        ))],
                    });
                },
                true,
            ),
            (
                "from next month on",
                |params| params.not_before = (wall_clock() + YEAR / 12).into(),
                false,
            ),
            (
                "by a clock that is ahead",
                |params| params.not_before = (wall_clock() + HOUR / 2).into(),
                true,
            ),
            (
                "expired",
                |params| params.not_after = (wall_clock() - HOUR).into(),
                true,
            ),
        ];
        for (which, change, wanted) in table {
            let found = check(&ca_with(change), &names(), now);
            assert_eq!(found.is_ok(), wanted, "{which}: {found:?}");
        }
    }

    #[test]
    fn a_ca_that_lives_for_less_than_a_leaf_can_sign() {
        let now = wall_clock();
        for seconds in [1, 27, 59, 60, 61] {
            let ca = Ca::try_new_for(&names(), now, Duration::from_secs(seconds)).unwrap();
            check(&ca, &names(), now).unwrap();
        }
    }

    #[test]
    fn a_ca_that_is_made_here_can_sign_by_a_clock_that_was_set_back() {
        let now = wall_clock();
        let ca = Ca::try_new_for(&names(), now, YEAR).unwrap();
        for at in [now - YEAR, now, now + YEAR * 2] {
            check(&ca, &names(), at).unwrap();
        }
    }

    #[test]
    fn names_that_no_certificate_can_have_say_nothing_of_the_ca() {
        let ca = Ca::try_new(wall_clock(), YEAR).unwrap();
        check(&ca, &["ü".to_owned()], wall_clock()).unwrap();
        // One that was made for other names is replaced.
        let ca = Ca::try_new_for(&names(), wall_clock(), YEAR).unwrap();
        assert!(check(&ca, &["localhost".to_owned()], wall_clock()).is_err());
    }
}
