//! Requests whose responses are decoded object by object, or not at all: API servers accept times that k8s-openapi does
//! not, such as 9999-12-31T23:59:59Z, and one such object must cost no other.

use kube::api::{Api, GetParams, Patch, PatchParams};
use kube::core::Request;
use kube::{Client, Error, Resource};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// An object of a list or a watch.
#[derive(Clone)]
pub(crate) struct Item<K> {
    /// Its namespace, a slash and its name.
    pub(crate) name: String,
    /// Empty if it has none.
    pub(crate) resource_version: String,
    /// `None` if it cannot be decoded.
    pub(crate) object: Option<K>,
}

/// Reads an object as `T`, which may have fewer fields than its kind; `None` if there is none.
///
/// # Errors
/// If it cannot be read, or not as `T`.
pub async fn get<K: Clone + Resource, T: DeserializeOwned>(
    api: &Api<K>,
    name: &str,
) -> kube::Result<Option<T>> {
    let request = Request::new(api.resource_url()).get(name, &GetParams::default());
    let request = request.map_err(Error::BuildRequest)?;
    match client(api).request(request).await {
        Err(Error::Api(status)) if status.is_not_found() => Ok(None),
        found => found.map(Some),
    }
}

/// Patches an object, and does not decode the response.
///
/// # Errors
/// If the patch is rejected, or there is no response.
pub async fn patch<K: Clone + Resource, P: Serialize>(
    api: &Api<K>,
    name: &str,
    params: &PatchParams,
    patch: &Patch<P>,
) -> kube::Result<()> {
    let request = Request::new(api.resource_url()).patch(name, params, patch);
    let request = request.map_err(Error::BuildRequest)?;
    client(api).request_text(request).await.map(drop)
}

pub(crate) fn client<K: Clone>(api: &Api<K>) -> Client {
    Client::from(api.clone())
}

// === impl Item ===

impl<'de, K: DeserializeOwned> Deserialize<'de> for Item<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let object = Value::deserialize(deserializer)?;
        let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default();
        Ok(Self {
            name: [text("namespace"), text("name")].join("/"),
            resource_version: text("resourceVersion").to_owned(),
            object: K::deserialize(&object).ok(),
        })
    }
}
