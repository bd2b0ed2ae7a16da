//! The figures, as a person reads them.

use std::time::Duration;

use crate::measure::{Figures, IN_FLIGHT, RATE, Throughput};
use crate::pods::Body;
use crate::subject::Memory;

/// Prints the figures of both servers side by side.
pub(crate) fn print(ours: &Figures, theirs: &Figures, usual: &Body, large: &Body) {
    println!(
        "\n{:52}{:>16}{:>16}{:>9}",
        "", "envoy-drainer", "baseline", "ratio"
    );
    throughput(usual, &ours.usual_throughput, &theirs.usual_throughput);
    throughput(large, &ours.large_throughput, &theirs.large_throughput);
    println!("{RATE} a second, {} (median round)", usual.name);
    time("  answered after, p50", &ours.p50, &theirs.p50);
    time("  answered after, p99", &ours.p99, &theirs.p99);
    println!("memory");
    memory("  idle", ours.idle_memory, theirs.idle_memory);
    memory(
        &format!("  {IN_FLIGHT} in flight"),
        ours.in_flight_memory,
        theirs.in_flight_memory,
    );
    println!(
        "\nThe baseline is kube's AdmissionReview<Pod> and the difference of the whole pod, on the \
         same server.\nRatios are the baseline's cost over ours."
    );
}

fn throughput(body: &Body, ours: &Throughput, theirs: &Throughput) {
    println!("{}", body.name);
    let row = |what: &str, ours: f64, theirs: f64| {
        println!("{what:52}{ours:>16.0}{theirs:>16.0}{:>8.1}x", ours / theirs);
    };
    let (clock, their_clock) = (median(&ours.by_clock), median(&theirs.by_clock));
    let (cpu, their_cpu) = (median(&ours.by_cpu), median(&theirs.by_cpu));
    let megabytes = body.bytes.len() as f64 / 1e6;
    row("  admissions a second", clock, their_clock);
    row("  admissions a second of CPU time", cpu, their_cpu);
    row(
        "  MB a second of CPU time",
        cpu * megabytes,
        their_cpu * megabytes,
    );
}

fn time(what: &str, ours: &[Duration], theirs: &[Duration]) {
    let (ours, theirs) = (median(ours), median(theirs));
    let ratio = theirs.as_secs_f64() / ours.as_secs_f64();
    println!(
        "{what:52}{:>13} µs{:>13} µs{ratio:>8.1}x",
        ours.as_micros(),
        theirs.as_micros()
    );
}

fn memory(what: &str, ours: Memory, theirs: Memory) {
    for (kind, ours, theirs) in [
        ("resident", ours.resident, theirs.resident),
        ("of it private", ours.private, theirs.private),
    ] {
        let [our, their] = [ours, theirs].map(|kibibytes| kibibytes as f64 / 1024.0);
        let what = format!("{what}, {kind}");
        println!(
            "{what:52}{our:>12.1} MiB{their:>12.1} MiB{:>8.1}x",
            their / our
        );
    }
}

fn median<T: Copy + PartialOrd>(rounds: &[T]) -> T {
    let mut sorted = rounds.to_vec();
    sorted.sort_by(|one, other| one.partial_cmp(other).expect("no figure is a NaN"));
    sorted[sorted.len() / 2]
}
