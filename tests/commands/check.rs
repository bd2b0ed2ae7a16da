//! `envoy-drainer check` against a fake API server: its text, JSON and exit code. It writes nothing.

use std::process::{Output, Stdio};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use pki::clock::wall_clock;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tests::api_server::{FakeApiServer, PodCreateResponder, Responses, failure, failure_status};
use tests::foreign_text::{FOREIGN_TEXT, assert_escaped};
use tests::helm::{object, objects};
use tests::{binaries, golden};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tokio::task::JoinSet;
use webhook::certificates::testing_api::Ca;

const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";
pub(super) const CONFIGURATIONS: &str =
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
const RELEASE: &str = "/api/v1/namespaces/envoy-drainer";
pub(super) const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/envoy-drainer/deployments";
const REPLICA_SETS: &str = "/apis/apps/v1/replicasets";

const DENIAL: &str = "admission webhook \"pods.envoy-drainer.dev\" denied the request: DRN023: no volume at `/run`; \
    mount an emptyDir";

/// A healthy cluster: the chart's objects with default values, a namespace that has opted in, and a pod
/// with a drainer.
pub(super) fn healthy() -> Responses {
    let chart = objects(&golden::read("chart/defaults.yaml"));
    let policy = |suffix: &str| object(&chart, "ValidatingAdmissionPolicy", suffix).clone();
    let binding = |suffix: &str| object(&chart, "ValidatingAdmissionPolicyBinding", suffix).clone();
    let object = |kind: &str| object(&chart, kind, "").clone();
    let ca = Ca::try_new(wall_clock(), YEAR).unwrap();
    let mut configuration = object("MutatingWebhookConfiguration");
    configuration["metadata"]["creationTimestamp"] = json!("2026-01-02T00:00:00Z");
    for entry in configuration["webhooks"].as_array_mut().unwrap() {
        entry["clientConfig"]["caBundle"] = json!(STANDARD.encode(ca.pem()));
    }
    let mut deployment = object("Deployment");
    deployment["status"] = json!({"readyReplicas": 2, "updatedReplicas": 2});
    let replica = json!({
        "metadata": {"name": "envoy-drainer-1"},
        "spec": deployment["spec"]["template"]["spec"],
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    });
    let namespace = |(name, injection): (&str, &str)| {
        let labels = json!({
            "kubernetes.io/metadata.name": name, "envoy-drainer.dev/injection": injection,
        });
        json!({"metadata": {"name": name, "labels": labels}})
    };
    let node = json!({
        "metadata": {"name": "node-1"},
        "status": {"nodeInfo": {"kubeletVersion": "v1.34.4", "operatingSystem": "linux"}},
    });
    let version = json!({"major": "1", "minor": "34", "gitVersion": "v1.34.4"});
    let pods = json!([pod("edge-0", &json!([drainer("localhost/drainer:0.1.0")]))]);
    let namespaces = [
        ("shop", "enabled"),
        ("default", "disabled"),
        ("kube-system", "disabled"),
    ];
    let namespaces = json!(namespaces.map(namespace));
    let found = |object: Value| (200, object.to_string());
    let mut answers = Responses::from([
        ("/version".to_owned(), found(version)),
        (CONFIGURATIONS.to_owned(), list(&json!([configuration]))),
        (
            format!("{RELEASE}/services/envoy-drainer"),
            found(object("Service")),
        ),
        (DEPLOYMENTS.to_owned(), list(&json!([deployment]))),
        (format!("{RELEASE}/pods"), list(&json!([replica]))),
        ("/api/v1/nodes".to_owned(), list(&json!([node]))),
        ("/api/v1/namespaces".to_owned(), list(&namespaces)),
        ("/api/v1/pods".to_owned(), list(&pods)),
        (REPLICA_SETS.to_owned(), list(&json!([]))),
    ]);
    for suffix in ["-required", "-cabundle"] {
        for (kind, object) in [
            ("validatingadmissionpolicies", policy(suffix)),
            ("validatingadmissionpolicybindings", binding(suffix)),
        ] {
            let path = format!("{ADMISSION}/{kind}/envoy-drainer{suffix}");
            answers.insert(path, found(object));
        }
    }
    answers
}

