//! Writes Events for `events`.

use std::time::Duration;

use k8s_openapi::api::events::v1::Event;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use kubernetes::patch;
use tokio::time::timeout;

use crate::events::{PublishError, Series};

/// Writes the Events of one replica, as `events.k8s.io/v1`.
pub struct EventWriter {
    client: Client,
    instance: String,
}

/// For the write of one Event. The others wait for it.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// The field manager of Events.
const FIELD_MANAGER: &str = "envoy-drainer";

/// Maximum length of the name of a replica in an Event, in bytes. The API server rejects longer ones.
const MAX_INSTANCE_LEN: usize = 128;

// === impl EventWriter ===

impl EventWriter {
    /// A writer on behalf of the replica with this name.
    pub(super) fn new(client: Client, mut instance: String) -> Self {
        instance.truncate(instance.floor_char_boundary(MAX_INSTANCE_LEN));
        Self { client, instance }
    }

    /// Creates or updates the Event of a series.
    ///
    /// # Errors
    /// When it could not be written, and whether a retry may help.
    pub async fn write(&self, series: &Series) -> Result<(), PublishError> {
        let event = series.event(&self.instance);
        let namespace = &series.first.owner.namespace;
        let api = Api::<Event>::namespaced(self.client.clone(), namespace);
        let name = event.metadata.name.as_deref().unwrap_or_default();
        // Applied, so that one call creates the Event, updates it, or restores one that was deleted.
        let (params, event) = (PatchParams::apply(FIELD_MANAGER), Patch::Apply(&event));
        match timeout(WRITE_TIMEOUT, patch(&api, name, &params, &event)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(kube::Error::Api(status))) if is_permanent(status.code) => {
                Err(PublishError::Rejected(status.message))
            }
            Ok(Err(error)) => Err(PublishError::Transient(error.into())),
            Err(elapsed) => Err(PublishError::Transient(elapsed.into())),
        }
    }
}

/// Returns true for the HTTP status of a request that would fail again.
fn is_permanent(status: u16) -> bool {
    const TOO_MANY_REQUESTS: u16 = 429;
    (400..500).contains(&status) && status != TOO_MANY_REQUESTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejections_are_permanent_except_rate_limits() {
        for (status, want) in [
            (403, true),
            (404, true),
            (422, true),
            (429, false),
            (500, false),
        ] {
            assert_eq!(is_permanent(status), want, "{status}");
        }
    }
}
