//! Measures for how long the machine delayed programs that were ready to run.
//!
//! A test's upper bound for a duration is a claim about the product only. The machine may compile meanwhile, have its
//! processors taken by its host, or be suspended. That time is measured while tests run and added to the bounds.

use std::collections::VecDeque;
use std::fs;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::time::Instant;

/// The interval between two samples.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(50);

/// The number of samples that are kept: those of ten minutes, longer than any test.
const MAX_SAMPLES: usize = 12_000;

/// The stall time up to one sample.
#[derive(Debug, Clone, Copy)]
struct StallSample {
    at: Instant,
    /// The time that programs have waited since the first sample.
    stalled: Duration,
}

static SAMPLES: LazyLock<Mutex<VecDeque<StallSample>>> = LazyLock::new(|| {
    thread::spawn(sample_loop);
    Mutex::new(VecDeque::from([StallSample {
        at: Instant::now(),
        stalled: Duration::ZERO,
    }]))
});

/// Starts the sampling, if it is not running. Earlier stalls are not known.
pub fn start_sampling() {
    LazyLock::force(&SAMPLES);
}

/// The longest time for which a program can have been delayed in the last `period`.
pub fn stall_time(period: Duration) -> Duration {
    let samples = samples();
    let is_earlier = |sample: &&StallSample| sample.at.elapsed() >= period + SAMPLE_INTERVAL;
    let first = samples.iter().rev().find(is_earlier).or(samples.front());
    let (Some(first), Some(last)) = (first, samples.back()) else {
        return Duration::ZERO;
    };
    // The caller may have been woken before the sampling thread.
    let since = last.at.elapsed().saturating_sub(SAMPLE_INTERVAL);
    last.stalled.saturating_sub(first.stalled) + since
}

/// Samples until the process exits.
fn sample_loop() {
    let (mut stalled, mut kernel_total) = (Duration::ZERO, kernel_stall_time());
    loop {
        let before = Instant::now();
        thread::sleep(SAMPLE_INTERVAL);
        let at = Instant::now();
        // A suspended machine does not count that time, but its clock advances.
        let overslept = (at - before).saturating_sub(SAMPLE_INTERVAL);
        let total = kernel_stall_time();
        // Mostly, one includes the other.
        stalled += overslept.max(total.saturating_sub(kernel_total));
        kernel_total = total;
        let mut samples = samples();
        samples.push_back(StallSample { at, stalled });
        if samples.len() > MAX_SAMPLES {
            samples.pop_front();
        }
    }
}

fn samples() -> MutexGuard<'static, VecDeque<StallSample>> {
    SAMPLES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The time for which some program waited for a processor or a disk, and the time for which the host took processors
/// away, as far as the kernel counts them.
fn kernel_stall_time() -> Duration {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let pressure =
        ["/proc/pressure/cpu", "/proc/pressure/io"].map(|path| pressure_total(&read(path)));
    pressure.into_iter().sum::<Duration>() + steal_time(&read("/proc/stat"))
}

/// The total of a file of pressure stall information, in microseconds after `total=`.
/// <https://docs.kernel.org/accounting/psi.html>
fn pressure_total(pressure: &str) -> Duration {
    let some = pressure.lines().find_map(|line| line.strip_prefix("some "));
    let total = some.and_then(|some| some.split("total=").nth(1));
    Duration::from_micros(total.and_then(|total| total.parse().ok()).unwrap_or(0))
}

/// The eighth number of the line of all processors, in 1/100 s.
/// <https://man7.org/linux/man-pages/man5/proc_stat.5.html>
fn steal_time(stat: &str) -> Duration {
    let all = stat.lines().find_map(|line| line.strip_prefix("cpu "));
    let steal = all.and_then(|all| all.split_whitespace().nth(7));
    10 * Duration::from_millis(steal.and_then(|steal| steal.parse().ok()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_counters_are_parsed() {
        let pressure = "some avg10=3.45 avg60=6.71 avg300=14.07 total=2500000\n\
                        full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        assert_eq!(pressure_total(pressure), Duration::from_millis(2_500));
        let stat = "cpu  4350 1960 675 18767 135 0 318 349 11 12\ncpu0 1 2 3 4 5 6 7 8 9 10\n";
        assert_eq!(steal_time(stat), Duration::from_millis(3_490));
        assert_eq!((pressure_total(""), steal_time("")), Default::default());
    }
}
