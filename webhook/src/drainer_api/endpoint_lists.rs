//! Lists of EndpointSlices, each shared for a second by all pods of its namespace that ask.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};
use tracing::warn;

use super::api_server::{ApiServer, EndpointSlicePage, FAILURE_LOG_RATE, TooLarge};
use super::metrics::Metrics;
use super::replacement::{EndpointSlice, NamespaceEndpoints, NamespaceEndpointsBuilder};
use super::shared_call::{CallResult, SharedCall};
use crate::rate_limit::RateLimit;

/// How long a list answers requests, from its end.
const MAX_AGE: Duration = Duration::from_secs(1);

/// How long a failed list does, and one of a namespace that has too many endpoints: a list of 33 MB is not read again
/// each second.
const MAX_FAILURE_AGE: Duration = Duration::from_secs(5);
const MAX_TOO_LARGE_AGE: Duration = Duration::from_secs(60);

/// For one list, including the wait for others. A request does not wait so long, but a later one gets its result.
const LIST_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of lists at a time.
const MAX_CONCURRENT: usize = 2;

/// Maximum number of namespaces with a list.
const MAX_NAMESPACES: usize = 256;

/// Maximum number of pages of a list.
const MAX_PAGES: usize = 100;

/// Maximum number of endpoints of a list: those of a thousand slices with a hundred each.
const MAX_ENDPOINTS: usize = 100_000;

/// Maximum number of endpoints of all lists: 6 MiB. Those that run always fit, since those that have ended make room.
const MAX_TOTAL_ENDPOINTS: usize = MAX_CONCURRENT * MAX_ENDPOINTS;

/// The lists, by namespace.
pub(super) struct EndpointLists<A> {
    api: Arc<A>,
    lists: Mutex<BTreeMap<String, EndpointList>>,
    /// A permit for each list that runs.
    permits: Semaphore,
    /// A permit for each endpoint that is kept.
    capacity: Arc<Semaphore>,
    metrics: Metrics,
    failure_log: RateLimit<()>,
}

/// A list that is running, or has ended.
type EndpointList = SharedCall<Arc<ListedEndpoints>>;

/// The endpoints of a namespace, and their share of the memory for all.
pub(super) struct ListedEndpoints {
    pub(super) endpoints: NamespaceEndpoints,
    capacity: OwnedSemaphorePermit,
}

// === impl EndpointLists ===

impl<A: ApiServer> EndpointLists<A> {
    pub(super) fn new(api: Arc<A>, metrics: &Metrics, now: Instant) -> Arc<Self> {
        Arc::new(Self {
            api,
            lists: Mutex::default(),
            permits: Semaphore::new(MAX_CONCURRENT),
            capacity: Arc::new(Semaphore::new(MAX_TOTAL_ENDPOINTS)),
            metrics: metrics.clone(),
            failure_log: RateLimit::new(FAILURE_LOG_RATE, FAILURE_LOG_RATE, now),
        })
    }

    /// The endpoints of a namespace, from a list that is running, that ended less than a second ago, or that begins
    /// now.
    ///
    /// # Errors
    /// Why they are unknown.
    pub(super) async fn get(self: &Arc<Self>, namespace: &str) -> CallResult<Arc<ListedEndpoints>> {
        let list = {
            let mut lists = self.current_lists();
            let known = lists.get(namespace).cloned();
            if known.is_none() && lists.len() == MAX_NAMESPACES {
                return Err("too many namespaces at the same time".into());
            }
            known.unwrap_or_else(|| {
                let list = Arc::clone(self).start(namespace.to_owned());
                lists.insert(namespace.to_owned(), list.clone());
                list
            })
        };
        list.result().await
    }

