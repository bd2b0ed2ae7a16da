//! Watches objects and notifies of changes.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt;
use kube::api::{Api, WatchEvent, WatchParams};
use kube::core::Request;
use kube::{Client, Resource};
use serde::de::IgnoredAny;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tracing::debug;

use crate::requests::client;
use crate::watch::{WATCH_DEADLINE, WATCH_TIMEOUT_SECONDS};

/// The delay after a watch ended or failed.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// Notifies when one of the watched objects may have changed. It does not keep the objects.
#[derive(Debug, Default)]
pub struct ChangeNotifier {
    changes: Arc<Notify>,
    // Dropping the notifier aborts them.
    watches: JoinSet<()>,
}

// === impl ChangeNotifier ===

impl ChangeNotifier {
    /// Watches one more object. Notifies of it at least once.
    pub fn watch<K: Clone + Resource>(&mut self, api: &Api<K>, name: &str) {
        let (client, objects) = (client(api), Request::new(api.resource_url()));
        let params = WatchParams::default()
            .fields(&format!("metadata.name={name}"))
            .timeout(WATCH_TIMEOUT_SECONDS);
        let changes = Arc::clone(&self.changes);
        self.watches.spawn(async move {
            loop {
                let notified = notify(&client, &objects, &params, &changes);
                match timeout(WATCH_DEADLINE, notified).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => debug!(%error, "Watch failed"),
                    Err(_) => debug!("Watch timed out"),
                }
                sleep(RETRY_DELAY).await;
            }
        });
    }

    /// Waits for a change, or returns at once if there was one since the last wait.
    pub async fn changed(&self) {
        self.changes.notified().await;
    }
}

/// Notifies of each event of one watch, until it ends. It requests metadata only.
async fn notify(
    client: &Client,
    objects: &Request,
    params: &WatchParams,
    changes: &Notify,
) -> kube::Result<()> {
    // From any version: the first event is the present state.
    let request = objects.watch_metadata(params, "0");
    let request = request.map_err(kube::Error::BuildRequest)?;
    // Not decoded: any client may write metadata that cannot be.
    let mut events = pin!(client.request_events::<IgnoredAny>(request).await?);
    while let Some(event) = events.try_next().await? {
        match event {
            WatchEvent::Bookmark(_) => {}
            WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
            _ => changes.notify_one(),
        }
    }
    Ok(())
}
