//! The kubelet's part: a pod's containers as processes of this machine, started, restarted and ended
//! as the kubelet does it.
//!
//! The pod's address is 127.0.0.1. There are no namespaces, so two pods here must not share a port,
//! and a path inside a container is a path of a folder that belongs to the pod.

mod container;
mod hook;
mod mounts;
mod timeline;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use drainer::config::RUN_DIR;
use k8s_openapi::api::core::v1 as k8s;
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::built;
use crate::installed::Installed;
use crate::process::Signal;
use container::Container;
use mounts::{Mounts, TERMINATION_LOG};
pub use timeline::{End, Event, Step, Timeline};

/// Kubernetes' default of `terminationGracePeriodSeconds`.
const GRACE: Duration = Duration::from_secs(30);

/// What a container's image is on this machine: one program.
#[derive(Debug, Clone)]
pub struct Program {
    path: PathBuf,
    /// Paths inside the container, and the variables that tell the program where they are here.
    told: Vec<(String, String)>,
}

/// A pod that is to run.
#[derive(Debug)]
pub struct Kubelet {
    pod: k8s::Pod,
    programs: BTreeMap<String, Program>,
    dir: TempDir,
}

/// A pod that runs, or has run. Dropped, its processes are killed.
#[derive(Debug)]
pub struct RunningPod {
    /// In the order of their start.
    sidecars: Vec<Arc<Container>>,
    mains: Vec<Arc<Container>>,
    grace: Duration,
    timeline: Timeline,
    _dir: TempDir,
}

// === impl Program ===

impl Program {
    /// The program at `path`.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            told: Vec::new(),
        }
    }

    /// An Envoy.
    #[must_use]
    pub fn envoy(envoy: &Installed) -> Self {
        Self::new(&envoy.path)
    }

    /// The drainer, which is told by variables where its two paths are: its flags stay as injected.
    ///
    /// # Errors
    /// When it does not build.
    pub fn drainer() -> Result<Self> {
        let drainer = Self::new(built::drainer()?);
        let drainer = drainer.told(RUN_DIR, "DRAINER_RUN_DIR");
        Ok(drainer.told(TERMINATION_LOG, "DRAINER_TERMINATION_LOG"))
    }

    /// Tells the program by a variable where a path of its container is on this machine.
    #[must_use]
    pub fn told(mut self, path: &str, variable: &str) -> Self {
        self.told.push((path.to_owned(), variable.to_owned()));
        self
    }
}

// === impl Kubelet ===

impl Kubelet {
    /// Prepares to run a pod.
    ///
    /// # Errors
    /// When there is no room for its folder.
    pub fn new(pod: k8s::Pod) -> Result<Self> {
        Ok(Self {
            pod,
            programs: BTreeMap::new(),
            dir: TempDir::with_prefix("pod-")?,
        })
    }

    /// Runs the container of this name with a program.
    #[must_use]
    pub fn program(mut self, container: &str, program: Program) -> Self {
        self.programs.insert(container.to_owned(), program);
        self
    }

    /// Puts a file into a volume, as a ConfigMap would.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn file(self, volume: &str, name: &str, content: &str) -> Result<Self> {
        let folder = mounts::folder(self.dir.path(), volume);
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(name), content)?;
        Ok(self)
    }

    /// Starts the native sidecars in their order, then the containers. Init containers that end are
    /// left out.
    ///
    /// # Errors
    /// When a program cannot be started, or a container has none.
    pub fn start(self) -> Result<RunningPod> {
        let timeline = Timeline::default();
        let spec = self.pod.spec.as_ref().context("the pod has no spec")?;
        let start = |container: &k8s::Container| {
            let name = &container.name;
            let program = self.programs.get(name);
            let program = program.with_context(|| format!("container `{name}` has no program"))?;
            let mounts = Mounts::of(container, self.dir.path())?;
            Container::start(container, program, mounts, &timeline).map(Arc::new)
        };
        let is_sidecar = |c: &&k8s::Container| c.restart_policy.as_deref() == Some("Always");
        let inits = spec.init_containers.iter().flatten();
        let sidecars = inits.filter(is_sidecar).map(start).collect::<Result<_>>()?;
        let mains = spec.containers.iter().map(start).collect::<Result<_>>()?;
        let grace = spec.termination_grace_period_seconds;
        let grace = grace.and_then(|seconds| seconds.try_into().ok());
        Ok(RunningPod {
            sidecars,
            mains,
            grace: grace.map_or(GRACE, Duration::from_secs),
            timeline,
            _dir: self.dir,
        })
    }
}

