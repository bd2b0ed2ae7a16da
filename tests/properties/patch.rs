//! Whatever a pod holds survives its admission: the patch, applied, gives what an independent edit of
//! the same document gives, and nothing else of it changes.

mod expected;
mod pods;

use std::path::Path;

use k8s_openapi::api::core::v1::Pod;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Value, json};
use tests::review::{self, AdmissionResult, ReviewBuilder, defaults};
use webhook::admission::{AdmissionOutcome, Code, Defaults, admit_workload};

use expected::{STATUS, envoy, has_unreplaced_hook, push};
use pods::{NUMBERS, any_json, pod};

/// Admits a pod, of which [`NUMBERS`] are sent as the numbers they stand for.
fn admit(pod: &Value) -> AdmissionResult {
    let mut bytes = String::from_utf8(ReviewBuilder::for_pod(pod).bytes()).expect("JSON is UTF-8");
    for number in NUMBERS {
        bytes = bytes.replace(&format!("\"{number}\""), number);
    }
    let answer = review::admit(bytes.as_bytes(), &defaults()).expect("a review");
    AdmissionResult::read(&answer, pod.clone())
}

/// A pod whose status is the JSON that it holds.
fn with_parsed_status(mut pod: Value) -> Value {
    let status = &mut pod["metadata"]["annotations"][STATUS];
    *status = serde_json::from_str(status.as_str().expect("a text")).expect("JSON");
    pod
}

fn assert_patch_preserves(pod: &Value) {
    let told = admit(pod);
    let left = with_parsed_status(told.pod.clone());
    let again = admit(&told.pod);
    if has_unreplaced_hook(pod) {
        assert_eq!(told.outcome, AdmissionOutcome::Skipped(Code::ExistingHook));
        assert_eq!(left, expected::skipped_pod(pod, "DRN008"));
        assert_eq!(again.outcome, told.outcome);
    } else {
        assert_eq!(
            told.outcome,
            AdmissionOutcome::Injected,
            "{:?}",
            told.message
        );
        assert_eq!(left, expected::injected_pod(pod));
        assert_eq!(
            again.outcome,
            AdmissionOutcome::Skipped(Code::AlreadyInjected)
        );
        assert_eq!(again.warnings, [""; 0]);
    }
    assert_eq!(again.patch.0, []);
    serde_json::from_value::<Pod>(told.pod).expect("the API server can decode what we leave");
}

/// Whether a directory of the drainer's own is below a mount.
fn is_parent_of_drainer_mount(mount: &Value) -> bool {
    let path = mount["mountPath"].as_str().expect("a path");
    let ours = [
        "/run/envoy-drainer",
        "/var/run/secrets/kubernetes.io/serviceaccount",
    ];
    ours.iter()
        .any(|own| *own != path && Path::new(own).starts_with(path))
}

/// Whether Envoy has a mount of the same volume at the same place that it may write to.
fn is_writable_by_envoy(pod: &Value, ours: &Value) -> bool {
    let same = |mount: &Value| {
        ["name", "mountPath", "subPath"]
            .iter()
            .all(|key| mount[key] == ours[key])
    };
    let mounts = envoy(pod)["volumeMounts"].as_array().into_iter().flatten();
    let mut same = mounts.filter(|mount| same(mount));
    same.any(|mount| mount["readOnly"] != true)
}

/// Every place in a document, as JSON pointers.
fn json_pointers(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    let escaped = |key: &str| key.replace('~', "~0").replace('/', "~1");
    match value {
        Value::Array(items) => items
            .iter()
            .enumerate()
            .for_each(|(n, item)| json_pointers(item, &format!("{at}/{n}"), found)),
        Value::Object(map) => map
            .iter()
            .for_each(|(key, item)| json_pointers(item, &format!("{at}/{}", escaped(key)), found)),
        _ => {}
    }
}

/// The kinds that make pods, and where they have the pods' template; and some that are not known.
const WORKLOADS: [(&str, &str, &str); 9] = [
    ("v1", "Pod", ""),
    ("apps/v1", "Deployment", "/spec/template"),
    ("apps/v1", "StatefulSet", "/spec/template"),
    ("apps/v1", "DaemonSet", "/spec/template"),
    ("apps/v1", "ReplicaSet", "/spec/template"),
    ("batch/v1", "Job", "/spec/template"),
    ("batch/v1", "CronJob", "/spec/jobTemplate/spec/template"),
    ("argoproj.io/v1alpha1", "Rollout", "/spec/template"),
    ("example.com/v1", "Shop", "/spec"),
];

/// Asserts that the author of a workload is answered, with no more than warnings.
fn assert_workload_admitted(workload: &Value) {
    let answer =
        admit_workload(&ReviewBuilder::for_pod(workload).bytes(), &defaults()).expect("a review");
    assert_ne!(
        answer.outcome,
        AdmissionOutcome::Failed(Code::InternalError)
    );
    let told = AdmissionResult::read(&answer, workload.clone());
    assert!(told.allowed);
    assert_eq!(told.patch.0, []);
    assert!(told.warnings.len() <= 16, "{:?}", told.warnings);
}

