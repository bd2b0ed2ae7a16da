//! One replica of the webhook: what a reconcile does to the Secret, to the `caBundle`s and to the served certificate.

mod network;
mod replica;

use std::rc::Rc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CustomExtension, DnType, IsCa, KeyPair};
use tests::test_ca::TestCa;
use tokio::join;
use tokio::time::sleep;
use webhook::certificates::testing_api::{Bundle, ReconcileError, SecretData, StoreCall};
use webhook::metrics::encode;

use crate::memory_cluster::{MAX_SECRET_SIZE, MemoryCluster, WebhookConfiguration};
use crate::{DAY, MINUTE};

use replica::Replica;

/// The product's shortest backoff, which no change ends earlier.
const MIN_BACKOFF: Duration = Duration::from_secs(1);

const WEBHOOKS: [&str; 2] = ["pods", "workloads"];

/// An empty Secret, and two webhooks without a `caBundle`.
fn new_cluster() -> MemoryCluster {
    MemoryCluster::new(&WEBHOOKS, Duration::ZERO)
}

/// A replica of a new cluster.
fn new_replica() -> (MemoryCluster, Replica) {
    let cluster = new_cluster();
    let replica = Replica::self_managed(&cluster);
    (cluster, replica)
}

/// The same after its first reconciles.
async fn stable_replica() -> (MemoryCluster, Replica) {
    let (cluster, mut replica) = new_replica();
    replica.reconcile_until_stable().await;
    (cluster, replica)
}

/// Empties the Secret and every `caBundle`.
fn clear(cluster: &MemoryCluster) {
    cluster.set_secret(Some(SecretData::new()));
    clear_bundles(cluster);
}

fn clear_bundles(cluster: &MemoryCluster) {
    let configuration = WebhookConfiguration::without_bundles(&WEBHOOKS);
    cluster.set_webhooks(Some(configuration));
}

/// The `caBundle` of all webhooks.
#[track_caller]
fn bundle(cluster: &MemoryCluster) -> Bundle {
    let [first, second] = &cluster.bundles()[..] else {
        panic!("there are not two webhooks");
    };
    assert_eq!(first, second);
    first.clone()
}

/// Adds certificates to the `caBundle` of all webhooks, as any writer of the configuration can.
fn add_to_bundles(cluster: &MemoryCluster, certificates: &Bundle) {
    let mut configuration = cluster.webhooks().unwrap();
    for (_, bundle) in &mut configuration.bundles {
        *bundle = std::mem::take(bundle).union(certificates);
    }
    cluster.set_webhooks(Some(configuration));
}

#[tokio::test(start_paused = true)]
async fn first_replica_is_ready_at_once() {
    let (cluster, replica) = stable_replica().await;
    assert!(replica.resolver.is_ready());
    assert_eq!(bundle(&cluster), replica.secret_cas());
}

/// Deletes the namespace, but not the webhook configuration, and returns the CA that API servers trust.
async fn delete_namespace(cluster: &MemoryCluster) -> Bundle {
    let mut replica = Replica::self_managed(cluster);
    replica.reconcile_until_stable().await;
    cluster.set_secret(None);
    bundle(cluster)
}

#[tokio::test(start_paused = true)]
async fn replicas_of_an_abandoned_installation_are_ready_at_once() {
    let cluster = new_cluster();
    let old_ca = delete_namespace(&cluster).await;
    let mut replica = Replica::self_managed(&cluster);
    replica.network.refuses_connections.set(true);
    replica.reconcile_until_stable().await;
    assert!(replica.resolver.is_ready());
    assert!(
        bundle(&cluster).contains_all(&old_ca),
        "one may have been unreachable"
    );
    // One that starts later does not wait either.
    let mut later = Replica::self_managed(&cluster);
    later.reconcile_until_stable().await;
    assert!(later.resolver.is_ready());
    // After the next loss of the Secret, while they serve, both minutes count again.
    cluster.set_secret(Some(SecretData::new()));
    replica.reconcile_until_stable().await;
    let mut last = Replica::self_managed(&cluster);
    last.reconcile_until_stable().await;
    reconcile_for(&mut last, MINUTE).await;
    assert!(!last.resolver.is_ready());
    reconcile_for(&mut last, MINUTE * 2).await;
    assert!(last.resolver.is_ready());
}

