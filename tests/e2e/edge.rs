//! The Envoys under test: a Deployment and a Service, without retries that would hide a failure.

use std::net::SocketAddr;
use std::rc::Rc;

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::{Value, json};

use crate::echo;
use crate::eventually::eventually;
use crate::images;
use crate::namespace::Namespace;
use crate::restricted;
use crate::service;
use crate::termination_message::DRAINER_CONTAINER;

/// The label `app` of the pods, and the name of the Deployment and of the Service, as in `edge/deployment.json`.
pub(crate) const APP: &str = "edge";

/// The name of the listener's port, as in `edge/deployment.json`.
pub(crate) const PORT_NAME: &str = "http";

/// The port of Envoy's admin interface on loopback, as in `edge/bootstrap.json`.
pub(crate) const ADMIN_PORT: u16 = 9901;

/// Where the file of [`move_bootstrap`] is.
const CONFIG_FOLDER: &str = "/etc/envoy";

/// A deployed [`deployment`], or a StatefulSet that is like one, with its Service.
#[derive(Debug)]
pub(crate) struct EnvoyDeployment {
    pub(crate) namespace: Rc<Namespace>,
    /// The Service's address.
    pub(crate) address: SocketAddr,
    /// Its kind and name.
    pub(crate) workload: String,
}

/// Returns a Deployment of Envoys that route to `upstream` and request a drainer.
pub(crate) fn deployment(replicas: u32, upstream: SocketAddr) -> Result<Value> {
    let mut deployment: Value = serde_json::from_str(include_str!("edge/deployment.json"))?;
    deployment["spec"]["replicas"] = json!(replicas);
    let pod = &mut deployment["spec"]["template"]["spec"];
    pod["securityContext"] = restricted::pod();
    let envoy = &mut pod["containers"][0];
    envoy["image"] = json!(images::newest_envoy()?);
    envoy["args"][1] = json!(bootstrap(upstream)?.to_string());
    envoy["securityContext"] = restricted::container();
    Ok(deployment)
}

/// Annotates a pod template, under the product's prefix.
pub(crate) fn annotate(template: &mut Value, name: &str, value: &str) {
    template["metadata"]["annotations"][format!("envoy-drainer.dev/{name}")] = json!(value);
}

/// Turns a pod template into a pod of this name.
pub(crate) fn into_pod(mut template: Value, name: &str) -> Value {
    template["apiVersion"] = json!("v1");
    template["kind"] = json!("Pod");
    template["metadata"]["name"] = json!(name);
    template
}

/// Removes the request for a drainer from a pod template.
pub(crate) fn remove_inject(template: &mut Value) -> Result<()> {
    template["metadata"]["annotations"] = json!({});
    Ok(())
}

/// Sets the only endpoint of a cluster of Envoy's.
pub(crate) fn set_endpoint(cluster: &mut Value, endpoint: SocketAddr) {
    let locality = &mut cluster["load_assignment"]["endpoints"][0];
    locality["lb_endpoints"][0]["endpoint"]["address"]["socket_address"] =
        json!({ "address": endpoint.ip(), "port_value": endpoint.port() });
}

/// Returns the containers of a pod or a pod template.
///
/// # Errors
/// If it has none.
pub(crate) fn containers(pod: &mut Value) -> Result<&mut Vec<Value>> {
    let containers = pod["spec"]["containers"].as_array_mut();
    containers.context("the pod has no containers")
}

/// Changes the bootstrap of the Envoy in a pod template.
///
/// # Errors
/// If the template is not from [`deployment`].
pub(crate) fn reconfigure(template: &mut Value, change: impl FnOnce(&mut Value)) -> Result<()> {
    let argument = &mut template["spec"]["containers"][0]["args"][1];
    let mut bootstrap: Value =
        serde_json::from_str(argument.as_str().context("the Envoy has no bootstrap")?)?;
    change(&mut bootstrap);
    *argument = json!(bootstrap.to_string());
    Ok(())
}

/// Moves the bootstrap of the Envoy in a pod template into the file `key` of a ConfigMap, so that nothing of it is in
/// the manifest. Returns the bootstrap, which is to be put there.
///
/// # Errors
/// If the template is not from [`deployment`].
pub(crate) fn move_bootstrap(template: &mut Value, config_map: &str, key: &str) -> Result<String> {
    let spec = &mut template["spec"];
    let args = spec["containers"][0]["args"].as_array_mut();
    let args = args.context("the Envoy has no args")?;
    let from = [json!("-c"), json!(format!("{CONFIG_FOLDER}/{key}"))];
    let moved = args.splice(..2, from).nth(1);
    let volume = "bootstrap";
    spec["containers"][0]["volumeMounts"] = json!([{ "name": volume, "mountPath": CONFIG_FOLDER }]);
    spec["volumes"] = json!([{ "name": volume, "configMap": { "name": config_map } }]);
    let moved = moved.as_ref().and_then(Value::as_str);
    Ok(moved.context("the Envoy has no bootstrap")?.to_owned())
}

/// Returns Envoy's bootstrap: it routes all paths to the upstream without retries, and `/ready` is its health check.
fn bootstrap(upstream: SocketAddr) -> Result<Value> {
    // The idle timeout of its cluster is less than that of the echo server: a connection that the server closes while
    // Envoy sends a request would fail that request.
    let mut bootstrap: Value = serde_json::from_str(include_str!("edge/bootstrap.json"))?;
    set_endpoint(&mut bootstrap["static_resources"]["clusters"][0], upstream);
    Ok(bootstrap)
}

