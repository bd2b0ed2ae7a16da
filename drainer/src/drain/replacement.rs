//! The wait for a replacement of a terminating pod: it ends when every Service that selects the pod has another ready
//! endpoint.
//!
//! Kubernetes routes to a terminating endpoint that still serves where a Service has no ready one; failing Envoy's
//! health earlier would leave such a Service without endpoints.
//! <https://github.com/kubernetes/enhancements/tree/master/keps/sig-network/1669-proxy-terminating-endpoints>

use std::time::Duration;

use bytes::Bytes;
use hyper::Method;
use serde::Deserialize;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};
use tracing::{debug, info, warn};

use super::progress::Progress;
use super::summary::{ReplacementOutcome, ReplacementWait};
use crate::settings::config::WebhookAccess;
use crate::settings::duration;
use crate::webhook_client::call;

/// Pause between two questions.
const INTERVAL: Duration = Duration::from_secs(1);

/// How long endpoints may lag behind the pod's deletion. After that, lists that do not show the pod as terminating are
/// believed: an eviction by the kubelet does not delete the pod first, so they never do.
const MAX_LAG: Duration = Duration::from_secs(5);

/// The webhook's answer about one pod, of which it names some Services.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Replacement {
    /// The number of Services that select the pod.
    pub(crate) services: usize,
    /// Those without another ready endpoint.
    #[serde(default)]
    pub(crate) unready: Vec<String>,
    /// Whether the endpoints show the pod as terminating. If not, they may also show another pod as ready that was
    /// deleted at the same moment.
    pub(crate) terminating: bool,
}

/// Asks the webhook which Services of this pod have another ready endpoint.
///
/// # Errors
/// Why there is no answer, within a second.
pub(crate) async fn fetch(access: &WebhookAccess) -> Result<Replacement, String> {
    let body = call(access, Method::GET, "/replacement", Bytes::new()).await;
    debug!(?body, "The webhook answered");
    serde_json::from_slice(&body?).map_err(|error| error.to_string())
}

/// Asks the webhook once whether no Service of this pod has another ready endpoint. Without an answer within a second, that
/// is unknown, which is false.
pub(crate) async fn is_alone(access: &WebhookAccess) -> bool {
    access.is_enabled() && fetch(access).await.is_ok_and(|answer| answer.is_alone())
}

/// Waits from `since` for a replacement, for `limit` at most, and publishes what for. `ask` returns the webhook's answer,
/// or why there is none.
pub(crate) async fn wait<F: Future<Output = Result<Replacement, String>>>(
    since: Instant,
    limit: Duration,
    mut ask: impl FnMut() -> F,
    progress: &watch::Sender<Progress>,
) -> ReplacementWait {
    info!(?limit, "Waiting for a replacement of the pod");
    let mut waiting_for = "an answer of the webhook".to_owned();
    let publish = |what: &str| progress.send_modify(|it| it.waiting_for = Some(what.to_owned()));
    publish(&waiting_for);
    let ask_until_replaced = async {
        loop {
            let waited = since.elapsed();
            let answer = ask().await;
            let answer = answer.map_err(|error| format!("an answer of the webhook: {error}"));
            let missing = match answer.and_then(|answer| answer.outcome(waited)) {
                Ok(outcome) => return outcome,
                Err(missing) => missing,
            };
            if waiting_for != missing {
                info!(waiting_for = missing, "There is no replacement yet");
                publish(&missing);
                waiting_for = missing;
            }
            sleep(INTERVAL).await;
        }
    };
    let ended = timeout_at(since + limit, ask_until_replaced).await.ok();
    let seconds = duration::seconds(since.elapsed());
    match ended {
        Some(outcome) => info!(%outcome, seconds, "Waited for a replacement"),
        None => {
            warn!(%waiting_for, seconds, "No replacement is ready in time: draining without one");
        }
    }
    ReplacementWait {
        outcome: ended.unwrap_or(ReplacementOutcome::Timeout),
        seconds,
        waiting_for: ended.is_none().then_some(waiting_for),
    }
}

// === impl Replacement ===

impl Replacement {
    /// Returns true if Services select the pod, and none of them has another ready endpoint. Where so many do that not all
    /// are named, that is unknown.
    fn is_alone(&self) -> bool {
        self.services > 0 && self.unready.len() == self.services
    }

