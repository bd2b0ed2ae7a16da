//! Tests whether API servers will trust a CA's leaves before it signs: the Secret may hold anything.

use std::time::{Duration, SystemTime};

use anyhow::{Context, ensure};

use super::bundle::Bundle;
use super::ca::Ca;
use super::issuer;
use super::leaf;
use super::verify;
use super::x509::Extension;
use crate::lifetimes::CLOCK_SKEW_TOLERANCE;

/// The lifetime of the leaf that is issued for the test.
const TEST_LEAF_LIFETIME: Duration = Duration::from_secs(60);

/// Signs a leaf for `names`, and verifies it as an API server that trusts `ca`.
///
/// Whether `ca` has expired is left to the rotation. A `notBefore` up to an hour after `now` is accepted; more is
/// not clock skew: a CA that is created here has a `notBefore` that is a whole lifetime ago.
///
/// # Errors
/// Why API servers would reject the leaf.
pub fn check(ca: &Ca, names: &[String], now: SystemTime) -> anyhow::Result<()> {
    let info = ca.info();
    ensure!(
        info.not_before <= now + CLOCK_SKEW_TOLERANCE,
        "not valid yet"
    );
    let latest_leaf_start = info
        .not_after
        .checked_sub(TEST_LEAF_LIFETIME)
        .unwrap_or(now);
    // A CA may live for less than the leaf; then the leaf is verified at `notBefore`.
    let at = now.min(latest_leaf_start).max(info.not_before);
    let extensions = info.extensions()?;
    ensure!(
        info.has_extensions && extensions.iter().all(is_created_here),
        "its extensions are not those of a CA that is created here"
    );
    issuer::check_ca(ca.der(), at)?;
    // Invalid names are not a fault of the CA; issuing the leaf reports them.
    let Ok(leaf) = leaf::issue(ca, names, at, TEST_LEAF_LIFETIME) else {
        return Ok(());
    };
    let trusted = Bundle::from(ca.der().clone());
    verify::verify_chain(leaf.chain(), &trusted, at)
        .context("API servers that trust the CA would reject its leaf")
}

/// Returns true for an extension of the CAs that are created here: clients reject unknown critical ones, and an
/// extended key usage would have to include servers.
/// <https://www.rfc-editor.org/rfc/rfc5280#section-4.2.1>
fn is_created_here(extension: &Extension<'_>) -> bool {
    // subjectKeyIdentifier, keyUsage, basicConstraints, nameConstraints, authorityKeyIdentifier
    matches!(extension.id, [0x55, 0x1d, 14 | 15 | 19 | 30 | 35])
}

#[cfg(test)]
mod tests {
    use rcgen::{
        BasicConstraints, CertificateParams, CidrSubnet, CustomExtension, ExtendedKeyUsagePurpose,
        GeneralSubtree, IsCa, KeyPair, KeyUsagePurpose, NameConstraints,
    };

    use super::*;
    use crate::ca;
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
    fn ca_can_sign_if_its_leaf_is_trusted() {
        type Change = fn(&mut CertificateParams);
        let now = wall_clock();
        let table: [(&str, Change, bool); 15] = [
            ("as created here", |_| {}, true),
            ("no CA", |params| params.is_ca = IsCa::ExplicitNoCa, false),
            (
                "no basicConstraints",
                |params| params.is_ca = IsCa::NoCa,
                false,
            ),
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
                "unknown extension",
                |params| {
                    let extension = CustomExtension::from_oid_content(&[1, 3, 9], vec![5, 0]);
                    params.custom_extensions = vec![extension];
                },
                false,
            ),
            (
                "permits our names",
                |params| params.name_constraints = constraints(&["svc"], &[]),
                true,
            ),
            (
                "permits other names",
                |params| params.name_constraints = constraints(&["example.com"], &[]),
                false,
            ),
            (
                "excludes our names",
                |params| params.name_constraints = constraints(&[], &["svc"]),
                false,
            ),
            (
                "excludes all addresses",
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
                "valid from next month",
                |params| params.not_before = (wall_clock() + YEAR / 12).into(),
                false,
            ),
            (
                "created by a clock that is ahead",
                |params| params.not_before = (wall_clock() + HOUR / 2).into(),
                true,
            ),
            (
                "expired",
                |params| params.not_after = (wall_clock() - HOUR).into(),
                true,
            ),
        ];
        for (name, change, wanted) in table {
            let result = check(&ca_with(change), &names(), now);
            assert_eq!(result.is_ok(), wanted, "{name}: {result:?}");
        }
    }

    #[test]
    fn ca_shorter_than_a_leaf_can_sign() {
        let now = wall_clock();
        for seconds in [1, 27, 59, 60, 61] {
            let ca = Ca::try_new_for(&names(), now, Duration::from_secs(seconds)).unwrap();
            check(&ca, &names(), now).unwrap();
        }
    }

    #[test]
    fn ca_can_sign_after_clock_was_set_back() {
        let now = wall_clock();
        let ca = Ca::try_new_for(&names(), now, YEAR).unwrap();
        for at in [now - YEAR, now, now + YEAR * 2] {
            check(&ca, &names(), at).unwrap();
        }
    }

    #[test]
    fn invalid_names_do_not_fail_the_ca() {
        let ca = Ca::try_new(wall_clock(), YEAR).unwrap();
        check(&ca, &["ü".to_owned()], wall_clock()).unwrap();
        // A CA for other names is replaced.
        let ca = Ca::try_new_for(&names(), wall_clock(), YEAR).unwrap();
        assert!(check(&ca, &["localhost".to_owned()], wall_clock()).is_err());
    }
}
