//! The Envoys that everything is about: a Deployment, a Service, and nothing that hides a failure.

use std::net::SocketAddr;

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::{Value, json};

use crate::eventually::eventually;
use crate::images;
use crate::namespace::Namespace;
use crate::restricted;
use crate::service;

/// The label `app` of its pods, and the name of Deployment and Service.
pub(crate) const APP: &str = "edge";

/// The drainer's container in every pod.
pub(crate) const DRAINER_CONTAINER: &str = "envoy-drainer";

/// The port of its pods that serves, which is called so.
pub(crate) const PORT_NAME: &str = "http";

const LISTENER_PORT: u16 = 8080;
/// The port of Envoy's admin interface, on loopback.
pub(crate) const ADMIN_PORT: u16 = 9901;

const HCM: &str = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
const HEALTH_CHECK: &str =
    "type.googleapis.com/envoy.extensions.filters.http.health_check.v3.HealthCheck";
const ROUTER: &str = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router";
const HTTP_OPTIONS: &str =
    "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions";

/// Envoys behind a Service.
#[derive(Debug)]
pub(crate) struct EnvoyDeployment<'a> {
    namespace: &'a Namespace,
    /// The Service's address.
    pub(crate) address: SocketAddr,
}

/// A Deployment of Envoys that route to `upstream` and ask for a drainer.
///
/// # Errors
/// When no image of Envoy is named.
pub(crate) fn deployment(replicas: u32, upstream: SocketAddr) -> Result<Value> {
    let labels = json!({ "app": APP });
    Ok(json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": APP },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": {
                    "labels": labels,
                    "annotations": { "envoy-drainer.dev/inject": "true" },
                },
                "spec": {
                    "automountServiceAccountToken": false,
                    "securityContext": restricted::pod(),
                    "containers": [{
                        "name": "envoy",
                        "image": images::newest_envoy()?,
                        "imagePullPolicy": "IfNotPresent",
                        "args": [
                            "--config-yaml", bootstrap(upstream).to_string(),
                            "--concurrency", "1", "--disable-hot-restart",
                        ],
                        "ports": [{ "name": PORT_NAME, "containerPort": LISTENER_PORT }],
                        "readinessProbe": {
                            "httpGet": { "path": "/ready", "port": PORT_NAME },
                            "periodSeconds": 1,
                            "failureThreshold": 2,
                        },
                        "securityContext": restricted::container(),
                    }],
                },
            },
        },
    }))
}

/// The same workload, whose pods do not ask.
pub(crate) fn without_inject(mut deployment: Value) -> Value {
    deployment["spec"]["template"]["metadata"]["annotations"] = json!({});
    deployment
}

/// Changes the configuration that the Envoy of a template starts with.
///
/// # Errors
/// When the template is not one of [`deployment`].
pub(crate) fn reconfigure(template: &mut Value, change: impl FnOnce(&mut Value)) -> Result<()> {
    let argument = &mut template["spec"]["containers"][0]["args"][1];
    let mut bootstrap: Value = serde_json::from_str(argument.as_str().context("a bootstrap")?)?;
    change(&mut bootstrap);
    *argument = json!(bootstrap.to_string());
    Ok(())
}

/// Envoy's configuration: any path goes to the upstream, once, and `/ready` is its health.
fn bootstrap(upstream: SocketAddr) -> Value {
    let socket =
        |ip: String, port: u16| json!({ "socket_address": { "address": ip, "port_value": port } });
    let endpoint = socket(upstream.ip().to_string(), upstream.port());
    let health = json!({
        "@type": HEALTH_CHECK,
        "pass_through_mode": false,
        "headers": [{ "name": ":path", "string_match": { "exact": "/ready" } }],
    });
    let route =
        json!({ "match": { "prefix": "/" }, "route": { "cluster": "echo", "timeout": "0s" } });
    let manager = json!({
        "@type": HCM,
        "stat_prefix": "edge",
        "http_filters": [
            { "name": "health", "typed_config": health },
            { "name": "router", "typed_config": { "@type": ROUTER } },
        ],
        "route_config": {
            "virtual_hosts": [{ "name": "all", "domains": ["*"], "routes": [route] }],
        },
    });
    json!({
        "admin": { "address": socket("127.0.0.1".to_owned(), ADMIN_PORT) },
        "static_resources": {
            "listeners": [{
                "name": "edge",
                "address": socket("0.0.0.0".to_owned(), LISTENER_PORT),
                "filter_chains": [{ "filters": [{ "name": "http", "typed_config": manager }] }],
            }],
            "clusters": [{
                "name": "echo",
                "type": "STATIC",
                "connect_timeout": "1s",
                "load_assignment": {
                    "cluster_name": "echo",
                    "endpoints": [{ "lb_endpoints": [{ "endpoint": { "address": endpoint } }] }],
                },
                // Connections go before the echo server closes them for being idle, which would fail
                // a request that Envoy sends at that moment.
                "typed_extension_protocol_options": {
                    "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                        "@type": HTTP_OPTIONS,
                        "common_http_protocol_options": { "idle_timeout": "5s" },
                        "explicit_http_config": { "http_protocol_options": {} },
                    },
                },
            }],
        },
    })
}

