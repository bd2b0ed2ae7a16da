//! Admission of whole pods: each manifest of tests/golden, and the pod or decision that it leads to, which
//! `UPDATE_GOLDEN=1` rewrites.

mod adoption;

use std::collections::BTreeSet;

use admission::{AdmissionOutcome, Code, Defaults};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use tests::kubernetes::NEW_FIELDS;
use tests::review::{
    AdmissionResult, ReviewBuilder, defaults, lenient_defaults, without_drainer, without_empty,
};
use tests::{golden, kubernetes};

/// The releases whose pods have a golden file.
const RELEASES: [&str; 1] = ["0.1.0"];

fn pod(name: &str) -> Value {
    serde_saphyr::from_str(&golden::read(&format!("{name}.yaml"))).expect("the golden pod is YAML")
}

fn yaml(pod: &Value) -> String {
    serde_saphyr::to_string(pod).expect("a pod is YAML")
}

/// Admits `golden/NAME.yaml` and compares the patched pod with `NAME.patched.yaml`, or the response with
/// `NAME.decision` where there is no patch.
fn admit(name: &str, set: impl FnOnce(&mut Defaults)) -> AdmissionResult {
    let mut defaults = defaults();
    set(&mut defaults);
    let before = pod(name);
    let result = ReviewBuilder::for_pod(&before).admit(&defaults);
    let warnings = result.warnings.iter();
    let warnings: String = warnings.map(|it| format!("# warning: {it}\n")).collect();
    if result.patch.0.is_empty() {
        let decision = if result.allowed { "allowed" } else { "denied" };
        let text = format!("{warnings}{decision}\n{}\n", result.message);
        golden::check(&format!("{name}.decision"), &text);
    } else {
        let text = warnings + &yaml(&result.pod);
        golden::check(&format!("{name}.patched.yaml"), &text);
        assert_patched(name, &before, &result, &defaults);
    }
    result
}

/// Asserts that a patched pod is valid and complete, and that the patch adds only what 1.29 knows.
fn assert_patched(name: &str, sent: &Value, result: &AdmissionResult, defaults: &Defaults) {
    let decoded: Result<Pod, _> = serde_json::from_value(result.pod.clone());
    assert!(decoded.is_ok(), "{name}: {decoded:?}");
    let [before, after] = [sent, &result.pod].map(|pod| kubernetes::new_fields("", pod));
    assert!(after.is_subset(&before), "{name}: {after:?}");
    let second = ReviewBuilder::for_pod(&result.pod).admit(defaults);
    let unchanged = (true, vec![]);
    assert_eq!((second.allowed, second.patch.0), unchanged, "{name}");
    if result.outcome == AdmissionOutcome::Injected {
        let removed = without_drainer(result.pod.clone());
        let removed = removed.map(without_empty).map_err(|it| it.code);
        let adopt = sent.pointer("/metadata/annotations/envoy-drainer.dev~1adopt");
        let wanted = match adopt {
            Some(_) => Err(Code::NotRemoved),
            None => Ok(without_empty(sent.clone())),
        };
        assert_eq!(removed, wanted, "{name}");
    }
}

#[test]
fn pods_lead_to_their_golden_files() {
    let injected = "envoy-main envoy-native-sidecar envoy-moved extra-hooks plain-sidecar host-network \
        pod-level-resources guaranteed existing-hook-replaced grace-bigger grace-smaller many-containers job \
        istio-injected admin-unix-socket bare";
    for name in injected.split(' ') {
        let outcome = admit(name, |_| {}).outcome;
        assert_eq!(outcome, AdmissionOutcome::Injected, "{name}");
    }
    let skipped = AdmissionOutcome::Skipped;
    for (name, outcome) in [
        ("existing-hook-kept", skipped(Code::ExistingHook)),
        ("envoy-gateway", skipped(Code::EnvoyGatewayPod)),
        ("contour", skipped(Code::ContourPod)),
        ("two-candidates", AdmissionOutcome::Denied),
    ] {
        assert_eq!(admit(name, |_| {}).outcome, outcome, "{name}");
    }
}

/// Whether a value has all that it had `before`, whatever it has besides.
fn keeps(after: &Value, before: &Value) -> bool {
    match (after, before) {
        (Value::Object(after), Value::Object(before)) => {
            let mut members = before.iter();
            members.all(|(key, before)| after.get(key).is_some_and(|after| keeps(after, before)))
        }
        (Value::Array(after), Value::Array(before)) => {
            let mut items = before.iter();
            items.all(|before| after.iter().any(|after| keeps(after, before)))
        }
        _ => after == before,
    }
}

/// Reads the review of a pod's creation as the API server of 1.`minor` sends it.
fn review_of(minor: u32) -> ReviewBuilder {
    ReviewBuilder::from_json(&golden::read(&format!("kubernetes/1.{minor}.json")))
}

