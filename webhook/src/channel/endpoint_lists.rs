//! Lists of EndpointSlices, each shared for a second by all pods of its namespace that ask.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use super::api_server::ApiServer;
use super::metrics::Metrics;
use super::replacement::NamespaceEndpoints;

/// How long a list answers requests, from its start.
const MAX_AGE: Duration = Duration::from_secs(1);

/// For one list, including the wait for others. A request does not wait so long, but a later one gets its result.
const LIST_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of lists at a time.
const MAX_CONCURRENT: usize = 2;

/// Maximum number of namespaces with a list.
const MAX_NAMESPACES: usize = 256;

/// The lists, by namespace.
pub(super) struct EndpointLists<A> {
    api: Arc<A>,
    lists: Mutex<BTreeMap<String, EndpointList>>,
    permits: Arc<Semaphore>,
    metrics: Metrics,
}

/// A list that is running, or has a result.
struct EndpointList {
    started: Instant,
    result: Shared<BoxFuture<'static, ListResult>>,
}

/// The endpoints, or why they are unknown.
type ListResult = Result<Arc<NamespaceEndpoints>, Arc<str>>;

// === impl EndpointLists ===

impl<A: ApiServer> EndpointLists<A> {
    pub(super) fn new(api: Arc<A>, metrics: &Metrics) -> Self {
        Self {
            api,
            lists: Mutex::default(),
            permits: Arc::new(Semaphore::new(MAX_CONCURRENT)),
            metrics: metrics.clone(),
        }
    }

    /// The endpoints of a namespace, as they were at most a second before this call, or at its end.
    ///
    /// # Errors
    /// Why they are unknown.
    pub(super) async fn get(&self, namespace: &str) -> ListResult {
        self.list(namespace)?.await
    }

    /// The list of a namespace: a running one, a recent one, or a new one.
    fn list(&self, namespace: &str) -> Result<Shared<BoxFuture<'static, ListResult>>, Arc<str>> {
        let now = Instant::now();
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        let is_current =
            |list: &EndpointList| now < list.started + MAX_AGE || list.result.peek().is_none();
        lists.retain(|_, list| is_current(list));
        if let Some(list) = lists.get(namespace) {
            return Ok(list.result.clone());
        }
        if lists.len() == MAX_NAMESPACES {
            return Err("too many namespaces at once".into());
        }
        let result = self.start(namespace.to_owned());
        let list = EndpointList {
            started: now,
            result: result.clone(),
        };
        lists.insert(namespace.to_owned(), list);
        Ok(result)
    }

    /// Starts a list in a task, which goes on if the request that needs it is given up.
    fn start(&self, namespace: String) -> Shared<BoxFuture<'static, ListResult>> {
        let (api, permits) = (Arc::clone(&self.api), Arc::clone(&self.permits));
        let metrics = self.metrics.clone();
        let task = tokio::spawn(async move {
            let listed = timeout(LIST_TIMEOUT, async {
                let _permit = permits.acquire().await?;
                let slices = api.endpoint_slices(&namespace).await?;
                anyhow::Ok(NamespaceEndpoints::new(slices))
            });
            let listed = listed.await.unwrap_or_else(|elapsed| Err(elapsed.into()));
            metrics.count_endpoint_list(listed.is_ok());
            match listed {
                Ok(endpoints) => Ok(Arc::new(endpoints)),
                Err(error) => Err(format!("{error:#}").into()),
            }
        });
        let result = task.map(|ended| ended.unwrap_or_else(|error| Err(error.to_string().into())));
        result.boxed().shared()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::join_all;
    use tokio::time::{sleep, timeout};

    use super::*;
    use crate::channel::{EndpointSlice, PodIdentity};
    use crate::metrics::registry;

    /// Takes this long for a list, and counts them.
    #[derive(Default)]
    struct SlowApiServer {
        latency: Duration,
        lists: AtomicUsize,
        running: AtomicUsize,
        most_running: AtomicUsize,
    }

    impl ApiServer for SlowApiServer {
        async fn review_token(&self, _: &str) -> anyhow::Result<Option<PodIdentity>> {
            Ok(None)
        }

        async fn endpoint_slices(&self, namespace: &str) -> anyhow::Result<Vec<EndpointSlice>> {
            self.lists.fetch_add(1, Ordering::Relaxed);
            let running = self.running.fetch_add(1, Ordering::Relaxed) + 1;
            self.most_running.fetch_max(running, Ordering::Relaxed);
            sleep(self.latency).await;
            self.running.fetch_sub(1, Ordering::Relaxed);
            anyhow::ensure!(namespace != "forbidden", "forbidden");
            Ok(Vec::new())
        }
    }

    fn lists(latency_ms: u64) -> EndpointLists<SlowApiServer> {
        let api = SlowApiServer {
            latency: Duration::from_millis(latency_ms),
            ..SlowApiServer::default()
        };
        EndpointLists::new(Arc::new(api), &Metrics::register(&mut registry()))
    }

    #[tokio::test(start_paused = true)]
    async fn one_list_answers_all_requests_of_a_second() {
        let lists = lists(100);
        for (second, want) in [(0, 1), (1, 2), (2, 3)] {
            let answers = join_all((0..1_000).map(|_| lists.get("shop"))).await;
            assert!(answers.iter().all(Result::is_ok));
            let count = lists.api.lists.load(Ordering::Relaxed);
            assert_eq!(count, want, "second {second}");
            sleep(MAX_AGE).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn slow_list_answers_a_later_request() {
        let lists = lists(1_500);
        let impatient = Duration::from_millis(800);
        assert!(timeout(impatient, lists.get("shop")).await.is_err());
        assert!(timeout(impatient, lists.get("shop")).await.is_ok());
        assert_eq!(lists.api.lists.load(Ordering::Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn lists_of_many_namespaces_are_bounded() {
        let lists = lists(10);
        let names: Vec<_> = (0..2 * MAX_NAMESPACES).map(|n| n.to_string()).collect();
        let answers = join_all(names.iter().map(|name| lists.get(name))).await;
        let answered = answers.iter().filter(|answer| answer.is_ok()).count();
        assert_eq!(answered, MAX_NAMESPACES);
        let most_running = lists.api.most_running.load(Ordering::Relaxed);
        assert_eq!(most_running, MAX_CONCURRENT);
    }

    #[tokio::test(start_paused = true)]
    async fn failure_is_the_answer() {
        let lists = lists(10);
        let error = lists.get("forbidden").await.unwrap_err();
        assert_eq!(&*error, "forbidden");
    }
}
