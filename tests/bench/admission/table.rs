//! Prints the figures as a table.

use std::time::Duration;

use crate::measure::{Figures, IN_FLIGHT, Memory, RATE, Throughput};
use crate::pods::Body;

/// The figures of the product, of the baseline and of the limit.
type Row<'a, T> = [&'a T; 3];

/// Prints the figures of the product, of the baseline and of the limit side by side.
pub(crate) fn print(figures: &[Figures; 3], usual: &Body, large: &Body) {
    println!(
        "\n{:44}{:>15}{:>15}{:>9}{:>15}{:>9}",
        "", "envoy-drainer", "baseline", "ratio", "limit", "ratio"
    );
    throughput(usual, figures.each_ref().map(|it| &it.usual_throughput));
    throughput(large, figures.each_ref().map(|it| &it.large_throughput));
    println!("{RATE} per second, {} (median round)", usual.name);
    time("  latency, p50", figures.each_ref().map(|it| &it.p50));
    time("  latency, p99", figures.each_ref().map(|it| &it.p99));
    println!("memory");
    memory("  idle", figures.each_ref().map(|it| &it.idle_memory));
    let in_flight = figures.each_ref().map(|it| &it.in_flight_memory);
    memory(&format!("  {IN_FLIGHT} in flight"), in_flight);
    println!(
        "\nThe baseline parses kube's AdmissionReview<Pod> and diffs the whole pod. The limit skips through the JSON \
         once and\nresponds with a constant. Both are on the same server. Ratios are the baseline's cost over \
         envoy-drainer's,\nand envoy-drainer's over the limit's."
    );
}

fn throughput(body: &Body, figures: Row<'_, Throughput>) {
    println!("{}", body.name);
    let by_clock = figures.map(|it| median(&it.by_clock));
    let by_cpu = figures.map(|it| median(&it.by_cpu));
    let megabytes = body.bytes.len() as f64 / 1e6;
    for (label, values) in [
        ("  admissions per second", by_clock),
        ("  admissions per second of CPU time", by_cpu),
        (
            "  MB per second of CPU time",
            by_cpu.map(|it| it * megabytes),
        ),
    ] {
        row(label, values, "", values.map(|it| 1.0 / it));
    }
}

fn time(label: &str, figures: Row<'_, Vec<Duration>>) {
    let micros = figures.map(|rounds| median(rounds).as_secs_f64() * 1e6);
    row(label, micros, " µs", micros);
}

fn memory(label: &str, figures: Row<'_, Memory>) {
    let mebibytes = |kibibytes: u64| kibibytes as f64 / 1024.0;
    let resident = figures.map(|it| mebibytes(it.resident));
    row(&format!("{label}, resident"), resident, " MiB", resident);
    let private = figures.map(|it| mebibytes(it.private));
    row(&format!("{label}, private"), private, " MiB", private);
}

/// Prints the values of the three servers, and the ratios of their costs.
fn row(label: &str, values: [f64; 3], unit: &str, costs: [f64; 3]) {
    let digits = usize::from(unit == " MiB");
    let [product, baseline, limit] = values.map(|value| format!("{value:.digits$}{unit}"));
    let (over_product, over_limit) = (costs[1] / costs[0], costs[0] / costs[2]);
    println!(
        "{label:44}{product:>15}{baseline:>15}{over_product:>8.1}x{limit:>15}{over_limit:>8.1}x"
    );
}

fn median<T: Copy + PartialOrd>(rounds: &[T]) -> T {
    let mut sorted = rounds.to_vec();
    sorted.sort_by(|a, b| a.partial_cmp(b).expect("no figure is a NaN"));
    sorted[sorted.len() / 2]
}
