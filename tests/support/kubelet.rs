//! The kubelet's part: a pod's containers as processes of this machine, started, restarted and ended
//! as the kubelet does it.
//!
//! The pod's address is 127.0.0.1. There are no namespaces, so two pods here must not share a port,
//! and a path inside a container is a path of a folder that belongs to the pod.

mod container;
mod hook;
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

/// A pod that is to run.
#[derive(Debug)]
pub struct Kubelet {
    pod: k8s::Pod,
    programs: BTreeMap<String, Program>,
    dir: TempDir,
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
        let folder = mounts::volume_dir(self.dir.path(), volume);
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
            let mounts = Mounts::for_container(container, self.dir.path())?;
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
            containers: mains,
            grace_period: grace.map_or(DEFAULT_GRACE_PERIOD, Duration::from_secs),
            timeline,
            _dir: self.dir,
        })
    }
}
