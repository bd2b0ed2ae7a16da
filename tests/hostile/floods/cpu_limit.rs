//! A limit of the webhook's CPU time by a control group, as a kubelet limits a container's.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tests::process::Process;

/// A control group whose processes have so much CPU time together. Removed on drop, once its processes have ended.
pub(crate) struct CpuLimit {
    group: PathBuf,
}

/// The period in which the CPU time is counted, in microseconds: the kernel's default, which kubelets keep.
/// <https://docs.kernel.org/scheduler/sched-bwc.html>
const PERIOD: u64 = 100_000;

/// Parses an amount of CPU as Kubernetes writes it, such as `25m` or `1`, into thousandths of a core.
pub(crate) fn parse_millicores(cpu: &str) -> Result<u64> {
    let millicores = match cpu.strip_suffix('m') {
        Some(millicores) => millicores.parse(),
        None => cpu.parse().map(|cores: u64| cores * 1_000),
    };
    millicores.with_context(|| format!("`{cpu}` is no amount of CPU such as 25m or 1"))
}

// === impl CpuLimit ===

impl CpuLimit {
    /// Creates a control group of version 1, or else of version 2.
    ///
    /// # Errors
    /// When the system has none, or this process may not create one.
    pub(crate) fn try_new(millicores: u64) -> io::Result<Self> {
        let quota = millicores * PERIOD / 1_000;
        let version_1 = Path::new("/sys/fs/cgroup/cpu");
        let (parent, file, limit) = if version_1.exists() {
            (version_1, "cpu.cfs_quota_us", quota.to_string())
        } else {
            let root = Path::new("/sys/fs/cgroup");
            (root, "cpu.max", format!("{quota} {PERIOD}"))
        };
        let group = parent.join("envoy-drainer-hostile");
        fs::create_dir_all(&group)?;
        let this = Self { group };
        fs::write(this.group.join(file), limit)?;
        Ok(this)
    }

    /// Limits a process, with all of its threads.
    pub(crate) fn apply(&self, process: &Process) -> io::Result<()> {
        fs::write(self.group.join("cgroup.procs"), process.pid().to_string())
    }
}

impl Drop for CpuLimit {
    fn drop(&mut self) {
        // Fails while a process of it ends; the next run uses it again.
        let _ = fs::remove_dir(&self.group);
    }
}