proptest! {
    #[test]
    fn any_pod_survives(pod in pod()) {
        assert_patch_preserves(&pod);
    }

    #[test]
    fn any_pod_that_does_not_ask_is_left_as_it_is(
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
        let told = admit(&pod);
        prop_assert_eq!((told.outcome, told.patch.0), (AdmissionOutcome::NotRequested, vec![]));
    }

    #[test]
    fn a_pod_with_something_wrong_in_it_is_admitted_or_refused_but_never_a_bug(
        mut pod in pod(),
        at in any::<Index>(),
        wrong in any_json(),
    ) {
        let mut found = Vec::new();
        json_pointers(&pod, "", &mut found);
        *pod.pointer_mut(&found[at.index(found.len())]).unwrap() = wrong;
        let told = admit(&pod);
        prop_assert_ne!(told.outcome, AdmissionOutcome::Failed(Code::InternalError));
        prop_assert_eq!(told.allowed, told.outcome != AdmissionOutcome::Denied);
    }

    #[test]
    fn any_object_is_answered_on_either_path(object in any_json()) {
        let told = admit(&object);
        prop_assert_ne!(told.outcome, AdmissionOutcome::Failed(Code::InternalError));
        assert_workload_admitted(&object);
    }

    #[test]
    fn any_workload_is_answered_with_warnings_alone(
        pod in pod(),
        (version, kind, pointer) in select(WORKLOADS.to_vec()),
        at in any::<Index>(),
        wrong in option::of(any_json()),
    ) {
        let mut workload = pod;
        for token in pointer.rsplit('/').filter(|token| !token.is_empty()) {
            workload = json!({ token: workload });
        }
        workload["apiVersion"] = json!(version);
        workload["kind"] = json!(kind);
        if let Some(wrong) = wrong {
            let mut found = Vec::new();
            json_pointers(&workload, "", &mut found);
            *workload.pointer_mut(&found[at.index(found.len())]).unwrap() = wrong;
        }
        assert_workload_admitted(&workload);
    }

    #[test]
    fn injection_never_widens_a_mount_a_user_or_a_capability(
        pod in pod(),
        open_shift in any::<bool>(),
    ) {
        let defaults = Defaults { open_shift, ..defaults() };
        let told = ReviewBuilder::for_pod(&pod).admit(&defaults);
        let lists = ["containers", "initContainers"].map(|list| told.pod["spec"][list].as_array());
        let is_ours = |container: &&Value| container["name"] == "envoy-drainer";
        for drainer in lists.into_iter().flatten().flatten().filter(is_ours) {
            for mount in drainer["volumeMounts"].as_array().unwrap() {
                let is_safe = mount["readOnly"] == true
                    || mount["name"] == "envoy-drainer"
                    || is_parent_of_drainer_mount(mount) && is_writable_by_envoy(&pod, mount);
                prop_assert!(is_safe, "{}", mount);
            }
            let context = &drainer["securityContext"];
            prop_assert_eq!(&context["capabilities"], &json!({"drop": ["ALL"]}));
            prop_assert_eq!(&context["runAsNonRoot"], &json!(true));
            prop_assert_eq!(context.get("privileged"), None);
            let own = context["runAsUser"].as_i64();
            let inherited = told.pod["spec"]["securityContext"]["runAsUser"].as_i64();
            prop_assert_ne!(own.or(inherited), Some(0));
            prop_assert!(open_shift || own.is_some());
        }
    }

    #[test]
    fn any_bytes_are_answered_or_refused(bytes in vec(any::<u8>(), 0..64)) {
        prop_assert!(review::admit(&bytes, &defaults()).is_err());
    }

    #[test]
    fn a_review_cut_short_is_refused(pod in pod(), end in any::<Index>()) {
        let bytes = ReviewBuilder::for_pod(&pod).bytes();
        prop_assert!(review::admit(&bytes[..end.index(bytes.len())], &defaults()).is_err());
    }
}

#[test]
fn a_pod_of_three_mebibytes_survives() {
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

#[test]
fn metadata_that_is_missing_asks_for_nothing() {
    for pod in [
        json!({}),
        json!({"metadata": null}),
        json!({"metadata": {"annotations": null}, "spec": null}),
    ] {
        let told = admit(&pod);
        assert_eq!(
            (told.outcome, told.patch.0),
            (AdmissionOutcome::NotRequested, vec![]),
            "{pod}"
        );
    }
}

#[test]
fn a_skip_is_decided_anew_when_another_webhook_brings_the_envoy() {
    let mut pod = json!({
        "metadata": {"annotations": {"envoy-drainer.dev/inject": "true"}},
        "spec": {"containers": [{"name": "app"}, {"name": "cache"}]},
    });
    let skipped = admit(&pod);
    assert_eq!(skipped.outcome, AdmissionOutcome::Skipped(Code::NoEnvoy));
    assert_eq!(
        skipped.pod["metadata"]["annotations"][STATUS],
        r#"{"skipped":"DRN009"}"#
    );
    let same = admit(&skipped.pod);
    assert_eq!(
        (same.outcome, same.patch.0),
        (AdmissionOutcome::Skipped(Code::NoEnvoy), vec![])
    );

    pod = skipped.pod;
    push(&mut pod["spec"]["containers"], json!({"name": "envoy"}));
    assert_patch_preserves(&pod);
}
