//! Prints the figures as a table.

use std::time::Duration;

use crate::measure::{Figures, IN_FLIGHT, Memory, RATE, Throughput};
use crate::pods::Body;

/// Prints the figures of both servers side by side.
pub(crate) fn print(product: &Figures, baseline: &Figures, usual: &Body, large: &Body) {
    println!(
        "\n{:52}{:>16}{:>16}{:>9}",
        "", "envoy-drainer", "baseline", "ratio"
    );
    throughput(usual, &product.usual_throughput, &baseline.usual_throughput);
    throughput(large, &product.large_throughput, &baseline.large_throughput);
    println!("{RATE} per second, {} (median round)", usual.name);
    time("  latency, p50", &product.p50, &baseline.p50);
    time("  latency, p99", &product.p99, &baseline.p99);
    println!("memory");
    memory("  idle", product.idle_memory, baseline.idle_memory);
    memory(
        &format!("  {IN_FLIGHT} in flight"),
        product.in_flight_memory,
        baseline.in_flight_memory,
    );
    println!(
        "\nThe baseline parses kube's AdmissionReview<Pod> and diffs the whole pod, on the same \
         server.\nRatios are the baseline's cost over envoy-drainer's."
    );
}

fn throughput(body: &Body, product: &Throughput, baseline: &Throughput) {
    println!("{}", body.name);
    let row = |label: &str, product: f64, baseline: f64| {
        println!(
            "{label:52}{product:>16.0}{baseline:>16.0}{:>8.1}x",
            product / baseline
        );
    };
    let (wall, baseline_wall) = (median(&product.by_clock), median(&baseline.by_clock));
    let (cpu, baseline_cpu) = (median(&product.by_cpu), median(&baseline.by_cpu));
    let megabytes = body.bytes.len() as f64 / 1e6;
    row("  admissions per second", wall, baseline_wall);
    row("  admissions per second of CPU time", cpu, baseline_cpu);
    row(
        "  MB per second of CPU time",
        cpu * megabytes,
        baseline_cpu * megabytes,
    );
}

fn time(label: &str, product: &[Duration], baseline: &[Duration]) {
    let (product, baseline) = (median(product), median(baseline));
    let ratio = baseline.as_secs_f64() / product.as_secs_f64();
    println!(
        "{label:52}{:>13} µs{:>13} µs{ratio:>8.1}x",
        product.as_micros(),
        baseline.as_micros()
    );
}

fn memory(label: &str, product: Memory, baseline: Memory) {
    for (kind, product, baseline) in [
        ("resident", product.resident, baseline.resident),
        ("private", product.private, baseline.private),
    ] {
        let [product, baseline] = [product, baseline].map(|kibibytes| kibibytes as f64 / 1024.0);
        let label = format!("{label}, {kind}");
        println!(
            "{label:52}{product:>12.1} MiB{baseline:>12.1} MiB{:>8.1}x",
            baseline / product
        );
    }
}

fn median<T: Copy + PartialOrd>(rounds: &[T]) -> T {
    let mut sorted = rounds.to_vec();
    sorted.sort_by(|a, b| a.partial_cmp(b).expect("no figure is a NaN"));
    sorted[sorted.len() / 2]
}
