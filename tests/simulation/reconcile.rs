//! One replica of the webhook and the two objects that it keeps: what it does in a tick, and what not.

mod memory_cluster;
mod replica;

use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DnType, ExtendedKeyUsagePurpose,
    GeneralSubtree, IsCa, KeyPair, NameConstraints,
};
use rustls::pki_types::CertificateDer;
use tests::test_ca::TestCa;
use tokio::join;
use tokio::time::sleep;
use webhook::certificates::testing_api::{Bundle, ReconcileError, SecretData, StoreCall, verify};
use webhook::clock::wall_clock;
use webhook::metrics::encode;

use memory_cluster::{MAX_SECRET_SIZE, MemoryCluster};
use replica::Replica;

const MINUTE: Duration = Duration::from_secs(60);
/// The shortest pause of the product that a change may end.
const MIN_BACKOFF: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

#[tokio::test(start_paused = true)]
async fn a_first_replica_is_ready_at_once() {
    let etcd = MemoryCluster::new();
    let mut replica = Replica::self_managed(&etcd);
    replica.reconcile_until_stable().await;
    assert!(replica.resolver.is_ready());
    assert_eq!(etcd.bundle(), replica.secret_cas());
}

#[tokio::test(start_paused = true)]
async fn a_panic_fails_one_tick() {
    for call in [
        StoreCall::ReadSecret,
        StoreCall::WriteSecret,
        StoreCall::ReadWebhooks,
    ] {
        let etcd = MemoryCluster::new();
        let mut replica = Replica::self_managed(&etcd);
        etcd.panicking_call.set(Some(call));
        let tick = replica.reconcile().await;
        assert!(
            matches!(tick.failures[..], [ReconcileError::Panic]),
            "{:?}",
            tick.failures
        );
        etcd.panicking_call.set(None);
        replica.reconcile_until_stable().await;
        assert!(replica.resolver.is_ready());
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_shown_is_trusted_again_when_secret_and_bundles_are_emptied_at_once() {
    let etcd = MemoryCluster::new();
    let mut replica = Replica::self_managed(&etcd);
    replica.reconcile_until_stable().await;
    let (old, shown) = (etcd.bundle(), replica.served_certificate());
    etcd.clear();
    replica.reconcile_until_stable().await;
    assert!(etcd.bundle().contains_all(&old));
    assert_eq!(
        replica.secret_cas(),
        etcd.bundle(),
        "adopted, beside the next"
    );
    assert_eq!(
        replica.served_certificate(),
        shown,
        "API servers may be behind"
    );
    replica.advance_clocks(MINUTE * 2).await;
    replica.reconcile_until_stable().await;
    assert_ne!(replica.served_certificate(), shown);
}

#[tokio::test(start_paused = true)]
async fn a_leaf_is_renewed_while_the_secret_cannot_be_read_or_is_gone() {
    for failing in [vec![StoreCall::ReadSecret], vec![StoreCall::WriteSecret]] {
        let etcd = MemoryCluster::new();
        let mut replica = Replica::self_managed(&etcd);
        replica.reconcile_until_stable().await;
        let (first, bundle) = (replica.served_certificate(), etcd.bundle());
        etcd.delete_secret();
        etcd.failing_calls.replace(failing.clone());
        replica.advance_clocks(DAY * 5).await;
        let tick = replica.reconcile().await;
        assert_eq!(tick.failures.len(), 1, "{:?}", tick.failures);
        let second = replica.served_certificate();
        assert!(second.not_after() > first.not_after(), "{failing:?}");
        assert_eq!(etcd.bundle(), bundle);
        // It is still asked for.
        etcd.bundles.replace(Some(vec![<_>::default(); 2]));
        replica.reconcile().await;
        assert_eq!(etcd.bundle(), bundle);
    }
}

#[tokio::test(start_paused = true)]
async fn a_leaf_is_renewed_while_the_secret_is_written_over_and_over() {
    let etcd = MemoryCluster::new();
    let mut replica = Replica::self_managed(&etcd);
    replica.reconcile_until_stable().await;
    let first = replica.served_certificate();
    replica.advance_clocks(DAY * 5).await;
    etcd.write_data([("state.json".to_owned(), b"junk".to_vec())].into());
    assert!(replica.reconcile().await.changed);
    assert!(replica.served_certificate().not_after() > first.not_after());
}

#[tokio::test(start_paused = true)]
async fn a_leaf_is_renewed_by_the_stopwatch_when_the_clock_was_set_back() {
    let etcd = MemoryCluster::new();
    let mut replica = Replica::self_managed(&etcd);
    replica.reconcile_until_stable().await;
    let first = replica.served_certificate();
    replica.now -= DAY * 9;
    replica.advance_clocks(DAY * 5).await;
    replica.reconcile_until_stable().await;
    let end = replica.served_certificate().not_after();
    assert!(end > first.not_after() + DAY * 4, "{end:?}");
}

#[tokio::test(start_paused = true)]
async fn without_a_webhook_configuration_nothing_is_written() {
    let etcd = MemoryCluster::new();
    etcd.bundles.replace(None);
    let mut replica = Replica::self_managed(&etcd);
    replica.reconcile_until_stable().await;
    assert!(replica.secret_cas().is_empty(), "an authority for nobody");
    // Helm removes the configuration first, and then what else the chart made.
    etcd.delete_secret();
    replica.reconcile_until_stable().await;
    assert_eq!(*etcd.secret.borrow(), None);
    replica.advance_clocks(MINUTE / 2).await;
    replica.reconcile_until_stable().await;
    assert!(replica.resolver.is_ready(), "nobody calls");
    etcd.clear();
    etcd.delete_secret();
    replica.reconcile_until_stable().await;
    assert_eq!(etcd.bundle(), replica.secret_cas());
    assert!(!replica.secret_cas().is_empty());
}

#[tokio::test(start_paused = true)]
async fn all_that_fails_in_a_tick_is_told() {
    let etcd = MemoryCluster::new();
    let mut replica = Replica::self_managed(&etcd);
    etcd.failing_calls
        .replace(vec![StoreCall::ReadSecret, StoreCall::ReadWebhooks]);
    assert_eq!(replica.reconcile().await.failures.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_is_emptied_again_and_again_does_not_fill_the_bundles() {
    let etcd = MemoryCluster::new();
    let mut replica = Replica::self_managed(&etcd);
    let mut crowded = false;
    for _ in 0..50 {
        etcd.write_data(<_>::default());
        for _ in 0..5 {
            replica.advance_clocks(MINUTE).await;
            crowded |= !replica.reconcile().await.failures.is_empty();
        }
    }
    assert!(crowded);
    assert_eq!(etcd.bundle().iter().count(), 32);
    assert!(replica.resolver.current().is_some());
    // It is over. Another signs two weeks later, and two weeks after that all others are gone.
    for _ in 0..30 {
        replica.advance_clocks(DAY).await;
        for _ in 0..9 {
            replica.advance_clocks(MINUTE).await;
            replica.reconcile().await;
        }
    }
    assert_eq!(etcd.bundle().iter().count(), 1);
    assert_eq!(etcd.bundle(), replica.secret_cas());
}

/// A CA of the webhook's own name that anyone can make, valid from 2026 to the end of this year.
fn forged_ca(year: i32) -> (SecretData, Bundle) {
    forged_ca_with(year, |_| {})
}

/// The same, changed.
fn forged_ca_with(year: i32, change: impl FnOnce(&mut CertificateParams)) -> (SecretData, Bundle) {
    let mut params = CertificateParams::default();
    params
        .distinguished_name
        .push(DnType::CommonName, "envoy-drainer CA");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.not_before = rcgen::date_time_ymd(2026, 1, 1);
    params.not_after = rcgen::date_time_ymd(year, 12, 31);
    change(&mut params);
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let data = SecretData::from([
        ("signer.crt".to_owned(), certificate.pem().into_bytes()),
        ("signer.key".to_owned(), key.serialize_pem().into_bytes()),
    ]);
    (data, Bundle::read(certificate.pem().as_bytes()))
}

/// The same as the CA that signs next.
fn as_next_ca(data: SecretData) -> SecretData {
    let keys = data.into_iter();
    keys.map(|(key, value)| (key.replace("signer", "next"), value))
        .collect()
}

/// Ticks for so long, a minute apart.
async fn reconcile_for(replica: &mut Replica, time: Duration) {
    for _ in 0..time.as_secs() / 60 {
        replica.advance_clocks(MINUTE).await;
        replica.reconcile_until_stable().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_forged_ca_in_the_secret_is_replaced_and_leaves_every_bundle() {
    for year in [2035, 9999] {
        for part in [|data| data, as_next_ca] {
            let etcd = MemoryCluster::new();
            let mut replica = Replica::self_managed(&etcd);
            replica.reconcile_until_stable().await;
            let (data, forged) = forged_ca(year);
            let mut stored = etcd.secret.borrow().clone().unwrap();
            stored.extend(part(data));
            etcd.write_data(stored);
            reconcile_for(&mut replica, MINUTE * 20).await;
            let secret = etcd.secret.borrow().clone().unwrap();
            for key in ["signer.crt", "next.crt"] {
                let held = secret.get(key).map(|pem| Bundle::read(pem));
                assert_ne!(held, Some(forged.clone()), "{key}, {year}");
            }
            // As any other that signed, if a release may have made it.
            reconcile_for(&mut replica, if year == 9999 { MINUTE } else { DAY * 15 }).await;
            assert!(!etcd.bundle().contains_all(&forged), "{year}");
            assert!(!replica.secret_cas().contains_all(&forged), "{year}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_forged_ca_in_the_bundles_leaves_them_and_is_never_adopted() {
    let etcd = MemoryCluster::new();
    let mut replica = Replica::self_managed(&etcd);
    replica.reconcile_until_stable().await;
    let (_, forged) = forged_ca(9999);
    etcd.add_to_bundles(&forged);
    for _ in 0..20 {
        assert!(!replica.secret_cas().contains_all(&forged));
        reconcile_for(&mut replica, MINUTE).await;
    }
    assert_eq!(etcd.bundle(), replica.secret_cas());
}

#[tokio::test(start_paused = true)]
async fn of_1700_forged_authorities_in_the_secret_32_are_published_until_they_expire_from_it() {
    let etcd = MemoryCluster::new();
    let mut replica = Replica::self_managed(&etcd);
    replica.reconcile_until_stable().await;
    let own = etcd.bundle();
    let mut stored = etcd.secret.borrow().clone().unwrap();
    let forged: String = (0..1700).map(|_| forged_ca(2027).1.pem()).collect();
    stored.insert("ca.crt".to_owned(), forged.into_bytes());
    etcd.write_data(stored);
    replica.reconcile_until_stable().await;
    assert_eq!(etcd.bundle().iter().count(), 32);
    assert!(etcd.bundle().contains_all(&own));
    replica.advance_clocks(DAY * 15).await;
    reconcile_for(&mut replica, MINUTE * 10).await;
    assert_eq!((etcd.bundle(), replica.secret_cas()), (own.clone(), own));
}

#[tokio::test(start_paused = true)]
async fn a_full_secret_is_written_again() {
    let long = |params: &mut CertificateParams| {
        let content = vec![4; MAX_SECRET_SIZE / 3];
        let extension = CustomExtension::from_oid_content(&[1, 3, 9], content);
        params.custom_extensions = vec![extension];
    };
    let junk = || vec![b'x'; MAX_SECRET_SIZE];
    let many = || {
        let forged = (0..1500).map(|_| forged_ca(2027).1.pem());
        forged.collect::<String>().into_bytes()
    };
    let signer = || {
        let (mut data, _) = forged_ca(2027);
        let certificate = data.get_mut("signer.crt").unwrap();
        certificate.resize(MAX_SECRET_SIZE - 4096, b'\n');
        data
    };
    let key = |key: &str, value| SecretData::from([(key.to_owned(), value)]);
    for (which, data) in [
        ("unknown keys", key("junk", junk())),
        ("authorities", key("ca.crt", many())),
        ("distrusted authorities", key("distrusted.crt", many())),
        ("a long authority", forged_ca_with(2027, long).0),
        ("a signer and junk", signer()),
        ("a rotation's value", key("rotated", junk())),
    ] {
        for is_fresh in [false, true] {
            let etcd = MemoryCluster::new();
            let mut replica = Replica::self_managed(&etcd);
            if !is_fresh {
                replica.reconcile_until_stable().await;
            }
            etcd.write_data(data.clone());
            for _ in 0..20 {
                replica.advance_clocks(MINUTE).await;
                let failures = replica.reconcile().await.failures;
                // Until the many are out of use: they were in the bundles.
                let is_crowd =
                    |failure: &ReconcileError| matches!(failure, ReconcileError::TooManyCas(_));
                assert!(failures.iter().all(is_crowd), "{which}: {failures:?}");
            }
            assert!(replica.resolver.current().is_some(), "{which}");
            let secret = etcd.secret.borrow().clone().unwrap();
            let size = secret.values().map(Vec::len).sum::<usize>();
            assert!(size < MAX_SECRET_SIZE / 4, "{which}: {size}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn foreign_certificates_in_the_bundles_are_counted() {
    let etcd = MemoryCluster::new();
    let mut replica = Replica::self_managed(&etcd);
    let counted = |replica: &Replica, many: usize| {
        let text = encode(&replica.registry);
        let line = format!("envoy_drainer_ca_bundle_foreign {many}\n");
        assert!(text.contains(&line), "{text}");
    };
    replica.reconcile_until_stable().await;
    counted(&replica, 0);
    let mut params = CertificateParams::default();
    params.not_after = rcgen::date_time_ymd(9999, 12, 31);
    let key = KeyPair::generate().unwrap();
    let stranger = params.self_signed(&key).unwrap().pem();
    etcd.add_to_bundles(&Bundle::read(stranger.as_bytes()));
    replica.reconcile_until_stable().await;
    counted(&replica, 1);
    // An empty caBundle is filled with what is the webhook's own.
    etcd.bundles.replace(Some(vec![Bundle::default(); 2]));
    replica.reconcile_until_stable().await;
    counted(&replica, 0);
    assert_eq!(etcd.bundle(), replica.secret_cas());
}

#[tokio::test(start_paused = true)]
async fn long_authorities_of_the_own_name_leave_every_bundle() {
    let etcd = MemoryCluster::new();
    let mut replica = Replica::self_managed(&etcd);
    replica.reconcile_until_stable().await;
    let own = etcd.bundle();
    let (_, long) = forged_ca_with(2027, |params| {
        let extension = CustomExtension::from_oid_content(&[1, 3, 9], vec![4; MAX_SECRET_SIZE]);
        params.custom_extensions = vec![extension];
    });
    etcd.add_to_bundles(&long);
    replica.reconcile_until_stable().await;
    assert_eq!((etcd.bundle(), replica.secret_cas()), (own.clone(), own));
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_cannot_be_written_is_told_with_its_remedy_and_retried() {
    let etcd = MemoryCluster::new();
    let mut replica = Replica::self_managed(&etcd);
    etcd.write_rejection.replace(Some("delete it".to_owned()));
    etcd.failing_calls.replace(vec![StoreCall::WriteSecret]);
    let failures = replica.reconcile().await.failures;
    let told: Vec<_> = failures.iter().map(ToString::to_string).collect();
    assert!(matches!(
        failures[..],
        [
            ReconcileError::Store(_),
            ReconcileError::SecretUnwritable(_)
        ]
    ));
    assert_eq!(told[1], "delete it");
    etcd.write_rejection.take();
    etcd.failing_calls.take();
    replica.reconcile_until_stable().await;
    assert!(replica.resolver.is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_leaked_ca_leaves_every_bundle_within_minutes_of_the_annotation() {
    let etcd = MemoryCluster::new();
    let mut replica = Replica::self_managed(&etcd);
    replica.reconcile_until_stable().await;
    let leaked = etcd.bundle();
    etcd.request_rotation("2026-11-22");
    replica.reconcile_until_stable().await;
    let both = etcd.bundle();
    assert!(both.contains_all(&leaked) && both != leaked);
    let mut minutes = 0;
    while etcd.bundle().contains_all(&leaked) {
        reconcile_for(&mut replica, MINUTE).await;
        minutes += 1;
        assert!(minutes < 12);
    }
    assert_eq!(etcd.bundle(), replica.secret_cas());
    assert_ne!(etcd.bundle(), leaked);
    // A replica that could not reach the API server would ask for it again.
    etcd.add_to_bundles(&leaked);
    reconcile_for(&mut replica, MINUTE * 2).await;
    assert!(!etcd.bundle().contains_all(&leaked));
    assert!(!replica.secret_cas().contains_all(&leaked));
    // Once.
    let secret = etcd.secret.borrow().clone();
    reconcile_for(&mut replica, MINUTE * 30).await;
    assert_eq!(*etcd.secret.borrow(), secret);
    // What is known of it goes last.
    reconcile_for(&mut replica, DAY * 15).await;
    let secret = etcd.secret.borrow().clone().unwrap();
    assert!(!secret.contains_key("distrusted.crt"));
}

#[tokio::test(start_paused = true)]
async fn a_ca_in_the_secret_that_clients_refuse_signs_nothing() {
    type Change = fn(&mut CertificateParams);
    let changes: [(&str, Change); 4] = [
        ("no CA", |params| params.is_ca = IsCa::ExplicitNoCa),
        ("for clients", |params| {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        }),
        ("not our names", |params| {
            params.name_constraints = Some(NameConstraints {
                permitted_subtrees: Vec::new(),
                excluded_subtrees: vec![GeneralSubtree::DnsName("svc".to_owned())],
            });
        }),
        ("not yet", |params| {
            params.not_before = (wall_clock() + DAY * 90).into();
        }),
    ];
    for (which, change) in changes {
        for part in [|data| data, as_next_ca] {
            for is_fresh in [false, true] {
                let etcd = MemoryCluster::new();
                let mut replica = Replica::self_managed(&etcd);
                replica.reconcile_until_stable().await;
                let (data, unfit) = forged_ca_with(2027, change);
                let mut stored = etcd.secret.borrow().clone().unwrap();
                stored.extend(part(data));
                etcd.write_data(stored);
                if is_fresh {
                    replica = Replica::self_managed(&etcd);
                }
                for _ in 0..20 {
                    replica.advance_clocks(MINUTE).await;
                    replica.reconcile_until_stable().await;
                    let leaf = replica
                        .resolver
                        .current()
                        .map(|shown| shown.chain().to_vec());
                    if let Some(leaf) = leaf {
                        let name = replica::SERVER_NAME;
                        verify(&leaf, &etcd.bundle(), name, replica.now).unwrap();
                        assert!(verify(&leaf, &unfit, name, replica.now).is_err(), "{which}");
                    }
                }
                assert!(replica.resolver.current().is_some(), "{which}");
                let secret = etcd.secret.borrow().clone().unwrap();
                for key in ["signer.crt", "next.crt"] {
                    let held = secret.get(key).map(|pem| Bundle::read(pem));
                    assert_ne!(held, Some(unfit.clone()), "{which}, {key}");
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn unreadable_certificates_with_the_cas_name_leave_every_bundle() {
    let etcd = MemoryCluster::new();
    let mut replica = Replica::self_managed(&etcd);
    replica.reconcile_until_stable().await;
    let own = etcd.bundle();
    let unreadable: Bundle = (0..120)
        .map(|_| {
            let (_, forged) = forged_ca(2027);
            let mut der = forged.iter().next().unwrap().to_vec();
            let dates = der.windows(2).position(|head| head == [0x17, 13]).unwrap();
            der[dates + 14] = b'A';
            CertificateDer::from(der)
        })
        .collect();
    // Of another name, they stay.
    let other = Bundle::from(CertificateDer::from(vec![0x30, 0]));
    etcd.add_to_bundles(&unreadable.union(&other));
    replica.reconcile_until_stable().await;
    assert_eq!(etcd.bundle(), own.union(&other));
}

#[tokio::test(start_paused = true)]
async fn a_fresh_replica_has_a_certificate_within_minutes_of_a_crowd() {
    let etcd = MemoryCluster::new();
    let crowd: Bundle = (0..32)
        .flat_map(|_| forged_ca(2027).1.iter().cloned().collect::<Vec<_>>())
        .collect();
    etcd.add_to_bundles(&crowd);
    let mut replica = Replica::self_managed(&etcd);
    for _ in 0..12 {
        replica.advance_clocks(MINUTE).await;
        for _ in 0..4 {
            replica.reconcile().await;
        }
    }
    assert!(replica.resolver.current().is_some());
    assert!(replica.resolver.is_ready());
}

/// What cert-manager would write: a leaf that one authority signed, and an authority.
fn tls_secret_data(signer: &TestCa, trusted: &TestCa) -> SecretData {
    let leaf = signer.issue_leaf().unwrap();
    SecretData::from([
        ("tls.crt".to_owned(), leaf.certificate.into()),
        ("tls.key".to_owned(), leaf.key.into()),
        ("ca.crt".to_owned(), trusted.pem().into()),
    ])
}

#[tokio::test(start_paused = true)]
async fn a_given_certificate_is_kept_until_another_is_whole_and_trusted() {
    let etcd = MemoryCluster::new();
    let mut replica = Replica::from_tls_secret(&etcd);
    let [old, new] = [(); 2].map(|()| TestCa::new().unwrap());
    // Half a change is none.
    etcd.write_data(tls_secret_data(&new, &old));
    assert_eq!(replica.reconcile().await.failures.len(), 1);
    assert_eq!(replica.resolver.current(), None);
    assert!(!replica.resolver.is_ready());
    etcd.write_data(tls_secret_data(&old, &old));
    replica.reconcile_until_stable().await;
    let shown = replica.served_certificate();
    assert!(replica.resolver.is_ready());
    let bundle = etcd.bundle();
    for spoilt in [
        tls_secret_data(&new, &old),
        tls_secret_data(&old, &new),
        SecretData::new(),
    ] {
        etcd.write_data(spoilt);
        replica.advance_clocks(MINUTE * 9).await;
        assert_eq!(replica.reconcile().await.failures.len(), 1);
        assert_eq!(
            (replica.served_certificate(), etcd.bundle()),
            (shown.clone(), bundle.clone())
        );
    }
    // What is shown is asked for, whatever became of the Secret.
    etcd.bundles.replace(Some(vec![<_>::default(); 2]));
    replica.reconcile().await;
    assert_eq!(etcd.bundle(), bundle);
    etcd.write_data(tls_secret_data(&new, &new));
    replica.reconcile_until_stable().await;
    assert_eq!(
        replica.served_certificate(),
        shown,
        "API servers may be behind"
    );
    replica.advance_clocks(MINUTE * 2).await;
    replica.reconcile_until_stable().await;
    assert_ne!(replica.served_certificate(), shown);
    // In one go with a new authority, both objects are emptied.
    let shown = replica.served_certificate();
    etcd.clear();
    etcd.write_data(tls_secret_data(&old, &old));
    replica.reconcile_until_stable().await;
    assert_eq!(
        replica.served_certificate(),
        shown,
        "API servers may be behind"
    );
    assert!(
        etcd.bundle()
            .contains_all(&Bundle::read(new.pem().as_bytes()))
    );
}

#[tokio::test(start_paused = true)]
async fn a_change_is_heard_while_nothing_comes_of_anything() {
    let etcd = MemoryCluster::new();
    let replica = Replica::from_tls_secret(&etcd);
    let issued = async {
        // By now it asks once a minute.
        sleep(MINUTE * 5).await;
        let authority = TestCa::new().unwrap();
        etcd.write_data(tls_secret_data(&authority, &authority));
        etcd.notifier.notify_one();
    };
    let (serving, ()) = join!(replica.run(MINUTE * 5 + MIN_BACKOFF * 2), issued);
    assert!(serving.current().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_bundle_that_is_changed_back_again_and_again_is_written_every_few_seconds() {
    let etcd = MemoryCluster::new();
    let replica = Replica::self_managed(&etcd);
    let (_, long) = forged_ca_with(2027, |params| {
        let extension = CustomExtension::from_oid_content(&[1, 3, 9], vec![4; 8192]);
        params.custom_extensions = vec![extension];
    });
    let other = async {
        loop {
            if !etcd.bundle().contains_all(&long) {
                etcd.add_to_bundles(&long);
                etcd.notifier.notify_one();
            }
            sleep(Duration::from_millis(100)).await;
        }
    };
    let before = etcd.bundle_writes();
    tokio::select! {
        () = other => {}
        _ = replica.run(MINUTE * 5) => {}
    }
    let writes = etcd.bundle_writes() - before;
    // One or two a round. Without pauses there would be some 3,000.
    assert!((20..300).contains(&writes), "{writes}");
    assert!(!etcd.secret.borrow().clone().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_is_not_seen_is_not_said_to_be_well() {
    let etcd = MemoryCluster::new();
    let mut replica = Replica::self_managed(&etcd);
    replica.reconcile_until_stable().await;
    let told = |replica: &Replica, wanted: &str| {
        let text = encode(&replica.registry);
        for metric in ["webhook_configuration_found", "ca_bundle_in_sync"] {
            let line = format!("envoy_drainer_{metric} {wanted}\n");
            assert!(text.contains(&line), "{text}");
        }
    };
    told(&replica, "1");
    etcd.failing_calls.replace(vec![StoreCall::ReadWebhooks]);
    replica.reconcile().await;
    told(&replica, "0");
}
