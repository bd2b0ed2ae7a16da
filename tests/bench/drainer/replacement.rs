//! The memory of a drainer that waits for a replacement of its pod, and asks the webhook for it.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use drainer::WebhookAccess;
use serde_json::json;
use tempfile::TempDir;
use tests::drainer_token::pod_token;
use tests::timing::SECOND;
use tests::until::wait_until;
use tests::webhook::{Webhook, server};
use tokio::time::sleep;
use webhook::drainer_api::{self, ApiServer, EndpointSlicePage, Features, Metrics, PodIdentity};
use webhook::server::{DrainerApiPort, Limits};

use crate::fixture::{Fixture, memory};

/// A cluster with one pod, which nothing replaces.
struct Cluster;

/// The UID of the pod.
const UID: &str = "7";

/// How long the drainer asks, once a second, before it is measured.
const WARM_UP: Duration = Duration::from_secs(5);

/// Measures it.
pub(crate) async fn measure(fixture: &Fixture, program: &Path) -> Result<()> {
    let dir = TempDir::new()?;
    let token = dir.path().join("token");
    fs::write(&token, pod_token("shop", "edge-1", UID, "valid"))?;
    let (_webhook, access) = start_webhook().await?;
    let access = WebhookAccess { token, ..access };
    let drainer = fixture
        .builder(program)?
        .timing(|timing| timing.wait_for_replacement = 600 * SECOND)
        .with_config(|config| config.webhook = access)
        .start()
        .await?;
    let _hooks = drainer.call_pod_hooks()?;
    let want = "another ready endpoint of Service edge";
    wait_until("the webhook answers", 10 * SECOND, || async {
        Ok(drainer.status().await?.waiting_for.as_deref() == Some(want))
    })
    .await?;
    sleep(WARM_UP).await;
    memory("waiting for a replacement", ["3 MiB", "1 MiB"], &drainer)
}

/// Starts a webhook that answers drainers. Returns how they call it, but for their token.
async fn start_webhook() -> Result<(Webhook, WebhookAccess)> {
    let (mut server, ca) = server(Limits::default());
    let listener = webhook::server::listen((Ipv4Addr::LOCALHOST, 0).into())?;
    let address = format!("localhost:{}", listener.local_addr()?.port());
    let metrics = Metrics::register(&mut server.registry);
    let features = Features {
        replacement: true,
        report: None,
    };
    server.drainer_api = Some(DrainerApiPort {
        listener,
        failed_handshakes: metrics.failed_handshakes.clone(),
        router: Box::new(move || Ok(drainer_api::router(Cluster, features, &metrics))),
        limits: drainer_api::limits(Duration::ZERO),
    });
    let der = ca.lines().filter(|line| !line.starts_with('-'));
    let access = WebhookAccess {
        address,
        ca: der.collect(),
        ..WebhookAccess::default()
    };
    Ok((Webhook::run(server, ca).await, access))
}

// === impl Cluster ===

impl ApiServer for Cluster {
    async fn review_token(&self, _: &str) -> Result<Option<PodIdentity>> {
        Ok(Some(PodIdentity {
            namespace: "shop".to_owned(),
            name: "edge-1".to_owned(),
            uid: UID.to_owned(),
        }))
    }

    async fn endpoint_slices(&self, _: &str, _: Option<&str>) -> Result<EndpointSlicePage> {
        let slice = json!({
            "metadata": { "labels": { "kubernetes.io/service-name": "edge" } },
            "addressType": "IPv4",
            "endpoints": [{
                "conditions": { "ready": false, "serving": true, "terminating": true },
                "targetRef": { "kind": "Pod", "uid": UID },
            }],
        });
        Ok(EndpointSlicePage {
            slices: vec![serde_json::from_value(slice)?],
            next: None,
        })
    }
}
