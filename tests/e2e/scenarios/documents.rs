//! Deployments built to exhaust the webhook, created in one namespace while pods of another namespace
//! request drainers.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::admissions::{AdmissionLoad, template_with_inject};
use crate::cluster_fixture::ClusterFixture;
use crate::release::Release;

/// Variables that reference one of 64 KiB. A Deployment with this many has 228 KB.
const COPIES: usize = 7_000;

/// Variables of one letter that fit into 3 MiB, the API server's limit of an object.
const VARIABLES: usize = 220_000;

/// Empty containers, more than the webhook accepts in a list. The API server rejects them only after the
/// webhook's response, and its time to do so grows with the square of their number.
const CONTAINERS: usize = 2_100;

/// Unknown annotations under the prefix `envoy-drainer.dev/`.
const KEYS: usize = 30_000;

/// How often each document is created, since a ReplicaSet controller retries too.
const REPETITIONS: usize = 3;

/// No replica is restarted or replaced, and all pods of the other namespace get drainers.
pub(crate) async fn restart_no_replica(fixture: &ClusterFixture<'_>) -> Result<()> {
    let (namespace, release) = fixture.release(json!({})).await?;
    let neighbor = fixture.neighbor().await?;
    let before = restarts(&release).await?;
    let admissions = AdmissionLoad::start(&neighbor).await?;
    for (name, document) in documents() {
        for _ in 0..REPETITIONS {
            // The API server may reject the object: it does so after the webhook's response.
            let outcome = match namespace.create_object(document.clone()).await {
                Ok(_) => "admitted".to_owned(),
                Err(error) => first_line(&error.to_string()),
            };
            ensure!(
                !outcome.contains("failed calling webhook"),
                "{name}: {outcome}"
            );
        }
    }
    let counts = fixture.stop_admissions(admissions).await?;
    let after = restarts(&release).await?;
    fixture.add_row("restarts of the webhook", format!("{:?}", after.values()));
    ensure!(before == after, "before {before:?}, after {after:?}");
    counts.ensure_all_injected()
}

/// Returns the restarts of each of the webhook's pods.
async fn restarts(release: &Release) -> Result<BTreeMap<String, u64>> {
    let mut restarts = BTreeMap::new();
    for pod in release.pods().await? {
        let status = release.namespace.json(&["get", "pod", &pod]).await?;
        let containers = status["status"]["containerStatuses"].as_array();
        let counts = containers.into_iter().flatten();
        let counts = counts.filter_map(|container| container["restartCount"].as_u64());
        restarts.insert(pod, counts.sum());
    }
    Ok(restarts)
}

fn documents() -> Vec<(&'static str, Value)> {
    vec![
        ("doubled variables", doubled_variables()),
        (
            "short variables",
            deployment(|template| {
                let variable = json!({ "name": "A" });
                template["spec"]["containers"][0]["env"] = json!(vec![variable; VARIABLES]);
            }),
        ),
        (
            "empty containers",
            deployment(|template| {
                template["spec"]["containers"] = json!(vec![json!({}); CONTAINERS]);
            }),
        ),
        (
            "unknown annotations",
            deployment(|template| {
                let key = |n| format!("envoy-drainer.dev/drain-timeout-{n:0>44}");
                let entries = (0..KEYS).map(|n| (key(n), json!("")));
                template["metadata"]["annotations"] =
                    entries.collect::<serde_json::Map<_, _>>().into();
            }),
        ),
    ]
}

/// Returns a Deployment with sixteen variables, each of which doubles the previous one up to 64 KiB, and many
/// copies of the last one.
fn doubled_variables() -> Value {
    let variable = |name: String, value: String| json!({ "name": name, "value": value });
    let doubled = (1..16).map(|n| {
        let previous = n - 1;
        variable(format!("A{n}"), format!("$(A{previous})$(A{previous})"))
    });
    let copies = (0..COPIES).map(|n| variable(format!("B{n}"), "$(A15)".to_owned()));
    let mut env = vec![variable("A0".to_owned(), "ab".to_owned())];
    env.extend(doubled.chain(copies));
    deployment(|template| {
        let envoy = &mut template["spec"]["containers"][0];
        envoy["args"] = json!(["--config-yaml", "admin: $(A0)"]);
        envoy["env"] = json!(env);
    })
}

/// Returns a Deployment whose pods request drainers and are never scheduled.
fn deployment(change: impl FnOnce(&mut Value)) -> Value {
    let labels = json!({ "app": "dense" });
    let mut template = template_with_inject();
    template["metadata"]["labels"] = labels.clone();
    change(&mut template);
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "generateName": "dense-" },
        "spec": { "selector": { "matchLabels": labels }, "template": template },
    })
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}
