//! The memory of a drainer that waits for a replacement of its pod, and asks the webhook for it.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use drainer::WebhookAccess;
use serde_json::json;
use tempfile::TempDir;
use tests::drainer_token::pod_token;
use tests::timing::SECOND;
use tests::until::wait_until;
use tests::webhook::Webhook;
use tokio::time::sleep;
use webhook::drainer_api::{ApiServer, EndpointSlicePage, Features, PodIdentity};

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
    let (_webhook, access) = start_webhook().await;
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
async fn start_webhook() -> (Webhook, WebhookAccess) {
    let features = Features {
        replacement: true,
        report: None,
    };
    let (webhook, address) = Webhook::start_with_drainer_api(Cluster, features).await;
    let der = webhook.ca.lines().filter(|line| !line.starts_with('-'));
    let access = WebhookAccess {
        address: format!("localhost:{}", address.port()),
        ca: der.collect(),
        ..WebhookAccess::default()
    };
    (webhook, access)
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
