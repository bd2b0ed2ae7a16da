//! The calls of the drainer API to the API server.
//!
//! [`crate::api_clients`] implements them.

use std::time::Duration;

use super::replacement::EndpointSlice;
use crate::rate_limit::Rate;

/// Log lines about failed calls to the API server, of each kind: drainers repeat their requests, and metrics count
/// each.
pub(super) const FAILURE_LOG_RATE: Rate = Rate::new(5, Duration::from_secs(60));

/// A pod, as the API server knows it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodIdentity {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

/// The calls of the drainer API to the API server. Each takes a bounded time, and its result a bounded amount of
/// memory.
pub trait ApiServer: Send + Sync + 'static {
    /// Returns the pod to which a token is bound that is for [`WEBHOOK_AUDIENCE`](admission::WEBHOOK_AUDIENCE);
    /// `None` if the token is not valid.
    fn review_token(
        &self,
        token: &str,
    ) -> impl Future<Output = anyhow::Result<Option<PodIdentity>>> + Send;

    /// Lists the EndpointSlices of a namespace: the first page, or the one with which `token` continues the list.
    ///
    /// # Errors
    /// [`TooLarge`] if the page has more bytes than are read, or why it could not be read.
    fn endpoint_slices(
        &self,
        namespace: &str,
        token: Option<&str>,
    ) -> impl Future<Output = anyhow::Result<EndpointSlicePage>> + Send;
}

/// A page of the EndpointSlices of a namespace.
#[derive(Debug, Default)]
pub struct EndpointSlicePage {
    /// The slices of this page.
    pub slices: Vec<EndpointSlice>,
    /// The token with which the list continues; `None` on the last page.
    pub next: Option<String>,
}

/// Why a list is not read to its end: its namespace has more than the webhook reads. Unlike other errors, this is no
/// fault of the API server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TooLarge(pub String);
