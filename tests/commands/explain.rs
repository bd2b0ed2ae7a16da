//! `envoy-drainer explain` for objects of a cluster, and its timeline with a wait for a replacement.

use std::fs;
use std::process::Output;

use admission::{Defaults, DrainerApiDefaults};
use ctl::cli::explain::ExplainReport;
use ctl::offline::Input;
use serde_json::{Value, json};
use tests::api_server::{FakeApiServer, Responses, failure};
use tests::foreign_text::{FOREIGN_TEXT, assert_escaped};
use tests::review::{ReviewBuilder, defaults};
use tests::{binaries, golden};
use tokio::process::Command;

use super::check::{CONFIGURATIONS, DEPLOYMENTS, healthy, list, set_arg};
use super::text;

const PREFIX: &str = "envoy-drainer.dev/";

/// A pod that requests a drainer, with these other annotations under the prefix.
fn pod(annotations: &[(&str, &str)]) -> Value {
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "web-0",
            "namespace": "shop",
            "managedFields": [{"manager": "kubelet", "time": "9999-12-31T23:59:59Z"}],
            "annotations": {"envoy-drainer.dev/inject": "true"},
        },
        "spec": {"containers": [{"name": "envoy", "image": "envoyproxy/envoy:v1.36.2"}]},
        "status": {"phase": "Running"},
    });
    for (name, value) in annotations {
        pod["metadata"]["annotations"][format!("{PREFIX}{name}")] = json!(value);
    }
    pod
}

/// The pod as the webhook admits it.
fn admitted(pod: &Value) -> Value {
    let review = ReviewBuilder::for_pod(pod);
    review.admit(&defaults()).pod
}

fn deployment() -> Value {
    let template = pod(&[("drain-delay", "5s")]);
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop", "resourceVersion": "7"},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"annotations": template["metadata"]["annotations"]}, "spec": template["spec"]},
        },
        "status": {"replicas": 1},
    })
}

async fn explain(responses: Responses, args: &[&str]) -> Output {
    let api = FakeApiServer::start_cluster(responses, |_| (405, json!(null)))
        .await
        .unwrap();
    let command = api.command(&["explain", "--namespace", "shop"], args);
    let output = command.unwrap().output().await.unwrap();
    let mut requests = api.take_requests().into_iter();
    assert!(requests.all(|request| request.request_line.starts_with("GET ")));
    output
}

fn responses(path: &str, object: &Value) -> Responses {
    [(path.to_owned(), (200, object.to_string()))].into()
}

/// Asserts that the output has all of these parts.
#[track_caller]
fn assert_has(output: &Output, parts: &[&str]) {
    let stdout = text(&output.stdout);
    for part in parts {
        assert!(stdout.contains(part), "{part}: {stdout}");
    }
}

const POD: &str = "/api/v1/namespaces/shop/pods/web-0";
const NAMESPACE: &str = "/api/v1/namespaces/shop";
const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/shop/deployments/web";

#[tokio::test]
async fn running_pod_is_explained_by_its_drainer() {
    let mut running = admitted(&pod(&[("drain-timeout", "90s"), ("drain-delay", "5s")]));
    // Annotated later, without effect.
    running["metadata"]["annotations"][format!("{PREFIX}drain-timeout")] = json!("45s");
    let output = explain(responses(POD, &running), &["pod/web-0"]).await;
    golden::check("explain/running.txt", text(&output.stdout));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let output = explain(responses(POD, &running), &["po/web-0", "-o", "json"]).await;
    golden::check("explain/running.json", text(&output.stdout));
}

#[tokio::test]
async fn foreign_text_is_escaped() {
    let mut running = admitted(&pod(&[("drain-timeout", "90s")]));
    running["metadata"]["annotations"][format!("{PREFIX}drain-timeout")] = json!(FOREIGN_TEXT);
    let output = explain(responses(POD, &running), &["pod/web-0"]).await;
    assert_escaped(&output.stdout);
    let failure = failure(500, "InternalError", FOREIGN_TEXT);
    let output = explain([(POD.to_owned(), failure)].into(), &["pod/web-0"]).await;
    assert_escaped(&output.stderr);
}

