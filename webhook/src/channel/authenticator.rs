//! Which pod sends a request: its token, reviewed by the API server. Results are kept for a while, and reviews limited,
//! since any pod of the cluster can send tokens that are not valid.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use serde::Deserialize;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::api_server::{ApiServer, PodIdentity};
use super::metrics::Metrics;
use super::request_error::RequestError;
use crate::admission::WEBHOOK_AUDIENCE as AUDIENCE;
use crate::rate_limit::RateLimit;
use crate::token_bucket::Rate;

/// How long the result of a review is kept. A drainer asks once a second.
const VALID_FOR: Duration = Duration::from_secs(60);
const INVALID_FOR: Duration = Duration::from_secs(10);

/// Maximum number of results that are kept; at that, all are dropped.
const MAX_RESULTS: usize = 4_096;

/// Reviews caused by one address: a node's, behind which there may be many pods, or a pod's.
const SOURCE_RATE: Rate = Rate {
    burst: 30,
    refill: Duration::from_millis(500),
};

/// Reviews in total: a thousand waiting pods need 17 a second.
const TOTAL_RATE: Rate = Rate {
    burst: 200,
    refill: Duration::from_millis(20),
};

/// Maximum number of reviews at a time.
const MAX_CONCURRENT: usize = 8;

/// Maximum length of a token, in bytes. Those of service accounts have about 1,200.
const MAX_TOKEN_LEN: usize = 8 << 10;

/// Finds out which pod a token belongs to.
pub(super) struct Authenticator<A> {
    api: Arc<A>,
    state: Mutex<State>,
    permits: Semaphore,
    metrics: Metrics,
}

struct State {
    results: BTreeMap<TokenDigest, ReviewResult>,
    limit: RateLimit<IpAddr>,
}

/// Tokens themselves are not kept.
type TokenDigest = [u8; SHA256_OUTPUT_LEN];

struct ReviewResult {
    /// `None` if the token is not valid.
    pod: Option<PodIdentity>,
    until: Instant,
}

/// The claims of a token that is bound to a pod, which are only believed once the API server has reviewed the token.
/// <https://kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin/#schema-for-service-account-private-claims>
#[derive(Deserialize)]
struct Claims {
    aud: Vec<String>,
    #[serde(rename = "kubernetes.io")]
    kubernetes: KubernetesClaims,
}

#[derive(Deserialize)]
struct KubernetesClaims {
    /// Present in a token that is bound to a pod.
    #[serde(rename = "pod")]
    _pod: serde::de::IgnoredAny,
}

// === impl Authenticator ===

impl<A: ApiServer> Authenticator<A> {
    pub(super) fn new(api: Arc<A>, metrics: &Metrics, now: Instant) -> Self {
        Self {
            api,
            state: Mutex::new(State {
                results: BTreeMap::new(),
                limit: RateLimit::new(SOURCE_RATE, TOTAL_RATE, now),
            }),
            permits: Semaphore::new(MAX_CONCURRENT),
            metrics: metrics.clone(),
        }
    }

