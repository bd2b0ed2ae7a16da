//! `check`: what it tells of a cluster, says by its exit code, and does to the cluster, which is nothing.

use std::fs;
use std::process::Output;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tests::api_server::{FakeApiServer, PodCreateResponder, Responses, failure_status};
use tests::helm::{object, objects};
use tests::{binaries, golden};
use tokio::process::Command;
use tokio::task::JoinSet;
use webhook::certificates::pki::ca::Ca;
use webhook::clock::wall_clock;

const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";
const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
const RELEASE: &str = "/api/v1/namespaces/envoy-drainer";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/envoy-drainer/deployments";
const REPLICA_SETS: &str = "/apis/apps/v1/replicasets";

/// A cluster in which all is well: the chart's objects, as it renders them by default, a namespace
/// that has opted in, and a pod with a drainer.
fn healthy_cluster() -> Responses {
    let chart = objects(&golden::read("chart/defaults.yaml"));
    let policy = |suffix: &str| object(&chart, "ValidatingAdmissionPolicy", suffix).clone();
    let binding = |suffix: &str| object(&chart, "ValidatingAdmissionPolicyBinding", suffix).clone();
    let object = |kind: &str| object(&chart, kind, "").clone();
    let list = |items: Value| json!({"metadata": {}, "items": items});

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
        // Its kubelet has yet to say so: nobody could call it through this API server.
        "status": {"conditions": []},
    });
    let namespace = |name: &str, injection: &str| {
        json!({"metadata": {"name": name, "labels": {
            "kubernetes.io/metadata.name": name,
            "envoy-drainer.dev/injection": injection,
        }}})
    };
    let node = json!({
        "metadata": {"name": "node-1"},
        "status": {"nodeInfo": {
            "architecture": "", "bootID": "", "containerRuntimeVersion": "", "kernelVersion": "",
            "kubeProxyVersion": "", "kubeletVersion": "v1.34.4", "machineID": "",
            "operatingSystem": "linux", "osImage": "", "systemUUID": "",
        }},
    });
    let version = json!({
        "major": "1", "minor": "34", "gitVersion": "v1.34.4", "buildDate": "", "compiler": "",
        "gitCommit": "", "gitTreeState": "", "goVersion": "", "platform": "",
    });
    let answers = [
        ("/version".to_owned(), version),
        (CONFIGURATIONS.to_owned(), list(json!([configuration]))),
        (
            format!("{RELEASE}/services/envoy-drainer"),
            object("Service"),
        ),
        (DEPLOYMENTS.to_owned(), list(json!([deployment]))),
        (format!("{RELEASE}/pods"), list(json!([replica]))),
        (
            format!("{ADMISSION}/validatingadmissionpolicies/envoy-drainer-seen"),
            policy("-seen"),
        ),
        (
            format!("{ADMISSION}/validatingadmissionpolicybindings/envoy-drainer-seen"),
            binding("-seen"),
        ),
        (
            format!("{ADMISSION}/validatingadmissionpolicies/envoy-drainer-cabundle"),
            policy("-cabundle"),
        ),
        (
            format!("{ADMISSION}/validatingadmissionpolicybindings/envoy-drainer-cabundle"),
            binding("-cabundle"),
        ),
        ("/api/v1/nodes".to_owned(), list(json!([node]))),
        (
            "/api/v1/namespaces".to_owned(),
            list(json!([
                namespace("shop", "enabled"),
                namespace("default", "disabled")
            ])),
        ),
        (
            "/api/v1/pods".to_owned(),
            list(json!([pod(
                "edge-0",
                &json!([drainer("localhost/drainer:0.1.0")])
            )])),
        ),
        (REPLICA_SETS.to_owned(), list(json!([]))),
    ];
    answers
        .into_iter()
        .map(|(path, document)| (path, (200, document.to_string())))
        .collect()
}

/// A pod that asks, of a StatefulSet.
fn pod(name: &str, init_containers: &Value) -> Value {
    let owner = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "edge", "uid": "1", "controller": true,
    });
    json!({
        "metadata": {
            "name": name,
            "namespace": "shop",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": {"envoy-drainer.dev/inject": "true"},
            "ownerReferences": [owner],
        },
        "spec": {"containers": [{"name": "envoy"}], "initContainers": init_containers},
    })
}

