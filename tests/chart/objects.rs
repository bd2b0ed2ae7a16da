//! The objects that the chart renders.

use std::fs;
use std::path::Path;

use clap::Parser;
use serde_json::{Value, json};
use tests::helm::{self, Helm, OLDEST_CLUSTER, find_helm, object, objects};
use tests::{golden, kubernetes};
use webhook::cli::Cli;

use crate::sets;

const DISABLED: &str = "--set=policy.enabled=false";

/// `defaults.yaml` is what the default values render to. The files of the other sets are what differs from it, or from
/// the set that theirs extends.
#[test]
fn value_sets_render_to_the_golden_files() {
    let Some(helm) = find_helm() else { return };
    let sets = sets::all(&helm);
    let rendered = |name| &sets.iter().find(|set| set.name == name).unwrap().rendered;
    golden::check("chart/defaults.yaml", rendered("defaults"));
    for set in sets.iter().filter(|set| set.name != "defaults") {
        let base = match &*set.name {
            "production" => "monitoring",
            _ => "defaults",
        };
        let file = format!("chart/{}.diff", set.name);
        golden::check_diff(&file, rendered(base), &set.rendered);
    }
}

#[test]
fn rendered_fields_exist_in_kubernetes() {
    let Some(helm) = find_helm() else { return };
    for set in sets::all(&helm) {
        for object in objects(&set.rendered) {
            let about = format!("{}: {}", set.name, object["kind"]);
            let unknown = kubernetes::unknown_fields(&object);
            let unknown = unknown.unwrap_or_else(|error| panic!("{about}: {error:#}"));
            assert!(unknown.is_empty(), "{about}: {unknown:?}");
        }
    }
}

/// Renders a release with these flags, separated by spaces.
fn template(helm: &Helm, release: &str, flags: &str) -> anyhow::Result<String> {
    let args = ["template", release, helm::CHART, "--kube-version=1.30.0"];
    helm.run(args.into_iter().chain(flags.split(' ')))
}

#[test]
fn numeric_names_stay_strings() {
    let Some(helm) = find_helm() else { return };
    let error = template(&helm, "1", "--skip-tests")
        .unwrap_err()
        .to_string();
    assert!(error.contains("fullnameOverride"), "{error}");
    let flags = "--namespace=2 --skip-tests --set-string=serviceAccount.name=3 --set-string=priorityClassName=4 \
        --set-string=image.pullSecrets[0]=5 --set-string=certificates.secret.name=6 --set=certificates.mode=secret \
        --set=fullnameOverride=e7 --set=image.registry=localhost --set=policy.enabled=true";
    for object in objects(&template(&helm, "1", flags).unwrap()) {
        let unknown = kubernetes::unknown_fields(&object);
        assert_eq!(unknown.unwrap(), [""; 0], "{object}");
    }
}

#[test]
fn names_are_at_most_63_bytes() {
    let Some(helm) = find_helm() else { return };
    let name = format!("--set=nameOverride={}", "a".repeat(54));
    for object in objects(&helm.render([&name, "--set=policy.enabled=true"]).unwrap()) {
        let name = object["metadata"]["name"].as_str().unwrap();
        assert!(name.len() <= 63, "{}: {name}", object["kind"]);
    }
}

#[test]
fn fields_that_the_webhook_writes_are_not_rendered() {
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
    let Some(helm) = find_helm() else { return };
    for set in sets::all(&helm) {
        let objects = objects(&set.rendered);
        // The webhook writes no ConfigMap.
        for object in objects.iter().filter(|o| o["kind"] != "ConfigMap") {
            let mut found = Vec::new();
            keys(object, &mut found);
            for key in ["caBundle", "data", "stringData"] {
                assert!(!found.iter().any(|k| k == key), "{}: {key}", set.name);
            }
        }
    }
}

/// What `helm test` creates only reads, and goes when it has succeeded.
#[test]
fn helm_test_has_read_rights_alone() {
    let Some(helm) = find_helm() else { return };
    let flags = "--set=image.registry=localhost --show-only=templates/tests/check.yaml";
    let objects = objects(&template(&helm, "envoy-drainer", flags).unwrap());
    let kinds = objects.iter().map(|it| it["kind"].as_str().unwrap());
    let kinds: Vec<_> = kinds.collect();
    assert_eq!(
        kinds,
        ["ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Pod"]
    );
    for object in &objects {
        let annotations = &object["metadata"]["annotations"];
        assert_eq!(annotations["helm.sh/hook"], "test");
        let policy = annotations["helm.sh/hook-delete-policy"].as_str().unwrap();
        assert!(policy.contains("hook-succeeded"), "{policy}");
    }
    for rule in objects[1]["rules"].as_array().unwrap() {
        assert_eq!(rule["verbs"], json!(["get", "list"]), "{rule}");
    }
    let args = objects[3]["spec"]["containers"][0]["args"]
        .as_array()
        .unwrap();
    let args = args.iter().map(|arg| arg.as_str().unwrap());
    Cli::try_parse_from(["envoy-drainer"].into_iter().chain(args)).unwrap();
}

/// The text of a file of the chart.
fn file(name: &str) -> String {
    fs::read_to_string(Path::new(helm::CHART).join(name)).unwrap()
}

