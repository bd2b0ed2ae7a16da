//! A real Envoy, running until it is dropped.

use std::fs;
use std::net::SocketAddr;
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use drainer::AdminAddress;
use tokio::process::Command;

use crate::admin::Admin;
use crate::bootstrap::Bootstrap;
pub use crate::bootstrap::envoy;
use crate::envoy_versions;
use crate::http::Client;
use crate::process::{Process, Signal};
use crate::until::wait_until;

/// An Envoy takes a third of a second; on a machine that compiles meanwhile, several.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// An Envoy that was ready when it was handed out.
#[derive(Debug)]
pub struct Envoy {
    process: Process,
    admin: Admin,
    bootstrap: Bootstrap,
}

// === impl Bootstrap ===

impl Bootstrap {
    /// Starts Envoy and waits until it is ready; with [`Bootstrap::silent_xds`], until its admin
    /// answers.
    ///
    /// # Errors
    /// When there is no Envoy, or it refuses its configuration, with its log.
    pub async fn start(self) -> Result<Envoy> {
        let binary = match &self.binary {
            Some(binary) => binary.clone(),
            None => envoy_versions::newest()?,
        };
        let config = self.dir.path().join("envoy.json");
        fs::write(&config, self.json().to_string())?;
        let mut command = Command::new(&binary.path);
        command.args(self.args(&config.to_string_lossy()));
        let log = self.dir.path().join("log");
        let process = Process::start(&binary.to_string(), command, &log)?;
        let admin = Admin::new(Client::new(self.admin_address().clone()));
        let want = if self.unresponsive_xds {
            "PRE_INITIALIZING"
        } else {
            "LIVE"
        };
        wait_until(want, START_TIMEOUT, || async {
            ensure!(process.is_running(), "it ended as it started");
            Ok(admin.state().await.is_ok_and(|state| state == want))
        })
        .await
        .with_context(|| format!("{binary} printed:\n{}", process.log()))?;
        let bootstrap = self;
        Ok(Envoy {
            process,
            admin,
            bootstrap,
        })
    }
}

// === impl Envoy ===

impl Envoy {
    /// Where its admin is.
    #[must_use]
    pub fn admin_address(&self) -> &AdminAddress {
        self.bootstrap.admin_address()
    }

    /// Its admin, to be asked.
    #[must_use]
    pub fn admin(&self) -> &Admin {
        &self.admin
    }

    /// Where clients reach the listener of this name.
    ///
    /// # Panics
    /// When there is none: a mistake in the test.
    #[must_use]
    pub fn address(&self, listener: &str) -> SocketAddr {
        self.bootstrap.address(listener)
    }

    /// A client of the listener of this name.
    ///
    /// # Panics
    /// When there is none: a mistake in the test.
    #[must_use]
    pub fn client(&self, listener: &str) -> Client {
        self.address(listener).into()
    }

    /// Sends a signal: TERM, KILL, STOP for an Envoy that hangs, CONT for one that goes on.
    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Whether it has not ended.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.process.is_running()
    }

    /// Ends it as the kubelet does when nobody asked for a drain, and waits for its end.
    ///
    /// # Errors
    /// When it does not end within ten seconds.
    pub async fn terminate(&self) -> Result<ExitStatus> {
        self.signal(Signal::TERM);
        self.process.wait_within(Duration::from_secs(10)).await
    }

    /// What it has logged.
    #[must_use]
    pub fn log(&self) -> String {
        self.process.log()
    }
}