/// The response with a list of these objects.
pub(super) fn list(items: &Value) -> (u16, String) {
    let list = json!({"metadata": {}, "items": items});
    (200, list.to_string())
}

/// Replaces a flag in arguments.
pub(super) fn set_arg(args: &mut Vec<Value>, arg: &str) {
    let (flag, _) = arg.split_once('=').unwrap();
    let flag = format!("{flag}=");
    args.retain(|other| !other.as_str().unwrap().starts_with(&flag));
    args.push(json!(arg));
}

/// A pod of a StatefulSet that requests a drainer.
fn pod(name: &str, init_containers: &Value) -> Value {
    let mut pod: Value = serde_json::from_str(include_str!("check/pod.json")).unwrap();
    pod["metadata"]["name"] = json!(name);
    pod["spec"]["initContainers"] = init_containers.clone();
    pod
}

/// A pod without owner that requests a drainer.
fn standalone(namespace: &str) -> Value {
    let mut pod = pod("standalone", &json!(null));
    pod["metadata"]["namespace"] = json!(namespace);
    pod["metadata"]["ownerReferences"] = json!(null);
    pod
}

/// A ReplicaSet whose pods request a drainer and are rejected.
fn blocked(deployment: &str, reason: &str) -> Value {
    let mut set: Value = serde_json::from_str(include_str!("check/blocked.json")).unwrap();
    set["metadata"]["name"] = json!(format!("{deployment}-5b4977cc78"));
    set["metadata"]["ownerReferences"][0]["name"] = json!(deployment);
    set["status"]["conditions"][0]["message"] = json!(reason);
    set
}

fn drainer(image: &str) -> Value {
    json!({"name": "envoy-drainer", "image": image})
}

fn injected(mut pod: Value) -> (u16, Value) {
    pod["spec"]["initContainers"] = json!([drainer("a")]);
    (201, pod)
}

fn forbids(message: &str) -> (u16, Value) {
    failure_status(403, "Forbidden", message)
}

fn over_quota(_: Value) -> (u16, Value) {
    let (code, mut status) = forbids("pods \"a\" is forbidden: exceeded quota: small");
    status["details"] = json!({"name": "a", "kind": "pods"});
    (code, status)
}

/// Runs the command against a fake API server, and asserts that it writes nothing but dry runs.
async fn check(answers: Responses, judge: PodCreateResponder, args: &[&str]) -> Output {
    let api = FakeApiServer::start_cluster(answers, judge).await.unwrap();
    let mut command = api.command(&["check"], args).unwrap();
    let output = command.output().await.unwrap();
    let requests = api.take_requests().into_iter();
    let requests = requests.map(|request| request.request_line);
    for write in requests.filter(|line| !line.starts_with("GET ")) {
        let is_dry = write.starts_with("POST /api/v1/namespaces/shop/pods?");
        assert!(is_dry && write.contains("dryRun=All"), "{write}");
    }
    output
}

fn text(output: &Output) -> &str {
    str::from_utf8(&output.stdout).unwrap()
}

/// Runs it as [`check`] does, and returns its JSON report and its exit code.
async fn report(answers: Responses, judge: PodCreateResponder) -> (Value, Option<i32>) {
    let output = check(answers, judge, &["-o", "json"]).await;
    let report = serde_json::from_slice(&output.stdout).unwrap();
    (report, output.status.code())
}

/// The names and severities of a section's results.
fn severities<'a>(report: &'a Value, section: &str) -> Vec<(&'a str, &'a str)> {
    let sections = report["sections"].as_array().unwrap();
    let section = sections.iter().find(|other| other["name"] == section);
    let results = section.unwrap()["results"].as_array().unwrap();
    let text = |value: &'a Value| value.as_str().unwrap();
    results
        .iter()
        .map(|result| (text(&result["name"]), text(&result["severity"])))
        .collect()
}

