//! Names, ports, paths and keys in the chart refer to each other and to the constants of the code.

use std::fs;
use std::path::Path;

use admission::CONTAINER_NAME;
use admission::keys::{INJECT, INJECTED, INJECTION, STATUS};
use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, StatusCode};
use serde_json::{Value, json};
use tests::helm::{self, RELEASE, find_helm, object, objects};
use tests::webhook::{Webhook, assert_injected, review};
use webhook::server::Limits;

use crate::sets::{self, ValueSet};

/// The objects that the chart renders with its default values.
fn defaults() -> Option<Vec<Value>> {
    Some(objects(&helm::find_helm()?.render_with(&[]).unwrap()))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

#[tokio::test]
async fn webhook_configuration_and_probes_name_served_paths() {
    let Some(objects) = defaults() else { return };
    let webhook = Webhook::start(Limits::default()).await;
    let configuration = object(&objects, "MutatingWebhookConfiguration", "");
    let path = &configuration["webhooks"][0]["clientConfig"]["service"]["path"];
    let request = Request::post(text(path))
        .header("host", "localhost")
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(review("fine").bytes())));
    let response = webhook.https.send(request.unwrap()).await.unwrap();
    assert_injected(&response, "fine");

    let pod = &object(&objects, "Deployment", "")["spec"]["template"]["spec"];
    for probe in ["livenessProbe", "readinessProbe"] {
        let get = &pod["containers"][0][probe]["httpGet"];
        let response = webhook.health.get(text(&get["path"])).await.unwrap();
        assert_eq!(response.status, StatusCode::OK, "{probe}");
        assert_eq!(get["port"], "health");
    }
}

#[test]
fn service_selects_the_pods_and_their_ports() {
    let Some(helm) = find_helm() else { return };
    for set in sets::all(&helm) {
        let objects = objects(&set.rendered);
        let service = object(&objects, "Service", "");
        let deployment = object(&objects, "Deployment", "");
        let pod = &deployment["spec"]["template"];
        for port in service["spec"]["ports"].as_array().unwrap() {
            let ports = pod["spec"]["containers"][0]["ports"].as_array().unwrap();
            assert!(ports.iter().any(|p| p["name"] == port["targetPort"]));
        }
        let selectors = [
            &service["spec"]["selector"],
            &deployment["spec"]["selector"]["matchLabels"],
        ];
        for (key, value) in selectors.iter().flat_map(|s| s.as_object().unwrap()) {
            assert_eq!(pod["metadata"]["labels"][key], *value, "{}", set.name);
        }
        let configuration = object(&objects, "MutatingWebhookConfiguration", "");
        for webhook in configuration["webhooks"].as_array().unwrap() {
            let service_reference = &webhook["clientConfig"]["service"];
            assert_eq!(service_reference["name"], service["metadata"]["name"]);
            assert_eq!(service_reference["namespace"], RELEASE);
            assert_eq!(
                service_reference["port"],
                service["spec"]["ports"][0]["port"]
            );
        }
        let args = &pod["spec"]["containers"][0]["args"];
        let host = format!("{}.{RELEASE}.svc", text(&service["metadata"]["name"]));
        let names = |arg: &Value| {
            let name = configuration["metadata"]["name"].as_str().unwrap();
            *arg == format!("--webhook-configuration={name}")
        };
        assert!(args.as_array().unwrap().iter().any(names), "{}", set.name);
        let mut tls_args = args.as_array().unwrap().iter().map(text);
        match objects.iter().find(|o| o["kind"] == "Certificate") {
            Some(certificate) => assert_eq!(certificate["spec"]["dnsNames"], json!([host])),
            None => assert!(
                set.name == "own-secret" || tls_args.any(|arg| arg == format!("--tls-name={host}")),
                "{}",
                set.name
            ),
        }
    }
}

