//! Watches objects and notifies of changes.

use std::fmt::Debug;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt;
use kube::api::{Api, WatchEvent, WatchParams};
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tracing::debug;

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
    pub fn watch<K>(&mut self, api: Api<K>, name: &str)
    where
        K: Clone + Debug + DeserializeOwned + Send + 'static,
    {
        let params = WatchParams::default()
            .fields(&format!("metadata.name={name}"))
            .timeout(WATCH_TIMEOUT_SECONDS);
        let changes = Arc::clone(&self.changes);
        self.watches.spawn(async move {
            loop {
                match timeout(WATCH_DEADLINE, notify(&api, &params, &changes)).await {
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
async fn notify<K>(api: &Api<K>, params: &WatchParams, changes: &Notify) -> kube::Result<()>
where
    K: Clone + Debug + DeserializeOwned,
{
    // From any version: the first event is the present state.
    let mut events = pin!(api.watch_metadata(params, "0").await?);
    while let Some(event) = events.try_next().await? {
        match event {
            WatchEvent::Bookmark(_) => {}
            WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
            _ => changes.notify_one(),
        }
    }
    Ok(())
}
