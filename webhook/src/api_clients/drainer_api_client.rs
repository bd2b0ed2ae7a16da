//! The drainer API's client of the API server: it reviews tokens, lists the EndpointSlices of a namespace, and reads
//! the Pods and ReplicaSets of reports.

use admission::WEBHOOK_AUDIENCE as AUDIENCE;
use anyhow::{Context, anyhow, ensure};
use axum::http;
use bytes::Buf;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kube::api::{Api, GetParams, ListParams, PostParams};
use kube::client::Body;
use kube::core::Request;
use kube::{Client, Config, Resource};
use kubernetes::connect;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::drainer_api::{ApiServer, EndpointSlice, EndpointSlicePage, PodIdentity, TooLarge};
use crate::reports::{OwnedObject, OwnedObjectKind, OwnerReader};

/// Slices in a page: each has 100 endpoints, some 30 KiB, unless the cluster's administrator changed that; with 1,000,
/// which is the most, some 300 KiB.
/// <https://kubernetes.io/docs/concepts/services-networking/endpoint-slices/>
const PAGE_SIZE: u32 = 10;

/// Maximum size of a page, or of an object, in bytes. etcd stores objects of up to 1.5 MiB.
const MAX_RESPONSE: usize = 4 << 20;

/// The claims about the pod in a user's `extra`.
/// <https://kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin/#verifying-and-inspecting-private-claims>
const POD_NAME: &str = "authentication.kubernetes.io/pod-name";
const POD_UID: &str = "authentication.kubernetes.io/pod-uid";

/// The prefix of a service account's user name, which its namespace and its name follow.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// The client of the drainer API. Clones share its connections.
#[derive(Clone)]
pub struct DrainerApiClient(Client);

/// A page of a list.
#[derive(Deserialize)]
struct Page {
    #[serde(default)]
    metadata: ListMeta,
    items: Option<Vec<EndpointSlice>>,
}

// === impl DrainerApiClient ===

impl DrainerApiClient {
    /// Creates a client, on the current runtime. It does not connect yet.
    ///
    /// # Errors
    /// When the configuration is unusable.
    pub fn from_config(mut config: Config) -> anyhow::Result<Self> {
        // A drainer repeats its request.
        config.default_retry = false;
        connect(config).map(Self)
    }

    /// Reads a document of this name, which errors have.
    async fn read_document<T: DeserializeOwned>(
        &self,
        request: http::Request<Vec<u8>>,
        name: &'static str,
    ) -> anyhow::Result<T> {
        let response = self.0.send(request.map(Body::from)).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_RESPONSE).collect();
        let body = body.await.map_err(|error| {
            let message = format!("{name}: {error}");
            if error.is::<LengthLimitError>() {
                TooLarge(message).into()
            } else {
                anyhow!(message)
            }
        })?;
        ensure!(status.is_success(), "{name}: {status}");
        // Not copied into one piece, which would double its memory.
        serde_json::from_reader(body.aggregate().reader()).context(name)
    }
}

impl ApiServer for DrainerApiClient {
    async fn review_token(&self, token: &str) -> anyhow::Result<Option<PodIdentity>> {
        let review = TokenReview {
            spec: TokenReviewSpec {
                audiences: Some(vec![AUDIENCE.to_owned()]),
                token: Some(token.to_owned()),
            },
            ..TokenReview::default()
        };
        let api = Api::<TokenReview>::all(self.0.clone());
        let reviewed = api.create(&PostParams::default(), &review).await?;
        Ok(reviewed.status.and_then(pod_identity))
    }

    async fn endpoint_slices(
        &self,
        namespace: &str,
        token: Option<&str>,
    ) -> anyhow::Result<EndpointSlicePage> {
        let requests = Request::new(format!(
            "/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
        ));
        let mut params = ListParams::default().limit(PAGE_SIZE);
        if let Some(token) = token {
            params = params.continue_token(token);
        }
        let request = requests.list(&params)?;
        let page = self.read_document(request, "a page of EndpointSlices");
        let Page { metadata, items } = page.await?;
        Ok(EndpointSlicePage {
            slices: items.unwrap_or_default(),
            next: metadata.continue_.filter(|next| !next.is_empty()),
        })
    }
}

impl OwnerReader for DrainerApiClient {
    async fn read(
        &self,
        kind: OwnedObjectKind,
        namespace: &str,
        name: &str,
    ) -> anyhow::Result<OwnedObject> {
        let (params, namespace) = (GetParams::default(), Some(namespace));
        match kind {
            OwnedObjectKind::Pod => {
                let pods = Request::new(Pod::url_path(&(), namespace));
                self.read_document(pods.get(name, &params)?, "the Pod")
                    .await
            }
            OwnedObjectKind::ReplicaSet => {
                let replica_sets = Request::new(ReplicaSet::url_path(&(), namespace));
                let request = replica_sets.get_metadata(name, &params)?;
                self.read_document(request, "the ReplicaSet").await
            }
        }
    }
}

/// The pod of a token that is valid for our audience, and bound to a pod.
fn pod_identity(status: TokenReviewStatus) -> Option<PodIdentity> {
    // A server that does not know audiences returns none, and has compared the token with its own.
    let is_ours = status.audiences.iter().flatten().any(|it| it == AUDIENCE);
    if status.authenticated != Some(true) || !is_ours {
        return None;
    }
    let user = status.user?;
    let account = user.username?;
    let (namespace, _) = account.strip_prefix(SERVICE_ACCOUNT)?.split_once(':')?;
    let mut extra = user.extra?;
    let mut only = |key: &str| {
        let [value] = <[String; 1]>::try_from(extra.remove(key)?).ok()?;
        (!value.is_empty()).then_some(value)
    };
    Some(PodIdentity {
        namespace: namespace.to_owned(),
        name: only(POD_NAME)?,
        uid: only(POD_UID)?,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn token_is_a_pods_if_the_api_server_says_so() {
        let extra = |name: Value, uid: Value| json!({POD_NAME: name, POD_UID: uid});
        let status = |authenticated: bool, audience: &str, user: &str, extra: Value| {
            json!({"authenticated": authenticated, "audiences": [audience],
                "user": {"username": user, "uid": "9", "groups": [], "extra": extra}})
        };
        let account = "system:serviceaccount:shop:default";
        let pod = || extra(json!(["edge-1"]), json!(["7"]));
        let table = [
            (status(true, AUDIENCE, account, pod()), true),
            (status(false, AUDIENCE, account, pod()), false),
            (status(true, "other", account, pod()), false),
            (status(true, AUDIENCE, "shop:default", pod()), false),
            (status(true, AUDIENCE, account, json!({})), false),
            (
                status(
                    true,
                    AUDIENCE,
                    account,
                    extra(json!(["a", "b"]), json!(["7"])),
                ),
                false,
            ),
            (
                status(true, AUDIENCE, account, extra(json!(["a"]), json!([""]))),
                false,
            ),
            (
                json!({"authenticated": true, "audiences": [AUDIENCE]}),
                false,
            ),
            (json!({"authenticated": true}), false),
            (json!({"error": "invalid bearer token"}), false),
        ];
        for (status, is_pod) in table {
            let identity = pod_identity(serde_json::from_value(status.clone()).unwrap());
            let want = is_pod.then(|| PodIdentity {
                namespace: "shop".to_owned(),
                name: "edge-1".to_owned(),
                uid: "7".to_owned(),
            });
            assert_eq!(identity, want, "{status}");
        }
    }
}
