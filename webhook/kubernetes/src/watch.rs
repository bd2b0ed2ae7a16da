//! Lists the objects of one kind and then watches them.
//! <https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes>

use std::ops::ControlFlow;
use std::pin::pin;
use std::time::Duration;

use futures_util::TryStreamExt;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use tokio::time::{Instant, sleep, timeout_at};

use crate::cluster_reader::{
    ClusterReader, DEADLINE, NamespacedObject, Object, call_of, for_each, with_deadline,
};
use crate::read_error::ReadError;

/// How long the API server keeps a watch open, in seconds.
pub(crate) const WATCH_TIMEOUT_SECONDS: u32 = 290;

/// How long a watch may take in all: a little longer, for a connection that broke without notice.
pub(crate) const WATCH_DEADLINE: Duration = Duration::from_secs(WATCH_TIMEOUT_SECONDS as u64 + 10);

/// The delay before the next watch. No change is lost meanwhile.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The HTTP status for a version of which the API server no longer knows the changes.
const GONE: u16 = 410;

/// Which objects of a kind to read.
#[derive(Debug, Clone, Default)]
pub struct ObjectSelector {
    /// Their namespace; `None` for all.
    pub namespace: Option<String>,
    /// The selectors of labels and fields.
    pub params: ListParams,
}

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
    /// Visits the objects of a kind that a selector matches. Returns the version of the list, from which
    /// [`ClusterReader::watch`] continues.
    ///
    /// # Errors
    /// If the objects, or some of them, cannot be read.
    pub async fn select<K: NamespacedObject>(
        &self,
        selector: &ObjectSelector,
        visit: impl FnMut(K),
    ) -> Result<String, ReadError> {
        for_each(&self.api(selector), selector.params.clone(), visit).await
    }

    /// Visits each object when it changes and when it is deleted, from this version of a list on, until `visit` breaks.
    /// An object that changed while the API server was away is visited once, in its last state, but not if it was
    /// deleted; one that did not change may be visited again. `report` gets the errors after which the watch goes on.
    ///
    /// # Errors
    /// If the user may not watch these objects.
    pub async fn watch<K: NamespacedObject>(
        &self,
        selector: &ObjectSelector,
        mut version: String,
        mut visit: impl FnMut(Change<K>) -> ControlFlow<()>,
        mut report: impl FnMut(&ReadError),
    ) -> Result<(), ReadError> {
        let api: Api<K> = self.api(selector);
        loop {
            match watch_once(&api, selector, &mut version, &mut visit).await {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => return Ok(()),
                Err(error @ (ReadError::Forbidden(_) | ReadError::Unauthorized(_))) => {
                    return Err(error);
                }
                Err(error) => report(&error),
            }
            sleep(RETRY_DELAY).await;
        }
    }

    fn api<K: NamespacedObject>(&self, selector: &ObjectSelector) -> Api<K> {
        let client = self.client.clone();
        match &selector.namespace {
            Some(namespace) => Api::namespaced(client, namespace),
            None => Api::all(client),
        }
    }
}

/// Visits the objects of one watch, or of a list if `version` is empty, and moves `version` on with them; it becomes
/// empty when the API server no longer knows the changes since.
async fn watch_once<K: Object>(
    api: &Api<K>,
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
        *version = for_each(api, selector.params.clone(), visit).await?;
        return Ok(flow);
    }
    let deadline = Instant::now() + WATCH_DEADLINE;
    let call = call_of("watch", api);
    let params = WatchParams {
        label_selector: selector.params.label_selector.clone(),
        field_selector: selector.params.field_selector.clone(),
        ..WatchParams::default().timeout(WATCH_TIMEOUT_SECONDS)
    };
    let opened = async { Ok(api.watch(&params, version).await) };
    let opened = with_deadline(DEADLINE, call.clone(), opened).await?;
    let ended = async {
        let mut events = pin!(opened?);
        let mut flow = ControlFlow::Continue(());
        loop {
            let event = timeout_at(deadline, events.try_next()).await;
            let Some(event) = event.unwrap_or(Ok(None))? else {
                return Ok(ControlFlow::Continue(()));
            };
            match event {
                WatchEvent::Bookmark(bookmark) => *version = bookmark.metadata.resource_version,
                WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    move_on(version, &object);
                    flow = visit(Change::Applied(object));
                }
                WatchEvent::Deleted(object) => {
                    move_on(version, &object);
                    flow = visit(Change::Deleted(object));
                }
            }
            if flow.is_break() {
                return Ok(flow);
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

/// Continues after this object.
fn move_on<K: Object>(version: &mut String, object: &K) {
    if let Some(next) = &object.meta().resource_version {
        version.clone_from(next);
    }
}
