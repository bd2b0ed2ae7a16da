//! A process's memory, as the kernel tells it.

use std::fs;

use anyhow::{Context, Result};

use crate::process::Process;

/// What `/proc/PID/status` calls it.
/// <https://www.kernel.org/doc/html/latest/filesystems/proc.html>
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryMetric {
    /// `VmRSS`: all that is resident, the program's own pages among it.
    Resident,
    /// `RssAnon`: what is resident and shared with nobody.
    Private,
    /// `VmHWM`: the most that ever was resident.
    Peak,
}

// === impl Memory ===

impl MemoryMetric {
    /// How much of it a running process has, in KiB.
    ///
    /// # Errors
    /// When it has ended.
    pub fn read(self, process: &Process) -> Result<u64> {
        let field = match self {
            Self::Resident => "VmRSS:",
            Self::Private => "RssAnon:",
            Self::Peak => "VmHWM:",
        };
        let status = fs::read_to_string(format!("/proc/{}/status", process.pid()))?;
        let value = status.lines().find_map(|line| line.strip_prefix(field));
        let value = value.and_then(|value| value.trim().strip_suffix(" kB"));
        Ok(value.with_context(|| format!("no {field}"))?.parse()?)
    }
}
