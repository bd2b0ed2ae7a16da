//! Services, which the tests reach by IP address: they resolve no names.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::namespace::Namespace;

/// The port of every Service.
const PORT: u16 = 80;

/// Creates a Service for a named port of the pods with `labels`, and returns its address.
pub(crate) async fn create_for_pods(
    namespace: &Namespace,
    name: &str,
    labels: Value,
    protocol: &str,
    port: &str,
) -> Result<SocketAddr> {
    let port = json!({ "port": PORT, "targetPort": port, "protocol": protocol });
    let spec = json!({ "selector": labels, "ports": [port] });
    create(namespace, name, spec).await
}

/// Creates a Service without selector, whose endpoints are written separately, and returns its address.
pub(crate) async fn create_without_selector(
    namespace: &Namespace,
    name: &str,
) -> Result<SocketAddr> {
    create(namespace, name, json!({ "ports": [{ "port": PORT }] })).await
}

async fn create(namespace: &Namespace, name: &str, spec: Value) -> Result<SocketAddr> {
    namespace
        .apply(json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": { "name": name },
            "spec": spec,
        }))
        .await?;
    let service = namespace.json(&["get", "service", name]).await?;
    let ip = service["spec"]["clusterIP"]
        .as_str()
        .context("the Service has no cluster IP")?;
    Ok(SocketAddr::new(ip.parse()?, PORT))
}