#[tokio::test]
async fn text_lists_findings_with_remedies() {
    let output = check(healthy(), injected, &[]).await;
    golden::check("check/well.txt", text(&output));
    assert_eq!(output.status.code(), Some(0));

    let mut unhealthy = healthy();
    let deployments = &mut unhealthy.get_mut(DEPLOYMENTS).unwrap().1;
    *deployments = deployments.replace("\"readyReplicas\":2", "\"readyReplicas\":1");
    let pods = &mut unhealthy.get_mut(&format!("{RELEASE}/pods")).unwrap().1;
    *pods = pods.replace("\"True\"", "\"False\"");
    let policy = format!("{ADMISSION}/validatingadmissionpolicybindings/envoy-drainer-required");
    unhealthy.remove(&policy);
    let policy = format!("{ADMISSION}/validatingadmissionpolicies/envoy-drainer-cabundle");
    unhealthy.remove(&policy);
    let mut skipped = pod("edge-2", &json!(null));
    skipped["metadata"]["annotations"]["envoy-drainer.dev/status"] =
        json!("{\"skipped\":\"DRN008\"}");
    let pods = json!([
        pod("edge-0", &json!([drainer("localhost/drainer:0.0.9")])),
        pod("edge-1", &json!(null)),
        skipped,
        standalone("default"),
        standalone("kube-system"),
    ]);
    unhealthy.insert("/api/v1/pods".to_owned(), list(&pods));
    let quota = "pods \"web-5b4977cc78-2sv4r\" is forbidden: exceeded quota: small";
    let sets = json!([blocked("api", DENIAL), blocked("web", quota)]);
    unhealthy.insert(REPLICA_SETS.to_owned(), list(&sets));
    let output = check(unhealthy, |_| forbids(DENIAL), &[]).await;
    golden::check("check/ill.txt", text(&output));
    assert_eq!(output.status.code(), Some(1));
}

/// Each other test asserts that nothing is patched.
#[tokio::test]
async fn workloads_are_restarted_on_request() {
    let mut answers = healthy();
    let pods = list(&json!([pod("edge-0", &json!(null)), standalone("shop")]));
    answers.insert("/api/v1/pods".to_owned(), pods);
    let restarted = "restarted StatefulSet shop/edge";
    let forbidden = "edge: forbidden: patch statefulsets in the namespace `shop`";
    let patch = "PATCH /apis/apps/v1/namespaces/shop/statefulsets/edge?";
    let args = ["--restart", "--no-dry-run"];
    for (judge, args, code, want) in [
        (injected as PodCreateResponder, &args[..1], 0, restarted),
        (|_| forbids("no"), &args[..], 1, forbidden),
        (|_| forbids(DENIAL), &args[..1], 1, "nothing is restarted"),
    ] {
        let api = FakeApiServer::start_cluster(answers.clone(), judge).await;
        let api = api.unwrap();
        let mut command = api.command(&["check"], args).unwrap();
        let output = command.output().await.unwrap();
        let stderr = str::from_utf8(&output.stderr).unwrap();
        assert!(stderr.contains(want), "{stderr}");
        assert_eq!(output.status.code(), Some(code), "{want}");
        let requests = format!("{:?}", api.take_requests());
        assert_eq!(requests.contains(patch), want.contains("edge"), "{want}");
    }
}

/// Kubernetes 1.29 serves the group and version of the policies, but not their kinds.
#[tokio::test]
async fn policies_are_missed_where_kubernetes_has_none() {
    let mut oldest = healthy();
    for (path, response) in &mut oldest {
        if path.contains("/validatingadmissionpolic") {
            let message = "the server could not find the requested resource";
            *response = failure(404, "NotFound", message);
        }
    }
    let (report, code) = report(oldest, injected).await;
    assert_eq!(
        severities(&report, "installation"),
        [
            ("found", "ok"),
            ("replicas", "ok"),
            ("failure-policy", "warning"),
            ("service-account", "warning"),
        ]
    );
    let remedies = report.to_string().matches("needs Kubernetes 1.30").count();
    assert_eq!((remedies, code), (2, Some(0)), "{report}");
}

#[tokio::test]
async fn foreign_text_is_escaped() {
    let failure = failure(500, "InternalError", FOREIGN_TEXT);
    let mut answers = healthy();
    answers.insert("/api/v1/nodes".to_owned(), failure.clone());
    let rejected = list(&json!([blocked("web", FOREIGN_TEXT)]));
    answers.insert(REPLICA_SETS.to_owned(), rejected);
    let output = check(answers.clone(), |_| forbids(FOREIGN_TEXT), &[]).await;
    for section in text(&output).split("\n\n") {
        let has_text = ["cluster", "namespaces", "pods"]
            .iter()
            .any(|name| section.starts_with(name));
        if has_text {
            assert_escaped(section.as_bytes());
        }
    }
    answers.insert("/version".to_owned(), failure);
    assert_escaped(&check(answers, injected, &[]).await.stderr);
}