    /// The lists that run or whose results are kept.
    fn current_lists(&self) -> MutexGuard<'_, BTreeMap<String, EndpointList>> {
        let now = Instant::now();
        let mut lists = self.lists.lock();
        lists.retain(|_, list| list.is_current(now));
        lists
    }

    fn start(self: Arc<Self>, namespace: String) -> EndpointList {
        let list = async move {
            let listed = timeout(LIST_TIMEOUT, self.read(&namespace)).await;
            let listed = listed.unwrap_or_else(|elapsed| Err(elapsed.into()));
            self.metrics.count_endpoint_list(&listed);
            if let Err(error) = &listed
                && self.failure_log.try_take(&(), Instant::now())
            {
                let error = format!("{error:#}");
                let message = "Cannot list EndpointSlices: waits for a replacement time out";
                warn!(namespace, error, "{message}");
            }
            match listed {
                Ok(listed) => (Ok(Arc::new(listed)), MAX_AGE),
                Err(error) => match error.downcast::<TooLarge>() {
                    Ok(error) => (Err(error.to_string().into()), MAX_TOO_LARGE_AGE),
                    Err(_) => {
                        let hidden = "the EndpointSlices of the namespace cannot be listed";
                        (Err(hidden.into()), MAX_FAILURE_AGE)
                    }
                },
            }
        };
        SharedCall::start(list)
    }

    /// Reads the endpoints of a namespace. One page at a time is in memory.
    async fn read(&self, namespace: &str) -> anyhow::Result<ListedEndpoints> {
        let _permit = self.permits.acquire().await?;
        let mut endpoints = NamespaceEndpointsBuilder::default();
        let mut capacity = self.reserve(0).await?;
        let mut token = None;
        for _ in 0..MAX_PAGES {
            let page = self.api.endpoint_slices(namespace, token.as_deref());
            let EndpointSlicePage { slices, next } = page.await?;
            let count: usize = slices.iter().map(EndpointSlice::endpoint_count).sum();
            ensure!(
                capacity.num_permits() + count <= MAX_ENDPOINTS,
                TooLarge(format!(
                    "the namespace has more than {MAX_ENDPOINTS} endpoints"
                ))
            );
            capacity.merge(self.reserve(count).await?);
            for slice in slices {
                endpoints.add(slice);
            }
            match next {
                Some(next) => token = Some(next),
                None => {
                    return Ok(ListedEndpoints {
                        endpoints: endpoints.build(),
                        capacity,
                    });
                }
            }
        }
        Err(TooLarge("the namespace has too many EndpointSlices".to_owned()).into())
    }

    /// Reserves memory for endpoints.
    async fn reserve(&self, endpoints: usize) -> anyhow::Result<OwnedSemaphorePermit> {
        let permits = u32::try_from(endpoints)?;
        self.make_room(endpoints);
        // A dropped list keeps its memory until the last request that waited for it is answered.
        let reserved = Arc::clone(&self.capacity).acquire_many_owned(permits);
        Ok(reserved.await?)
    }

    /// Drops lists that have ended, the largest first, while there is no memory for so many endpoints.
    fn make_room(&self, endpoints: usize) {
        let mut lists = self.current_lists();
        while self.capacity.available_permits() < endpoints {
            let ended = lists.iter().filter_map(|(namespace, list)| {
                let listed = list.ended()?.as_ref().ok()?;
                Some((listed.capacity.num_permits(), namespace))
            });
            let Some((_, largest)) = ended.max() else {
                return;
            };
            let largest = largest.clone();
            lists.remove(&largest);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::join_all;
    use serde_json::json;
    use tokio::time::{sleep, timeout};

    use super::*;
    use crate::drainer_api::PodIdentity;
    use crate::metrics::{encode, registry};

    /// Takes this long for a page, and counts lists.
    #[derive(Default)]
    struct SlowApiServer {
        latency: Duration,
        /// The slices of each page.
        slices: Vec<EndpointSlice>,
        /// Whether there is always another page.
        continues: bool,
        lists: AtomicUsize,
        running: AtomicUsize,
        most_running: AtomicUsize,
    }

    impl ApiServer for SlowApiServer {
        async fn review_token(&self, _: &str) -> anyhow::Result<Option<PodIdentity>> {
            Ok(None)
        }

        async fn endpoint_slices(
            &self,
            namespace: &str,
            token: Option<&str>,
        ) -> anyhow::Result<EndpointSlicePage> {
            self.lists
                .fetch_add(usize::from(token.is_none()), Ordering::Relaxed);
            let running = self.running.fetch_add(1, Ordering::Relaxed) + 1;
            self.most_running.fetch_max(running, Ordering::Relaxed);
            sleep(self.latency).await;
            self.running.fetch_sub(1, Ordering::Relaxed);
            anyhow::ensure!(namespace != "forbidden", "forbidden");
            let slices = match namespace {
                "small" => vec![slice(1)],
                _ => self.slices.clone(),
            };
            Ok(EndpointSlicePage {
                slices,
                next: self.continues.then(|| "next".to_owned()),
            })
        }
    }

    impl EndpointLists<SlowApiServer> {
        fn of(api: SlowApiServer) -> Arc<Self> {
            Self::new(
                Arc::new(api),
                &Metrics::register(&mut registry()),
                Instant::now(),
            )
        }

        /// The number of lists so far.
        fn count(&self) -> usize {
            self.api.lists.load(Ordering::Relaxed)
        }
    }

    fn lists(latency_ms: u64) -> Arc<EndpointLists<SlowApiServer>> {
        EndpointLists::of(SlowApiServer {
            latency: Duration::from_millis(latency_ms),
            ..SlowApiServer::default()
        })
    }

    /// A slice with so many endpoints.
    fn slice(endpoints: usize) -> EndpointSlice {
        let slice = json!({"endpoints": vec![json!({}); endpoints]});
        serde_json::from_value(slice).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn one_list_answers_all_requests_of_a_second() {
        let lists = lists(100);
        for (second, want) in [(0, 1), (1, 2), (2, 3)] {
            let answers = join_all((0..1_000).map(|_| lists.get("shop"))).await;
            assert!(answers.iter().all(Result::is_ok));
            assert_eq!(lists.count(), want, "second {second}");
            sleep(MAX_AGE).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn slow_list_answers_a_later_request() {
        let lists = lists(1_500);
        let impatient = Duration::from_millis(800);
        for pause in [Duration::ZERO, MAX_AGE] {
            let before = lists.count();
            assert!(timeout(impatient, lists.get("shop")).await.is_err());
            sleep(pause).await;
            assert!(timeout(impatient, lists.get("shop")).await.is_ok());
            assert_eq!(lists.count(), before + 1);
            sleep(MAX_AGE).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn list_that_no_request_waits_for_is_not_kept() {
        let lists = lists(100);
        let impatient = Duration::from_millis(50);
        assert!(timeout(impatient, lists.get("shop")).await.is_err());
        sleep(Duration::from_secs(600)).await;
        assert!(lists.get("shop").await.is_ok());
        assert_eq!(lists.count(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn endpoints_are_bounded_by_namespace_and_in_total() {
        let api = |endpoints, continues| SlowApiServer {
            slices: vec![slice(endpoints)],
            continues,
            ..SlowApiServer::default()
        };
        let error = async |lists: &Arc<EndpointLists<_>>, namespace| {
            lists
                .get(namespace)
                .await
                .err()
                .unwrap_or_default()
                .to_string()
        };
        let lists = EndpointLists::of(api(MAX_ENDPOINTS, false));
        for (namespace, kept) in [("a", 1), ("b", 2), ("c", 2), ("d", 2)] {
            assert_eq!(error(&lists, namespace).await, "", "{namespace}");
            let free = lists.capacity.available_permits();
            assert_eq!(free, MAX_TOTAL_ENDPOINTS - kept * MAX_ENDPOINTS);
        }

        let lists = EndpointLists::of(api(MAX_ENDPOINTS / 10, true));
        let want = "the namespace has more than 100000 endpoints";
        assert_eq!(error(&lists, "shop").await, want);
        let lists = EndpointLists::of(api(1, true));
        let want = "the namespace has too many EndpointSlices";
        assert_eq!(error(&lists, "shop").await, want);
    }

    #[tokio::test(start_paused = true)]
    async fn largest_namespaces_keep_no_other_out() {
        let lists = EndpointLists::of(SlowApiServer {
            latency: Duration::from_millis(100),
            slices: vec![slice(MAX_ENDPOINTS)],
            ..SlowApiServer::default()
        });
        // Their lists follow each other.
        let large: Vec<_> = (0..16).map(|n| n.to_string()).collect();
        let is_listed = async |namespace: &String| lists.get(namespace).await.is_ok();
        let listed = join_all(large.iter().map(is_listed)).await;
        assert_eq!(listed, [true; 16]);
        // A small list is not dropped for a large one.
        sleep(MAX_AGE).await;
        for namespace in ["small", "0", "1", "2", "small"] {
            assert!(lists.get(namespace).await.is_ok(), "{namespace}");
        }
        assert_eq!(lists.count(), 16 + 4);
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
    async fn failure_is_the_answer_for_a_while() {
        let lists = lists(10);
        for (pause, want) in [(4, 1), (2, 1), (0, 2)] {
            let error = lists.get("forbidden").await.err();
            let hidden = "the EndpointSlices of the namespace cannot be listed";
            assert_eq!(error.as_deref(), Some(hidden));
            assert_eq!(lists.count(), want, "before {pause} s");
            sleep(Duration::from_secs(pause)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn too_large_namespace_is_counted_apart() {
        let mut registry = registry();
        let api = SlowApiServer {
            slices: vec![slice(MAX_ENDPOINTS + 1)],
            ..SlowApiServer::default()
        };
        let lists = EndpointLists::new(
            Arc::new(api),
            &Metrics::register(&mut registry),
            Instant::now(),
        );
        for namespace in ["small", "forbidden", "large", "larger"] {
            let _ = lists.get(namespace).await;
        }
        let metrics = encode(&registry);
        for (result, count) in [("ok", 1), ("failed", 1), ("too_large", 2)] {
            let series = format!("api_endpoint_lists_total{{result=\"{result}\"}} {count}\n");
            assert!(metrics.contains(&series), "{series}{metrics}");
        }
    }
}
