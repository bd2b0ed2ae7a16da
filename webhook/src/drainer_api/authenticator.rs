//! Which pod sends a request: its token, reviewed by the API server. Results are kept for a while, and reviews limited,
//! since any pod of the cluster can send tokens that are not valid.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use admission::WEBHOOK_AUDIENCE as AUDIENCE;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use pki::clock::wall_clock;
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use tracing::warn;

use super::api_server::{ApiServer, FAILURE_LOG_RATE, PodIdentity};
use super::digest::sha256;
use super::metrics::Metrics;
use super::request_error::RequestError;
use super::shared_call::{CallResult, SharedCall};
use crate::rate_limit::{Rate, RateLimit};

/// How long the result of a review is kept, but never beyond the token's own expiry. A drainer asks once a second, and
/// a stranger that uses up the reviews must not keep it out while it waits. A token whose pod is gone is accepted for
/// so long; it reveals nothing but whether the Services of that pod have ready endpoints.
const VALID_FOR: Duration = Duration::from_secs(600);
const INVALID_FOR: Duration = Duration::from_secs(10);

/// Maximum number of reviews that run or whose results are kept; at that, the least recently used one is dropped, so
/// that new tokens take no place from those of pods that wait.
const MAX_REVIEWS: usize = 4_096;

/// For one review, including the wait for others. A request does not wait so long, but a later one gets its result.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(5);

/// Reviews caused by one address: a node's, behind which there may be many pods, or a pod's.
const SOURCE_RATE: Rate = Rate::new(30, Duration::from_millis(500));

/// Reviews in total: a thousand pods that terminate at once are known within 16 s.
const TOTAL_RATE: Rate = Rate::new(200, Duration::from_millis(20));

/// Maximum number of reviews at a time.
const MAX_CONCURRENT: usize = 8;

/// Maximum length of a token, in bytes. Those of service accounts have about 1,200.
const MAX_TOKEN_LEN: usize = 8 << 10;

/// Finds out which pod a token belongs to, by reviews of the API server.
pub(super) struct Authenticator<A> {
    api: Arc<A>,
    limit: RateLimit<IpAddr>,
    reviews: Mutex<BTreeMap<TokenDigest, KeptReview>>,
    /// A permit for each review that runs.
    permits: Semaphore,
    metrics: Metrics,
    failure_log: RateLimit<()>,
}

struct KeptReview {
    review: Review,
    /// When a request last used it.
    last_used: Instant,
}

/// Tokens themselves are not kept.
type TokenDigest = [u8; 32];

/// A review that is running, or has ended: with the pod, or with none if the token is not valid.
type Review = SharedCall<Option<PodIdentity>>;

/// The claims of a token that is bound to a pod, which are only believed once the API server has reviewed the token.
/// <https://kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin/#schema-for-service-account-private-claims>
#[derive(Deserialize)]
struct Claims {
    aud: Vec<String>,
    /// When the token expires, in seconds of Unix time.
    exp: Option<u64>,
    /// With `pod`, if the token is bound to one.
    #[serde(rename = "kubernetes.io")]
    kubernetes: BTreeMap<String, IgnoredAny>,
}

// === impl Authenticator ===

impl<A: ApiServer> Authenticator<A> {
    pub(super) fn new(api: Arc<A>, metrics: &Metrics, now: Instant) -> Arc<Self> {
        Arc::new(Self {
            api,
            limit: RateLimit::new(SOURCE_RATE, TOTAL_RATE, now),
            reviews: Mutex::default(),
            permits: Semaphore::new(MAX_CONCURRENT),
            metrics: metrics.clone(),
            failure_log: RateLimit::new(FAILURE_LOG_RATE, FAILURE_LOG_RATE, now),
        })
    }

    /// The pod to which a token belongs, which a client at `source` has sent.
    ///
    /// # Errors
    /// If the token is not valid, or cannot be reviewed.
    pub(super) async fn authenticate(
        self: &Arc<Self>,
        token: &str,
        source: IpAddr,
    ) -> Result<PodIdentity, RequestError> {
        // Nothing else needs a review.
        let claims = claims(token).ok_or(RequestError::Unauthenticated)?;
        let result = self.review(token, claims.exp, source)?.result().await;
        // Why is in the log: the client may be a stranger.
        let pod =
            result.map_err(|_| RequestError::Unavailable("the token cannot be reviewed".into()))?;
        pod.ok_or(RequestError::Unauthenticated)
    }