/// Helm has written values with which a replica does not start; older replicas keep working.
#[tokio::test]
async fn failed_upgrade_names_the_rollback() {
    let mut upgraded = healthy();
    let (_, deployments) = upgraded.get_mut(DEPLOYMENTS).unwrap();
    let mut edited: Value = serde_json::from_str(deployments).unwrap();
    let deployment = &mut edited["items"][0];
    deployment["status"] = json!({"replicas": 3, "readyReplicas": 2, "updatedReplicas": 1});
    let args = &mut deployment["spec"]["template"]["spec"]["containers"][0]["args"];
    set_arg(args.as_array_mut().unwrap(), "--drain-timeout=5s");
    *deployments = edited.to_string();
    let container = json!({
        "name": "webhook", "image": "", "imageID": "", "ready": false, "restartCount": 3,
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s restarting failed container"}},
    });
    let status = json!({"containerStatuses": [container]});
    let pods = json!([{"metadata": {"name": "envoy-drainer-2"}, "status": status}]);
    upgraded.insert(format!("{RELEASE}/pods"), list(&pods));
    let output = check(upgraded.clone(), injected, &[]).await;
    golden::check("check/upgraded.txt", text(&output));
    assert_eq!(output.status.code(), Some(0));
    let output = check(upgraded, injected, &["--strict"]).await;
    assert_eq!(output.status.code(), Some(1));
}

#[tokio::test]
async fn json_has_the_same_results() {
    let (fine, code) = report(healthy(), injected).await;
    assert_eq!((&fine["healthy"], code), (&json!(true), Some(0)));
    let namespaces = [("opted-in", "ok"), ("dry-run", "ok")];
    assert_eq!(severities(&fine, "namespaces"), namespaces);
    assert_eq!(severities(&fine, "certificates"), [("ca-bundle", "ok")]);
    let output = check(healthy(), over_quota, &["-o", "json"]).await;
    golden::check("check/rejected.json", text(&output));
    assert_eq!(output.status.code(), Some(0));
    let output = check(healthy(), over_quota, &["--strict"]).await;
    assert_eq!(output.status.code(), Some(1));
}

#[tokio::test]
async fn unreadable_objects_do_not_stop_other_checks() {
    let version = healthy()["/version"].clone();
    let invalid = r#"null | { | {"items": null} | {"items": [{}]} | {"items": [{"spec": 7}]}"#;
    let invalid = invalid.split(" | ").map(|it| (200, it.to_owned()));
    let failures = [(500, String::new()), failure(403, "Forbidden", "no")];
    let wrong: Vec<_> = invalid.chain(failures).collect();
    let mut runs = JoinSet::new();
    for path in healthy().into_keys().filter(|path| path != "/version") {
        let wrong = wrong.clone();
        runs.spawn(async move {
            for answer in wrong {
                let mut answers = healthy();
                answers.insert(path.clone(), answer.clone());
                let (report, _) = report(answers, injected).await;
                let count = report["sections"].as_array().unwrap().len();
                let is_complete = count == 6 || path == CONFIGURATIONS;
                assert!(is_complete, "{path} {answer:?}: {report}");
            }
        });
    }
    while let Some(run) = runs.join_next().await {
        run.unwrap();
    }
    let nothing = Responses::from([("/version".to_owned(), version)]);
    let (report, code) = report(nothing, injected).await;
    assert_eq!(severities(&report, "installation"), [("found", "unknown")]);
    assert_eq!((&report["healthy"], code), (&Value::Null, Some(3)));
}

