//! The memory of a drainer that waits for a replacement of its pod, and asks the webhook for it.

use std::fs;
use std::time::Duration;

use anyhow::Result;
use drainer::WebhookAccess;
use tempfile::NamedTempFile;
use tests::drainer::DrainerBuilder;
use tests::drainer_token::{MemoryApiServer, pod_token, slice};
use tests::test_ca::base64_of_pem;
use tests::timing::SECOND;
use tests::webhook::Webhook;
use tokio::time::sleep;
use webhook::drainer_api::Features;

use crate::print::memory;

/// The UID of the pod, which nothing replaces.
const UID: &str = "7";

/// How long the drainer asks, once a second, before it is measured.
const WARM_UP: Duration = Duration::from_secs(5);

/// Measures it.
pub(crate) async fn measure(drainer: DrainerBuilder) -> Result<()> {
    let api = MemoryApiServer::default();
    api.set_slices(vec![slice(&[(UID, false)])]);
    let features = Features {
        replacement: true,
        report: None,
    };
    let (webhook, address) = Webhook::start_with_drainer_api(api, features).await;
    let token = NamedTempFile::new()?;
    fs::write(token.path(), pod_token("shop", "edge-1", UID, "valid"))?;
    let access = WebhookAccess {
        address: format!("localhost:{}", address.port()),
        ca: base64_of_pem(&webhook.ca),
        token: token.path().to_owned(),
        ..WebhookAccess::default()
    };
    let drainer = drainer.timing(|timing| timing.wait_for_replacement = 600 * SECOND);
    let drainer = drainer.with_config(|config| config.webhook = access);
    let drainer = drainer.start().await?;
    let _hooks = drainer.call_pod_hooks()?;
    let want = "another ready endpoint of Service edge";
    drainer
        .wait_for_status(want, |status| status.waiting_for.as_deref() == Some(want))
        .await?;
    sleep(WARM_UP).await;
    memory("waiting for a replacement", ["3 MiB", "1 MiB"], &drainer)
}
