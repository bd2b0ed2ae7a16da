//! What the chart renders for each supported version of Kubernetes: no object and no field that its API server rejects.

use serde_json::Value;
use tests::helm::{Helm, find_helm, objects};
use tests::kubernetes::{MINORS, new_fields};

use crate::sets;

/// The objects that the chart renders for every version with default values.
const OBJECTS: [(&str, &str); 10] = [
    (ADMISSION, "MutatingWebhookConfiguration"),
    ("apps/v1", "Deployment"),
    ("policy/v1", "PodDisruptionBudget"),
    (RBAC, "ClusterRole"),
    (RBAC, "ClusterRoleBinding"),
    (RBAC, "Role"),
    (RBAC, "RoleBinding"),
    ("v1", "Secret"),
    ("v1", "Service"),
    ("v1", "ServiceAccount"),
];

/// The policies `-cabundle`, `-required` and `-secret`, whose API 1.30 was the first to serve as v1.
/// <https://github.com/kubernetes/api/blob/v0.30.0/admissionregistration/v1/types.go>
const POLICIES: [(&str, &str); 6] = [
    (ADMISSION, "ValidatingAdmissionPolicy"),
    (ADMISSION, "ValidatingAdmissionPolicy"),
    (ADMISSION, "ValidatingAdmissionPolicy"),
    (ADMISSION, "ValidatingAdmissionPolicyBinding"),
    (ADMISSION, "ValidatingAdmissionPolicyBinding"),
    (ADMISSION, "ValidatingAdmissionPolicyBinding"),
];

/// What the chart renders besides with other values, and 1.29 serves.
const OPTIONAL: [(&str, &str); 2] = [
    ("networking.k8s.io/v1", "NetworkPolicy"),
    ("v1", "ConfigMap"),
];

/// The groups of CustomResourceDefinitions, which do not depend on the version of Kubernetes.
const CUSTOM: [&str; 2] = ["cert-manager.io/", "monitoring.coreos.com/"];

const ADMISSION: &str = "admissionregistration.k8s.io/v1";
const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// The values without which nothing is rendered for 1.29.
const ACCEPTED: &str = "--set=policy.acceptUnrestrictedAccount=true";

fn kind(object: &Value) -> (&str, &str) {
    let text = |key: &str| object[key].as_str().unwrap();
    (text("apiVersion"), text("kind"))
}

fn render(helm: &Helm, version: &str, flags: &[&str]) -> Result<Vec<Value>, String> {
    let version = format!("--kube-version={version}");
    let rendered = helm.render_for([&*version], flags);
    rendered
        .map(|rendered| objects(&rendered))
        .map_err(|error| format!("{error:#}"))
}

#[test]
fn each_version_gets_the_objects_that_it_serves() {
    let Some(helm) = find_helm() else { return };
    for minor in MINORS {
        let version = format!("1.{minor}.0");
        let rendered = render(&helm, &version, &[ACCEPTED]).unwrap();
        let mut kinds: Vec<_> = rendered.iter().map(kind).collect();
        kinds.sort_unstable();
        let mut wanted = OBJECTS.to_vec();
        if minor >= 30 {
            wanted.extend(POLICIES);
        }
        wanted.sort_unstable();
        assert_eq!(kinds, wanted, "{version}");
    }
}

#[test]
fn oldest_version_knows_every_kind_and_field() {
    let Some(helm) = find_helm() else { return };
    for set in sets::for_oldest_cluster(&helm) {
        for object in objects(&set.rendered) {
            let kind = kind(&object);
            let is_custom = CUSTOM.iter().any(|group| kind.0.starts_with(group));
            let is_served = is_custom || OBJECTS.contains(&kind) || OPTIONAL.contains(&kind);
            assert!(is_served, "{}: {kind:?}", set.name);
            assert_eq!(new_fields("", &object), [].into(), "{}: {kind:?}", set.name);
        }
    }
}

#[test]
fn versions_before_the_oldest_are_rejected() {
    let Some(helm) = find_helm() else { return };
    for (version, is_supported) in [
        ("1.28.15", false),
        ("v1.28.9-eks-0123456", false),
        ("1.29.0-alpha.1", true),
        ("v1.29.3-gke.1282000", true),
    ] {
        let rendered = render(&helm, version, &[ACCEPTED]);
        assert_eq!(rendered.is_ok(), is_supported, "{version}");
        let error = rendered.err().unwrap_or_default();
        assert_eq!(error.contains(">=1.29.0-0"), !is_supported, "{error}");
    }
}