    /// The review of a token: one that is running, one whose result is kept, or a new one.
    fn review(
        self: &Arc<Self>,
        token: &str,
        exp: Option<u64>,
        source: IpAddr,
    ) -> Result<Review, RequestError> {
        let (key, now) = (sha256(token), Instant::now());
        let mut reviews = self.reviews.lock();
        let known = reviews.get_mut(&key);
        if let Some(known) = known.filter(|known| known.review.is_current(now)) {
            known.last_used = now;
            return Ok(known.review.clone());
        }
        if !self.limit.try_take(&source.to_canonical(), now) {
            return Err(RequestError::TooManyRequests);
        }
        if reviews.len() >= MAX_REVIEWS {
            reviews.retain(|_, kept| kept.review.is_current(now));
        }
        if reviews.len() >= MAX_REVIEWS {
            let uses = reviews.iter().map(|(key, it)| (it.last_used, *key));
            if let Some((_, least_recent)) = uses.min() {
                reviews.remove(&least_recent);
            }
        }
        let review = Arc::clone(self).start(token.to_owned(), exp);
        let kept = KeptReview {
            review: review.clone(),
            last_used: now,
        };
        reviews.insert(key, kept);
        Ok(review)
    }

    fn start(self: Arc<Self>, token: String, exp: Option<u64>) -> Review {
        let review = async move {
            let reviewed = timeout(REVIEW_TIMEOUT, async {
                let _permit = self.permits.acquire().await?;
                self.api.review_token(&token).await
            });
            let reviewed = reviewed.await.unwrap_or_else(|elapsed| Err(elapsed.into()));
            self.metrics.count_token_review(reviewed.is_ok());
            let reviewed = reviewed.map_err(|error| Arc::from(format!("{error:#}")));
            if let Err(error) = &reviewed
                && self.failure_log.try_take(&(), Instant::now())
            {
                let message = "Cannot review the token of a drainer: it gets no answer";
                warn!(error = &**error, "{message}");
            }
            let lifetime = lifetime(&reviewed, exp, wall_clock());
            (reviewed, lifetime)
        };
        SharedCall::start(review)
    }
}

/// How long the result of the review of a token that expires at `exp` is kept. A failure is not. A clock that is ahead
/// costs reviews; whether a token is valid, the API server alone decides.
fn lifetime(
    result: &CallResult<Option<PodIdentity>>,
    exp: Option<u64>,
    now: SystemTime,
) -> Duration {
    match result {
        Ok(Some(_)) => exp.map_or(VALID_FOR, |exp| {
            let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
            VALID_FOR.min(Duration::from_secs(exp).saturating_sub(now))
        }),
        Ok(None) => INVALID_FOR,
        Err(_) => Duration::ZERO,
    }
}