/// Those after 1.29 have every field that the API has gained by then.
/// <https://github.com/kubernetes/api/blob/v0.37.1/core/v1/types.go>
#[test]
fn fields_of_every_kubernetes_version_survive() {
    let mut sent = BTreeSet::new();
    for minor in [29, 33, 35, 37] {
        let review = review_of(minor);
        let mut before = review.object().clone();
        let fields = kubernetes::new_fields("", &before);
        let are_known = fields.iter().all(|(since, _)| *since <= minor);
        assert!(are_known, "1.{minor}: {fields:?}");
        sent.extend(fields);
        let result = review.admit(&defaults());
        assert_eq!(result.outcome, AdmissionOutcome::Injected, "1.{minor}");
        let diff = format!("kubernetes/1.{minor}.diff");
        golden::check_diff(&diff, &yaml(&before), &yaml(&result.pod));
        assert_eq!(result.warnings, [""; 0], "1.{minor}");
        assert_patched(&diff, &before, &result, &defaults());
        // The only value that changes.
        before["spec"]["terminationGracePeriodSeconds"] = json!(75);
        assert!(keeps(&result.pod, &before), "1.{minor}");
    }
    let mut of_pods = BTreeSet::from(NEW_FIELDS);
    of_pods.retain(|(_, field)| *field != "spec.trafficDistribution");
    assert_eq!(sent, of_pods);
}

#[test]
fn envoy_with_restart_rules_cannot_become_a_native_sidecar() {
    let annotations = json!({
        "envoy-drainer.dev/inject": "true",
        "envoy-drainer.dev/envoy-native-sidecar": "true",
    });
    let review = review_of(35).with("/request/object/metadata/annotations", annotations);
    let envoy = review.object()["spec"]["containers"][0].clone();
    let app = json!({"name": "app", "image": "registry.example/app:1"});
    let review = review.with("/request/object/spec/containers", json!([envoy, app]));
    let result = review.admit(&defaults());
    assert_eq!(result.outcome, AdmissionOutcome::Denied);
    let reasons: Vec<_> = result.message.lines().map(|line| &line[..6]).collect();
    assert_eq!(reasons, ["DRN031", "DRN031"], "{}", result.message);
}

#[test]
fn node_network_needs_the_admins_address_beside_a_configuration() {
    let yaml = "admin: {address: {socket_address: {address: 127.0.0.1, port_value: 19000}}}";
    let mut pod = json!({
        "metadata": {"annotations": {"envoy-drainer.dev/inject": "true"}},
        "spec": {
            "hostNetwork": true,
            "containers": [{"name": "envoy", "args": ["--config-yaml", yaml]}],
        },
    });
    let unnamed = "DRN054: nothing in the pod names the address of Envoy's admin interface, and on a node's network the \
        drainer does not search for it; add `admin` to Envoy's configuration if it has none; annotate `admin-address`, or \
        declare a container port called `admin`";
    let admit = |pod: &Value| ReviewBuilder::for_pod(pod).admit(&defaults());
    let denied = admit(&pod);
    assert_eq!(denied.outcome, AdmissionOutcome::Denied);
    assert_eq!(denied.message, unnamed);
    let lenient = ReviewBuilder::for_pod(&pod).admit(&lenient_defaults());
    let skipped = AdmissionOutcome::Skipped(Code::AdminNotNamed);
    assert_eq!(lenient.outcome, skipped);
    pod["metadata"]["annotations"]["envoy-drainer.dev/admin-address"] = json!("127.0.0.1:19000");
    for warning in admit(&pod).warnings {
        assert!(warning.starts_with("DRN079"), "{warning}");
    }
}

#[test]
fn drainer_has_no_user_on_openshift() {
    let result = admit("openshift", |defaults| defaults.openshift = true);
    assert_eq!(result.outcome, AdmissionOutcome::Injected);
}

/// A release keeps the drainers that earlier ones injected, and leaves the pod that it injects to later ones.
#[test]
fn pods_of_installed_releases_keep_their_drainer() {
    let injected = ReviewBuilder::for_pod(&pod("bare")).admit(&defaults()).pod;
    let name = concat!("injected-", env!("CARGO_PKG_VERSION"), ".yaml");
    golden::check(name, &yaml(&injected));
    for release in RELEASES {
        let pod = pod(&format!("injected-{release}"));
        let result = ReviewBuilder::for_pod(&pod).admit(&defaults());
        let unchanged = (AdmissionOutcome::Skipped(Code::AlreadyInjected), vec![]);
        assert_eq!((result.outcome, result.patch.0), unchanged, "{release}");
    }
}

#[test]
fn root_pod_gets_drainer_user_on_openshift() {
    let openshift = Defaults {
        openshift: true,
        ..defaults()
    };
    for (of_pod, of_container, want) in [
        (Some(0), None, json!(60902)),
        (Some(0), Some(1000), json!(60902)),
        (Some(1000), None, json!(null)),
        (None, Some(0), json!(null)),
    ] {
        let context = |user: Option<u32>| user.map_or(json!({}), |it| json!({"runAsUser": it}));
        let pod = json!({
            "metadata": {"annotations": {"envoy-drainer.dev/inject": "true"}},
            "spec": {
                "containers": [{"name": "envoy", "securityContext": context(of_container)}],
                "securityContext": context(of_pod),
            },
        });
        let result = ReviewBuilder::for_pod(&pod).admit(&openshift);
        assert_eq!(result.outcome, AdmissionOutcome::Injected);
        let context = &result.pod["spec"]["initContainers"][0]["securityContext"];
        assert_eq!(context["runAsUser"], want, "{of_pod:?} {of_container:?}");
    }
}
