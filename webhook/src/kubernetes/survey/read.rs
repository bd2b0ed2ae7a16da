//! Objects and lists of them, and why they cannot be read.

use std::collections::BTreeMap;
use std::fmt::Debug;

use kube::api::{Api, ListParams};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::DEADLINE;
use crate::kubernetes::unseen::{Call, Unseen};

/// How many objects of a long list are in memory at a time.
const PAGE: u32 = 100;

/// Hands over every object of a list, a page at a time.
pub(super) async fn each<K>(
    api: &Api<K>,
    labels: Option<&BTreeMap<String, String>>,
    mut seen: impl FnMut(K),
) -> Result<(), Unseen>
where
    K: kube::Resource + k8s_openapi::Resource + Clone + Debug + DeserializeOwned,
{
    let labels = labels.map(|labels| {
        let labels = labels.iter().map(|(key, value)| format!("{key}={value}"));
        labels.collect::<Vec<_>>().join(",")
    });
    let mut page = ListParams::default().limit(PAGE);
    page.label_selector = labels;
    loop {
        let call = call_of::<K>("list", api.namespace());
        let list = within(call, api.list(&page)).await?;
        list.items.into_iter().for_each(&mut seen);
        match list.metadata.continue_.filter(|next| !next.is_empty()) {
            Some(next) => page = page.continue_token(&next),
            None => return Ok(()),
        }
    }
}

/// Reads an object; `None` where there is none.
pub(super) async fn get<K>(api: &Api<K>, name: &str) -> Result<Option<K>, Unseen>
where
    K: kube::Resource + k8s_openapi::Resource + Clone + Debug + DeserializeOwned,
{
    let call = call_of::<K>("get", api.namespace());
    within(call, api.get_opt(name)).await
}

/// A call about objects of this kind.
pub(super) fn call_of<K: k8s_openapi::Resource>(
    verb: &'static str,
    namespace: Option<&str>,
) -> Call {
    Call {
        verb,
        resource: K::URL_PATH_SEGMENT,
        namespace: namespace.map(ToOwned::to_owned),
    }
}

/// Waits for an answer, but not forever.
pub(super) async fn within<T>(
    call: Call,
    answer: impl Future<Output = kube::Result<T>>,
) -> Result<T, Unseen> {
    match timeout(DEADLINE, answer).await {
        Ok(answer) => answer.map_err(|error| Unseen::of(call, error)),
        Err(_) => Err(Unseen::Late(call)),
    }
}
