//! Rollouts under load of pods of different shapes, in a namespace with a quota, limits with a ratio, read-only root
//! file systems and Pod Security *restricted*; in the host network only the file systems are read-only.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::order::{self, AtSigterm};
use crate::cluster_fixture::ClusterFixture;
use crate::debug_container::exec_in_pod;
use crate::echo;
use crate::edge::{
    self, EnvoyDeployment, annotate, deployment, into_pod, reconfigure, remove_inject,
};
use crate::images;
use crate::service;
use crate::traffic::{Requests, light, roll_under_load};

/// A quota, which rejects pods with a container without limits.
const QUOTA: &str = include_str!("shapes/quota.json");

/// A LimitRange, which sets default limits and rejects limits of more than four times the requests.
pub(crate) const LIMIT_RANGE: &str = include_str!("shapes/limit-range.json");

/// The drainer as an ordinary container.
pub(super) fn plain_drainer(template: &mut Value) -> Result<()> {
    annotate(template, "native-sidecar", "false");
    Ok(())
}

/// Envoy as a native sidecar of an app, which terminates after the app.
pub(super) fn native_envoy(template: &mut Value) -> Result<()> {
    let app = json!([order::app(AtSigterm::StopListening)]);
    let mut envoy = template["spec"]["containers"].take();
    envoy[0]["restartPolicy"] = json!("Always");
    template["spec"]["initContainers"] = envoy;
    template["spec"]["containers"] = app;
    Ok(())
}

/// Envoy's admin interface on a Unix socket in a volume, which no drainer searches for.
pub(super) fn admin_socket(template: &mut Value) -> Result<()> {
    let path = "/run/admin/envoy.sock";
    template["spec"]["volumes"] = json!([{ "name": "admin", "emptyDir": {} }]);
    template["spec"]["containers"][0]["volumeMounts"] =
        json!([{ "name": "admin", "mountPath": "/run/admin" }]);
    annotate(template, "admin-address", &format!("unix:{path}"));
    reconfigure(template, |bootstrap| {
        bootstrap["admin"] = json!({ "address": { "pipe": { "path": path } } });
    })
}

/// The oldest Envoy of `E2E_ENVOY_IMAGE`; all other scenarios use the newest.
pub(super) fn oldest_envoy(template: &mut Value) -> Result<()> {
    template["spec"]["containers"][0]["image"] = json!(images::oldest_envoy()?);
    Ok(())
}

/// Envoy in the host network. A node has room for one such pod, since its ports are taken, so a pod with other ports, and
/// without a drainer, serves while the first one is replaced. Its Envoy, whose admin interface is at the address that
/// drainers try first, stays live. A pod that does not name its own admin interface is rejected.
pub(crate) async fn host_network_loses_no_request(fixture: &ClusterFixture<'_>) -> Result<()> {
    let namespace = fixture.namespace_with("enabled", "privileged").await?;
    let upstream = echo::start(&namespace).await?;
    let both = json!({ "network": "either" });
    let port = edge::PORT_NAME;
    let address = service::create_for_pods(&namespace, "both", both.clone(), "TCP", port).await?;

    // Ports that are free on the nodes.
    let (admin, other_admin) = (29901, edge::ADMIN_PORT);
    let mut other = deployment(1, upstream)?;
    other["metadata"]["name"] = json!("other");
    let labels = json!({ "app": "other", "network": "either" });
    other["spec"]["selector"]["matchLabels"] = labels.clone();
    let template = &mut other["spec"]["template"];
    template["metadata"]["labels"] = labels;
    remove_inject(template)?;
    move_to_host(template, 28081, other_admin)?;
    namespace.apply(other).await?;

    let mut workload = deployment(1, upstream)?;
    workload["spec"]["strategy"] = json!({ "type": "Recreate" });
    let template = &mut workload["spec"]["template"];
    template["metadata"]["labels"]["network"] = both["network"].clone();
    move_to_host(template, 28080, admin)?;
    let unnamed = namespace.dry_run(into_pod(template.clone(), "unnamed"));
    let error = unnamed.await.err().context("it names no admin interface")?;
    ensure!(error.to_string().contains("DRN054"), "{error:#}");
    annotate(template, "admin-address", &format!("127.0.0.1:{admin}"));
    let edge = EnvoyDeployment::deploy(&namespace, &workload).await?;
    let wait = ["rollout", "status", "deployment/other", "--timeout=120s"];
    namespace.kubectl(&wait).await?;
    let edge = EnvoyDeployment { address, ..edge };
    roll(fixture, &edge).await?;
    let other = format!("127.0.0.1:{other_admin}");
    let live = ["get", &other, "/ready"];
    exec_in_pod(&namespace, &edge.only_pod().await?, &live).await
}

/// Moves the pod of a template into the host network, and its Envoy to other ports.
fn move_to_host(template: &mut Value, listener: u16, admin: u16) -> Result<()> {
    template["spec"]["hostNetwork"] = json!(true);
    template["spec"]["containers"][0]["ports"][0]["containerPort"] = json!(listener);
    reconfigure(template, |bootstrap| {
        let set_port = |address: &mut Value, port: u16| {
            address["address"]["socket_address"]["port_value"] = json!(port);
        };
        set_port(&mut bootstrap["admin"], admin);
        set_port(&mut bootstrap["static_resources"]["listeners"][0], listener);
    })
}

/// Restarts Envoys of a shape in a namespace with a quota and limits.
pub(crate) async fn lose_no_request(
    fixture: &ClusterFixture<'_>,
    shape: fn(&mut Value) -> Result<()>,
) -> Result<()> {
    let namespace = fixture.namespace().await?;
    for object in [QUOTA, LIMIT_RANGE] {
        namespace.apply(serde_json::from_str(object)?).await?;
    }
    let edge = EnvoyDeployment::start(&namespace, 2, shape).await?;
    roll(fixture, &edge).await
}

async fn roll(fixture: &ClusterFixture<'_>, edge: &EnvoyDeployment) -> Result<()> {
    let report = roll_under_load(fixture, edge, light(), 1).await?;
    Requests::Survive.ensure(&report)
}
