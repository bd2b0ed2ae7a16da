//! A real Envoy process.

use std::net::SocketAddr;
use std::process::ExitStatus;
use std::time::Duration;
use std::{fs, mem};

use anyhow::{Context, Result, ensure};
use drainer::AdminAddress;
use tokio::process::Command;

use crate::admin::Admin;
use crate::bootstrap::Bootstrap;
pub use crate::bootstrap::envoy;
use crate::envoy_versions::{self, EnvoyBinary};
use crate::http::Client;
use crate::listener::{Listener, http};
use crate::process::{Process, Signal};
use crate::raw_connection::RawConnection;
use crate::timing::TIMEOUT;
use crate::until::wait_until;
use crate::upstream::Upstream;

/// An Envoy starts in a third of a second, or in several on a machine that compiles meanwhile.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// A running Envoy, which is killed when this is dropped.
#[derive(Debug)]
pub struct Envoy {
    process: Process,
    /// The processes that hot restarts have replaced.
    earlier_processes: Vec<Process>,
    binary: EnvoyBinary,
    admin: Admin,
    bootstrap: Bootstrap,
}

/// A builder of an Envoy with an upstream of its own.
///
/// # Errors
/// As [`envoy`] and [`Upstream::start`].
pub async fn envoy_with_upstream() -> Result<Bootstrap> {
    Ok(envoy()?.upstream(&Upstream::start().await?))
}

/// An Envoy with an HTTP listener `web` in front of an upstream of its own.
///
/// # Errors
/// As [`Bootstrap::start`].
pub async fn web_envoy(binary: &EnvoyBinary) -> Result<Envoy> {
    proxy(binary, [http("web")?]).await
}

/// An Envoy with these listeners in front of an upstream of its own.
///
/// # Errors
/// As [`Bootstrap::start`].
pub async fn proxy(
    binary: &EnvoyBinary,
    listeners: impl IntoIterator<Item = Listener>,
) -> Result<Envoy> {
    let envoy = envoy_with_upstream().await?.binary(binary);
    let listeners = listeners.into_iter();
    listeners.fold(envoy, Bootstrap::listener).start().await
}

// === impl Bootstrap ===

impl Bootstrap {
    /// Starts Envoy and waits until it is ready; with [`Bootstrap::unresponsive_xds`], until its admin interface
    /// responds.
    ///
    /// # Errors
    /// When there is no Envoy, or it rejects its configuration, with its log.
    pub async fn start(self) -> Result<Envoy> {
        let binary = match &self.binary {
            Some(binary) => binary.clone(),
            None => envoy_versions::newest()?,
        };
        self.write()?;
        let process = self.spawn(&binary, 0)?;
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
            earlier_processes: Vec::new(),
            binary,
            admin,
            bootstrap,
        })
    }

    /// Starts a process after so many hot restarts. The configuration [is written](Bootstrap::write) already.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn(&self, binary: &EnvoyBinary, restarts: u32) -> Result<Process> {
        let config = self.config_file();
        let mut command = Command::new(&binary.path);
        command.args(self.args_after_restarts(&config.to_string_lossy(), restarts));
        let log = self.dir.path().join("log");
        Process::start(&binary.to_string(), command, &log)
    }
}

// === impl Envoy ===

impl Envoy {
    /// The address of its admin interface.
    pub fn admin_address(&self) -> &AdminAddress {
        self.bootstrap.admin_address()
    }

    /// Its `--config-path`.
    pub fn config_path(&self) -> String {
        self.bootstrap.config_file().display().to_string()
    }

    /// A client of its admin interface.
    pub fn admin(&self) -> &Admin {
        &self.admin
    }

    /// Waits until its state is `DRAINING`.
    ///
    /// # Errors
    /// When it is not soon, or the admin interface does not respond.
    pub async fn wait_until_draining(&self) -> Result<()> {
        wait_until("Envoy is DRAINING", TIMEOUT, || async {
            Ok(self.admin.state().await? == "DRAINING")
        })
        .await
    }

    /// The address of the listener of this name.
    ///
    /// # Panics
    /// When there is none.
    pub fn address(&self, listener: &str) -> SocketAddr {
        self.bootstrap.address(listener)
    }

    /// Opens a TCP stream to each of these listeners.
    ///
    /// # Errors
    /// When one does not accept it.
    pub async fn open_streams(&self, listeners: &[&str]) -> Result<Vec<RawConnection>> {
        let mut streams = Vec::new();
        for listener in listeners {
            streams.push(RawConnection::open_stream(self.address(listener)).await?);
        }
        Ok(streams)
    }

    /// A client of the listener of this name.
    ///
    /// # Panics
    /// When there is none.
    pub fn client(&self, listener: &str) -> Client {
        self.address(listener).into()
    }

    /// Replaces Envoy's process by a new one, which takes over its ports, and waits until that is ready. The old one
    /// serves its connections on.
    ///
    /// # Errors
    /// When the new process does not become ready.
    pub async fn hot_restart(&mut self) -> Result<()> {
        let restarts = u32::try_from(self.earlier_processes.len())? + 1;
        let process = self.bootstrap.spawn(&self.binary, restarts)?;
        let old = mem::replace(&mut self.process, process);
        self.earlier_processes.push(old);
        wait_until("the new process is LIVE", START_TIMEOUT, || async {
            ensure!(self.is_running(), "it exited on start: {}", self.log());
            // Neither process may be listening at this moment.
            let info = self.admin.server_info().await.unwrap_or_default();
            let epoch = &info["command_line_options"]["restart_epoch"];
            Ok(*epoch == restarts && info["state"] == "LIVE")
        })
        .await
    }

    /// Sets the listeners that LDS adds, and waits until Envoy has them.
    ///
    /// # Errors
    /// When the file cannot be written, or Envoy does not accept its contents.
    pub async fn set_lds_listeners(&self, listeners: &[Listener]) -> Result<()> {
        let updates = "listener_manager.lds.update_success";
        let before = self.admin.stat(updates).await?;
        self.bootstrap.write_lds_listeners(listeners)?;
        wait_until("Envoy has the listeners", START_TIMEOUT, || async {
            Ok(self.admin.stat(updates).await? > before)
        })
        .await
    }

    /// The paths that its admin interface was called with, as far as Envoy has written them.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn admin_calls(&self) -> Result<Vec<String>> {
        let log = fs::read_to_string(self.bootstrap.admin_log_file())?;
        Ok(log.lines().map(str::to_owned).collect())
    }

    /// Sends a signal: TERM, KILL, STOP to make it hang, CONT to resume it.
    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// The process.
    pub fn process(&self) -> &Process {
        &self.process
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
