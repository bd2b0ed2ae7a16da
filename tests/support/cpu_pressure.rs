//! How long the machine kept programs waiting that wanted to run.
//!
//! A test says when something has to be over at the latest. It can say so of the product only: the
//! machine may compile beside it, be robbed of its processors by its host, or stand still altogether.
//! All of that is measured here while tests run, and what was due may come so much later.

use std::collections::VecDeque;
use std::fs;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::time::Instant;

/// Between two looks at the machine.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(50);

/// How many looks are remembered: those of ten minutes, longer than any test.
const MAX_SAMPLES: usize = 12_000;

/// Of one look, and of those before it.
#[derive(Debug, Clone, Copy)]
struct StallSample {
    at: Instant,
    /// How long programs have waited since the first one.
    stalled: Duration,
}

static SAMPLES: LazyLock<Mutex<VecDeque<StallSample>>> = LazyLock::new(|| {
    thread::spawn(sample_loop);
    Mutex::new(VecDeque::from([StallSample {
        at: Instant::now(),
        stalled: Duration::ZERO,
    }]))
});

/// Begins to look at the machine; what it did before is not known. Once is enough.
pub fn start_sampling() {
    LazyLock::force(&SAMPLES);
}

/// The longest that any program can have been kept waiting during the time that ends now.
#[must_use]
pub fn stall_time(during: Duration) -> Duration {
    let looks = samples();
    let is_earlier = |look: &&StallSample| look.at.elapsed() >= during + SAMPLE_INTERVAL;
    let first = looks.iter().rev().find(is_earlier).or(looks.front());
    let (Some(first), Some(last)) = (first, looks.back()) else {
        return Duration::ZERO;
    };
    // Whoever asks may have been woken before the one who looks.
    let since = last.at.elapsed().saturating_sub(SAMPLE_INTERVAL);
    last.stalled.saturating_sub(first.stalled) + since
}

/// Looks for as long as the process lives.
fn sample_loop() {
    let (mut waited, mut counted) = (Duration::ZERO, kernel_stall_time());
    loop {
        let before = Instant::now();
        thread::sleep(SAMPLE_INTERVAL);
        let at = Instant::now();
        // A machine that stands still does not count that, but its clock goes on.
        let slept_late = (at - before).saturating_sub(SAMPLE_INTERVAL);
        let count = kernel_stall_time();
        // The one mostly holds the other.
        waited += slept_late.max(count.saturating_sub(counted));
        counted = count;
        let mut looks = samples();
        looks.push_back(StallSample {
            at,
            stalled: waited,
        });
        if looks.len() > MAX_SAMPLES {
            looks.pop_front();
        }
    }
}

fn samples() -> MutexGuard<'static, VecDeque<StallSample>> {
    SAMPLES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the kernel counts, where it does: the time in which some program waited for a processor or a
/// disk, and the time for which the host took processors away.
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

/// The eighth number of the line of all processors, in hundredths of a second.
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
    fn the_kernels_counts_are_read() {
        let pressure = "some avg10=3.45 avg60=6.71 avg300=14.07 total=2500000\n\
                        full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        assert_eq!(pressure_total(pressure), Duration::from_millis(2_500));
        let stat = "cpu  4350 1960 675 18767 135 0 318 349 11 12\ncpu0 1 2 3 4 5 6 7 8 9 10\n";
        assert_eq!(steal_time(stat), Duration::from_millis(3_490));
        assert_eq!((pressure_total(""), steal_time("")), Default::default());
    }
}
