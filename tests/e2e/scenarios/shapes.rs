//! Rollouts under load of pods of different shapes, in a namespace with a quota, limits with a ratio, read-only root
//! file systems and Pod Security *restricted*; in the host network only the file systems are read-only.

use anyhow::Result;
use serde_json::{Value, json};

use crate::cluster_fixture::ClusterFixture;
use crate::echo;
use crate::edge::{self, EnvoyDeployment, annotate, deployment, reconfigure};
use crate::images;
use crate::restricted;
use crate::service;
use crate::traffic::{Requests, light, roll_under_load};

/// The drainer as an ordinary container.
pub(super) fn plain_drainer(template: &mut Value) -> Result<()> {
    annotate(template, "native-sidecar", "false");
    Ok(())
}

/// Envoy as a native sidecar of an app, which terminates after the app.
pub(super) fn native_envoy(template: &mut Value) -> Result<()> {
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

/// Envoy's admin interface on a Unix socket.
pub(super) fn admin_socket(template: &mut Value) -> Result<()> {
    let path = "/run/admin/envoy.sock";
    template["spec"]["volumes"] = json!([{ "name": "admin", "emptyDir": {} }]);
    template["spec"]["containers"][0]["volumeMounts"] =
        json!([{ "name": "admin", "mountPath": "/run/admin" }]);
    reconfigure(template, |bootstrap| {
        bootstrap["admin"] = json!({ "address": { "pipe": { "path": path } } });
    })
}

/// The oldest Envoy of `E2E_ENVOY_IMAGE`; all other scenarios use the newest.
pub(super) fn oldest_envoy(template: &mut Value) -> Result<()> {
    template["spec"]["containers"][0]["image"] = json!(images::oldest_envoy()?);
    Ok(())
}

/// Envoy in the host network. A node has room for one such pod, since its ports are taken, so a second pod outside
/// the host network serves while the first one is replaced.
pub(crate) async fn host_network_loses_no_request(fixture: &ClusterFixture<'_>) -> Result<()> {
    let namespace = fixture.namespace_with("enabled", "privileged").await?;
    let upstream = echo::start(&namespace).await?;
    let both = json!({ "network": "either" });
    let port = edge::PORT_NAME;
    let address = service::create_for_pods(&namespace, "both", both.clone(), "TCP", port).await?;

    let mut other = deployment(1, upstream)?;
    other["metadata"]["name"] = json!("other");
    let labels = json!({ "app": "other", "network": "either" });
    other["spec"]["selector"]["matchLabels"] = labels.clone();
    other["spec"]["template"]["metadata"]["labels"] = labels;
    namespace.apply(other).await?;

    let mut workload = deployment(1, upstream)?;
    workload["spec"]["strategy"] = json!({ "type": "Recreate" });
    let template = &mut workload["spec"]["template"];
    template["metadata"]["labels"]["network"] = both["network"].clone();
    template["spec"]["hostNetwork"] = json!(true);
    // Ports that are free on the nodes.
    let (listener, admin) = (28080, 29901);
    template["spec"]["containers"][0]["ports"][0]["containerPort"] = json!(listener);
    reconfigure(template, |bootstrap| {
        let set_port = |address: &mut Value, port: u16| {
            address["address"]["socket_address"]["port_value"] = json!(port);
        };
        set_port(&mut bootstrap["admin"], admin);
        set_port(&mut bootstrap["static_resources"]["listeners"][0], listener);
    })?;
    annotate(template, "admin-address", &format!("127.0.0.1:{admin}"));
    let edge = EnvoyDeployment::deploy(&namespace, &workload).await?;
    let wait = ["rollout", "status", "deployment/other", "--timeout=120s"];
    namespace.kubectl(&wait).await?;
    roll(fixture, &EnvoyDeployment { address, ..edge }).await
}

/// Restarts Envoys of a shape in a namespace with a quota and limits.
pub(crate) async fn lose_no_request(
    fixture: &ClusterFixture<'_>,
    shape: fn(&mut Value) -> Result<()>,
) -> Result<()> {
    let namespace = fixture.namespace().await?;
    for object in [quota(), limit_range()] {
        namespace.apply(object).await?;
    }
    let edge = EnvoyDeployment::start(&namespace, 2, shape).await?;
    roll(fixture, &edge).await
}

async fn roll(fixture: &ClusterFixture<'_>, edge: &EnvoyDeployment) -> Result<()> {
    let report = roll_under_load(fixture, edge, light(), 1).await?;
    Requests::Survive.ensure(&report)
}

/// Returns a quota, which rejects pods with a container without limits.
fn quota() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": { "name": "all" },
        "spec": { "hard": { "limits.cpu": "20", "limits.memory": "20Gi", "pods": "20" } },
    })
}

/// Returns a LimitRange, which sets default limits and rejects limits of more than four times the requests.
pub(crate) fn limit_range() -> Value {
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
