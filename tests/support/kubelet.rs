//! A fake kubelet: runs the containers of a pod as processes, and starts, restarts and terminates them as the kubelet
//! does.
//!
//! The pod's address is 127.0.0.1. There are no namespaces: two pods must not share a port, and volumes and other paths
//! inside a container are in a temporary directory of the pod.

mod container;
mod hook;
mod invocation;
mod mounts;
mod program;
mod running;
mod timeline;

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1 as k8s;
use tempfile::TempDir;

use container::Container;
use mounts::Mounts;
pub use program::Program;
pub use running::RunningPod;
pub use timeline::{Event, PodTermination, Step, Timeline};

/// Kubernetes' default of `terminationGracePeriodSeconds`.
const DEFAULT_GRACE_PERIOD: Duration = Duration::from_secs(30);

/// A pod before it is started.
#[derive(Debug)]
pub struct Kubelet {
    pod: k8s::Pod,
    programs: BTreeMap<String, Program>,
    hook_delays: BTreeMap<String, Duration>,
    dir: TempDir,
}

// === impl Kubelet ===

impl Kubelet {
    /// Prepares a pod.
    ///
    /// # Errors
    /// When its directory cannot be created.
    pub fn new(pod: k8s::Pod) -> Result<Self> {
        Ok(Self {
            pod,
            programs: BTreeMap::new(),
            hook_delays: BTreeMap::new(),
            dir: TempDir::with_prefix("pod-")?,
        })
    }

    /// Sets the program of a container.
    pub fn program(mut self, container: &str, program: Program) -> Self {
        self.programs.insert(container.to_owned(), program);
        self
    }

    /// Calls the preStop hook of a container so much later, as on a node that is busy.
    pub fn hook_delay(mut self, container: &str, delay: Duration) -> Self {
        self.hook_delays.insert(container.to_owned(), delay);
        self
    }

    /// Writes a file to a volume, as a ConfigMap would contain it.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn file(self, volume: &str, name: &str, content: &str) -> Result<Self> {
        let dir = mounts::volume_dir(self.dir.path(), volume);
        fs::create_dir_all(&dir)?;
        fs::write(dir.join(name), content)?;
        Ok(self)
    }

    /// Starts the native sidecars in order, then the containers. Other init containers are skipped.
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
            let mounts = Mounts::for_container(container, self.dir.path())?;
            let delay = self.hook_delays.get(name).copied().unwrap_or_default();
            Container::start(container, program, mounts, delay, &timeline).map(Arc::new)
        };
        let is_sidecar = |c: &&k8s::Container| c.restart_policy.as_deref() == Some("Always");
        let inits = spec.init_containers.iter().flatten();
        let sidecars = inits.filter(is_sidecar).map(start).collect::<Result<_>>()?;
        let containers = spec.containers.iter().map(start).collect::<Result<_>>()?;
        let grace = spec.termination_grace_period_seconds;
        let grace = grace.and_then(|seconds| seconds.try_into().ok());
        Ok(RunningPod {
            sidecars,
            containers,
            grace_period: grace.map_or(DEFAULT_GRACE_PERIOD, Duration::from_secs),
            timeline,
            _dir: self.dir,
        })
    }
}