    /// How a wait ends with this answer, which was asked for when it had lasted this long.
    ///
    /// # Errors
    /// What is missing for that.
    fn outcome(&self, waited: Duration) -> Result<ReplacementOutcome, String> {
        let unready = self.unready.join(", ");
        match self.unready.len() {
            _ if self.services == 0 => Ok(ReplacementOutcome::NoService),
            0 if self.terminating || waited >= MAX_LAG => Ok(ReplacementOutcome::Ready),
            0 => Err("endpoints that show this pod as terminating".to_owned()),
            1 => Err(format!("another ready endpoint of Service {unready}")),
            _ => Err(format!("another ready endpoint of Services {unready}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Answer = Result<Replacement, String>;

    fn answer_if(terminating: bool, services: usize, unready: &[&str]) -> Answer {
        Ok(Replacement {
            services,
            unready: unready.iter().map(|&name| name.to_owned()).collect(),
            terminating,
        })
    }

    fn answer(services: usize, unready: &[&str]) -> Answer {
        answer_if(true, services, unready)
    }

    /// An answer from lists that do not show the pod as terminating.
    fn lagging(services: usize, unready: &[&str]) -> Answer {
        answer_if(false, services, unready)
    }

    /// Waits with these answers, of which the last is repeated; each takes `latency`. Returns the wait, and
    /// what it has published.
    async fn wait_with(answers: &[Answer], latency: Duration) -> (ReplacementWait, Vec<String>) {
        let mut answers = answers.iter().peekable();
        let mut published = Vec::new();
        let progress = watch::Sender::new(Progress::default());
        let ask = || {
            let waiting_for = progress.borrow().waiting_for.clone();
            published.extend(waiting_for.filter(|it| published.last() != Some(it)));
            let answer = answers.next().expect("the last one stays");
            if answers.peek().is_none() {
                answers = std::slice::from_ref(answer).iter().peekable();
            }
            async {
                sleep(latency).await;
                answer.clone()
            }
        };
        let limit = Duration::from_secs(10);
        let wait = wait(Instant::now(), limit, ask, &progress).await;
        (wait, published)
    }

    #[tokio::test(start_paused = true)]
    async fn wait_ends_with_a_replacement_or_without_a_service() {
        use ReplacementOutcome::{NoService, Ready, Timeout};
        let error = || Err("connection refused".to_owned());
        let waiting = || answer(2, &["a", "b"]);
        let one_by_one = vec![waiting(), answer(2, &["b"]), error(), answer(2, &[])];
        let table = [
            (vec![answer(0, &[])], NoService, 0.0),
            (vec![answer(2, &[])], Ready, 0.0),
            (one_by_one, Ready, 3.0),
            (vec![error()], Timeout, 10.0),
            (vec![waiting()], Timeout, 10.0),
            // The lists do not show the deletion of the pod yet, or never will.
            (vec![lagging(1, &[]), answer(1, &[])], Ready, 1.0),
            (vec![lagging(1, &[]), answer(1, &["a"])], Timeout, 10.0),
            (vec![lagging(1, &[])], Ready, 5.0),
            (vec![lagging(1, &["a"])], Timeout, 10.0),
            (vec![lagging(0, &[])], NoService, 0.0),
        ];
        for (answers, outcome, seconds) in table {
            let (wait, _) = wait_with(&answers, Duration::ZERO).await;
            let got = (wait.outcome, wait.seconds);
            assert_eq!(got, (outcome, seconds), "{answers:?}");
        }
        let slow = Duration::from_secs(60);
        let (wait, _) = wait_with(&[answer(1, &[])], slow).await;
        assert_eq!((wait.outcome, wait.seconds), (Timeout, 10.0));
    }

    #[test]
    fn pod_is_alone_if_no_service_has_another_endpoint() {
        let table = [
            (answer(1, &["a"]), true),
            (answer(2, &["a", "b"]), true),
            (answer(2, &["a"]), false),
            (answer(0, &[]), false),
            // Not all are named.
            (answer(9, &["a"; 8]), false),
        ];
        for (answer, want) in table {
            assert_eq!(
                answer.as_ref().map(Replacement::is_alone),
                Ok(want),
                "{answer:?}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_missing_is_published() {
        let answers = [
            lagging(2, &[]),
            answer(2, &["a", "b"]),
            answer(2, &["a", "b"]),
            answer(2, &["b"]),
            Err("timeout".to_owned()),
        ];
        let (wait, published) = wait_with(&answers, Duration::ZERO).await;
        let want = [
            "an answer of the webhook",
            "endpoints that show this pod as terminating",
            "another ready endpoint of Services a, b",
            "another ready endpoint of Service b",
            "an answer of the webhook: timeout",
        ];
        assert_eq!(published, want);
        assert_eq!(wait.waiting_for.as_deref(), Some(want[4]));
    }
}
