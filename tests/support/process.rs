//! Processes under test, which are killed with the test.

use std::fs::{self, File};
use std::iter;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
pub use rustix::process::Signal;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, kill_process, prlimit, setrlimit};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::timing::TIMEOUT;
use crate::until::wait_until;

/// The open files of a container at systemd's default, `DefaultLimitNOFILE`.
/// <https://www.freedesktop.org/software/systemd/man/latest/systemd-system.conf.html>
const CONTAINER_OPEN_FILES: u64 = 1024;

/// The bytes of a log that are printed when a test fails.
const LOG_TAIL: usize = 4_000;

/// A process. It is killed when this is dropped, and its log is printed if that happens in a failing test.
#[derive(Debug)]
pub struct Process {
    name: String,
    pid: Pid,
    log: PathBuf,
    exit: watch::Receiver<Option<ExitStatus>>,
    /// Owns the child, which is killed when the task is aborted.
    reaper: JoinHandle<()>,
}

// === impl Process ===

impl Process {
    /// Starts a program whose output is appended to the file `log`.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(name: &str, command: Command, log: &Path) -> Result<Self> {
        Self::start_watched(name, command, log, |_| {})
    }

    /// Starts a program as [`Process::start`] does, and calls `exited` when it has exited, before [`Process::wait`]
    /// returns.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_watched(
        name: &str,
        mut command: Command,
        log: &Path,
        exited: impl FnOnce(ExitStatus) + Send + 'static,
    ) -> Result<Self> {
        let output = File::options()
            .create(true)
            .append(true)
            .open(log)
            .with_context(|| format!("opening {}", log.display()))?;
        let mut child = command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("starting {name}"))?;
        let pid = pid(&child).with_context(|| format!("{name} exited on start"))?;
        let (sender, exit) = watch::channel(None);
        let reaper = tokio::spawn(async move {
            if let Ok(status) = child.wait().await {
                exited(status);
                sender.send_replace(Some(status));
            }
        });
        Ok(Self {
            name: name.to_owned(),
            pid,
            log: log.to_owned(),
            exit,
            reaper,
        })
    }

    /// Sends a signal, unless the process has exited. After STOP, returns when all of its threads have stopped.
    pub fn signal(&self, signal: Signal) {
        if self.is_running() {
            // Fails if it has exited meanwhile.
            let _ = kill_process(self.pid, signal);
        }
        if signal == Signal::STOP {
            let pauses = iter::repeat_n(Duration::from_millis(1), 1_000);
            pauses
                .take_while(|_| self.has_running_thread())
                .for_each(thread::sleep);
        }
    }

    /// Returns true if a thread is neither stopped nor dead; the threads stop one by one, a moment after the signal.
    /// <https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html>
    fn has_running_thread(&self) -> bool {
        let threads = fs::read_dir(format!("/proc/{}/task", self.pid()));
        let stats = threads.into_iter().flatten().flatten();
        stats
            .filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok())
            .any(|stat| {
                ![") T ", ") t ", ") Z ", ") X "]
                    .iter()
                    .any(|state| stat.contains(state))
            })
    }

    /// The process ID.
    pub fn pid(&self) -> i32 {
        self.pid.as_raw_pid()
    }

    /// Returns true if it has not exited.
    pub fn is_running(&self) -> bool {
        self.exit.borrow().is_none()
    }

    /// Its exit status; `None` while it runs.
    pub fn exit_status(&self) -> Option<ExitStatus> {
        *self.exit.borrow()
    }

    /// Waits until it has exited.
    pub async fn wait(&self) -> ExitStatus {
        let mut exit = self.exit.clone();
        match exit.wait_for(Option::is_some).await.map(|status| *status) {
            Ok(Some(status)) => status,
            // The status is unknown: waits for the caller's deadline instead of inventing one.
            Ok(None) | Err(_) => std::future::pending().await,
        }
    }

    /// Waits until it has exited.
    ///
    /// # Errors
    /// When it still runs after `limit`.
    pub async fn wait_within(&self, limit: Duration) -> Result<ExitStatus> {
        timeout(limit, self.wait())
            .await
            .map_err(|_| anyhow!("{} still runs after {limit:?}", self.name))
    }

    /// Waits until its output contains this.
    ///
    /// # Errors
    /// When it does not soon.
    pub async fn wait_for_log(&self, text: &str) -> Result<()> {
        let name = format!("`{text}` in the log of {}", self.name);
        wait_until(&name, TIMEOUT, async || Ok(self.log().contains(text))).await
    }

    /// Limits its open files to those of a container.
    ///
    /// # Errors
    /// When it has exited.
    pub fn limit_open_files(&self) -> Result<()> {
        let limit = Rlimit {
            current: Some(CONTAINER_OPEN_FILES),
            maximum: Some(CONTAINER_OPEN_FILES),
        };
        prlimit(Some(self.pid), Resource::Nofile, limit)?;
        Ok(())
    }

    /// Its output so far.
    pub fn log(&self) -> String {
        let bytes = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        self.reaper.abort();
        if thread::panicking() {
            let log = self.log();
            let start = log.ceil_char_boundary(log.len().saturating_sub(LOG_TAIL));
            eprintln!("--- end of the log of {}:\n{}---", self.name, &log[start..]);
        }
    }
}

/// Raises the limit of this process's open files as far as allowed. Returns it; `None` if there is no limit.
///
/// # Errors
/// When the system refuses.
pub fn raise_open_file_limit() -> Result<Option<u64>> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let limit = Rlimit {
        current: maximum,
        maximum,
    };
    setrlimit(Resource::Nofile, limit)?;
    Ok(maximum)
}

fn pid(child: &Child) -> Option<Pid> {
    child
        .id()
        .and_then(|id| i32::try_from(id).ok())
        .and_then(Pid::from_raw)
}