#[tokio::test(start_paused = true)]
async fn panic_fails_one_reconcile() {
    use StoreCall::{ReadSecret, ReadWebhooks, WriteSecret};
    for call in [ReadSecret, WriteSecret, ReadWebhooks] {
        let (_, mut replica) = new_replica();
        replica.network.panicking_call.set(Some(call));
        let result = replica.reconcile().await;
        let failures = &result.failures[..];
        assert!(matches!(failures, [ReconcileError::Panic]), "{failures:?}");
        replica.network.panicking_call.set(None);
        replica.reconcile_until_stable().await;
        assert!(replica.resolver.is_ready());
    }
}

#[tokio::test(start_paused = true)]
async fn leaf_is_renewed_while_secret_is_unavailable() {
    for failing in [[StoreCall::ReadSecret], [StoreCall::WriteSecret]] {
        let (cluster, mut replica) = stable_replica().await;
        let (first, published) = (replica.served_certificate(), bundle(&cluster));
        cluster.set_secret(None);
        replica.set_failing_calls(&failing);
        replica.advance_clocks(DAY * 5).await;
        let result = replica.reconcile().await;
        assert_eq!(result.failures.len(), 1, "{:?}", result.failures);
        let second = replica.served_certificate();
        assert!(second.not_after() > first.not_after(), "{failing:?}");
        assert_eq!(bundle(&cluster), published);
        // The CA of the served leaf is restored to the bundles.
        clear_bundles(&cluster);
        replica.reconcile().await;
        assert_eq!(bundle(&cluster), published);
    }
}

