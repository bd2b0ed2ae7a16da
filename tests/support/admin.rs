//! Envoy's admin interface, as the tests ask it. It shares no code with the drainer's.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::http::Client;

/// Questions to an Envoy about itself.
#[derive(Debug, Clone)]
pub struct Admin(Client);

// === impl Admin ===

impl Admin {
    /// The admin interface that this client reaches.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self(client)
    }

    /// `LIVE`, `DRAINING` or `PRE_INITIALIZING`, as `/ready` says it.
    ///
    /// # Errors
    /// When the admin does not answer.
    pub async fn state(&self) -> Result<String> {
        Ok(self.0.get("/ready").await?.body.trim().to_owned())
    }

    /// The value of one counter or gauge by its whole name; `None` when Envoy has none of that name.
    ///
    /// # Errors
    /// When the admin does not answer.
    pub async fn stat(&self, name: &str) -> Result<Option<u64>> {
        let answer = self.0.get("/stats?format=json").await?;
        let stats: Value = serde_json::from_str(&answer.body).context("reading /stats")?;
        let mut stats = stats["stats"].as_array().into_iter().flatten();
        let found = stats.find(|stat| stat["name"] == name);
        Ok(found.and_then(|stat| stat["value"].as_u64()))
    }

    /// Posts a command, such as `/healthcheck/fail`.
    ///
    /// # Errors
    /// When it is not answered with 200.
    pub async fn post(&self, path: &str) -> Result<()> {
        let answer = self.0.post(path).await?;
        ensure!(answer.status.is_success(), "{path}: {answer:?}");
        Ok(())
    }
}
