//! Admission keeps every field of a pod: the patched pod equals an independent edit of the same document, and
//! nothing else in it changes.

mod expected;
mod pods;

use std::path::Path;

use admission::{AdmissionOutcome, Code, Defaults, admit_workload};
use k8s_openapi::api::core::v1::Pod;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Value, json};
use tests::manifest::KINDS;
use tests::review::{
    self, AdmissionResult, ReviewBuilder, defaults, without_drainer, without_empty,
};

use expected::{STATUS, envoy, envoy_mut, has_unreplaced_hook};
use pods::{NUMBERS, any_json, pod};

/// Admits a pod. Strings of [`NUMBERS`] in it are sent as numbers.
fn admit(pod: &Value) -> AdmissionResult {
    let mut bytes = String::from_utf8(ReviewBuilder::for_pod(pod).bytes()).expect("JSON is UTF-8");
    for number in NUMBERS {
        bytes = bytes.replace(&format!("\"{number}\""), number);
    }
    let response = review::admit(bytes.as_bytes(), &defaults()).expect("a review");
    AdmissionResult::read(&response, pod.clone())
}

/// The pod without its status annotation.
fn without_status(mut pod: Value) -> Value {
    let annotations = pod["metadata"]["annotations"].as_object_mut();
    annotations.map(|annotations| annotations.shift_remove(STATUS));
    pod
}

fn assert_patch_preserves(pod: &Value) {
    let result = admit(pod);
    if !expected::names_admin(pod) {
        return assert_eq!(result.outcome, AdmissionOutcome::Denied);
    }
    let patched = without_status(result.pod.clone());
    let second = admit(&result.pod);
    if has_unreplaced_hook(pod) {
        assert_eq!(
            result.outcome,
            AdmissionOutcome::Skipped(Code::ExistingHook)
        );
        assert_eq!(patched, without_status(pod.clone()));
        assert_eq!(second.outcome, result.outcome);
    } else {
        assert_eq!(
            result.outcome,
            AdmissionOutcome::Injected,
            "{:?}",
            result.message
        );
        assert_eq!(patched, without_status(expected::injected_pod(pod)));
        assert_eq!(
            second.outcome,
            AdmissionOutcome::Skipped(Code::AlreadyInjected)
        );
        assert_eq!(second.warnings, [""; 0]);
        assert_removal_is_inverse(pod, &result.pod);
        assert_changes_are_repaired(&result.pod);
    }
    assert_eq!(second.patch.0, []);
    serde_json::from_value::<Pod>(result.pod).expect("the API server can decode the patched pod");
}

/// Asserts that a removal gives back the pod that was injected, but for parents that were added.
fn assert_removal_is_inverse(pod: &Value, injected: &Value) {
    let removed = without_drainer(injected.clone()).expect("everything is recorded");
    let [before, after] = [pod, &removed].map(|pod| without_empty(pod.clone()));
    assert_eq!(after, before);
    assert_eq!(admit(&removed).pod, *injected);
}

/// Asserts that the injection is restored after another webhook has changed it.
fn assert_changes_are_repaired(injected: &Value) {
    let mut changed = injected.clone();
    envoy_mut(&mut changed)["lifecycle"]["preStop"] = json!({"sleep": {"seconds": 15}});
    let sidecars = changed["spec"].get_mut("initContainers");
    let sidecars = sidecars.and_then(Value::as_array_mut).into_iter().flatten();
    let mut own = sidecars.filter(|container| container["name"] == "envoy-drainer");
    if let Some(Value::Object(drainer)) = own.next() {
        drainer.remove("restartPolicy");
    }
    let repaired = admit(&changed);
    assert_eq!(repaired.outcome, AdmissionOutcome::Repaired);
    assert_eq!(repaired.pod, *injected);
}

