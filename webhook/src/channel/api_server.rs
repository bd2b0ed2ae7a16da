//! What the channel asks the API server.

use super::replacement::EndpointSlice;

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

/// What the channel asks the API server. Each call takes a bounded time.
pub trait ApiServer: Send + Sync + 'static {
    /// Returns the pod to which a token is bound that is for [`WEBHOOK_AUDIENCE`](crate::admission::WEBHOOK_AUDIENCE);
    /// `None` if the token is not valid.
    fn review_token(
        &self,
        token: &str,
    ) -> impl Future<Output = anyhow::Result<Option<PodIdentity>>> + Send;

    /// Lists the EndpointSlices of a namespace.
    fn endpoint_slices(
        &self,
        namespace: &str,
    ) -> impl Future<Output = anyhow::Result<Vec<EndpointSlice>>> + Send;
}
