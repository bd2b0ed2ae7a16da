//! Pods created while the webhook has no replica: they start without a drainer, and the policy reports them.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tests::json::push;

use crate::admissions::pod_with_inject;
use crate::cluster_fixture::ClusterFixture;
use crate::echo;
use crate::edge::{EnvoyDeployment, deployment};
use crate::eventually::eventually;
use crate::namespace::Namespace;

/// Part of the policy's message.
const POLICY_WARNING: &str = "did not see it";

/// With `failurePolicy: Ignore` pods start without a drainer. The policy warns about those that request
/// one, and about no other; with action `Deny` it rejects them.
pub(crate) async fn webhook_is_reported_by_policy(fixture: &ClusterFixture<'_>) -> Result<()> {
    let (namespace, release) = fixture.release(json!({})).await?;
    ensure!(
        !is_warned(&namespace, pod_with_inject()).await?,
        "the policy warns although the webhook runs"
    );
    release.scale(0).await?;

    let upstream = echo::start(&namespace).await?;
    let edge = EnvoyDeployment::apply(&namespace, &deployment(1, upstream)?).await?;
    edge.ensure_drainers(false).await?;
    fixture.add_row("pods that request a drainer", "started without one");

    ensure!(
        is_warned(&namespace, pod_with_inject()).await?,
        "the policy does not warn"
    );
    for pod in copies_without_drainer() {
        ensure!(
            is_warned(&namespace, pod.clone()).await?,
            "no warning about {pod}"
        );
    }
    for pod in unaffected_pods() {
        ensure!(
            !is_warned(&namespace, pod.clone()).await?,
            "warning about {pod}"
        );
    }
    // The release's own namespace is excluded.
    let own = is_warned(&release.namespace, pod_with_inject()).await?;
    ensure!(!own, "warning in the release's own namespace");
    fixture.add_row("the policy", "warns about them, and about no other");

    let values = json!({ "policy": { "action": "Deny" } });
    release.upgrade(values).await?;
    release.scale(0).await?;
    eventually("the policy rejects the pod", || async {
        let result = namespace.dry_run(with_name(pod_with_inject())).await;
        Ok(result.is_err_and(|error| error.to_string().contains(POLICY_WARNING)))
    })
    .await?;
    fixture.add_row("the policy with action Deny", "rejects them");
    Ok(())
}

/// Returns pods with a label or status that was copied from a pod with a drainer.
fn copies_without_drainer() -> [Value; 2] {
    let [mut label, mut status] = [pod_with_inject(), pod_with_inject()];
    label["metadata"]["labels"] = json!({ "envoy-drainer.dev/injected": "true" });
    status["metadata"]["annotations"]["envoy-drainer.dev/status"] =
        json!(r#"{"version":"0.1.0","sidecar":"native"}"#);
    [label, status]
}

/// Returns pods about which there is nothing to warn.
fn unaffected_pods() -> Vec<Value> {
    let with = |change: fn(&mut Value)| {
        let mut pod = pod_with_inject();
        change(&mut pod);
        pod
    };
    vec![
        with(|pod| pod["metadata"]["annotations"] = json!({})),
        with(|pod| pod["metadata"]["annotations"]["envoy-drainer.dev/inject"] = json!("false")),
        with(|pod| {
            let skipped = json!(r#"{"skipped":"DRN006"}"#);
            pod["metadata"]["annotations"]["envoy-drainer.dev/status"] = skipped;
        }),
        with(|pod| {
            let mut drainer = pod["spec"]["containers"][0].clone();
            drainer["name"] = json!("envoy-drainer");
            push(&mut pod["spec"]["containers"], drainer);
        }),
        with(|pod| {
            pod["metadata"]["annotations"]["kubernetes.io/config.mirror"] = json!("a");
            pod["spec"]["nodeName"] = json!("node");
            pod["spec"]["schedulingGates"] = json!([]);
        }),
        with(|pod| {
            pod["spec"]["os"] = json!({ "name": "windows" });
            // The other fields that *restricted* requires are for Linux only.
            pod["spec"]["securityContext"] = json!({ "runAsNonRoot": true });
            pod["spec"]["containers"][0]["securityContext"] = json!({});
        }),
    ]
}

async fn is_warned(namespace: &Namespace, pod: Value) -> Result<bool> {
    let output = namespace.dry_run(with_name(pod)).await?;
    Ok(output.stderr.contains(POLICY_WARNING))
}

fn with_name(mut pod: Value) -> Value {
    pod["metadata"]["name"] = json!("requesting");
    pod
}