/// Turns a pod into one of Envoy Gateway that asks for adoption, with its shutdown manager at a position among the
/// containers. Returns it, and the same without the manager and without the hook that calls it.
fn with_manager(mut pod: Value, manager_position: Index) -> (Value, Value) {
    let annotations = pod["metadata"]["annotations"].as_object_mut();
    let annotations = annotations.expect("the pod has annotations");
    annotations.insert("envoy-drainer.dev/adopt".into(), json!("true"));
    // Otherwise the manager's own values are their defaults.
    for (name, value) in [
        ("admin-address", "127.0.0.1:15000"),
        ("drain-timeout", "30s"),
        ("ignore-listeners", "web"),
    ] {
        let name = format!("envoy-drainer.dev/{name}");
        annotations.entry(name).or_insert(json!(value));
    }
    let envoy = envoy_mut(&mut pod);
    envoy["command"] = json!(["envoy"]);
    envoy["lifecycle"]["preStop"] = Value::Null;
    let without = pod.clone();
    let hook = json!({"path": "/shutdown/ready", "port": 19002, "scheme": "HTTP"});
    envoy_mut(&mut pod)["lifecycle"]["preStop"] = json!({ "httpGet": hook });
    let containers = pod["spec"]["containers"].as_array_mut();
    let containers = containers.expect("Envoy is in it");
    let shutdown = ["envoy-gateway", "envoy", "shutdown"];
    let manager = json!({
        "name": "shutdown-manager",
        "image": "registry.example:5000/envoyproxy/gateway:v1.9.0",
        "command": ["envoy-gateway"],
        "args": ["envoy", "shutdown-manager", "--ready-timeout=70s"],
        "lifecycle": {"preStop": {"exec": {"command": shutdown}}},
        // Nothing about it may show in the drainer.
        "readinessProbe": {"httpGet": {"port": 19002}},
        "resources": {"requests": {"ephemeral-storage": "1Gi"}},
        "x-future": {"a/b": [null]},
    });
    containers.insert(manager_position.index(containers.len() + 1), manager);
    (pod, without)
}

/// Whether one of the drainer's own mounts may be below a mount.
fn is_parent_of_drainer_mount(mount: &Value) -> bool {
    let path = mount["mountPath"].as_str().expect("a path");
    Path::new("/var/run/secrets").starts_with(path)
}

/// Whether Envoy has a writable mount of the same volume at the same path.
fn is_writable_by_envoy(pod: &Value, drainer_mount: &Value) -> bool {
    let is_same = |mount: &Value| {
        ["name", "mountPath", "subPath"]
            .iter()
            .all(|key| mount[key] == drainer_mount[key])
    };
    let mounts = envoy(pod)["volumeMounts"].as_array().into_iter().flatten();
    let mut same = mounts.filter(|mount| is_same(mount));
    same.any(|mount| mount["readOnly"] != true)
}

/// Collects JSON pointers to every value in a document.
fn json_pointers(value: &Value, at: &str, pointers: &mut Vec<String>) {
    pointers.push(at.to_owned());
    let escaped = |key: &str| key.replace('~', "~0").replace('/', "~1");
    match value {
        Value::Array(items) => items
            .iter()
            .enumerate()
            .for_each(|(n, item)| json_pointers(item, &format!("{at}/{n}"), pointers)),
        Value::Object(map) => map.iter().for_each(|(key, item)| {
            json_pointers(item, &format!("{at}/{}", escaped(key)), pointers)
        }),
        _ => {}
    }
}

/// Kinds that are unknown to the webhook, as [`KINDS`].
const UNKNOWN_KINDS: [(&str, &str, &str); 2] = [
    ("argoproj.io/v1alpha1", "Rollout", "/spec/template"),
    ("example.com/v1", "Shop", "/spec"),
];

/// Asserts that a workload is allowed without a patch, with at most 16 warnings.
fn assert_workload_admitted(workload: &Value) {
    let response =
        admit_workload(&ReviewBuilder::for_pod(workload).bytes(), &defaults()).expect("a review");
    assert_ne!(
        response.outcome,
        AdmissionOutcome::Failed(Code::InternalError)
    );
    let result = AdmissionResult::read(&response, workload.clone());
    assert!(result.allowed);
    assert_eq!(result.patch.0, []);
    assert!(result.warnings.len() <= 16, "{:?}", result.warnings);
}

