//! Metrics of the process, with the names that all of Prometheus' client libraries use.
//! <https://prometheus.io/docs/instrumenting/writing_clientlibs/#process-metrics>

use std::fs;

use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use rustix::param::{clock_ticks_per_second, page_size};

/// Name, help and value.
type GaugeRow = (&'static str, &'static str, f64);

/// The metrics of the process, as they are now; none where `/proc` cannot be read.
pub(super) fn read() -> Registry {
    let mut registry = Registry::default();
    if let Some((cpu_seconds, gauges)) = read_proc() {
        registry.register(
            "process_cpu_seconds",
            "Total user and system CPU time spent in seconds",
            ConstCounter::new(cpu_seconds),
        );
        for (name, help, value) in gauges {
            registry.register(name, help, ConstGauge::new(value));
        }
    }
    registry
}

/// The CPU time in seconds, and the gauges.
fn read_proc() -> Option<(f64, [GaugeRow; 3])> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program, in parentheses, may contain anything; the third field follows it.
    // <https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html>
    let fields: Vec<_> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
    let ticks = clock_ticks_per_second() as f64;
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let mut boot = stat.lines().filter_map(|line| line.strip_prefix("btime "));
    let boot: f64 = boot.next()?.parse().ok()?;
    let open_fds = fs::read_dir("/proc/self/fd").ok()?.count();
    let gauges = [
        (
            "process_start_time_seconds",
            "Start time of the process since unix epoch in seconds",
            boot + field(22)? / ticks,
        ),
        (
            "process_resident_memory_bytes",
            "Resident memory size in bytes",
            field(24)? * page_size() as f64,
        ),
        (
            "process_open_fds",
            "Number of open file descriptors",
            open_fds as f64,
        ),
    ];
    Some(((field(14)? + field(15)?) / ticks, gauges))
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;
    use std::thread;
    use std::time::UNIX_EPOCH;

    use pki::clock::wall_clock;
    use tokio::time::Instant;

    use super::*;

    fn metric(name: &str) -> f64 {
        let (cpu_seconds, gauges) = read_proc().unwrap();
        let found = gauges.iter().find(|(gauge, ..)| *gauge == name);
        found.map_or(cpu_seconds, |(.., value)| *value)
    }

    #[test]
    fn usage_is_that_of_this_process() {
        const SIZE: f64 = 64.0 * 1024.0 * 1024.0;
        let before = metric("process_resident_memory_bytes");
        let memory = black_box(vec![1_u8; SIZE as usize]);
        let resident = metric("process_resident_memory_bytes");
        assert!((SIZE / 2.0..4.0 * SIZE).contains(&(resident - before)));
        drop(memory);

        let before = metric("process_open_fds");
        let files: Vec<_> = (0..50).map(|_| fs::File::open("/dev/null")).collect();
        // Other tests open and close some too.
        assert!(metric("process_open_fds") >= before + 25.0);
        drop(files);

        let now = wall_clock().duration_since(UNIX_EPOCH).unwrap();
        let age = now.as_secs_f64() - metric("process_start_time_seconds");
        assert!((-1.0..3600.0).contains(&age), "{age}");

        let (before, started) = (metric("process_cpu_seconds"), Instant::now());
        while metric("process_cpu_seconds") < before + 0.2 {}
        let cores = thread::available_parallelism().unwrap().get() as f64;
        assert!(started.elapsed().as_secs_f64() > 0.15 / cores);
    }
}
