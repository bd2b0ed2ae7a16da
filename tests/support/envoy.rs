//! A real Envoy process.

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

/// An Envoy starts in a third of a second, or in several on a machine that compiles meanwhile.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// A running Envoy, which is killed when this is dropped.
#[derive(Debug)]
pub struct Envoy {
    process: Process,
    admin: Admin,
    bootstrap: Bootstrap,
}

// === impl Bootstrap ===

impl Bootstrap {
    /// Starts Envoy and waits until it is ready; with [`Bootstrap::unresponsive_xds`], until its admin interface responds.
    ///
    /// # Errors
    /// When there is no Envoy, or it rejects its configuration, with its log.
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
        let state = if self.unresponsive_xds {
            "PRE_INITIALIZING"
        } else {
            "LIVE"
        };
        wait_until(state, START_TIMEOUT, || async {
            ensure!(process.is_running(), "it exited on start");
            Ok(admin.state().await.is_ok_and(|current| current == state))
        })
        .await
        .with_context(|| format!("output of {binary}:\n{}", process.log()))?;
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
    /// The address of its admin interface.
    pub fn admin_address(&self) -> &AdminAddress {
        self.bootstrap.admin_address()
    }

    /// A client of its admin interface.
    pub fn admin(&self) -> &Admin {
        &self.admin
    }

    /// The address of the listener of this name.
    ///
    /// # Panics
    /// When there is none.
    pub fn address(&self, listener: &str) -> SocketAddr {
        self.bootstrap.address(listener)
    }

    /// A client of the listener of this name.
    ///
    /// # Panics
    /// When there is none.
    pub fn client(&self, listener: &str) -> Client {
        self.address(listener).into()
    }

    /// Sends a signal: TERM, KILL, STOP to make it hang, CONT to resume it.
    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Returns true if it has not exited.
    pub fn is_running(&self) -> bool {
        self.process.is_running()
    }

    /// Sends SIGTERM, as the kubelet does without a drain, and waits until it has exited.
    ///
    /// # Errors
    /// When it does not exit within ten seconds.
    pub async fn terminate(&self) -> Result<ExitStatus> {
        self.signal(Signal::TERM);
        self.process.wait_within(Duration::from_secs(10)).await
    }

    /// Terminates it, and starts another with its configuration, as the kubelet restarts a container.
    ///
    /// # Errors
    /// As [`Envoy::terminate`] and [`Bootstrap::start`].
    pub async fn restart(self) -> Result<Self> {
        self.terminate().await?;
        self.bootstrap.start().await
    }

    /// Its log so far.
    pub fn log(&self) -> String {
        self.process.log()
    }
}
