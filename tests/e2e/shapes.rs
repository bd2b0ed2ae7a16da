//! Pods of other shapes than the plainest, each rolled under load.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::echo;
use crate::edge::{Edge, deployment, move_admin_to_socket};
use crate::images;
use crate::namespace::in_namespace;
use crate::restricted;
use crate::table::Table;
use crate::traffic::Traffic;

const LOAD: &str = "--keep-alive 50 --connection-each 20 --slow 4 --slow-takes 2s --http2 20";

/// What differs from the plainest, and what it is called.
type Shape = (&'static str, fn(&mut Value) -> Result<()>);

const SHAPES: [Shape; 4] = [
    ("drainer as a plain container", plain_container),
    ("Envoy as a native sidecar", native_envoy),
    ("admin on a Unix socket", admin_on_a_socket),
    ("the oldest Envoy", oldest_envoy),
];

/// A rollout of each loses nothing, where quotas count and limits have a ratio.
///
/// # Errors
/// When one does.
pub(crate) async fn all_lose_nothing(table: &mut Table) -> Result<()> {
    for (name, shape) in SHAPES {
        let report = in_namespace("shapes", async |namespace| {
            for object in [quota(), limits()] {
                namespace.apply(object).await?;
            }
            let upstream = echo::start(namespace).await?;
            let mut workload = deployment(2, upstream)?;
            shape(&mut workload["spec"]["template"])?;
            let edge = Edge::deploy(namespace, &workload).await?;
            let traffic = Traffic::start(namespace, "load", edge.address, LOAD).await?;
            edge.roll().await?;
            traffic.stop().await
        })
        .await
        .context(name)?;
        let (failed, sent) = (report.failed(), report.sent());
        table.row(name, format!("{failed} of {sent} failed"));
        ensure!(failed == 0, "{name}: requests failed:\n{report}");
    }
    Ok(())
}

fn plain_container(template: &mut Value) -> Result<()> {
    template["metadata"]["annotations"]["envoy-drainer.dev/native-sidecar"] = json!("false");
    Ok(())
}

/// Envoy beside an app, to be ended after it.
fn native_envoy(template: &mut Value) -> Result<()> {
    let app = json!([{
        "name": "app",
        "image": images::backend()?,
        "imagePullPolicy": "IfNotPresent",
        "args": ["server", "-http-port", "8081", "-grpc-port", "disabled", "-redirect-port",
            "disabled", "-tcp-port", "disabled", "-udp-port", "disabled"],
        "securityContext": restricted::container(),
    }]);
    let mut envoy = template["spec"]["containers"].take();
    envoy[0]["restartPolicy"] = json!("Always");
    template["spec"]["initContainers"] = envoy;
    template["spec"]["containers"] = app;
    Ok(())
}

fn admin_on_a_socket(template: &mut Value) -> Result<()> {
    move_admin_to_socket(template, "/run/admin/envoy.sock")?;
    template["spec"]["volumes"] = json!([{ "name": "admin", "emptyDir": {} }]);
    template["spec"]["containers"][0]["volumeMounts"] =
        json!([{ "name": "admin", "mountPath": "/run/admin" }]);
    Ok(())
}

fn oldest_envoy(template: &mut Value) -> Result<()> {
    template["spec"]["containers"][0]["image"] = json!(images::oldest_envoy()?);
    Ok(())
}

/// Refuses a pod whose containers do not all say what they need at most.
fn quota() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": { "name": "all" },
        "spec": { "hard": { "limits.cpu": "20", "limits.memory": "20Gi", "pods": "20" } },
    })
}

/// Gives limits to containers that have none, and refuses those that are far above their requests.
fn limits() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": { "name": "all" },
        "spec": { "limits": [{
            "type": "Container",
            "default": { "cpu": "800m", "memory": "256Mi" },
            "defaultRequest": { "cpu": "200m", "memory": "64Mi" },
            "maxLimitRequestRatio": { "cpu": "4", "memory": "4" },
        }] },
    })
}