#[tokio::test]
async fn health_is_unknown_while_blocking_checks_are() {
    fn forbidden(path: &str) -> Responses {
        let mut answers = healthy();
        answers.insert(path.to_owned(), failure(403, "Forbidden", "no"));
        answers
    }
    fn forbids_dry_runs(_: Value) -> (u16, Value) {
        let (code, mut status) = forbids("pods is forbidden: User \"a\" cannot create resource");
        status["details"] = json!({"kind": "pods"});
        (code, status)
    }
    fn dry_runs_are_unsupported(_: Value) -> (u16, Value) {
        let message = "admission webhook \"a\" does not support dry run";
        failure_status(400, "BadRequest", message)
    }
    let injected: PodCreateResponder = injected;
    for (answers, judge, works) in [
        (forbidden("/api/v1/nodes"), injected, Some(true)),
        (forbidden("/api/v1/pods"), injected, Some(true)),
        (forbidden(REPLICA_SETS), injected, Some(true)),
        (forbidden(CONFIGURATIONS), injected, None),
        (forbidden(DEPLOYMENTS), injected, None),
        // The Deployment says how many are ready; its pods only say why not all are.
        (forbidden(&format!("{RELEASE}/pods")), injected, Some(true)),
        (forbidden("/api/v1/namespaces"), injected, None),
        (healthy(), forbids_dry_runs, None),
        (healthy(), dry_runs_are_unsupported, None),
    ] {
        let (report, code) = report(answers.clone(), judge).await;
        assert_eq!(report["healthy"], json!(works), "{report}");
        assert_eq!(code, Some(if works.is_none() { 3 } else { 0 }));
        let output = check(answers, judge, &[]).await;
        let last = text(&output).lines().last().unwrap();
        let unknown =
            "unknown whether envoy-drainer works: some required objects could not be read (";
        let is_unknown = last.starts_with(unknown);
        assert_eq!(is_unknown, works.is_none(), "{last}");
    }
}

#[tokio::test]
async fn pages_before_a_failed_one_count() {
    let mut answers = healthy();
    let first = json!({
        "metadata": {"continue": "abc"},
        "items": [pod("edge-0", &json!([drainer("localhost/drainer:0.1.0")]))],
    });
    let second = json!({"metadata": {"continue": "def"}, "items": [pod("edge-1", &json!(null))]});
    let second = (200, second.to_string());
    let gone = failure(410, "Expired", "the list is too old");
    answers.extend([
        ("/api/v1/pods".to_owned(), (200, first.to_string())),
        ("/api/v1/pods?continue=abc".to_owned(), second),
        ("/api/v1/pods?continue=def".to_owned(), gone),
    ]);
    let (report, _) = report(answers, injected).await;
    let want = [
        ("injected", "ok"),
        ("pods", "unknown"),
        ("without-drainer", "warning"),
    ];
    assert_eq!(severities(&report, "pods"), want);
}

#[tokio::test]
async fn unreachable_cluster_exits_with_3() {
    let output = Command::new(binaries::envoy_drainer().unwrap())
        .args(["check", "--kubeconfig", "/no/such/file"])
        .env_clear()
        .output()
        .await
        .unwrap();
    assert_eq!(output.status.code(), Some(3));
    let stderr = String::from_utf8(output.stderr).unwrap();
    let unusable = "error: cannot use the kubeconfig: ";
    assert!(stderr.starts_with(unusable), "{stderr}");
    let unauthorized = failure(401, "Unauthorized", "Unauthorized");
    let answers = Responses::from([("/version".to_owned(), unauthorized)]);
    let output = check(answers.clone(), injected, &[]).await;
    assert_eq!(output.status.code(), Some(3));
    let stderr = String::from_utf8(output.stderr).unwrap();
    let log_in = ": unauthorized: log in to the cluster\n";
    assert!(stderr.ends_with(log_in), "{stderr}");
    let output = check(answers.clone(), injected, &["--no-such-flag"]).await;
    assert_eq!(output.status.code(), Some(2));
    let output = check(answers, injected, &["--context", "other"]).await;
    assert_eq!(output.status.code(), Some(3));
}