#[tokio::test]
async fn pod_of_version_0_1_0_is_explained_by_its_drainer() {
    let pod: Value = serde_saphyr::from_str(&golden::read("injected-0.1.0.yaml")).unwrap();
    let path = "/api/v1/namespaces/shop/pods/bare";
    let output = explain(responses(path, &pod), &["pod/bare"]).await;
    let stdout = text(&output.stdout);
    assert!(stdout.starts_with("✔ Pod bare has a drainer\n"), "{stdout}");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[tokio::test]
async fn pod_without_drainer_is_explained_by_admission() {
    let output = explain(responses(POD, &pod(&[])), &["pods/web-0"]).await;
    golden::check("explain/missing.txt", text(&output.stdout));
    assert_eq!(output.status.code(), Some(1));
    let mut skipped = pod(&[("status", r#"{"skipped":"DRN008"}"#)]);
    skipped["spec"]["containers"][0]["lifecycle"] = json!({"preStop": {"sleep": {"seconds": 5}}});
    let output = explain(responses(POD, &skipped), &["pod/web-0"]).await;
    golden::check("explain/skipped.txt", text(&output.stdout));
}

#[tokio::test]
async fn workload_is_explained_by_its_template() {
    for name in ["deploy/web", "deployment/web", "deployments/web"] {
        let output = explain(responses(DEPLOYMENT, &deployment()), &[name]).await;
        golden::check("explain/deployment.txt", text(&output.stdout));
        // The installation's defaults are unknown.
        assert_eq!(output.status.code(), Some(3), "{output:?}");
    }
}

/// The Deployment `web` in a cluster with an installation whose `serve` has these further arguments, and a namespace
/// with these labels.
fn installed(args: &[&str], labels: &Value) -> Responses {
    let mut responses = healthy();
    let (_, deployments) = responses.get_mut(DEPLOYMENTS).unwrap();
    let mut list: Value = serde_json::from_str(deployments).unwrap();
    let container = &mut list["items"][0]["spec"]["template"]["spec"]["containers"][0];
    let serve_args = container["args"].as_array_mut().unwrap();
    for arg in args {
        set_arg(serve_args, arg);
    }
    *deployments = list.to_string();
    let namespace = json!({"metadata": {"name": "shop", "labels": labels}});
    responses.insert(NAMESPACE.to_owned(), (200, namespace.to_string()));
    responses.insert(DEPLOYMENT.to_owned(), (200, deployment().to_string()));
    responses
}

#[tokio::test]
async fn workload_gets_the_defaults_of_the_installation() {
    let labels = json!({"envoy-drainer.dev/injection": "enabled"});
    let installed = || installed(&["--idle-exit=20s"], &labels);
    let output = explain(installed(), &["deploy/web"]).await;
    assert_has(&output, &["idle-exit                20s"]);
    assert_eq!(text(&output.stderr), "");
    let output = explain(installed(), &["deploy/web", "--drain-timeout=50s"]).await;
    let defaults = [
        "idle-exit                 7s",
        "drain-timeout            50s",
    ];
    assert_has(&output, &defaults);
}

#[tokio::test]
async fn gateway_stands_for_its_workloads() {
    let mut responses = installed(&[], &json!({"envoy-drainer.dev/injection": "enabled"}));
    let labels = json!({
        "gateway.envoyproxy.io/owning-gateway-name": "eg",
        "gateway.envoyproxy.io/owning-gateway-namespace": "shop",
    });
    let mut of_gateway = deployment();
    of_gateway["metadata"]["labels"] = labels;
    let mut of_another = of_gateway.clone();
    of_another["metadata"]["labels"]["gateway.envoyproxy.io/owning-gateway-namespace"] =
        json!("back");
    let deployments = list(&json!([of_another, of_gateway]));
    responses.insert("/apis/apps/v1/deployments".to_owned(), deployments);
    let none = list(&json!([]));
    responses.insert("/apis/apps/v1/daemonsets".to_owned(), none.clone());
    let output = explain(responses.clone(), &["gateway/eg"]).await;
    let stdout = text(&output.stdout);
    assert_eq!(
        stdout.matches("Deployment shop/web gets a drainer").count(),
        1,
        "{stdout}"
    );
    responses.insert("/apis/apps/v1/deployments".to_owned(), none);
    let output = explain(responses, &["gtw/other"]).await;
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(
        text(&output.stderr).contains("of the Gateway `other`"),
        "{output:?}"
    );
}

#[tokio::test]
async fn what_the_cluster_knows_of_the_pods_is_explained() {
    let mut responses = installed(&[], &json!({"envoy-drainer.dev/injection": "all"}));
    let mut deployment = deployment();
    let template = &mut deployment["spec"]["template"];
    let settings = json!({"envoy-drainer.dev/drain-timeout": "90s"});
    template["metadata"] = json!({"labels": {"app": "web"}, "annotations": settings});
    template["spec"] = json!({
        "containers": [{
            "name": "envoy",
            "image": "envoyproxy/envoy:v1.40.0",
            "args": ["-c", "/etc/envoy/envoy.yaml"],
            "volumeMounts": [{"name": "c", "mountPath": "/etc/envoy"}],
        }],
        "volumes": [{"name": "c", "configMap": {"name": "edge"}}],
    });
    responses.insert(DEPLOYMENT.to_owned(), (200, deployment.to_string()));
    let config_map = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "edge", "namespace": "shop"},
        "data": {"envoy.yaml": "static_resources: {} # no admin"},
    });
    let path = "/api/v1/namespaces/shop/configmaps/edge".to_owned();
    responses.insert(path, (200, config_map.to_string()));
    let service = json!({
        "metadata": {"name": "edge", "namespace": "shop"},
        "spec": {"type": "LoadBalancer", "selector": {"app": "web"}},
    });
    let path = "/api/v1/namespaces/shop/services".to_owned();
    responses.insert(path, list(&json!([service])));
    let output = explain(responses, &["deploy/web"]).await;
    let config_map = ["DRN076", "the ConfigMap `edge`"];
    let service = ["DRN084", "the Service `edge`"];
    let headline = ["! Deployment shop/web gets a drainer, but cannot be drained"];
    assert_has(&output, &[&headline, &config_map[..], &service].concat());
    assert_eq!(output.status.code(), Some(1));
    // The label requests the drainer, so settings need no `inject`.
    let stdout = text(&output.stdout);
    assert!(!stdout.contains("DRN060"), "{stdout}");
}

#[tokio::test]
async fn workload_in_another_namespace_gets_no_drainer() {
    let key = "envoy-drainer.dev/injection";
    for (labels, reason) in [
        (
            json!({}),
            "the namespace `shop` has not opted in: it has no label envoy-drainer.dev/injection; run `kubectl label namespace shop envoy-drainer.dev/injection=enabled --overwrite`",
        ),
        (
            json!({key: "yes"}),
            "its label envoy-drainer.dev/injection is `yes`, not `enabled`; run `kubectl label namespace shop envoy-drainer.dev/injection=enabled --overwrite`",
        ),
        (
            json!({key: "enabled", "kubernetes.io/metadata.name": "kube-system"}),
            "requires `kubernetes.io/metadata.name notin (envoy-drainer,kube-system)`: use another namespace",
        ),
    ] {
        let output = explain(installed(&[], &labels), &["deploy/web", "-o", "json"]).await;
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let pod = &report["pods"][0];
        assert_eq!(pod["outcome"], "skipped");
        assert_eq!(pod["plan"], json!(null));
        assert_eq!(pod["reasons"][0]["code"], "DRN015");
        let message = pod["reasons"][0]["message"].as_str().unwrap();
        assert!(message.ends_with(reason), "{message}");
    }
}

#[tokio::test]
async fn nothing_is_injected_without_an_installation() {
    let mut responses = installed(&[], &json!({"envoy-drainer.dev/injection": "enabled"}));
    let none = json!({"metadata": {}, "items": []}).to_string();
    responses.insert(CONFIGURATIONS.to_owned(), (200, none));
    let output = explain(responses, &["deploy/web"]).await;
    let want = "DRN015    envoy-drainer is not installed in this cluster: install the chart";
    assert_has(&output, &[want, "gets no drainer"]);
}

#[tokio::test]
async fn what_is_assumed_of_an_unreadable_installation_is_reported() {
    let output = explain(responses(DEPLOYMENT, &deployment()), &["deploy/web"]).await;
    let stderr = text(&output.stderr);
    assert_eq!(
        stderr,
        "warning: the installation's defaults are unknown, and those of the flags are used: \
         whether envoy-drainer is installed is unknown: cannot list mutatingwebhookconfigurations: not found\n"
    );
    assert_eq!(output.status.code(), Some(3), "{output:?}");
}

#[tokio::test]
async fn objects_that_cannot_be_read_are_reported() {
    let output = explain(Responses::new(), &["deploy/web"]).await;
    assert_eq!(
        text(&output.stderr),
        "error: the namespace `shop` has no Deployment `web`\n"
    );
    assert_eq!(output.status.code(), Some(3));
    let forbidden = failure(403, "Forbidden", "no");
    let output = explain([(POD.to_owned(), forbidden)].into(), &["pod/web-0"]).await;
    let want = "forbidden: get pods in the namespace `shop`\n";
    assert!(text(&output.stderr).ends_with(want), "{output:?}");
    assert_eq!(output.status.code(), Some(3));
}

/// A file has the name of an object, or would be one.
#[tokio::test]
async fn files_come_before_objects() {
    let output = explain(Responses::new(), &["deploy/web.yaml"]).await;
    let stderr = text(&output.stderr);
    assert!(
        stderr.starts_with("error: cannot read deploy/web.yaml: "),
        "{stderr}"
    );
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("deploy")).unwrap();
    fs::write(folder.path().join("deploy/web"), deployment().to_string()).unwrap();
    let output = Command::new(binaries::envoy_drainer().unwrap())
        .args(["explain", "deploy/web"])
        .current_dir(folder.path())
        .env_clear()
        .output()
        .await
        .unwrap();
    assert!(text(&output.stdout).contains("deploy/web:1"), "{output:?}");
}

#[test]
fn wait_for_a_replacement_is_in_the_timeline() {
    let defaults = Defaults {
        drainer_api: Some(DrainerApiDefaults {
            address: "envoy-drainer.infra.svc:8443".to_owned(),
            ip: None,
            ca: "AAAA".to_owned(),
            replacement: true,
            reports: false,
        }),
        ..defaults()
    };
    let input = Input {
        name: "web.yaml".to_owned(),
        bytes: pod(&[("drain-delay", "5s"), ("wait-for-replacement", "60s")])
            .to_string()
            .into_bytes(),
    };
    let report = ExplainReport::new(&[input], &defaults);
    golden::check("explain/waiting.txt", &report.to_text(false));
}
