//! What a process uses beside memory, as the kernel counts it.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::process::Process;

// === impl Process ===

impl Process {
    /// The CPU time of all its threads, in user and in kernel mode.
    ///
    /// # Errors
    /// When it has exited.
    pub fn cpu_time(&self) -> Result<Duration> {
        self.sum_of_schedstats(0)
    }

    /// How long its threads could run and waited for a processor.
    ///
    /// # Errors
    /// When it has exited.
    pub fn waiting_time(&self) -> Result<Duration> {
        self.sum_of_schedstats(1)
    }

    /// How often a thread of it has given up a processor, or was taken off one.
    /// <https://man7.org/linux/man-pages/man5/proc_pid_status.5.html>
    ///
    /// # Errors
    /// When it has exited.
    pub fn context_switches(&self) -> Result<u64> {
        let mut sum = 0;
        for status in self.read_of_threads("status")? {
            for line in status.lines() {
                if let Some((_, count)) = line.split_once("voluntary_ctxt_switches:") {
                    sum += count.trim().parse::<u64>()?;
                }
            }
        }
        Ok(sum)
    }

    /// The number of its open file descriptors.
    ///
    /// # Errors
    /// When it has exited.
    pub fn open_descriptors(&self) -> Result<usize> {
        Ok(fs::read_dir(format!("/proc/{}/fd", self.pid()))?.count())
    }

    /// The sum of the nth numbers, in nanoseconds; `stat` counts in 1/100 s.
    /// <https://www.kernel.org/doc/html/latest/scheduler/sched-stats.html>
    fn sum_of_schedstats(&self, nth: usize) -> Result<Duration> {
        let mut sum = Duration::ZERO;
        for schedstat in self.read_of_threads("schedstat")? {
            let nanoseconds = schedstat.split(' ').nth(nth);
            sum += Duration::from_nanos(nanoseconds.context("a short schedstat")?.parse()?);
        }
        Ok(sum)
    }

    fn read_of_threads(&self, file: &str) -> Result<Vec<String>> {
        let threads = fs::read_dir(format!("/proc/{}/task", self.pid()))?;
        let read = threads.map(|thread| Ok(fs::read_to_string(thread?.path().join(file))?));
        read.collect()
    }
}