/// The claims of a token of a pod with our audience, which is valid unless its signature, issuer or lifetime is wrong.
fn claims(token: &str) -> Option<Claims> {
    if token.len() > MAX_TOKEN_LEN {
        return None;
    }
    let [_, claims, _] = <[&str; 3]>::try_from(token.split('.').collect::<Vec<_>>()).ok()?;
    let claims = URL_SAFE_NO_PAD.decode(claims).ok()?;
    let claims: Claims = serde_json::from_slice(&claims).ok()?;
    let is_ours = claims.aud.iter().any(|audience| audience == AUDIENCE);
    (is_ours && claims.kubernetes.contains_key("pod")).then_some(claims)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::{Value, json};
    use tokio::time::sleep;

    use super::*;
    use crate::drainer_api::EndpointSlicePage;
    use crate::metrics::registry;

    /// Knows the tokens with the signature `valid`, and counts reviews.
    #[derive(Default)]
    struct CountingApiServer {
        latency: Duration,
        reviews: AtomicUsize,
    }

    impl ApiServer for CountingApiServer {
        async fn review_token(&self, token: &str) -> anyhow::Result<Option<PodIdentity>> {
            self.reviews.fetch_add(1, Ordering::Relaxed);
            sleep(self.latency).await;
            anyhow::ensure!(!token.ends_with(".error"), "timeout");
            Ok(token.ends_with(".valid").then(|| PodIdentity {
                namespace: "shop".to_owned(),
                name: "edge-1".to_owned(),
                uid: "7".to_owned(),
            }))
        }

        async fn endpoint_slices(
            &self,
            _: &str,
            _: Option<&str>,
        ) -> anyhow::Result<EndpointSlicePage> {
            Ok(EndpointSlicePage::default())
        }
    }

    fn authenticator() -> Arc<Authenticator<CountingApiServer>> {
        let metrics = Metrics::register(&mut registry());
        Authenticator::new(Arc::default(), &metrics, Instant::now())
    }

    fn address(host: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, host).into()
    }

    fn token_with(claims: &Value, signature: &str) -> String {
        let claims = URL_SAFE_NO_PAD.encode(claims.to_string());
        format!("e30.{claims}.{signature}")
    }

    fn token(n: usize, signature: &str) -> String {
        let claims = json!({
            "aud": [AUDIENCE],
            "jti": n,
            "kubernetes.io": {"namespace": "shop", "pod": {"name": "edge-1", "uid": "7"}},
        });
        token_with(&claims, signature)
    }

    #[test]
    fn only_tokens_of_pods_with_our_audience_are_reviewed() {
        let pod = json!({"pod": {"name": "edge-1", "uid": "7"}});
        let long = "x".repeat(MAX_TOKEN_LEN);
        let table = [
            (token(1, "x"), true),
            (
                token_with(
                    &json!({"aud": [AUDIENCE], "exp": "x", "kubernetes.io": pod}),
                    "x",
                ),
                false,
            ),
            (
                token_with(&json!({"aud": ["other"], "kubernetes.io": pod}), "x"),
                false,
            ),
            (
                token_with(&json!({"aud": AUDIENCE, "kubernetes.io": pod}), "x"),
                false,
            ),
            (
                token_with(&json!({"aud": [AUDIENCE], "kubernetes.io": {}}), "x"),
                false,
            ),
            (token_with(&json!({"aud": [AUDIENCE]}), "x"), false),
            (token(1, &long), false),
            (token(1, "x.y"), false),
            ("a.b.c".to_owned(), false),
            (String::new(), false),
        ];
        for (token, want) in table {
            assert_eq!(claims(&token).is_some(), want, "{token}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn results_are_kept_for_a_while() {
        let authenticator = authenticator();
        let reviews = || authenticator.api.reviews.load(Ordering::Relaxed);
        let (valid, invalid) = (token(1, "valid"), token(1, "invalid"));
        for second in 0..600 {
            let pod = authenticator.authenticate(&valid, address(1)).await;
            assert_eq!(pod.unwrap().uid, "7");
            let error = authenticator.authenticate(&invalid, address(1)).await;
            assert_eq!(error, Err(RequestError::Unauthenticated), "{second}");
            sleep(Duration::from_secs(1)).await;
        }
        // The valid one once, the other every ten seconds.
        assert_eq!(reviews(), 1 + 60);
        let pod = authenticator.authenticate(&valid, address(1)).await;
        assert_eq!((pod.is_ok(), reviews()), (true, 62));
    }

    #[test]
    fn result_is_kept_no_longer_than_the_token_is_valid() {
        let now = UNIX_EPOCH + Duration::from_secs(1_000_000);
        let valid = Ok(Some(PodIdentity {
            namespace: "shop".to_owned(),
            name: "edge-1".to_owned(),
            uid: "7".to_owned(),
        }));
        for (exp, want) in [
            (None, 600),
            (Some(1_003_600), 600),
            (Some(1_000_600), 600),
            (Some(1_000_599), 599),
            (Some(1_000_001), 1),
            (Some(1_000_000), 0),
            (Some(0), 0),
            (Some(u64::MAX), 600),
        ] {
            let kept = lifetime(&valid, exp, now);
            assert_eq!(kept, Duration::from_secs(want), "{exp:?}");
        }
        assert_eq!(lifetime(&Ok(None), Some(0), now), INVALID_FOR);
        assert_eq!(lifetime(&Err("timeout".into()), None, now), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn expired_token_is_reviewed_again() {
        let authenticator = authenticator();
        let unix_time = wall_clock().duration_since(UNIX_EPOCH).unwrap();
        let claims = json!({
            "aud": [AUDIENCE],
            "exp": unix_time.as_secs() + 60,
            "kubernetes.io": {"namespace": "shop", "pod": {"name": "edge-1", "uid": "7"}},
        });
        let token = token_with(&claims, "valid");
        // The wall clock is not paused, and hardly advances meanwhile.
        for (pause, want) in [(0, 1), (30, 1), (30, 2)] {
            sleep(Duration::from_secs(pause)).await;
            let pod = authenticator.authenticate(&token, address(1)).await;
            let reviews = authenticator.api.reviews.load(Ordering::Relaxed);
            assert_eq!((pod.is_ok(), reviews), (true, want));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn failure_of_the_api_server_is_not_kept() {
        let authenticator = authenticator();
        for reviews in 1..3 {
            let error = authenticator
                .authenticate(&token(1, "error"), address(1))
                .await;
            let hidden = "the token cannot be reviewed".into();
            assert_eq!(error, Err(RequestError::Unavailable(hidden)));
            assert_eq!(authenticator.api.reviews.load(Ordering::Relaxed), reviews);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn reviews_are_limited_by_source_and_in_total() {
        let authenticator = authenticator();
        let reviews = || authenticator.api.reviews.load(Ordering::Relaxed);
        for n in 0..10_000 {
            let _ = authenticator
                .authenticate(&token(n, "invalid"), address(1))
                .await;
        }
        assert_eq!(reviews(), 30);
        // Another pod is not affected.
        let pod = authenticator
            .authenticate(&token(1, "valid"), address(2))
            .await;
        assert!(pod.is_ok());
        for n in 0..10_000 {
            let source = address(u8::try_from(n % 250).unwrap());
            let _ = authenticator.authenticate(&token(n, "junk"), source).await;
        }
        assert_eq!(reviews(), 200);
        // What is known needs no review, however long its pod waits.
        for _ in 0..9 {
            sleep(Duration::from_secs(60)).await;
            for n in 0..10_000 {
                let source = address(u8::try_from(n % 250).unwrap());
                let _ = authenticator.authenticate(&token(n, "more"), source).await;
            }
            let pod = authenticator
                .authenticate(&token(1, "valid"), address(2))
                .await;
            assert!(pod.is_ok());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn slow_review_answers_a_later_request() {
        let api = CountingApiServer {
            latency: Duration::from_millis(1_500),
            ..CountingApiServer::default()
        };
        let metrics = Metrics::register(&mut registry());
        let authenticator = Authenticator::new(Arc::new(api), &metrics, Instant::now());
        let token = token(1, "valid");
        let ask = || {
            timeout(
                Duration::from_millis(800),
                authenticator.authenticate(&token, address(1)),
            )
        };
        assert!(ask().await.is_err());
        sleep(Duration::from_secs(1)).await;
        assert!(ask().await.is_ok_and(|pod| pod.is_ok()));
        assert_eq!(authenticator.api.reviews.load(Ordering::Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn kept_reviews_are_bounded_and_those_in_use_stay() {
        let authenticator = authenticator();
        for n in 0..3 * MAX_REVIEWS {
            let source = address(u8::try_from(n % 250).unwrap());
            for n in [0, n] {
                let token = token(n, "valid");
                assert!(authenticator.authenticate(&token, source).await.is_ok());
            }
            let kept = authenticator.reviews.lock().len();
            assert!(kept <= MAX_REVIEWS);
            sleep(TOTAL_RATE.refill).await;
        }
        let reviews = authenticator.api.reviews.load(Ordering::Relaxed);
        assert_eq!(reviews, 3 * MAX_REVIEWS);
    }
}