proptest! {
    #[test]
    fn any_pod_keeps_its_fields(pod in pod()) {
        assert_patch_preserves(&pod);
    }

    #[test]
    fn adopted_pod_loses_its_manager_alone(
        pod in pod().prop_filter("Envoy is a native sidecar", |pod| envoy(pod)["restartPolicy"].is_null()),
        position in any::<Index>(),
    ) {
        let (pod, without) = with_manager(pod, position);
        let result = admit(&pod);
        prop_assert_eq!(result.outcome, AdmissionOutcome::Injected, "{:?}", result.warnings);
        let expected = without_status(expected::injected_pod(&without));
        prop_assert_eq!(without_status(result.pod.clone()), expected);
        let second = admit(&result.pod);
        prop_assert_eq!(second.outcome, AdmissionOutcome::Skipped(Code::AlreadyInjected));
    }

    #[test]
    fn pods_without_the_annotation_are_unchanged(
        mut pod in pod(),
        metadata in select(vec![
            None,
            Some(Value::Null),
            Some(json!({})),
            Some(json!({"annotations": null, "labels": null})),
            Some(json!({"annotations": {"envoy-drainer.dev/inject": "false"}})),
        ]),
    ) {
        match metadata {
            Some(metadata) => pod["metadata"] = metadata,
            None => drop(pod.as_object_mut().unwrap().remove("metadata")),
        }
        let result = admit(&pod);
        prop_assert_eq!((result.outcome, result.patch.0), (AdmissionOutcome::NotRequested, vec![]));
    }

    #[test]
    fn corrupted_pods_cause_no_internal_error(
        mut pod in pod(),
        at in any::<Index>(),
        replacement in any_json(),
    ) {
        let mut pointers = Vec::new();
        json_pointers(&pod, "", &mut pointers);
        *pod.pointer_mut(&pointers[at.index(pointers.len())]).unwrap() = replacement;
        let result = admit(&pod);
        prop_assert_ne!(result.outcome, AdmissionOutcome::Failed(Code::InternalError));
        prop_assert_eq!(result.allowed, result.outcome != AdmissionOutcome::Denied);
    }

    #[test]
    fn any_object_is_answered_on_either_path(object in any_json()) {
        let result = admit(&object);
        prop_assert_ne!(result.outcome, AdmissionOutcome::Failed(Code::InternalError));
        assert_workload_admitted(&object);
    }

    #[test]
    fn any_workload_gets_at_most_warnings(
        pod in pod(),
        (version, kind, pointer) in select([&KINDS[..], &UNKNOWN_KINDS].concat()),
        at in any::<Index>(),
        replacement in option::of(any_json()),
    ) {
        let mut workload = pod;
        for token in pointer.rsplit('/').filter(|token| !token.is_empty()) {
            workload = json!({ token: workload });
        }
        workload["apiVersion"] = json!(version);
        workload["kind"] = json!(kind);
        if let Some(replacement) = replacement {
            let mut pointers = Vec::new();
            json_pointers(&workload, "", &mut pointers);
            *workload.pointer_mut(&pointers[at.index(pointers.len())]).unwrap() = replacement;
        }
        assert_workload_admitted(&workload);
    }

    #[test]
    fn injection_never_widens_mounts_users_or_capabilities(
        pod in pod(),
        openshift in any::<bool>(),
    ) {
        let defaults = Defaults { openshift, ..defaults() };
        let result = ReviewBuilder::for_pod(&pod).admit(&defaults);
        let lists = ["containers", "initContainers"].map(|list| result.pod["spec"][list].as_array());
        let is_drainer = |container: &&Value| container["name"] == "envoy-drainer";
        for drainer in lists.into_iter().flatten().flatten().filter(is_drainer) {
            for mount in drainer["volumeMounts"].as_array().into_iter().flatten() {
                let is_safe = mount["readOnly"] == true
                    || is_parent_of_drainer_mount(mount) && is_writable_by_envoy(&pod, mount);
                prop_assert!(is_safe, "{}", mount);
            }
            let context = &drainer["securityContext"];
            prop_assert_eq!(&context["capabilities"], &json!({"drop": ["ALL"]}));
            prop_assert_eq!(&context["runAsNonRoot"], &json!(true));
            prop_assert_eq!(context.get("privileged"), None);
            let user = context["runAsUser"].as_i64();
            let inherited = result.pod["spec"]["securityContext"]["runAsUser"].as_i64();
            prop_assert_ne!(user.or(inherited), Some(0));
            prop_assert!(openshift || user.is_some());
        }
    }

    #[test]
    fn arbitrary_bytes_are_refused(bytes in vec(any::<u8>(), 0..64)) {
        prop_assert!(review::admit(&bytes, &defaults()).is_err());
    }

    #[test]
    fn truncated_reviews_are_refused(pod in pod(), end in any::<Index>()) {
        let bytes = ReviewBuilder::for_pod(&pod).bytes();
        prop_assert!(review::admit(&bytes[..end.index(bytes.len())], &defaults()).is_err());
    }
}

#[test]
fn three_mebibyte_pod_keeps_its_fields() {
    let variable = |n: usize| json!({"name": format!("VARIABLE_{n}"), "value": "\"quoted\" and $(expanded) / ~".repeat(4)});
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "big", "annotations": {"envoy-drainer.dev/inject": "true"}},
        "spec": {"containers": [{"name": "envoy", "env": (0..22_000).map(variable).collect::<Vec<_>>()}]},
    });
    assert!(serde_json::to_vec(&pod).unwrap().len() > 3 << 20);
    assert_patch_preserves(&pod);
}