// === impl Edge ===

impl<'a> EnvoyDeployment<'a> {
    /// Deploys it, and waits until it serves; with a drainer in each pod if that asks for one, and
    /// else without.
    ///
    /// # Errors
    /// When it does not serve, or has other pods.
    pub(crate) async fn deploy(namespace: &'a Namespace, deployment: &Value) -> Result<Self> {
        let edge = Self::apply(namespace, deployment).await?;
        let annotations = &deployment["spec"]["template"]["metadata"]["annotations"];
        let asks = annotations["envoy-drainer.dev/inject"] == "true";
        edge.ensure_drainers(asks).await?;
        Ok(edge)
    }

    /// Deploys it, and waits until it serves, whatever pods it got.
    ///
    /// # Errors
    /// When it does not serve.
    pub(crate) async fn apply(namespace: &'a Namespace, deployment: &Value) -> Result<Self> {
        namespace.apply(deployment.clone()).await?;
        let address =
            service::create_for_pods(namespace, APP, json!({ "app": APP }), PORT_NAME).await?;
        let edge = Self { namespace, address };
        edge.wait_until_stable().await?;
        Ok(edge)
    }

    /// Makes sure that each of its pods has a drainer, or that none has.
    ///
    /// # Errors
    /// When that is not so.
    pub(crate) async fn ensure_drainers(&self, wanted: bool) -> Result<()> {
        for pod in self.namespace.pods(&selector()).await? {
            let has = pod["metadata"]["labels"]["envoy-drainer.dev/injected"] == "true";
            let name = &pod["metadata"]["name"];
            ensure!(has == wanted, "{name} has a drainer: {has}");
        }
        Ok(())
    }

    /// Replaces all pods, and waits until the old ones are gone.
    ///
    /// # Errors
    /// When they do not go, or the new ones do not become ready.
    pub(crate) async fn rollout_restart(&self) -> Result<()> {
        let deployment = format!("deployment/{APP}");
        self.namespace
            .kubectl(&["rollout", "restart", &deployment])
            .await?;
        self.wait_until_stable().await
    }

    /// Changes the number of pods, and waits until it is reached.
    ///
    /// # Errors
    /// When it is not.
    pub(crate) async fn scale(&self, replicas: u32) -> Result<()> {
        let (deployment, replicas) = (
            format!("deployment/{APP}"),
            format!("--replicas={replicas}"),
        );
        self.namespace
            .kubectl(&["scale", &deployment, &replicas])
            .await?;
        self.wait_until_stable().await
    }

    /// The names of its pods.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub(crate) async fn pods(&self) -> Result<Vec<String>> {
        let pods = self.namespace.pods(&selector()).await?;
        let names = pods
            .iter()
            .filter_map(|pod| pod["metadata"]["name"].as_str());
        Ok(names.map(str::to_owned).collect())
    }

    /// The name of its pod.
    ///
    /// # Errors
    /// When it has none or more.
    pub(crate) async fn only_pod(&self) -> Result<String> {
        let pods = self.pods().await?;
        let [pod] =
            <[String; 1]>::try_from(pods).map_err(|pods| anyhow!("one pod, not {pods:?}"))?;
        Ok(pod)
    }

    /// Waits until there are as many pods as are wanted, all ready and none ending.
    ///
    /// # Errors
    /// When that does not come.
    pub(crate) async fn wait_until_stable(&self) -> Result<()> {
        let deployment = format!("deployment/{APP}");
        self.namespace
            .kubectl(&["rollout", "status", &deployment, "--timeout=180s"])
            .await?;
        let deployment = self.namespace.json(&["get", &deployment]).await?;
        let replicas = deployment["spec"]["replicas"].as_u64();
        eventually("all pods are ready and none is ending", || async {
            let pods = self.namespace.pods(&selector()).await?;
            Ok(pods.iter().all(is_stable) && Some(pods.len() as u64) == replicas)
        })
        .await
    }
}

fn selector() -> String {
    format!("app={APP}")
}

/// Whether a pod is ready and does not end.
fn is_stable(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    let mut ready = conditions.filter(|condition| condition["type"] == "Ready");
    let is_ready = ready.any(|condition| condition["status"] == "True");
    is_ready && pod["metadata"]["deletionTimestamp"].is_null()
}
