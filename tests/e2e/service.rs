//! Services.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use serde_json::json;

use crate::namespace::Namespace;

/// The port of every Service here.
const PORT: u16 = 80;

/// Makes a Service of the pods with this label `app`, and returns its address.
///
/// # Errors
/// When it gets none.
pub(crate) async fn service(
    namespace: &Namespace,
    app: &str,
    target_port: u16,
) -> Result<SocketAddr> {
    namespace
        .apply(json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": { "name": app },
            "spec": {
                "selector": { "app": app },
                "ports": [{ "port": PORT, "targetPort": target_port }],
            },
        }))
        .await?;
    let service = namespace.json(&["get", "service", app]).await?;
    let ip = service["spec"]["clusterIP"].as_str().context("an address")?;
    Ok(SocketAddr::new(ip.parse()?, PORT))
}
