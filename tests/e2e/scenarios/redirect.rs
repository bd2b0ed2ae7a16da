//! Envoys in pods with an init container whose iptables rules redirect inbound connections to Envoy, as in a service mesh.
//! They redirect the kubelet's call of Envoy's hook too, and the kubelet takes Envoy's response for the hook's.

use anyhow::Result;
use serde_json::{Value, json};

use super::drains::{wait_for_drain, watch_drains};
use crate::cluster_fixture::ClusterFixture;
use crate::edge::EnvoyDeployment;
use crate::images;
use crate::traffic::{Requests, light, roll_under_load};

/// The program of the node, which needs the libraries in [`FOLDERS`]: the tests' images have no iptables.
const IPTABLES: &str = "/usr/sbin/iptables-nft";

/// The node's folders with the program and its libraries, by the names of their volumes.
const FOLDERS: [&str; 3] = ["usr", "lib", "lib64"];

/// Of all connections to the pod.
const REDIRECT: &str = "-t nat -A PREROUTING -p tcp -j REDIRECT --to-ports 8080";

/// The option that excludes the drainer's port.
pub(super) const EXCLUDE_DRAINER: &str = " ! --dport 15902";

/// Restarts such Envoys under load. Their drains are missed, and `drains` says so, if the rules redirect the hook's call.
pub(crate) async fn roll(
    fixture: &ClusterFixture<'_>,
    options: &str,
    requests: Requests,
) -> Result<()> {
    let namespace = fixture.namespace_with("enabled", "privileged").await?;
    let edge = EnvoyDeployment::start(&namespace, 2, |template| {
        redirect(template, &format!("{REDIRECT}{options}"));
        Ok(())
    })
    .await?;
    let drains = watch_drains(&namespace)?;
    let pods = edge.pods().await?;
    let report = roll_under_load(fixture, &edge, light(), 1).await?;
    requests.ensure(&report)?;
    if requests == Requests::Fail {
        for pod in pods {
            wait_for_drain(&drains, &pod, "hook-missed").await?;
        }
    }
    Ok(())
}

/// Adds an init container to a pod template, which writes a rule.
fn redirect(template: &mut Value, rule: &str) {
    let mounts = FOLDERS
        .map(|name| json!({ "name": name, "mountPath": format!("/{name}"), "readOnly": true }));
    let volumes = FOLDERS.map(|it| json!({ "name": it, "hostPath": { "path": format!("/{it}") } }));
    template["spec"]["volumes"] = json!(volumes);
    template["spec"]["initContainers"] = json!([{
        "name": "redirect",
        "image": images::POD_TOOLS_IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": [IPTABLES],
        "args": rule.split(' ').collect::<Vec<_>>(),
        "volumeMounts": mounts,
        "securityContext": {
            "runAsNonRoot": false,
            "runAsUser": 0,
            "capabilities": { "add": ["NET_ADMIN", "NET_RAW"] },
        },
    }]);
}