#[test]
fn account_has_rights_to_the_named_objects_only() {
    let Some(helm) = find_helm() else { return };
    let mut sets = sets::all(&helm);
    for feature in [
        "replacement=true",
        "replacement=false,drainerAPI.reports=true",
    ] {
        let values = format!("drainerAPI.enabled=true,drainerAPI.{feature}");
        let rendered = helm.render_with(&[&values]).unwrap();
        let name = feature.to_owned();
        sets.push(ValueSet { name, rendered });
    }
    for set in sets {
        let objects = objects(&set.rendered);
        let pod = &object(&objects, "Deployment", "")["spec"]["template"]["spec"];
        let args = pod["containers"][0]["args"].as_array().unwrap();
        let flag_value = |wanted: &str| {
            let mut values = args.iter().filter_map(|arg| {
                let (flag, value) = text(arg).split_once('=')?;
                (flag == wanted).then_some(value.to_owned())
            });
            values.next()
        };
        let (ca_secret, tls_secret) = (flag_value("--ca-secret"), flag_value("--tls-secret"));
        let verbs = match ca_secret {
            Some(_) => json!(["create", "get", "list", "watch", "patch"]),
            None => json!(["get", "list", "watch"]),
        };
        let secret = ca_secret.or(tls_secret).unwrap();
        let rules = &object(&objects, "Role", "")["rules"];
        assert_eq!(rules.as_array().unwrap().len(), 1);
        assert_eq!(rules[0]["resources"], json!(["secrets"]));
        assert_eq!(rules[0]["resourceNames"], json!([secret]));
        assert_eq!(rules[0]["verbs"], verbs, "{}", set.name);
        let configuration = flag_value("--webhook-configuration").unwrap();
        let rules = &object(&objects, "ClusterRole", "")["rules"];
        assert_eq!(rules[0]["resourceNames"], json!([configuration]));
        let publishes_events = !args.contains(&json!("--events=false"));
        let events = json!({"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"]});
        let has_drainer_api = flag_value("--drainer-api-listen").is_some();
        let reviews = json!({"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]});
        let is_on = |flag| flag_value(flag).is_some_and(|value| value == "true");
        let get = |group: &str, resource: &str| json!({"apiGroups": [group], "resources": [resource], "verbs": ["get"]});
        let endpoints = json!({"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list"]});
        let by_feature = [
            publishes_events.then_some(events),
            has_drainer_api.then_some(reviews),
            is_on("--drainer-api-replacement").then_some(endpoints),
            is_on("--drainer-api-reports").then(|| get("", "pods")),
            is_on("--drainer-api-reports").then(|| get("apps", "replicasets")),
        ];
        let by_feature: Vec<_> = by_feature.into_iter().flatten().collect();
        assert_eq!(rules.as_array().unwrap()[1..], by_feature, "{}", set.name);
        for binding in ["RoleBinding", "ClusterRoleBinding"] {
            let subject = &object(&objects, binding, "")["subjects"][0];
            assert_eq!(subject["name"], pod["serviceAccountName"]);
        }
        for object in objects.iter().filter(|o| o["kind"] == "ServiceAccount") {
            assert_eq!(object["metadata"]["name"], pod["serviceAccountName"]);
        }
        for object in objects.iter().filter(|o| o["kind"] == "Secret") {
            assert_eq!(object["metadata"]["name"], *secret);
        }
    }
}

#[test]
fn keys_equal_the_constants_of_the_code() {
    let Some(objects) = defaults() else { return };
    let configuration = object(&objects, "MutatingWebhookConfiguration", "");
    let policy = &object(&objects, "ValidatingAdmissionPolicy", "-required")["spec"];
    let pods = &configuration["webhooks"][0];
    assert_eq!(policy["variables"][0], pods["matchConditions"][0]);
    assert_eq!(policy["matchConditions"][0], pods["matchConditions"][1]);
    assert_eq!(policy["matchConstraints"]["resourceRules"], pods["rules"]);
    let selectors = [
        (&pods["namespaceSelector"], &["enabled", "all"][..]),
        (&configuration["webhooks"][1]["namespaceSelector"], &["all"]),
        (
            &configuration["webhooks"][2]["namespaceSelector"],
            &["enabled", "all"],
        ),
        (
            &policy["matchConstraints"]["namespaceSelector"],
            &["enabled", "all"],
        ),
    ];
    for (selector, values) in selectors {
        let opted_in = &selector["matchExpressions"][0];
        assert_eq!(
            *opted_in,
            json!({"key": INJECTION, "operator": "In", "values": values})
        );
        assert_eq!(
            selector["matchExpressions"][1],
            json!({"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", RELEASE]})
        );
    }
    let condition = text(&pods["matchConditions"][0]["expression"]);
    assert!(condition.contains(&format!("'{INJECT}'")), "{condition}");
    let validation = text(&policy["validations"][0]["expression"]);
    assert!(validation.contains(&format!("'{STATUS}'")), "{validation}");
    assert!(
        validation.contains(&format!("container.name == '{CONTAINER_NAME}'")),
        "{validation}"
    );
    assert!(
        !validation.contains(INJECTED),
        "a label may be copied: {validation}"
    );
}

#[test]
fn chart_has_the_version_of_the_program() {
    let Some(helm) = find_helm() else { return };
    let metadata = helm.run(["show", "chart", helm::CHART]).unwrap();
    let chart: Value = objects(&metadata).remove(0);
    for key in ["version", "appVersion"] {
        assert_eq!(chart[key], env!("CARGO_PKG_VERSION"), "{key}");
    }
}

#[test]
fn dockerfile_labels_equal_the_package_metadata() {
    for (package, title) in [("webhook", "envoy-drainer"), ("drainer", "drainer")] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("..")
            .join(package);
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        let mut lines = manifest.lines();
        let description = lines.find_map(|line| line.strip_prefix("description = "));
        let dockerfile = fs::read_to_string(folder.join("Dockerfile")).unwrap();
        for (key, value) in [
            ("title", format!("{title:?}")),
            ("description", description.unwrap().to_owned()),
            ("version", format!("{:?}", env!("CARGO_PKG_VERSION"))),
            ("licenses", format!("{:?}", env!("CARGO_PKG_LICENSE"))),
        ] {
            let label = format!("org.opencontainers.image.{key}={value}");
            assert!(dockerfile.contains(&label), "{package}: {label}");
        }
    }
}
