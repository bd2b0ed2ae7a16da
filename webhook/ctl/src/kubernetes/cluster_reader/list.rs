//! Reads objects and lists of objects, with a deadline.

use std::fmt::Debug;
use std::time::Duration;

use kube::api::{Api, ListParams};
use kube::core::NamespaceResourceScope;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::kubernetes::read_error::{ApiCall, ReadError};

/// Longer than a healthy API server takes for a page.
pub(super) const DEADLINE: Duration = Duration::from_secs(15);

/// A kind of the API, as k8s-openapi defines it.
pub trait Object:
    kube::Resource<DynamicType = ()> + k8s_openapi::Resource + Clone + Debug + DeserializeOwned
{
}

impl<K> Object for K where
    K: kube::Resource<DynamicType = ()> + k8s_openapi::Resource + Clone + Debug + DeserializeOwned
{
}

/// A kind of objects in namespaces.
pub trait NamespacedObject: Object + kube::Resource<Scope = NamespaceResourceScope> {}

impl<K> NamespacedObject for K where K: Object + kube::Resource<Scope = NamespaceResourceScope> {}

/// How many objects of a long list are in memory at once.
const PAGE_SIZE: u32 = 100;

/// Visits every object of a list, page by page. Returns the version of the list.
pub(super) async fn for_each<K: Object>(
    api: &Api<K>,
    params: ListParams,
    mut visit: impl FnMut(K),
) -> Result<String, ReadError> {
    let mut page = params.limit(PAGE_SIZE);
    loop {
        let call = api_call::<K>("list", api.namespace());
        let list = with_deadline(DEADLINE, call, api.list(&page)).await?;
        list.items.into_iter().for_each(&mut visit);
        match list.metadata.continue_.filter(|next| !next.is_empty()) {
            Some(next) => page = page.continue_token(&next),
            None => return Ok(list.metadata.resource_version.unwrap_or_default()),
        }
    }
}

/// Reads an object; `None` if there is none.
pub(super) async fn get<K: Object>(api: &Api<K>, name: &str) -> Result<Option<K>, ReadError> {
    let call = api_call::<K>("get", api.namespace());
    with_deadline(DEADLINE, call, api.get_opt(name)).await
}

/// A call for objects of this kind.
pub(super) fn api_call<K: k8s_openapi::Resource>(
    verb: &'static str,
    namespace: Option<&str>,
) -> ApiCall {
    ApiCall::new(verb, K::URL_PATH_SEGMENT, namespace)
}

/// Waits for a response.
pub(super) async fn with_deadline<T>(
    deadline: Duration,
    call: ApiCall,
    response: impl Future<Output = kube::Result<T>>,
) -> Result<T, ReadError> {
    match timeout(deadline, response).await {
        Ok(result) => result.map_err(|error| ReadError::from_kube(call, error)),
        Err(_) => Err(ReadError::Timeout(call)),
    }
}
