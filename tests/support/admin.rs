//! A client of Envoy's admin interface, which shares no code with the drainer's.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::http::Client;

/// A client of one Envoy's admin interface.
#[derive(Debug, Clone)]
pub struct Admin(Client);

// === impl Admin ===

impl Admin {
    /// The admin interface at the client's address.
    pub fn new(client: Client) -> Self {
        Self(client)
    }

    /// The response to `/ready`: `LIVE`, `DRAINING` or `PRE_INITIALIZING`.
    ///
    /// # Errors
    /// When the admin interface does not respond.
    pub async fn state(&self) -> Result<String> {
        Ok(self.0.get("/ready").await?.body.trim().to_owned())
    }

    /// The response to `/server_info`.
    ///
    /// # Errors
    /// When the admin interface does not respond.
    pub async fn server_info(&self) -> Result<Value> {
        let response = self.0.get("/server_info").await?;
        serde_json::from_str(&response.body).context("reading /server_info")
    }

    /// The value of the counter or gauge of this name; `None` if Envoy has none.
    ///
    /// # Errors
    /// When the admin interface does not respond.
    pub async fn stat(&self, name: &str) -> Result<Option<u64>> {
        let response = self.0.get("/stats?format=json").await?;
        let stats: Value = serde_json::from_str(&response.body).context("reading /stats")?;
        let mut stats = stats["stats"].as_array().into_iter().flatten();
        let stat = stats.find(|stat| stat["name"] == name);
        Ok(stat.and_then(|stat| stat["value"].as_u64()))
    }

    /// Posts a command, such as `/healthcheck/fail`.
    ///
    /// # Errors
    /// When the response is not 2xx.
    pub async fn post(&self, path: &str) -> Result<()> {
        let response = self.0.post(path).await?;
        ensure!(response.status.is_success(), "{path}: {response:?}");
        Ok(())
    }
}