/// A pod that asks and is nobody's.
fn bare_pod(namespace: &str) -> Value {
    let mut pod = pod("alone", &json!(null));
    pod["metadata"]["namespace"] = json!(namespace);
    pod["metadata"]["ownerReferences"] = json!(null);
    pod
}

/// A ReplicaSet whose pods ask and are refused.
fn blocked_replica_set(deployment: &str, why: &str) -> Value {
    let owner = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "name": deployment, "uid": "1", "controller": true,
    });
    let name = format!("{deployment}-5b4977cc78");
    let condition = json!({
        "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": why,
    });
    json!({
        "metadata": {"name": name, "namespace": "shop", "ownerReferences": [owner]},
        "spec": {
            "replicas": 1,
            "selector": {},
            "template": {
                "metadata": {"annotations": {"envoy-drainer.dev/inject": "true"}},
                "spec": {"containers": [{"name": "envoy"}]},
            },
        },
        "status": {"replicas": 0, "conditions": [condition]},
    })
}

fn drainer(image: &str) -> Value {
    json!({"name": "envoy-drainer", "image": image})
}

fn inject_drainer(mut pod: Value) -> (u16, Value) {
    pod["spec"]["initContainers"] = json!([drainer("a")]);
    (201, pod)
}

fn deny_over_quota(pod: Value) -> (u16, Value) {
    match pod["metadata"]["annotations"].is_null() {
        true => (201, pod),
        false => failure_status(
            403,
            "Forbidden",
            "pods \"a\" is forbidden: exceeded quota: small",
        ),
    }
}

/// Runs the command against a fake API server, which sees no write but dry runs.
async fn check(answers: Responses, judge: PodCreateResponder, args: &[&str]) -> Output {
    let api = FakeApiServer::start_cluster(answers, judge).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    fs::write(&kubeconfig, api.kubeconfig()).unwrap();
    let output = Command::new(binaries::envoy_drainer().unwrap())
        .arg("check")
        .args(args)
        .env_clear()
        .env("KUBECONFIG", kubeconfig)
        .output()
        .await
        .unwrap();
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

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The marks of a section's points, by their names.
fn severities<'a>(report: &'a Value, section: &str) -> Vec<(&'a str, &'a str)> {
    let sections = report["sections"].as_array().unwrap();
    let section = sections.iter().find(|other| other["name"] == section);
    let points = section.unwrap()["points"].as_array().unwrap();
    let text = |value: &'a Value| value.as_str().unwrap();
    points
        .iter()
        .map(|point| (text(&point["name"]), text(&point["mark"])))
        .collect()
}

#[tokio::test]
async fn a_person_reads_what_is_well_and_what_is_not() {
    let output = check(healthy_cluster(), inject_drainer, &[]).await;
    golden::check("check/well.txt", text(&output));
    assert_eq!(output.status.code(), Some(0));

    let mut ill = healthy_cluster();
    let deployments = &mut ill.get_mut(DEPLOYMENTS).unwrap().1;
    *deployments = deployments.replace("\"readyReplicas\":2", "\"readyReplicas\":1");
    let policy = format!("{ADMISSION}/validatingadmissionpolicybindings/envoy-drainer-seen");
    ill.remove(&policy);
    let policy = format!("{ADMISSION}/validatingadmissionpolicies/envoy-drainer-cabundle");
    ill.remove(&policy);
    let pods = json!({"metadata": {}, "items": [
        pod("edge-0", &json!([drainer("localhost/drainer:0.0.9")])),
        pod("edge-1", &json!(null)),
        bare_pod("default"),
        bare_pod("kube-system"),
    ]});
    ill.insert("/api/v1/pods".to_owned(), (200, pods.to_string()));
    let denied = "admission webhook \"pods.envoy-drainer.dev\" denied the request: DRN023: no volume at `/run`";
    let sets = json!({"metadata": {}, "items": [
        blocked_replica_set("api", denied),
        blocked_replica_set("web", "pods \"web-5b4977cc78-2sv4r\" is forbidden: exceeded quota: small"),
    ]});
    ill.insert(REPLICA_SETS.to_owned(), (200, sets.to_string()));
    let output = check(ill, deny_over_quota, &[]).await;
    golden::check("check/ill.txt", text(&output));
    assert_eq!(output.status.code(), Some(1));
}

