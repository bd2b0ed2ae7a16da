//! Another product's webhook, which changes what was injected.

use anyhow::{Context, Result, ensure};
use base64::prelude::{BASE64_STANDARD, Engine};
use serde_json::{Value, json};
use tests::binaries;
use tests::test_ca::TestCa;

use super::advice::wait_for_event;
use crate::cluster_fixture::ClusterFixture;
use crate::command;
use crate::edge::{APP, EnvoyDeployment, annotate, deployment, into_pod};
use crate::images;
use crate::kubectl;
use crate::namespace::Namespace;
use crate::service;
use crate::traffic::{Requests, client, light, roll_under_load};

/// The name of the other webhook's objects.
const SECOND: &str = "second";

/// The hook and the grace period that a policy writes into all pods, as several do.
const SLEEP: &str = r#"[{"op": "add", "path": "/spec/containers/0/lifecycle", "value": {"preStop": {"sleep": {"seconds": 1}}}},
    {"op": "add", "path": "/spec/terminationGracePeriodSeconds", "value": 45}]"#;

/// Changes of an injected pod.
const CHANGES: [&str; 4] = [
    SLEEP,
    r#"[{"op": "remove", "path": "/spec/containers/0/lifecycle"}]"#,
    r#"[{"op": "add", "path": "/spec/containers/0/lifecycle/preStop/sleep", "value": {"seconds": 1}}]"#,
    r#"[{"op": "remove", "path": "/spec/initContainers/0/restartPolicy"}]"#,
];

/// The place of the other webhook among all, by the name of its configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Its hooks are the pod's own ones.
    First,
    /// It is called after the drainer's webhook, and not again.
    Last,
    /// It is called again after each call of the drainer's webhook.
    LastAgain,
}

/// Restarts pods that the other webhook changes.
pub(crate) async fn roll(fixture: &ClusterFixture<'_>, order: Order) -> Result<()> {
    let namespace = fixture.namespace().await?;
    start(&namespace, order).await?;
    let edge = EnvoyDeployment::start(&namespace, 2, |template| {
        template["metadata"]["annotations"]["example.com/patch"] = json!(SLEEP);
        annotate(template, "existing-hook", "replace");
        Ok(())
    })
    .await?;
    let report = roll_under_load(fixture, &edge, light(), 1).await?;
    match order {
        Order::First => Requests::Survive.ensure(&report),
        Order::Last => {
            Requests::Survive.ensure(&report)?;
            ensure_all_changes_are_restored(&namespace).await?;
            wait_for_event(fixture, &namespace, "DrainerRepaired", &["DRN089"]).await
        }
        Order::LastAgain => {
            Requests::Fail.ensure(&report)?;
            let warnings = namespace.dry_run(pod(SLEEP)?).await?.stderr;
            ensure!(warnings.contains("another webhook"), "{warnings:?}");
            let program = binaries::envoy_drainer()?;
            let args = ["check", "--no-dry-run", "-o=json", "-n", namespace.name()];
            let check = command::run_unchecked(program.as_os_str(), &args, None).await?;
            let change = "DRN089: the preStop hook of container `envoy` was changed";
            ensure!(check.stdout.contains(change), "{}", check.stdout);
            Ok(())
        }
    }
}

/// Ensures that an admitted pod is as it was injected, whatever the other webhook changes.
async fn ensure_all_changes_are_restored(namespace: &Namespace) -> Result<()> {
    for change in CHANGES {
        let admitted = namespace.dry_run(pod(change)?).await?;
        ensure!(admitted.stderr.contains("DRN089"), "{}", admitted.stderr);
        let pod: Value = serde_json::from_str(&admitted.stdout)?;
        let spec = &pod["spec"];
        let hook = &spec["containers"][0]["lifecycle"]["preStop"];
        let drainer = &spec["initContainers"][0];
        let token = drainer["args"][1].as_str().context("no drainer")?;
        let is_restored = drainer["restartPolicy"] == "Always"
            && hook["httpGet"]["path"] == *token.replace("--token=", "/drained/")
            && hook["sleep"].is_null()
            && spec["terminationGracePeriodSeconds"].as_u64() >= Some(75);
        ensure!(is_restored, "{change}: {spec}");
    }
    Ok(())
}

/// A pod that the other webhook changes.
fn pod(change: &str) -> Result<Value> {
    let mut template = deployment(1, "127.0.0.1:80".parse()?)?["spec"]["template"].take();
    template["metadata"]["annotations"]["example.com/patch"] = json!(change);
    Ok(into_pod(template, APP))
}

/// Starts the other webhook, for pods of the namespace. Its configuration is deleted with the namespace.
async fn start(namespace: &Namespace, order: Order) -> Result<()> {
    let name = namespace.name();
    let ca = TestCa::new()?;
    let leaf = ca.issue_leaf_for(&format!("{SECOND}.{name}.svc"))?;
    let args = ["mutate".to_owned(), leaf.certificate, leaf.key];
    let mut server = client(SECOND, images::POD_TOOLS_IMAGE, &args);
    let labels = json!({ "webhook": SECOND });
    server["metadata"]["labels"] = labels.clone();
    server["spec"]["containers"][0]["ports"] = json!([{ "name": "https", "containerPort": 8443 }]);
    namespace.apply(server).await?;
    service::create_for_pods(namespace, SECOND, labels, "TCP", "https").await?;
    let ready = "wait --for=condition=Ready pod/second --timeout=60s";
    namespace.run(ready).await?;
    let (prefix, policy) = match order {
        Order::First => ("a", "Never"),
        Order::Last => ("zzz", "Never"),
        Order::LastAgain => ("zzz", "IfNeeded"),
    };
    let uid = &kubectl::json(&["get", "namespace", name]).await?["metadata"]["uid"];
    let owner = json!({ "apiVersion": "v1", "kind": "Namespace", "name": name, "uid": uid });
    let pods = json!({ "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"] });
    let service = json!({ "namespace": name, "name": SECOND, "port": 80 });
    kubectl::apply(&json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": { "name": format!("{prefix}-{name}"), "ownerReferences": [owner] },
        "webhooks": [{
            "name": "second.example.com",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "reinvocationPolicy": policy,
            "clientConfig": { "service": service, "caBundle": BASE64_STANDARD.encode(ca.pem()) },
            "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": name } },
            "objectSelector": { "matchLabels": { "app": APP } },
            "rules": [pods],
        }],
    }))
    .await?;
    Ok(())
}
