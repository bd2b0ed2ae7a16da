//! The objects that the chart renders.

use serde_json::Value;
use tests::helm::{self, OLDEST_CLUSTER, objects};
use tests::{golden, kubernetes};

use crate::sets;

#[test]
fn every_set_renders_to_what_it_did() {
    let Some(helm) = helm::find_helm() else {
        return;
    };
    for set in sets::all(&helm) {
        golden::check(&format!("chart/{}.yaml", set.name), &set.rendered);
    }
}

#[test]
fn every_field_is_one_that_kubernetes_has() {
    let Some(helm) = helm::find_helm() else {
        return;
    };
    for set in sets::all(&helm) {
        for object in objects(&set.rendered) {
            let about = format!("{}: {}", set.name, object["kind"]);
            let unknown = kubernetes::unknown_fields(&object);
            let unknown = unknown.unwrap_or_else(|error| panic!("{about}: {error:#}"));
            assert!(unknown.is_empty(), "{about}: {unknown:?}");
        }
    }
}

#[test]
fn a_name_that_looks_like_a_number_stays_a_name() {
    let Some(helm) = helm::find_helm() else {
        return;
    };
    let release = [
        "template",
        "1",
        helm::CHART,
        "--namespace=2",
        "--kube-version=1.30.0",
    ];
    let refused = helm.run(release).unwrap_err().to_string();
    assert!(refused.contains("fullnameOverride"), "{refused}");
    let flags = [
        "--set-string=serviceAccount.name=3",
        "--set-string=priorityClassName=4",
        "--set-string=image.pullSecrets[0]=5",
        "--set-string=certificates.secret.name=6",
        "--set=certificates.mode=secret",
        "--set=fullnameOverride=e7",
        "--set=policy.enabled=true",
    ];
    let flags = release.into_iter().chain(flags);
    for object in objects(&helm.run(flags).unwrap()) {
        let unknown = kubernetes::unknown_fields(&object);
        assert_eq!(unknown.unwrap(), [""; 0], "{object}");
    }
}

#[test]
fn no_name_is_longer_than_a_services_may_be() {
    let Some(helm) = helm::find_helm() else {
        return;
    };
    let name = format!("--set=nameOverride={}", "a".repeat(54));
    for object in objects(&helm.render([&name, "--set=policy.enabled=true"]).unwrap()) {
        let name = object["metadata"]["name"].as_str().unwrap();
        assert!(name.len() <= 63, "{}: {name}", object["kind"]);
    }
}

#[test]
fn what_the_webhook_writes_is_not_rendered() {
    fn keys(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.keys().cloned());
                fields.values().for_each(|value| keys(value, found));
            }
            Value::Array(items) => items.iter().for_each(|item| keys(item, found)),
            _ => {}
        }
    }
    let Some(helm) = helm::find_helm() else {
        return;
    };
    for set in sets::all(&helm) {
        for object in objects(&set.rendered) {
            let mut found = Vec::new();
            keys(&object, &mut found);
            for key in ["caBundle", "data", "stringData"] {
                assert!(!found.iter().any(|k| k == key), "{}: {key}", set.name);
            }
        }
    }
}

#[test]
fn without_rbac_there_are_no_rights() {
    let Some(helm) = helm::find_helm() else {
        return;
    };
    for object in objects(&helm.render_with(&["rbac.create=false"]).unwrap()) {
        let kind = object["kind"].as_str().unwrap();
        assert!(!kind.contains("Role"), "{kind}");
    }
}

#[test]
fn there_is_a_policy_where_the_cluster_has_policies() {
    let Some(helm) = helm::find_helm() else {
        return;
    };
    const ACCEPTED: &str = "--set=policy.acceptUnrestrictedAccount=true";
    const DISABLED: &str = "--set=policy.enabled=false";
    const ENABLED: &str = "--set=policy.enabled=true";
    // As a cloud names its versions.
    const CLOUD: [&str; 1] = ["--kube-version=v1.30.4-eks-0123456"];
    const LATER: [&str; 1] = ["--kube-version=1.40.0-alpha.1"];
    for (cluster, flags, wanted) in [
        (CLOUD, [].as_slice(), 6),
        (LATER, &[], 6),
        (OLDEST_CLUSTER, &[ENABLED], 6),
        (OLDEST_CLUSTER, &[ACCEPTED], 0),
        (CLOUD, &[DISABLED, ACCEPTED], 0),
        (CLOUD, &[ACCEPTED], 6),
    ] {
        let objects = objects(&helm.render_for(cluster, flags).unwrap());
        let policies = objects.iter().filter(|object| {
            let kind = object["kind"].as_str().unwrap_or_default();
            kind.starts_with("ValidatingAdmissionPolicy")
        });
        assert_eq!(policies.count(), wanted, "{cluster:?}, {flags:?}");
    }
}

#[test]
fn an_unrestricted_account_is_rendered_only_where_that_is_accepted() {
    let Some(helm) = helm::find_helm() else {
        return;
    };
    const SECRET: [&str; 2] = [
        "--set=certificates.mode=secret",
        "--set=certificates.secret.name=mine",
    ];
    let latest = ["--kube-version=1.34.0"];
    for mode in [&[][..], &SECRET] {
        for (cluster, flag, wanted) in [
            (OLDEST_CLUSTER, None, "Kubernetes v1.29.0 has none"),
            (
                latest,
                Some("--set=policy.enabled=false"),
                "policy.enabled is false",
            ),
        ] {
            let refused = helm.render_for(cluster, mode.iter().copied().chain(flag));
            let refused = refused.expect_err("an unrestricted account").to_string();
            assert!(refused.contains(wanted), "{refused}");
            assert!(
                refused.contains("policy.acceptUnrestrictedAccount"),
                "{refused}"
            );
        }
    }
}
