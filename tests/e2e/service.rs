//! Services, reached by their addresses: no name is resolved anywhere here.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::namespace::Namespace;

/// The port of every Service here.
const PORT: u16 = 80;

/// Makes a Service of the pods with these labels and their port of this name, and returns its address.
///
/// # Errors
/// When it gets none.
pub(crate) async fn create_for_pods(
    namespace: &Namespace,
    name: &str,
    labels: Value,
    port: &str,
) -> Result<SocketAddr> {
    let port = json!({ "port": PORT, "targetPort": port });
    create(
        namespace,
        name,
        json!({ "selector": labels, "ports": [port] }),
    )
    .await
}

/// Makes a Service whose endpoints somebody else says, and returns its address.
///
/// # Errors
/// When it gets none.
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
        .context("an address")?;
    Ok(SocketAddr::new(ip.parse()?, PORT))
}