#[tokio::test(start_paused = true)]
async fn leaf_is_renewed_while_secret_is_overwritten() {
    let (cluster, mut replica) = stable_replica().await;
    let first = replica.served_certificate();
    replica.advance_clocks(DAY * 5).await;
    cluster.set_secret(Some([("state.json".to_owned(), b"junk".to_vec())].into()));
    assert!(replica.reconcile().await.changed);
    assert!(replica.served_certificate().not_after() > first.not_after());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_without_a_webhook_configuration() {
    let cluster = new_cluster();
    cluster.set_webhooks(None);
    let mut replica = Replica::self_managed(&cluster);
    replica.reconcile_until_stable().await;
    assert!(
        replica.secret_cas().is_empty(),
        "no API server would trust a CA"
    );
    // `helm uninstall` deletes the configuration first, then the other objects of the chart.
    cluster.set_secret(None);
    replica.reconcile_until_stable().await;
    assert_eq!(cluster.secret(), None);
    replica.advance_clocks(MINUTE / 2).await;
    replica.reconcile_until_stable().await;
    assert!(replica.resolver.is_ready(), "no API server calls");
    clear(&cluster);
    cluster.set_secret(None);
    replica.reconcile_until_stable().await;
    assert_eq!(bundle(&cluster), replica.secret_cas());
    assert!(!replica.secret_cas().is_empty());
}

#[tokio::test(start_paused = true)]
async fn reconcile_reports_every_failure() {
    let (_, mut replica) = new_replica();
    replica.set_failing_calls(&[StoreCall::ReadSecret, StoreCall::ReadWebhooks]);
    assert_eq!(replica.reconcile().await.failures.len(), 2);
}

/// A CA with the webhook's own name, as anyone can make one, and with an extension of this size.
fn forged_ca(size: usize) -> (SecretData, Bundle) {
    let mut params = CertificateParams::default();
    params
        .distinguished_name
        .push(DnType::CommonName, "envoy-drainer CA");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.not_before = rcgen::date_time_ymd(2026, 1, 1);
    params.not_after = rcgen::date_time_ymd(2027, 12, 31);
    let extension = CustomExtension::from_oid_content(&[1, 3, 9], vec![4; size]);
    params.custom_extensions = vec![extension];
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let data = SecretData::from([
        ("active.crt".to_owned(), certificate.pem().into_bytes()),
        ("active.key".to_owned(), key.serialize_pem().into_bytes()),
    ]);
    (data, Bundle::read(certificate.pem().as_bytes()))
}

/// The certificates of this many forged CAs.
fn forged_pem(count: usize) -> Vec<u8> {
    let forged = (0..count).map(|_| forged_ca(1).1.pem());
    forged.collect::<String>().into_bytes()
}

/// Reconciles for this long, once a minute.
async fn reconcile_for(replica: &mut Replica, time: Duration) {
    for _ in 0..time.as_secs() / 60 {
        replica.advance_clocks(MINUTE).await;
        replica.reconcile_until_stable().await;
    }
}

#[tokio::test(start_paused = true)]
async fn at_most_32_of_1700_forged_cas_are_published() {
    let (cluster, mut replica) = stable_replica().await;
    let own = bundle(&cluster);
    let mut data = cluster.secret().unwrap();
    data.insert("ca.crt".to_owned(), forged_pem(1700));
    cluster.set_secret(Some(data));
    replica.reconcile_until_stable().await;
    assert_eq!(bundle(&cluster).iter().count(), 32);
    assert!(bundle(&cluster).contains_all(&own));
    replica.advance_clocks(DAY * 15).await;
    reconcile_for(&mut replica, MINUTE * 10).await;
    assert_eq!((bundle(&cluster), replica.secret_cas()), (own.clone(), own));
}

#[tokio::test(start_paused = true)]
async fn full_secret_is_trimmed_and_written() {
    let junk = || vec![b'x'; MAX_SECRET_SIZE];
    let active = || {
        let (mut data, _) = forged_ca(1);
        let certificate = data.get_mut("active.crt").unwrap();
        certificate.resize(MAX_SECRET_SIZE - 4096, b'\n');
        data
    };
    let key = |key: &str, value| SecretData::from([(key.to_owned(), value)]);
    for (which, data) in [
        ("unknown keys", key("junk", junk())),
        ("CAs", key("ca.crt", forged_pem(1500))),
        ("distrusted CAs", key("distrusted.crt", forged_pem(1500))),
        ("an oversized CA", forged_ca(MAX_SECRET_SIZE / 3).0),
        ("an active CA and junk", active()),
        ("a rotation's value", key("rotated", junk())),
    ] {
        for is_fresh in [false, true] {
            let (cluster, mut replica) = new_replica();
            if !is_fresh {
                replica.reconcile_until_stable().await;
            }
            cluster.set_secret(Some(data.clone()));
            if which == "an active CA and junk" {
                // Such a CA signs, so nothing is written until it is replaced.
                cluster.request_rotation("2026-11-22");
            }
            for _ in 0..20 {
                replica.advance_clocks(MINUTE).await;
                let failures = replica.reconcile().await.failures;
                // Until the forged CAs, which were in the bundles, are pruned.
                let is_too_many =
                    |failure: &ReconcileError| matches!(failure, ReconcileError::TooManyCas(_));
                assert!(failures.iter().all(is_too_many), "{which}: {failures:?}");
            }
            assert!(replica.resolver.current().is_some(), "{which}");
            let secret = cluster.secret().unwrap();
            let size = secret.values().map(Vec::len).sum::<usize>();
            assert!(size < MAX_SECRET_SIZE / 4, "{which}: {size}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn foreign_certificates_in_bundles_are_counted() {
    let (cluster, mut replica) = new_replica();
    let assert_count = |replica: &Replica, count: usize| {
        let text = encode(&replica.registry);
        let line = format!("envoy_drainer_ca_bundle_foreign_certificates {count}\n");
        assert!(text.contains(&line), "{text}");
    };
    replica.reconcile_until_stable().await;
    assert_count(&replica, 0);
    let mut params = CertificateParams::default();
    params.not_after = rcgen::date_time_ymd(9999, 12, 31);
    let key = KeyPair::generate().unwrap();
    let foreign = params.self_signed(&key).unwrap().pem();
    add_to_bundles(&cluster, &Bundle::read(foreign.as_bytes()));
    replica.reconcile_until_stable().await;
    assert_count(&replica, 1);
    // An emptied caBundle gets the webhook's own CAs only.
    clear_bundles(&cluster);
    replica.reconcile_until_stable().await;
    assert_count(&replica, 0);
    assert_eq!(bundle(&cluster), replica.secret_cas());
}

#[tokio::test(start_paused = true)]
async fn rotate_annotation_prunes_leaked_ca_within_minutes() {
    let (cluster, mut replica) = stable_replica().await;
    let leaked = bundle(&cluster);
    cluster.request_rotation("2026-11-22");
    replica.reconcile_until_stable().await;
    let both = bundle(&cluster);
    assert!(both.contains_all(&leaked) && both != leaked);
    let mut minutes = 0;
    while bundle(&cluster).contains_all(&leaked) {
        reconcile_for(&mut replica, MINUTE).await;
        minutes += 1;
        assert!(minutes < 12);
    }
    assert_eq!(bundle(&cluster), replica.secret_cas());
    assert_ne!(bundle(&cluster), leaked);
    // A replica that could not reach the API server meanwhile would add it again.
    add_to_bundles(&cluster, &leaked);
    reconcile_for(&mut replica, MINUTE * 2).await;
    assert!(!bundle(&cluster).contains_all(&leaked));
    assert!(!replica.secret_cas().contains_all(&leaked));
    // The annotation has its effect once.
    let secret = cluster.secret();
    reconcile_for(&mut replica, MINUTE * 30).await;
    assert_eq!(cluster.secret(), secret);
    // The record of the distrusted CA is pruned last.
    reconcile_for(&mut replica, DAY * 15).await;
    let secret = cluster.secret().unwrap();
    assert!(!secret.contains_key("distrusted.crt"));
}

#[tokio::test(start_paused = true)]
async fn new_replica_serves_despite_too_many_cas() {
    let cluster = new_cluster();
    let forged: Bundle = (0..32)
        .flat_map(|_| forged_ca(1).1.iter().cloned().collect::<Vec<_>>())
        .collect();
    add_to_bundles(&cluster, &forged);
    let mut replica = Replica::self_managed(&cluster);
    for _ in 0..12 {
        replica.advance_clocks(MINUTE).await;
        for _ in 0..4 {
            replica.reconcile().await;
        }
    }
    assert!(replica.resolver.current().is_some());
    assert!(replica.resolver.is_ready());
}

/// A Secret as cert-manager writes it: a leaf of one CA, and the CA to trust.
fn tls_secret_data(signer: &TestCa, trusted: &TestCa) -> SecretData {
    let leaf = signer.issue_leaf().unwrap();
    SecretData::from([
        ("tls.crt".to_owned(), leaf.certificate.into()),
        ("tls.key".to_owned(), leaf.key.into()),
        ("ca.crt".to_owned(), trusted.pem().into()),
    ])
}

#[tokio::test(start_paused = true)]
async fn tls_secret_is_served_once_consistent_and_trusted() {
    let cluster = new_cluster();
    let mut replica = Replica::from_tls_secret(&cluster);
    let [old, new] = [(); 2].map(|()| TestCa::new().unwrap());
    // A Secret whose leaf and CA do not match is not served.
    cluster.set_tls_secret(Some(tls_secret_data(&new, &old)));
    assert_eq!(replica.reconcile().await.failures.len(), 1);
    assert_eq!(replica.resolver.current(), None);
    assert!(!replica.resolver.is_ready());
    cluster.set_tls_secret(Some(tls_secret_data(&old, &old)));
    replica.reconcile_until_stable().await;
    let served = replica.served_certificate();
    assert!(replica.resolver.is_ready());
    let published = bundle(&cluster);
    for invalid in [
        tls_secret_data(&new, &old),
        tls_secret_data(&old, &new),
        SecretData::new(),
    ] {
        cluster.set_tls_secret(Some(invalid));
        replica.advance_clocks(MINUTE * 9).await;
        assert_eq!(replica.reconcile().await.failures.len(), 1);
        assert_eq!(
            (replica.served_certificate(), bundle(&cluster)),
            (served.clone(), published.clone())
        );
    }
    // The CA of the served leaf is restored to the bundles, whatever the Secret holds.
    clear_bundles(&cluster);
    replica.reconcile().await;
    assert_eq!(bundle(&cluster), published);
    cluster.set_tls_secret(Some(tls_secret_data(&new, &new)));
    replica.reconcile_until_stable().await;
    assert_eq!(replica.served_certificate(), served, "API servers may lag");
    replica.advance_clocks(MINUTE * 2).await;
    replica.reconcile_until_stable().await;
    assert_ne!(replica.served_certificate(), served);
    // The Secret and the bundles are emptied while the issuer has another CA.
    let served = replica.served_certificate();
    clear(&cluster);
    cluster.set_tls_secret(Some(tls_secret_data(&old, &old)));
    replica.reconcile_until_stable().await;
    assert_eq!(replica.served_certificate(), served, "API servers may lag");
    assert!(bundle(&cluster).contains_all(&Bundle::read(new.pem().as_bytes())));
}

#[tokio::test(start_paused = true)]
async fn change_ends_backoff() {
    let cluster = new_cluster();
    let replica = Replica::from_tls_secret(&cluster);
    let notifier = Rc::clone(&replica.network.notifier);
    let issued = async {
        // The backoff has reached a minute by now.
        sleep(MINUTE * 5).await;
        let ca = TestCa::new().unwrap();
        cluster.set_tls_secret(Some(tls_secret_data(&ca, &ca)));
        notifier.notify_one();
    };
    let (resolver, ()) = join!(replica.run(MINUTE * 5 + MIN_BACKOFF * 2), issued);
    assert!(resolver.current().is_some());
}

#[tokio::test(start_paused = true)]
async fn contested_bundle_is_written_every_few_seconds() {
    let cluster = new_cluster();
    let replica = Replica::self_managed(&cluster);
    let notifier = Rc::clone(&replica.network.notifier);
    let other = async {
        loop {
            if !bundle(&cluster).is_empty() {
                clear_bundles(&cluster);
                notifier.notify_one();
            }
            sleep(Duration::from_millis(100)).await;
        }
    };
    let before = cluster.objects().webhook_writes;
    tokio::select! {
        () = other => {}
        _ = replica.run(MINUTE * 5) => {}
    }
    let writes = cluster.objects().webhook_writes - before;
    // One or two each time; without a backoff there would be about 3,000.
    assert!((20..300).contains(&writes), "{writes}");
    assert!(!cluster.secret().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn unread_objects_are_not_reported_healthy() {
    let (_, mut replica) = stable_replica().await;
    let assert_metrics = |replica: &Replica, value: &str| {
        let text = encode(&replica.registry);
        for metric in ["webhook_configuration_found", "ca_bundle_in_sync"] {
            let line = format!("envoy_drainer_{metric} {value}\n");
            assert!(text.contains(&line), "{text}");
        }
    };
    assert_metrics(&replica, "1");
    replica.set_failing_calls(&[StoreCall::ReadWebhooks]);
    replica.reconcile().await;
    assert_metrics(&replica, "0");
}
