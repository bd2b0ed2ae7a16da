//! How figures are printed.

use anyhow::Result;
use tests::drainer::Drainer;
use tests::memory::MemoryMetric;

/// Prints the memory of a drainer in a state, beside the targets.
pub(crate) fn memory(state: &str, target: [&str; 2], drainer: &Drainer) -> Result<()> {
    let kinds = [
        ("resident", MemoryMetric::Resident),
        ("private", MemoryMetric::Private),
    ];
    for ((name, kind), target) in kinds.into_iter().zip(target) {
        let measured = mebibytes(kind.read(drainer.process())?);
        print(&format!("{state}, {name} memory"), target, &measured);
    }
    Ok(())
}

/// A number of KiB in MiB.
pub(crate) fn mebibytes(kib: u64) -> String {
    format!("{:.2} MiB", kib as f64 / 1024.0)
}

/// Prints what was measured, beside its target.
pub(crate) fn print(label: &str, target: &str, measured: &str) {
    println!("{label:52} {target:>9}   {measured}");
}
