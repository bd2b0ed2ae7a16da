//! The upstream of the Envoys: fortio's echo server.

use std::net::SocketAddr;

use anyhow::Result;
use serde_json::json;

use crate::images;
use crate::namespace::Namespace;
use crate::restricted;
use crate::service;

/// Deploys the echo server, waits until it is ready, and returns the address of its Service.
pub(crate) async fn start(namespace: &Namespace) -> Result<SocketAddr> {
    let labels = json!({ "app": "echo" });
    namespace
        .apply(json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": { "name": "echo" },
            "spec": {
                "selector": { "matchLabels": labels },
                "template": {
                    "metadata": { "labels": labels },
                    "spec": {
                        "automountServiceAccountToken": false,
                        "terminationGracePeriodSeconds": 1,
                        "securityContext": restricted::pod(),
                        "containers": [{
                            "name": "echo",
                            "image": images::backend()?,
                            "imagePullPolicy": "IfNotPresent",
                            // By default it limits the delay of a response to 1.5 s.
                            "args": [
                                "server", "-http-port", "8080", "-max-echo-delay", "30s",
                                "-grpc-port", "disabled", "-redirect-port", "disabled",
                                "-tcp-port", "disabled", "-udp-port", "disabled",
                            ],
                            "ports": [{ "name": "http", "containerPort": 8080 }],
                            "readinessProbe": { "tcpSocket": { "port": "http" }, "periodSeconds": 1 },
                            "securityContext": restricted::container(),
                        }],
                    },
                },
            },
        }))
        .await?;
    let address = service::create_for_pods(namespace, "echo", labels, "TCP", "http").await?;
    wait_until_ready(namespace).await?;
    Ok(address)
}

/// Scales the echo server, and waits until the replicas are ready.
pub(crate) async fn scale(namespace: &Namespace, replicas: u32) -> Result<()> {
    let scale = format!("scale deployment/echo --replicas={replicas}");
    namespace.run(&scale).await?;
    wait_until_ready(namespace).await
}

async fn wait_until_ready(namespace: &Namespace) -> Result<()> {
    let status = "rollout status deployment/echo --timeout=120s";
    namespace.run(status).await.map(drop)
}
