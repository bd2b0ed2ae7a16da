//! Services, reached by their addresses: no name is resolved anywhere here.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::namespace::Namespace;

/// The port of every Service here.
const PORT: u16 = 80;

/// Makes a Service of the pods with this label `app`, and returns its address.
///
/// # Errors
/// When it gets none.
pub(crate) async fn of_pods(
    namespace: &Namespace,
    app: &str,
    target_port: u16,
) -> Result<SocketAddr> {
    let port = json!({ "port": PORT, "targetPort": target_port });
    make(
        namespace,
        app,
        json!({ "selector": { "app": app }, "ports": [port] }),
    )
    .await
}

/// Makes a Service whose endpoints somebody else says, and returns its address.
///
/// # Errors
/// When it gets none.
pub(crate) async fn without_pods(namespace: &Namespace, name: &str) -> Result<SocketAddr> {
    make(namespace, name, json!({ "ports": [{ "port": PORT }] })).await
}

async fn make(namespace: &Namespace, name: &str, spec: Value) -> Result<SocketAddr> {
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
