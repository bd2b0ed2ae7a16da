//! An API server that is away for a while.

use std::env;
use std::ffi::OsStr;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::time::sleep;

use crate::command;
use crate::eventually::eventually;
use crate::kubectl::kubectl;

/// The command that stops and starts the API server.
#[derive(Debug)]
pub(crate) struct ApiServer(String);

/// The time during which it is away: until this is dropped, so that no error and no interrupt leaves it so.
struct Outage<'a>(&'a ApiServer);

// === impl ApiServer ===

impl ApiServer {
    /// That of the command in `E2E_API_SERVER`, if it is set.
    pub(crate) fn from_env() -> Option<Self> {
        let command = env::var("E2E_API_SERVER").ok();
        command
            .filter(|command| !command.trim().is_empty())
            .map(Self)
    }

    /// Takes it away for this long, and waits until it responds again.
    ///
    /// # Errors
    /// If the command fails, or it does not respond again.
    pub(crate) async fn take_away(&self, length: Duration) -> Result<()> {
        let outage = Outage(self);
        command::run(OsStr::new("sh"), &["-c", &self.script("stop")], None).await?;
        sleep(length).await;
        drop(outage);
        eventually("the API server responds", || async {
            Ok(kubectl(&["get", "--raw", "/readyz"]).await.is_ok())
        })
        .await
    }

    fn script(&self, argument: &str) -> String {
        format!("{} {argument}", self.0)
    }
}

impl Drop for Outage<'_> {
    fn drop(&mut self) {
        let start = || -> Result<()> {
            let status = Command::new("sh")
                .args(["-c", &self.0.script("start")])
                .status()?;
            ensure!(status.success(), "{status}");
            Ok(())
        };
        if let Err(error) = start() {
            eprintln!("`{}` failed: {error:#}", self.0.script("start"));
        }
    }
}