    /// The pod to which a token belongs, which a client at `source` has sent.
    ///
    /// # Errors
    /// If the token is not valid, or the API server cannot be asked.
    pub(super) async fn authenticate(
        &self,
        token: &str,
        source: IpAddr,
    ) -> Result<PodIdentity, RequestError> {
        // The API server need not be asked about anything else.
        if !may_be_valid(token) {
            return Err(RequestError::Unauthenticated);
        }
        let key = token_digest(token);
        if let Some(result) = self.state().known_result(&key) {
            return result;
        }
        if !self
            .state()
            .limit
            .allow(&source.to_canonical(), Instant::now())
        {
            return Err(RequestError::TooManyRequests);
        }
        let unavailable =
            |error: anyhow::Error| RequestError::Unavailable(error.to_string().into());
        let permit = self.permits.acquire().await;
        let _permit = permit.map_err(|error| unavailable(error.into()))?;
        let reviewed = self.api.review_token(token).await;
        self.metrics.count_token_review(reviewed.is_ok());
        let pod = reviewed.map_err(unavailable)?;
        self.state().keep(key, pod.clone());
        pod.ok_or(RequestError::Unauthenticated)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns true for a token of a pod with our audience, unless its signature, issuer or lifetime is wrong.
fn may_be_valid(token: &str) -> bool {
    let claims = || {
        let [_, claims, _] = <[&str; 3]>::try_from(token.split('.').collect::<Vec<_>>()).ok()?;
        let claims = URL_SAFE_NO_PAD.decode(claims).ok()?;
        serde_json::from_slice::<Claims>(&claims).ok()
    };
    token.len() <= MAX_TOKEN_LEN
        && claims().is_some_and(|claims| {
            let Claims {
                aud,
                kubernetes: KubernetesClaims { .. },
            } = claims;
            aud.iter().any(|audience| audience == AUDIENCE)
        })
}

fn token_digest(token: &str) -> TokenDigest {
    let digest = digest(&SHA256, token.as_bytes());
    digest
        .as_ref()
        .try_into()
        .expect("it has the length of SHA-256")
}

// === impl State ===

impl State {
    /// The result of a review that is still kept.
    fn known_result(&self, key: &TokenDigest) -> Option<Result<PodIdentity, RequestError>> {
        let result = self.results.get(key)?;
        let pod = result.pod.clone();
        (Instant::now() < result.until).then(|| pod.ok_or(RequestError::Unauthenticated))
    }

    fn keep(&mut self, key: TokenDigest, pod: Option<PodIdentity>) {
        let now = Instant::now();
        if self.results.len() >= MAX_RESULTS {
            self.results.retain(|_, result| now < result.until);
        }
        if self.results.len() >= MAX_RESULTS {
            self.results.clear();
        }
        let lifetime = if pod.is_some() {
            VALID_FOR
        } else {
            INVALID_FOR
        };
        let until = now + lifetime;
        self.results.insert(key, ReviewResult { pod, until });
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::{Value, json};
    use tokio::time::sleep;

    use super::*;
    use crate::channel::EndpointSlicePage;
    use crate::metrics::registry;

    /// Knows the tokens with the signature `valid`, and counts reviews.
    #[derive(Default)]
    struct CountingApiServer(AtomicUsize);

    impl ApiServer for CountingApiServer {
        async fn review_token(&self, token: &str) -> anyhow::Result<Option<PodIdentity>> {
            self.0.fetch_add(1, Ordering::Relaxed);
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

    fn authenticator() -> Authenticator<CountingApiServer> {
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
            assert_eq!(may_be_valid(&token), want, "{token}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn results_are_kept_for_a_while() {
        let authenticator = authenticator();
        let reviews = || authenticator.api.0.load(Ordering::Relaxed);
        let (valid, invalid) = (token(1, "valid"), token(1, "invalid"));
        for second in 0..60 {
            let pod = authenticator.authenticate(&valid, address(1)).await;
            assert_eq!(pod.unwrap().uid, "7");
            let error = authenticator.authenticate(&invalid, address(1)).await;
            assert_eq!(error, Err(RequestError::Unauthenticated), "{second}");
            sleep(Duration::from_secs(1)).await;
        }
        // The valid one once, the other every ten seconds.
        assert_eq!(reviews(), 1 + 6);
        let pod = authenticator.authenticate(&valid, address(1)).await;
        assert_eq!((pod.is_ok(), reviews()), (true, 8));
    }

    #[tokio::test(start_paused = true)]
    async fn failure_of_the_api_server_is_not_kept() {
        let authenticator = authenticator();
        for reviews in 1..3 {
            let error = authenticator
                .authenticate(&token(1, "error"), address(1))
                .await;
            assert_eq!(error, Err(RequestError::Unavailable("timeout".into())));
            assert_eq!(authenticator.api.0.load(Ordering::Relaxed), reviews);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn reviews_are_limited_by_source_and_in_total() {
        let authenticator = authenticator();
        let reviews = || authenticator.api.0.load(Ordering::Relaxed);
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
        // What is known needs no review.
        let pod = authenticator
            .authenticate(&token(1, "valid"), address(2))
            .await;
        assert!(pod.is_ok());
    }

    #[test]
    fn kept_results_are_bounded() {
        let authenticator = authenticator();
        for n in 0..3 * MAX_RESULTS {
            let key = token_digest(&n.to_string());
            authenticator.state().keep(key, None);
        }
        assert!(authenticator.state().results.len() <= MAX_RESULTS);
    }
}
