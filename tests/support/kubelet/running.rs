//! A running pod: its termination, and restarts of its containers.

use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow};
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::container::Container;
use super::timeline::{PodTermination, Timeline};
use crate::process::Signal;

/// A pod that runs or has terminated. Its processes are killed when this is dropped.
#[derive(Debug)]
pub struct RunningPod {
    /// In start order.
    pub(super) sidecars: Vec<Arc<Container>>,
    pub(super) containers: Vec<Arc<Container>>,
    pub(super) grace_period: Duration,
    pub(super) timeline: Timeline,
    pub(super) _dir: TempDir,
}

// === impl RunningPod ===

impl RunningPod {
    /// The events of the pod so far; later ones are added to it.
    pub fn timeline(&self) -> Timeline {
        self.timeline.clone()
    }

    /// Terminates the pod within its grace period.
    ///
    /// All preStop hooks start at once, and each container gets SIGTERM when its own has returned or failed, a native
    /// sidecar not before all containers and all later sidecars have exited. After the grace period nothing is waited
    /// for, and running containers have two more seconds.
    pub async fn terminate(&self) -> PodTermination {
        let start = Instant::now();
        let mut kills = JoinSet::new();
        let containers = self.containers.iter().chain(&self.sidecars);
        for (position, container) in containers.enumerate() {
            let before = match position.checked_sub(self.containers.len()) {
                Some(sidecar) => {
                    let later = self.sidecars[sidecar + 1..].iter();
                    later.chain(&self.containers).map(Arc::clone).collect()
                }
                None => Vec::new(),
            };
            kills.spawn(Arc::clone(container).kill(self.grace_period, before));
        }
        while kills.join_next().await.is_some() {}
        PodTermination {
            start,
            elapsed: start.elapsed(),
            timeline: self.timeline(),
        }
    }

    /// Restarts one container, as after a failed liveness probe or with a new image: its preStop hook, SIGTERM when
    /// that has returned, and a new process.
    ///
    /// # Errors
    /// When there is no such container or it cannot be started.
    pub async fn restart(&mut self, container: &str) -> Result<()> {
        let current = Arc::clone(self.find(container)?);
        current.kill(self.grace_period, Vec::new()).await;
        let containers = self.sidecars.iter_mut().chain(&mut self.containers);
        for current in containers.filter(|current| current.name() == container) {
            *current = Arc::new(current.restart(&self.timeline)?);
        }
        Ok(())
    }

    /// Sends a signal to the process of a container.
    ///
    /// # Errors
    /// When there is no such container.
    pub fn signal(&self, container: &str, signal: Signal) -> Result<()> {
        self.find(container)?.process().signal(signal);
        Ok(())
    }

    /// The exit status of a container; `None` while it runs.
    ///
    /// # Errors
    /// When there is no such container.
    pub fn exit_status(&self, container: &str) -> Result<Option<ExitStatus>> {
        Ok(self.find(container)?.process().exit_status())
    }

    /// The termination message of a container; empty without one.
    ///
    /// # Errors
    /// When there is no such container.
    pub fn termination_message(&self, container: &str) -> Result<String> {
        Ok(self.find(container)?.termination_message())
    }

    /// The output of a container and its hook, over all restarts.
    ///
    /// # Errors
    /// When there is no such container.
    pub fn log(&self, container: &str) -> Result<String> {
        Ok(self.find(container)?.process().log())
    }

    fn find(&self, name: &str) -> Result<&Arc<Container>> {
        let mut containers = self.sidecars.iter().chain(&self.containers);
        let found = containers.find(|container| container.name() == name);
        found.ok_or_else(|| anyhow!("the pod has no container `{name}`"))
    }
}