#[tokio::test]
async fn rights_in_one_namespace_are_enough() {
    let all = healthy();
    let namespace: Value = serde_json::from_str(&all["/api/v1/namespaces"].1).unwrap();
    let mut answers = Responses::from([
        ("/version".to_owned(), all["/version"].clone()),
        (CONFIGURATIONS.to_owned(), failure(403, "Forbidden", "no")),
        (
            "/api/v1/namespaces/shop".to_owned(),
            (200, namespace["items"][0].to_string()),
        ),
    ]);
    for (group, kind) in [("/api/v1", "pods"), ("/apis/apps/v1", "replicasets")] {
        let list = all[&format!("{group}/{kind}")].clone();
        answers.insert(format!("{group}/namespaces/shop/{kind}"), list);
    }
    let not_injected = |pod| (201, pod);
    let injected: PodCreateResponder = injected;
    for (judge, args, code, summary) in [
        (injected, &[][..], 0, "envoy-drainer works, as far as"),
        (not_injected, &[], 1, "envoy-drainer does not work"),
        (injected, &["--no-dry-run"], 3, "unknown whether"),
        (injected, &["--strict"], 3, "envoy-drainer works, as far as"),
    ] {
        let args = [&["--namespace", "shop"], args].concat();
        let output = check(answers.clone(), judge, &args).await;
        let last = text(&output).lines().last().unwrap();
        assert!(last.starts_with(summary), "{args:?}: {}", text(&output));
        assert_eq!(output.status.code(), Some(code), "{args:?}");
    }
    // Nothing shows that the webhook is called.
    answers.get_mut("/api/v1/namespaces/shop").unwrap().1 =
        r#"{"metadata":{"name":"shop"}}"#.into();
    let output = check(answers, injected, &["--namespace", "shop"]).await;
    assert_eq!(output.status.code(), Some(3), "{}", text(&output));
}

#[tokio::test]
async fn version_is_compared_with_the_installations() {
    let (_, configurations) = healthy()[CONFIGURATIONS].clone();
    let other = configurations.replace("/version\":\"0.1.0", "/version\":\"0.0.9");
    let table = [
        ((200, configurations), 0, "envoy-drainer 0.1.0 is installed"),
        ((200, other), 1, "version 0.1.0, the installation 0.0.9"),
        (failure(403, "Forbidden", "no"), 3, "is unknown: forbidden"),
    ];
    for (configurations, code, want) in table {
        let answers = [(CONFIGURATIONS.to_owned(), configurations)].into();
        let api = FakeApiServer::start_cluster(answers, injected).await;
        let mut command = api.as_ref().unwrap().command(&["version"], &[]).unwrap();
        let output = command.output().await.unwrap();
        assert!(text(&output).contains(want), "{output:?}");
        assert_eq!(output.status.code(), Some(code), "{output:?}");
    }
}

#[tokio::test]
async fn interrupted_wait_keeps_what_was_found() {
    let mut answers = healthy();
    answers.remove(DEPLOYMENTS);
    let api = FakeApiServer::start_cluster(answers, injected)
        .await
        .unwrap();
    let mut command = api.command(&["check"], &["--wait", "10m"]).unwrap();
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut progress = BufReader::new(child.stderr.take().unwrap()).lines();
    let line = progress.next_line().await.unwrap().unwrap();
    let waits = "waiting: unknown whether envoy-drainer works: some required objects could not";
    assert!(line.starts_with(waits), "{line}");
    let pid = i32::try_from(child.id().unwrap()).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::INT).unwrap();
    let output = child.wait_with_output().await.unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output).contains("1 pod has a drainer"), "{output:?}");
}

/// kubectl skips files that do not exist, trims tokens, and knows these proxies.
#[tokio::test]
async fn kubeconfigs_are_read_as_by_kubectl() {
    let folder = tempfile::tempdir().unwrap();
    let [token, config] = ["token", "config"].map(|name| folder.path().join(name));
    std::fs::write(&token, "abc\n").unwrap();
    let api = FakeApiServer::start_cluster(healthy(), injected)
        .await
        .unwrap();
    for (proxy, code) in [(Value::Null, 0), (json!("socks5://127.0.0.1:1"), 3)] {
        let text = std::fs::read_to_string(api.kubeconfig()).unwrap();
        let mut kubeconfig: Value = serde_json::from_str(&text).unwrap();
        kubeconfig["users"][0]["user"] = json!({ "tokenFile": token });
        kubeconfig["clusters"][0]["cluster"]["proxy-url"] = proxy;
        std::fs::write(&config, kubeconfig.to_string()).unwrap();
        let mut command = api.command(&["check"], &[]).unwrap();
        let paths = format!("/no/such/file:{}", config.display());
        let output = command.env("KUBECONFIG", paths).output().await.unwrap();
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(error.contains("did not respond"), code == 3, "{error}");
    }
}