// === impl EnvoyDeployment ===

impl EnvoyDeployment {
    /// Deploys a [`deployment`] whose pod template `change` changes, with its upstream, as [`Self::deploy`] does.
    pub(crate) async fn start(
        namespace: &Rc<Namespace>,
        replicas: u32,
        change: impl FnOnce(&mut Value) -> Result<()>,
    ) -> Result<Self> {
        let mut deployment = deployment(replicas, echo::start(namespace).await?)?;
        change(&mut deployment["spec"]["template"])?;
        Self::deploy(namespace, &deployment).await
    }

    /// Deploys it, waits until it is ready, and ensures that each pod has a drainer if it requests one, and none
    /// otherwise.
    ///
    /// # Errors
    /// If it does not become ready, or a pod differs.
    pub(crate) async fn deploy(namespace: &Rc<Namespace>, workload: &Value) -> Result<Self> {
        let edge = Self::apply(namespace, workload).await?;
        let annotations = &workload["spec"]["template"]["metadata"]["annotations"];
        let requested = annotations["envoy-drainer.dev/inject"] == "true";
        edge.ensure_drainers(requested).await?;
        Ok(edge)
    }

    /// Deploys it, and waits until it is ready, with or without drainers.
    pub(crate) async fn apply(namespace: &Rc<Namespace>, workload: &Value) -> Result<Self> {
        namespace.apply(workload.clone()).await?;
        let kind = workload["kind"].as_str().context("it has no kind")?;
        let address =
            service::create_for_pods(namespace, APP, json!({ "app": APP }), "TCP", PORT_NAME)
                .await?;
        let namespace = Rc::clone(namespace);
        let edge = Self {
            namespace,
            address,
            workload: format!("{kind}/{APP}"),
        };
        edge.wait_until_stable().await?;
        Ok(edge)
    }

    /// Returns an error unless each of its pods has a drainer, or none has.
    pub(crate) async fn ensure_drainers(&self, expected: bool) -> Result<()> {
        for pod in self.namespace.pods(&selector()).await? {
            let injected = pod["metadata"]["labels"]["envoy-drainer.dev/injected"] == "true";
            let name = &pod["metadata"]["name"];
            ensure!(
                injected == expected,
                "pod {name}: injected is {injected}, not {expected}"
            );
        }
        Ok(())
    }

    /// Restarts the rollout, and waits until the old pods are deleted and the new ones ready.
    pub(crate) async fn rollout_restart(&self) -> Result<()> {
        let restart = format!("rollout restart {}", self.workload);
        self.namespace.run(&restart).await?;
        self.wait_until_stable().await
    }

    /// Scales it, and waits until it is stable.
    pub(crate) async fn scale(&self, replicas: u32) -> Result<()> {
        let scale = format!("scale {} --replicas={replicas}", self.workload);
        self.namespace.run(&scale).await?;
        self.wait_until_stable().await
    }

    /// Returns the names of its pods.
    pub(crate) async fn pods(&self) -> Result<Vec<String>> {
        self.namespace.pod_names(&selector()).await
    }

    /// Returns the name of its only pod.
    ///
    /// # Errors
    /// If it has none, or more than one.
    pub(crate) async fn only_pod(&self) -> Result<String> {
        let pods = self.pods().await?;
        let [pod] = <[String; 1]>::try_from(pods)
            .map_err(|pods| anyhow!("expected one pod, found {pods:?}"))?;
        Ok(pod)
    }

    /// Waits until it has the desired number of pods, all of them ready and none terminating.
    pub(crate) async fn wait_until_stable(&self) -> Result<()> {
        let status = format!("rollout status {} --timeout=180s", self.workload);
        self.namespace.run(&status).await?;
        let workload = self.namespace.json(&["get", &self.workload]).await?;
        let replicas = workload["spec"]["replicas"].as_u64();
        eventually("all pods are ready and none is terminating", || async {
            let pods = self.namespace.pods(&selector()).await?;
            Ok(pods.iter().all(is_stable) && Some(pods.len() as u64) == replicas)
        })
        .await
    }
}

fn selector() -> String {
    format!("app={APP}")
}

/// Whether a pod is ready and not terminating.
fn is_stable(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    let mut ready = conditions.filter(|condition| condition["type"] == "Ready");
    let is_ready = ready.any(|condition| condition["status"] == "True");
    is_ready && pod["metadata"]["deletionTimestamp"].is_null()
}

/// Runs `pod-tools` in the drainer's container of a pod, whose image must be
/// [`images::NEXT_DRAINER_IMAGE`], and returns its output.
pub(crate) async fn exec_in_drainer(
    namespace: &Namespace,
    pod: &str,
    command: &str,
) -> Result<String> {
    let exec = format!("exec {pod} --container {DRAINER_CONTAINER} -- /pod-tools {command}");
    namespace.run(&exec).await
}

/// Returns what `drainer status` prints in a pod's drainer.
pub(crate) async fn drainer_status(namespace: &Namespace, pod: &str) -> Result<Value> {
    let exec = format!("exec {pod} --container {DRAINER_CONTAINER} -- /drainer status -o json");
    Ok(serde_json::from_str(&namespace.run(&exec).await?)?)
}
