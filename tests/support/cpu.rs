//! The CPU time of a process, its waits for a CPU and its context switches, as the kernel counts them.

use std::fs;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::process::Process;

/// What the threads of a process have used since they started; a thread that has exited is not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuUse {
    /// In user space and in the kernel.
    pub time: Duration,
    /// How long a thread could run and another one's turn lasted.
    pub waited: Duration,
    /// How often a thread stopped running: because it waited, or because another one's turn was due.
    pub context_switches: u64,
}

// === impl CpuUse ===

impl CpuUse {
    /// Reads that of a running process.
    ///
    /// # Errors
    /// When the process has exited, or a thread exits meanwhile.
    pub fn read(process: &Process) -> Result<Self> {
        let mut sum = Self::default();
        for thread in fs::read_dir(format!("/proc/{}/task", process.pid()))? {
            let thread = thread?.path();
            // The first two numbers, in nanoseconds; `stat` counts in 1/100 s.
            // <https://www.kernel.org/doc/html/latest/scheduler/sched-stats.html>
            let schedstat = fs::read_to_string(thread.join("schedstat"))?;
            let mut numbers = schedstat.split(' ');
            for duration in [&mut sum.time, &mut sum.waited] {
                let nanoseconds = numbers.next().context("a short schedstat")?;
                *duration += Duration::from_nanos(nanoseconds.parse()?);
            }
            let status = fs::read_to_string(thread.join("status"))?;
            for field in ["voluntary_ctxt_switches:", "nonvoluntary_ctxt_switches:"] {
                let value = status.lines().find_map(|line| line.strip_prefix(field));
                sum.context_switches += u64::from_str(value.context(field)?.trim())?;
            }
        }
        Ok(sum)
    }

    /// What was used since `earlier`.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            time: self.time.saturating_sub(earlier.time),
            waited: self.waited.saturating_sub(earlier.waited),
            context_switches: self
                .context_switches
                .saturating_sub(earlier.context_switches),
        }
    }
}