/// Helm has written values that a replica does not start with; those before go on to work.
#[tokio::test]
async fn a_person_reads_how_to_come_back_from_an_upgrade_that_went_wrong() {
    let mut upgraded = healthy_cluster();
    let (_, deployments) = upgraded.get_mut(DEPLOYMENTS).unwrap();
    let mut list: Value = serde_json::from_str(deployments).unwrap();
    let deployment = &mut list["items"][0];
    deployment["status"] = json!({"replicas": 3, "readyReplicas": 2, "updatedReplicas": 1});
    let args = &mut deployment["spec"]["template"]["spec"]["containers"][0]["args"];
    args.as_array_mut()
        .unwrap()
        .push(json!("--drain-timeout=5s"));
    *deployments = list.to_string();
    let container = json!({
        "name": "webhook", "image": "", "imageID": "", "ready": false, "restartCount": 3,
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s restarting failed container"}},
    });
    let pods = json!({"metadata": {}, "items": [
        {"metadata": {"name": "envoy-drainer-2"}, "status": {"containerStatuses": [container]}},
    ]});
    upgraded.insert(format!("{RELEASE}/pods"), (200, pods.to_string()));
    let output = check(upgraded, inject_drainer, &[]).await;
    golden::check("check/upgraded.txt", text(&output));
    assert_eq!(output.status.code(), Some(0));
}

#[tokio::test]
async fn programs_read_the_same() {
    let output = check(healthy_cluster(), inject_drainer, &["-o", "json"]).await;
    let report = json(&output);
    assert_eq!(report["works"], true);
    assert_eq!(
        severities(&report, "namespaces"),
        [("opted-in", "ok"), ("trial", "ok")]
    );
    assert_eq!(severities(&report, "certificates"), [("ca-bundle", "ok")]);
    assert_eq!(output.status.code(), Some(0));
    let output = check(healthy_cluster(), deny_over_quota, &["-o", "json"]).await;
    let report = json(&output);
    assert_eq!(report["works"], false);
    let trial = &report["sections"][4]["points"][1];
    assert_eq!(
        *trial,
        json!({
            "name": "trial",
            "mark": "error",
            "about": {"kind": "Namespace", "namespace": null, "name": "shop"},
            "message": "a pod with a drainer is refused in `shop`, and one without is not (dry run): pods \"a\" is forbidden: exceeded quota: small",
            "remedy": "raise the ResourceQuota, or lower what drainers request (`drainer` in the chart's values)",
            "commands": [],
        })
    );
    assert_eq!(output.status.code(), Some(1));
}

#[tokio::test]
async fn whatever_cannot_be_read_is_unknown_and_the_rest_is_told() {
    let version = healthy_cluster()["/version"].clone();
    let (code, why) = failure_status(403, "Forbidden", "no");
    let forbidden = (code, why.to_string());
    let odd = [
        "null",
        "{",
        "{\"items\": null}",
        "{\"items\": [{}]}",
        "{\"items\": [{\"spec\": 7}]}",
    ];
    let odd = odd.map(|document| (200, document.to_owned()));
    let wrong: Vec<_> = odd
        .into_iter()
        .chain([(500, String::new()), forbidden])
        .collect();
    let mut runs = JoinSet::new();
    for path in healthy_cluster()
        .into_keys()
        .filter(|path| path != "/version")
    {
        let wrong = wrong.clone();
        runs.spawn(async move {
            for answer in wrong {
                let mut answers = healthy_cluster();
                answers.insert(path.clone(), answer.clone());
                let output = check(answers, inject_drainer, &["-o", "json"]).await;
                // It tells something, to the end.
                let report = json(&output);
                let many = report["sections"].as_array().unwrap().len();
                assert!(
                    many == 6 || path == CONFIGURATIONS,
                    "{path} {answer:?}: {report}"
                );
            }
        });
    }
    while let Some(run) = runs.join_next().await {
        run.unwrap();
    }
    let nothing = Responses::from([("/version".to_owned(), version)]);
    let output = check(nothing, inject_drainer, &["-o", "json"]).await;
    let report = json(&output);
    assert_eq!(severities(&report, "installation"), [("found", "unknown")]);
    assert_eq!(report["works"], Value::Null);
    assert_eq!(output.status.code(), Some(1));
}

