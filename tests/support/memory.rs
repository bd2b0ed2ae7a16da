//! The memory of a process, as the kernel counts it.

use std::fs;

use anyhow::{Context, Result};

use crate::process::Process;

/// A field of `/proc/PID/status` or `/proc/PID/smaps_rollup`.
/// <https://www.kernel.org/doc/html/latest/filesystems/proc.html>
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryMetric {
    /// `VmRSS`: all resident memory, including the pages of the binary.
    Resident,
    /// `Pss`: the resident memory, in which a page that several processes share counts in equal parts for each.
    Proportional,
    /// `RssAnon`: the resident memory that is not shared.
    Private,
    /// `VmHWM`: the peak of the resident memory.
    Peak,
}

// === impl MemoryMetric ===

impl MemoryMetric {
    /// Reads the value of a running process, in KiB.
    ///
    /// # Errors
    /// When the process has exited.
    pub fn read(self, process: &Process) -> Result<u64> {
        let (file, field) = match self {
            Self::Resident => ("status", "VmRSS:"),
            Self::Proportional => ("smaps_rollup", "Pss:"),
            Self::Private => ("status", "RssAnon:"),
            Self::Peak => ("status", "VmHWM:"),
        };
        let text = fs::read_to_string(format!("/proc/{}/{file}", process.pid()))?;
        let value = text.lines().find_map(|line| line.strip_prefix(field));
        let value = value.and_then(|value| value.trim().strip_suffix(" kB"));
        Ok(value.with_context(|| format!("no {field}"))?.parse()?)
    }
}
