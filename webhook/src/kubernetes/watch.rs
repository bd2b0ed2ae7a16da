//! Tells that an object may have changed.

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

/// How long the API server keeps a watch open, in seconds.
const WATCH_TIMEOUT_SECONDS: u32 = 290;

/// How long a watch may take in all: a little longer, since one that died in silence has nobody who
/// ends it. The client itself waits for an answer for ever.
const DEADLINE: Duration = Duration::from_secs(WATCH_TIMEOUT_SECONDS as u64 + 10);

/// The pause after a watch that ended or could not be opened.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// Rings when one of its objects may have changed. What they are is read by who hears it.
#[derive(Debug, Default)]
pub(super) struct ChangeNotifier {
    changes: Arc<Notify>,
    // They end with the bell.
    watches: JoinSet<()>,
}

// === impl ChangeNotifier ===

impl ChangeNotifier {
    /// Rings for this object too, from now on and at least once.
    pub(super) fn watch<K>(&mut self, api: Api<K>, name: &str)
    where
        K: Clone + Debug + DeserializeOwned + Send + 'static,
    {
        let watched = WatchParams::default()
            .fields(&format!("metadata.name={name}"))
            .timeout(WATCH_TIMEOUT_SECONDS);
        let rung = Arc::clone(&self.changes);
        self.watches.spawn(async move {
            loop {
                match timeout(DEADLINE, notify(&api, &watched, &rung)).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => debug!(%error, "Watch ended"),
                    Err(_) => debug!("Watch fell silent"),
                }
                sleep(RETRY_DELAY).await;
            }
        });
    }

    /// Waits until it rings, or has rung since the last wait.
    pub(super) async fn changed(&self) {
        self.changes.notified().await;
    }
}

/// Rings for each event of one watch, until that ends. Metadata is enough.
async fn notify<K>(api: &Api<K>, watched: &WatchParams, changes: &Notify) -> kube::Result<()>
where
    K: Clone + Debug + DeserializeOwned,
{
    // From any version on: the first event tells what there is.
    let mut events = pin!(api.watch_metadata(watched, "0").await?);
    while let Some(event) = events.try_next().await? {
        match event {
            WatchEvent::Bookmark(_) => {}
            WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
            _ => changes.notify_one(),
        }
    }
    Ok(())
}