#[tokio::test]
async fn whether_it_works_is_not_known_while_what_decides_is_not() {
    fn hide_path(path: &str) -> Responses {
        let mut answers = healthy_cluster();
        let (forbidden, why) = failure_status(403, "Forbidden", "no");
        answers.insert(path.to_owned(), (forbidden, why.to_string()));
        answers
    }
    fn hide_dry_runs(_: Value) -> (u16, Value) {
        failure_status(403, "Forbidden", "forbidden: User cannot create resource")
    }
    let mut hides_replicas = hide_path(&format!("{RELEASE}/pods/envoy-drainer-1/portforward"));
    let pods = &mut hides_replicas
        .get_mut(&format!("{RELEASE}/pods"))
        .unwrap()
        .1;
    let ready = r#""conditions":[{"type":"Ready","status":"True"}]"#;
    *pods = pods.replace(r#""conditions":[]"#, ready);
    for (answers, judge, works) in [
        (
            hide_path("/api/v1/nodes"),
            inject_drainer as PodCreateResponder,
            Some(true),
        ),
        (hide_path("/api/v1/pods"), inject_drainer, Some(true)),
        (hide_path(REPLICA_SETS), inject_drainer, Some(true)),
        (hide_path(CONFIGURATIONS), inject_drainer, None),
        (hide_path(DEPLOYMENTS), inject_drainer, None),
        (hide_path(&format!("{RELEASE}/pods")), inject_drainer, None),
        (hide_path("/api/v1/namespaces"), inject_drainer, None),
        (hides_replicas, inject_drainer, None),
        (healthy_cluster(), hide_dry_runs, None),
    ] {
        let output = check(answers.clone(), judge, &["-o", "json"]).await;
        let report = json(&output);
        assert_eq!(report["works"], json!(works), "{report}");
        let code = if works == Some(true) { 0 } else { 1 };
        assert_eq!(output.status.code(), Some(code));
        let output = check(answers, judge, &[]).await;
        let last = text(&output).lines().last().unwrap();
        let cannot = last.starts_with("whether envoy-drainer works cannot be found out: ");
        assert_eq!(cannot, works.is_none(), "{last}");
    }
}

#[tokio::test]
async fn what_was_seen_of_a_long_list_counts_if_its_end_is_not() {
    let mut answers = healthy_cluster();
    let first = json!({
        "metadata": {"continue": "abc"},
        "items": [pod("edge-0", &json!([drainer("localhost/drainer:0.1.0")]))],
    });
    let second = json!({"metadata": {"continue": "def"}, "items": [pod("edge-1", &json!(null))]});
    let (gone, why) = failure_status(410, "Expired", "the list is too old");
    answers.insert("/api/v1/pods".to_owned(), (200, first.to_string()));
    answers.insert(
        "/api/v1/pods?continue=abc".to_owned(),
        (200, second.to_string()),
    );
    answers.insert(
        "/api/v1/pods?continue=def".to_owned(),
        (gone, why.to_string()),
    );
    let output = check(answers, inject_drainer, &["-o", "json"]).await;
    assert_eq!(
        severities(&json(&output), "pods"),
        [
            ("injected", "ok"),
            ("pods", "unknown"),
            ("without-drainer", "warning")
        ]
    );
}

#[tokio::test]
async fn a_cluster_that_does_not_answer_is_no_wrong_usage() {
    let unreached = Command::new(binaries::envoy_drainer().unwrap())
        .args(["check", "--kubeconfig", "/no/such/file"])
        .env_clear()
        .output()
        .await
        .unwrap();
    assert_eq!(unreached.status.code(), Some(1));
    assert!(
        unreached
            .stderr
            .starts_with(b"error: cannot use the kubeconfig: ")
    );
    let (code, why) = failure_status(401, "Unauthorized", "Unauthorized");
    let answers = Responses::from([("/version".to_owned(), (code, why.to_string()))]);
    let output = check(answers.clone(), inject_drainer, &[]).await;
    assert_eq!(output.status.code(), Some(1));
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(
        told.ends_with("does not know who you are: log in\n"),
        "{told}"
    );
    let output = check(answers.clone(), inject_drainer, &["--no-such-flag"]).await;
    assert_eq!(output.status.code(), Some(2));
    let output = check(answers, inject_drainer, &["--context", "other"]).await;
    assert_eq!(output.status.code(), Some(1));
}
