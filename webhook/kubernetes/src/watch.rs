//! Lists the objects of one kind and then watches them.
//! <https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes>

use std::ops::ControlFlow;
use std::pin::pin;
use std::time::Duration;

use futures_util::TryStreamExt;
use kube::api::{WatchEvent, WatchParams};
use tokio::time::{Instant, sleep, timeout_at};

use crate::cluster_reader::{ClusterReader, DEADLINE, Object, ObjectSelector, with_deadline};
use crate::read_error::ReadError;
use crate::requests::Item;

/// How long the API server keeps a watch open, in seconds.
pub(crate) const WATCH_TIMEOUT_SECONDS: u32 = 290;

/// How long a watch may take in all: a little longer, for a connection that broke without notice.
pub(crate) const WATCH_DEADLINE: Duration = Duration::from_secs(WATCH_TIMEOUT_SECONDS as u64 + 10);

/// The delay before the next watch. No change is lost meanwhile.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The HTTP status for a version of which the API server no longer knows the changes.
const GONE: u16 = 410;

/// An object that a watch shows.
#[derive(Debug, Clone, PartialEq)]
pub enum Change<K> {
    /// It was created, or has changed.
    Applied(K),
    /// It was deleted, with its last state.
    Deleted(K),
}

// === impl Change ===

impl<K> Change<K> {
    pub fn into_object(self) -> K {
        match self {
            Self::Applied(object) | Self::Deleted(object) => object,
        }
    }
}

// === impl ClusterReader ===

impl ClusterReader {
    /// Visits each object when it changes and when it is deleted, from this version of a list on, until `visit` breaks.
    /// An object that changed while the API server was away is visited once, in its last state, but not if it was
    /// deleted; one that did not change may be visited again. An error after which the watch goes on is reported.
    ///
    /// # Errors
    /// If the user may not watch these objects.
    pub async fn watch<K: Object>(
        &self,
        selector: &ObjectSelector,
        mut version: String,
        mut visit: impl FnMut(Change<K>) -> ControlFlow<()>,
    ) -> Result<(), ReadError> {
        loop {
            match watch_once(self, selector, &mut version, &mut visit).await {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => return Ok(()),
                Err(error @ (ReadError::Forbidden(_) | ReadError::Unauthorized(_))) => {
                    return Err(error);
                }
                Err(error) => (self.report)(&error),
            }
            sleep(RETRY_DELAY).await;
        }
    }
}

/// Visits the objects of one watch, or of a list if `version` is empty, and moves `version` on with them; it becomes
/// empty when the API server no longer knows the changes since.
async fn watch_once<K: Object>(
    reader: &ClusterReader,
    selector: &ObjectSelector,
    version: &mut String,
    visit: &mut impl FnMut(Change<K>) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, ReadError> {
    if version.is_empty() {
        let mut flow = ControlFlow::Continue(());
        let visit = |object| {
            if flow.is_continue() {
                flow = visit(Change::Applied(object));
            }
        };
        *version = reader.select(selector, visit).await?;
        return Ok(flow);
    }
    let deadline = Instant::now() + WATCH_DEADLINE;
    let (objects, call) = selector.objects::<K>("watch");
    let params = WatchParams {
        label_selector: selector.params.label_selector.clone(),
        field_selector: selector.params.field_selector.clone(),
        ..WatchParams::default().timeout(WATCH_TIMEOUT_SECONDS)
    };
    let opened = async {
        let request = objects.watch(&params, version);
        let request = request.map_err(kube::Error::BuildRequest)?;
        Ok(reader.client.request_events::<Item<K>>(request).await)
    };
    let opened = with_deadline(DEADLINE, call.clone(), opened).await?;
    let ended = async {
        let mut events = pin!(opened?);
        loop {
            let event = timeout_at(deadline, events.try_next()).await;
            let Some(event) = event.unwrap_or(Ok(None))? else {
                return Ok(ControlFlow::Continue(()));
            };
            let (item, change) = match event {
                WatchEvent::Bookmark(bookmark) => {
                    *version = bookmark.metadata.resource_version;
                    continue;
                }
                WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
                WatchEvent::Added(item) | WatchEvent::Modified(item) => {
                    (item, Change::Applied as fn(K) -> _)
                }
                WatchEvent::Deleted(item) => (item, Change::Deleted as fn(K) -> _),
            };
            // Continues after this object.
            version.clone_from(&item.resource_version);
            let object = reader.keep(item, &call);
            if object.is_some_and(|object| visit(change(object)).is_break()) {
                return Ok(ControlFlow::Break(()));
            }
        }
    };
    match ended.await {
        Err(kube::Error::Api(status)) if status.code == GONE => {
            version.clear();
            Ok(ControlFlow::Continue(()))
        }
        ended => ended.map_err(|error| ReadError::from_kube(call, error)),
    }
}