/// The alerts that are rendered with these values.
fn alerts(helm: &Helm, values: &[&str]) -> Vec<Value> {
    let values = [values, &["prometheusRule.enabled=true"]].concat();
    let rendered = objects(&helm.render_with(&values).unwrap());
    let rules = &object(&rendered, "PrometheusRule", "")["spec"]["groups"][0]["rules"];
    rules.as_array().unwrap().clone()
}

#[test]
fn alerts_are_those_of_the_file() {
    let Some(helm) = find_helm() else { return };
    let url = "https://example.com/docs";
    let rendered = alerts(&helm, &[&format!("prometheusRule.runbookBaseURL={url}")]);
    let written = objects(&file("rules/alerts.yaml"));
    let written = written[0]["groups"][0]["rules"].as_array().unwrap();
    assert_eq!(rendered.len(), written.len());
    for (rendered, written) in rendered.iter().zip(written) {
        let mut wanted = written.clone();
        if wanted["for"].is_null() {
            wanted["for"] = json!("0s");
        }
        let runbook = &mut wanted["annotations"]["runbook_url"];
        *runbook = json!(format!("{url}/{}", runbook.as_str().unwrap()));
        if wanted["alert"] == "EnvoyDrainerDown" {
            let expr = r#"absent(envoy_drainer_requests_in_flight{namespace="envoy-drainer"})"#;
            wanted["expr"] = json!(expr);
        }
        assert_eq!(*rendered, wanted);
    }
}

#[test]
fn alerts_have_the_settings_of_the_values() {
    let Some(helm) = find_helm() else { return };
    let key = |key| format!("prometheusRule.alerts.EnvoyDrainer{key}");
    let values = [
        "Down.enabled=false",
        "DrainsCut.threshold=100000000",
        "DrainsCut.for=1h",
        "DrainsCut.severity=info",
    ];
    let values = values.map(key);
    let alerts = alerts(&helm, &values.each_ref().map(String::as_str));
    let find = |name: &str| alerts.iter().find(|alert| alert["alert"] == name);
    assert_eq!(find("EnvoyDrainerDown"), None);
    let cut = find("EnvoyDrainerDrainsCut").unwrap();
    let expr = "sum by (what) (increase(envoy_drainer_drain_cuts_total[15m])) > 100000000";
    assert_eq!(cut["expr"], expr);
    assert_eq!(
        (&cut["for"], &cut["labels"]["severity"]),
        (&json!("1h"), &json!("info"))
    );
    // Without the URL of the pages there is none.
    assert!(cut["annotations"]["runbook_url"].is_null());
}

#[test]
fn dashboard_is_that_of_the_file() {
    let Some(helm) = find_helm() else { return };
    let dashboard = |base: &str| {
        let base = format!("prometheusRule.runbookBaseURL={base}");
        let rendered = helm.render_with(&["grafanaDashboard.enabled=true", &base]);
        let rendered = objects(&rendered.unwrap());
        let data = &object(&rendered, "ConfigMap", "-grafana")["data"];
        data["envoy-drainer.json"].as_str().unwrap().to_owned()
    };
    let url = "https://example.com/docs";
    let page = "\"url\": \"troubleshooting.md";
    let linked = page.replace("trouble", &format!("{url}/trouble"));
    let written = file("dashboards/envoy-drainer.json").replace(page, &linked);
    assert_eq!(dashboard(&format!("{url}/")), written.trim());
    // Without the URL of the pages there are no links.
    let bare: Value = serde_json::from_str(&dashboard("")).unwrap();
    assert!(!bare.to_string().contains("runbook"), "{bare}");
}

#[test]
fn rbac_create_false_renders_no_roles() {
    let Some(helm) = find_helm() else { return };
    for object in objects(&helm.render_with(&["rbac.create=false"]).unwrap()) {
        let kind = object["kind"].as_str().unwrap();
        assert!(!kind.contains("Role"), "{kind}");
    }
}

#[test]
fn policies_are_rendered_where_the_cluster_has_them() {
    let Some(helm) = find_helm() else { return };
    const ACCEPTED: &str = "--set=policy.acceptUnrestrictedAccount=true";
    const ENABLED: &str = "--set=policy.enabled=true";
    // The form of a cloud provider's version.
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
fn unrestricted_account_must_be_accepted() {
    let Some(helm) = find_helm() else { return };
    const SECRET: [&str; 2] = [
        "--set=certificates.mode=secret",
        "--set=certificates.secret.name=mine",
    ];
    let latest = ["--kube-version=1.34.0"];
    for mode in [&[][..], &SECRET] {
        for (cluster, flag, wanted) in [
            (OLDEST_CLUSTER, None, "Kubernetes v1.29.0 has no Validating"),
            (latest, Some(DISABLED), "policy.enabled is false"),
        ] {
            let rendered = helm.render_for(cluster, mode.iter().copied().chain(flag));
            let error = rendered.expect_err("an unrestricted account").to_string();
            assert!(error.contains(wanted), "{error}");
            assert!(
                error.contains("policy.acceptUnrestrictedAccount"),
                "{error}"
            );
        }
    }
}
