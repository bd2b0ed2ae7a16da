//! Whole pods: a manifest, and what it becomes. `UPDATE_GOLDEN=1` rewrites what they become.

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use tests::golden;
use tests::review::{AdmissionResult, ReviewBuilder, defaults};
use webhook::admission::{AdmissionOutcome, Code, Defaults, admit_pod};
use webhook::token::TokenGenerator;

fn pod(name: &str) -> Value {
    serde_saphyr::from_str(&golden::read(&format!("{name}.yaml"))).expect("the golden pod is YAML")
}

/// Admits `golden/NAME.yaml` and compares the pod it becomes with `NAME.patched.yaml`, or the answer
/// with `NAME.decision` where the pod stays as it is.
fn admit(name: &str, set: impl FnOnce(&mut Defaults)) -> AdmissionResult {
    let mut defaults = defaults();
    set(&mut defaults);
    let told = ReviewBuilder::for_pod(&pod(name)).admit(&defaults);
    let mut text: String = told
        .warnings
        .iter()
        .map(|warning| format!("# warning: {warning}\n"))
        .collect();
    if told.patch.0.is_empty() {
        text += &format!(
            "{}\n{}\n",
            if told.allowed { "allowed" } else { "denied" },
            told.message
        );
        golden::check(&format!("{name}.decision"), &text);
    } else {
        text += &serde_saphyr::to_string(&told.pod).expect("a pod is YAML");
        golden::check(&format!("{name}.patched.yaml"), &text);
        let decoded: Result<Pod, _> = serde_json::from_value(told.pod.clone());
        assert!(decoded.is_ok(), "{decoded:?}");
        let again = ReviewBuilder::for_pod(&told.pod).admit(&defaults);
        assert_eq!(
            again.patch.0,
            [],
            "the second admission changes the pod again"
        );
        assert!(again.allowed);
    }
    told
}

fn assert_injected(name: &str) {
    assert_eq!(admit(name, |_| {}).outcome, AdmissionOutcome::Injected);
}

fn assert_skipped(name: &str, code: Code) {
    assert_eq!(admit(name, |_| {}).outcome, AdmissionOutcome::Skipped(code));
}

#[test]
fn envoy_as_a_main_container() {
    assert_injected("envoy-main");
}

#[test]
fn envoy_as_a_native_sidecar() {
    assert_injected("envoy-native-sidecar");
}

#[test]
fn the_drainer_as_a_plain_container() {
    assert_injected("plain-sidecar");
}

#[test]
fn host_network() {
    assert_injected("host-network");
}

#[test]
fn pod_level_resources() {
    assert_injected("pod-level-resources");
}

#[test]
fn a_guaranteed_pod_stays_guaranteed() {
    assert_injected("guaranteed");
}

#[test]
fn a_hook_that_is_there_is_kept() {
    assert_skipped("existing-hook-kept", Code::ExistingHook);
}

#[test]
fn a_hook_that_is_there_is_replaced() {
    assert_injected("existing-hook-replaced");
}

#[test]
fn a_bigger_grace_is_kept() {
    assert_injected("grace-bigger");
}

#[test]
fn a_smaller_grace_is_raised() {
    assert_injected("grace-smaller");
}

#[test]
fn many_containers() {
    assert_injected("many-containers");
}

#[test]
fn two_candidates() {
    assert_eq!(
        admit("two-candidates", |_| {}).outcome,
        AdmissionOutcome::Denied
    );
}

#[test]
fn on_openshift_no_user_is_set() {
    let told = admit("openshift", |defaults| defaults.open_shift = true);
    assert_eq!(told.outcome, AdmissionOutcome::Injected);
}

#[test]
fn a_jobs_pod_does_not_wait() {
    assert_injected("job");
}

#[test]
fn an_istio_injected_pod() {
    assert_injected("istio-injected");
}

#[test]
fn an_envoy_gateway_pod_drains_itself() {
    assert_skipped("envoy-gateway", Code::EnvoyGatewayPod);
}

#[test]
fn a_contour_pod_drains_itself() {
    assert_skipped("contour", Code::ContourPod);
}

#[test]
fn an_admin_on_a_unix_socket() {
    assert_injected("admin-unix-socket");
}

#[test]
fn a_pod_without_anything_optional() {
    assert_injected("bare");
}

#[test]
fn on_openshift_a_pod_of_roots_gets_our_user() {
    let open_shift = Defaults {
        open_shift: true,
        ..defaults()
    };
    for (pods, own, want) in [
        (json!({"runAsUser": 0}), json!({}), json!(60902)),
        (
            json!({"runAsUser": 0}),
            json!({"runAsUser": 1000}),
            json!(60902),
        ),
        (json!({"runAsUser": 1000}), json!({}), json!(null)),
        (json!({}), json!({"runAsUser": 0}), json!(null)),
    ] {
        let pod = json!({
            "metadata": {"annotations": {"envoy-drainer.dev/inject": "true"}},
            "spec": {
                "containers": [{"name": "envoy", "securityContext": own}],
                "securityContext": pods,
            },
        });
        let told = ReviewBuilder::for_pod(&pod).admit(&open_shift);
        assert_eq!(told.outcome, AdmissionOutcome::Injected);
        let context = &told.pod["spec"]["initContainers"][0]["securityContext"];
        assert_eq!(context["runAsUser"], want, "{pods} {own}");
    }
}

/// The paths of the pod's hooks and the drainer's tokens, which must agree.
fn shared_token(pod: &Value) -> String {
    let hook = pod.pointer("/spec/containers/0/lifecycle/preStop/httpGet/path");
    let token = hook
        .and_then(Value::as_str)
        .and_then(|path| path.strip_prefix("/drained/"));
    let token = token.expect("the pod has a hook").to_owned();
    let args = pod["spec"]["initContainers"][0]["args"].as_array();
    let argument = json!(format!("--token={token}"));
    assert!(
        args.is_some_and(|args| args.contains(&argument)),
        "{args:?}"
    );
    token
}

#[test]
fn two_admissions_of_a_review_have_two_tokens() {
    let pod = pod("bare");
    let review = ReviewBuilder::for_pod(&pod).bytes();
    let tokens = TokenGenerator::default();
    let admit = |review: &[u8], pod: &Value| {
        let answer = admit_pod(review, &defaults(), || tokens.generate()).expect("a review");
        AdmissionResult::read(&answer, pod.clone())
    };
    let [one, other] = [(); 2].map(|()| admit(&review, &pod));
    assert_ne!(shared_token(&one.pod), shared_token(&other.pod));
    // The API server may ask again of the pod with its drainer.
    let again = admit(&ReviewBuilder::for_pod(&one.pod).bytes(), &one.pod);
    assert_eq!(
        again.outcome,
        AdmissionOutcome::Skipped(Code::AlreadyInjected)
    );
    assert_eq!(again.pod, one.pod);
}
