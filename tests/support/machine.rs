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
const PAUSE: Duration = Duration::from_millis(50);

/// How many looks are remembered: those of ten minutes, longer than any test.
const LOOKS: usize = 12_000;

/// Of one look, and of those before it.
#[derive(Debug, Clone, Copy)]
struct Look {
    at: Instant,
    /// How long programs have waited since the first one.
    waited: Duration,
}

static LOOKED: LazyLock<Mutex<VecDeque<Look>>> = LazyLock::new(|| {
    thread::spawn(look_on);
    Mutex::new(VecDeque::from([Look {
        at: Instant::now(),
        waited: Duration::ZERO,
    }]))
});

/// Begins to look at the machine; what it did before is not known. Once is enough.
pub fn watch() {
    LazyLock::force(&LOOKED);
}

/// The longest that any program can have been kept waiting during the time that ends now.
#[must_use]
pub fn held_up(during: Duration) -> Duration {
    let looks = looked();
    let is_earlier = |look: &&Look| look.at.elapsed() >= during + PAUSE;
    let first = looks.iter().rev().find(is_earlier).or(looks.front());
    let (Some(first), Some(last)) = (first, looks.back()) else {
        return Duration::ZERO;
    };
    // Whoever asks may have been woken before the one who looks.
    let since = last.at.elapsed().saturating_sub(PAUSE);
    last.waited.saturating_sub(first.waited) + since
}

/// Looks for as long as the process lives.
fn look_on() {
    let (mut waited, mut counted) = (Duration::ZERO, kernels_count());
    loop {
        let before = Instant::now();
        thread::sleep(PAUSE);
        let at = Instant::now();
        // A machine that stands still does not count that, but its clock goes on.
        let slept_late = (at - before).saturating_sub(PAUSE);
        let count = kernels_count();
        // The one mostly holds the other.
        waited += slept_late.max(count.saturating_sub(counted));
        counted = count;
        let mut looks = looked();
        looks.push_back(Look { at, waited });
        if looks.len() > LOOKS {
            looks.pop_front();
        }
    }
}

fn looked() -> MutexGuard<'static, VecDeque<Look>> {
    LOOKED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the kernel counts, where it does: the time in which some program waited for a processor or a
/// disk, and the time for which the host took processors away.
fn kernels_count() -> Duration {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let pressure = ["/proc/pressure/cpu", "/proc/pressure/io"].map(|path| some_waited(&read(path)));
    pressure.into_iter().sum::<Duration>() + stolen(&read("/proc/stat"))
}

/// The total of a file of pressure stall information, in microseconds after `total=`.
/// <https://docs.kernel.org/accounting/psi.html>
fn some_waited(pressure: &str) -> Duration {
    let some = pressure.lines().find_map(|line| line.strip_prefix("some "));
    let total = some.and_then(|some| some.split("total=").nth(1));
    Duration::from_micros(total.and_then(|total| total.parse().ok()).unwrap_or(0))
}

/// The eighth number of the line of all processors, in hundredths of a second.
/// <https://man7.org/linux/man-pages/man5/proc_stat.5.html>
fn stolen(stat: &str) -> Duration {
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
        assert_eq!(some_waited(pressure), Duration::from_millis(2_500));
        let stat = "cpu  4350 1960 675 18767 135 0 318 349 11 12\ncpu0 1 2 3 4 5 6 7 8 9 10\n";
        assert_eq!(stolen(stat), Duration::from_millis(3_490));
        assert_eq!((some_waited(""), stolen("")), Default::default());
    }
}