// === impl RunningPod ===

impl RunningPod {
    /// What happens to the pod; it grows while it is looked at.
    #[must_use]
    pub fn timeline(&self) -> Timeline {
        self.timeline.clone()
    }

    /// Ends the pod within its own grace period.
    pub async fn end(&self) -> End {
        self.end_within(self.grace).await
    }

    /// Ends the pod within another grace period, as `kubectl delete --grace-period` does.
    ///
    /// All preStop hooks start at once, and each container gets SIGTERM when its own has returned or
    /// failed. A native sidecar waits in addition until all containers and all later sidecars are
    /// gone. When the grace is over, waiting ends, and what still runs has two seconds more.
    pub async fn end_within(&self, grace: Duration) -> End {
        let start = Instant::now();
        let mut kills = JoinSet::new();
        let containers = self.mains.iter().chain(&self.sidecars);
        for (position, container) in containers.enumerate() {
            let before = match position.checked_sub(self.mains.len()) {
                Some(sidecar) => {
                    let later = self.sidecars[sidecar + 1..].iter();
                    later.chain(&self.mains).map(Arc::clone).collect()
                }
                None => Vec::new(),
            };
            kills.spawn(Arc::clone(container).kill(grace, before));
        }
        while kills.join_next().await.is_some() {}
        End {
            start,
            took: start.elapsed(),
            timeline: self.timeline(),
        }
    }

    /// Restarts one container of a pod that lives on, as after a failed liveness probe or with a new
    /// image: its hook, SIGTERM when that has returned, and a new process.
    ///
    /// # Errors
    /// When there is no such container or it cannot be started.
    pub async fn restart(&mut self, container: &str) -> Result<()> {
        let old = Arc::clone(self.find(container)?);
        old.kill(self.grace, Vec::new()).await;
        self.start_again(container)
    }

    /// Lets one container of a pod that lives on crash, and starts it again: no hook is called.
    ///
    /// # Errors
    /// When there is no such container or it cannot be started.
    pub async fn crash(&mut self, container: &str) -> Result<()> {
        let old = Arc::clone(self.find(container)?);
        old.process().signal(Signal::KILL);
        old.process().exited().await;
        self.start_again(container)
    }

    /// Sends a signal to one container's process, and no more.
    ///
    /// # Errors
    /// When there is no such container.
    pub fn signal(&self, container: &str, signal: Signal) -> Result<()> {
        self.find(container)?.process().signal(signal);
        Ok(())
    }

    /// How a container has ended; `None` while it runs.
    ///
    /// # Errors
    /// When there is no such container.
    pub fn exit(&self, container: &str) -> Result<Option<ExitStatus>> {
        Ok(self.find(container)?.process().exit())
    }

    /// What a container has left as its termination message; empty if nothing.
    ///
    /// # Errors
    /// When there is no such container.
    pub fn termination_message(&self, container: &str) -> Result<String> {
        Ok(self.find(container)?.termination_message())
    }

    /// What a container and its hook have printed, over all its lives.
    ///
    /// # Errors
    /// When there is no such container.
    pub fn log(&self, container: &str) -> Result<String> {
        Ok(self.find(container)?.process().log())
    }

    /// Where a path of a container is on this machine.
    ///
    /// # Errors
    /// When there is no such container.
    pub fn path(&self, container: &str, path: &str) -> Result<PathBuf> {
        Ok(Path::new(&self.find(container)?.translate(path)).to_owned())
    }

    fn start_again(&mut self, name: &str) -> Result<()> {
        let containers = self.sidecars.iter_mut().chain(&mut self.mains);
        for container in containers.filter(|container| container.name() == name) {
            *container = Arc::new(container.start_again(&self.timeline)?);
        }
        Ok(())
    }

    fn find(&self, name: &str) -> Result<&Arc<Container>> {
        let mut containers = self.sidecars.iter().chain(&self.mains);
        let found = containers.find(|container| container.name() == name);
        found.ok_or_else(|| anyhow!("the pod has no container `{name}`"))
    }
}
