//! An Envoy with drainers, and how their figures are printed.

use std::path::Path;

use anyhow::Result;
use tests::drainer::{Drainer, DrainerBuilder, drainer};
use tests::envoy::{Envoy, envoy_with_upstream};
use tests::listener::tcp;
use tests::memory::MemoryMetric;
use tests::raw_connection::RawConnection;

/// An Envoy with a TCP listener, and its upstream.
pub(crate) struct Fixture {
    pub(crate) envoy: Envoy,
}

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

// === impl Fixture ===

impl Fixture {
    pub(crate) async fn start() -> Result<Self> {
        let envoy = envoy_with_upstream().await?.listener(tcp("stream")?);
        Ok(Self {
            envoy: envoy.start().await?,
        })
    }

    pub(crate) async fn drainer(&self, program: &Path) -> Result<Drainer> {
        self.builder(program)?.start().await
    }

    /// Prepares a drainer without a minimum duration.
    pub(crate) fn builder(&self, program: &Path) -> Result<DrainerBuilder> {
        let sidecar = drainer(self.envoy.admin_address())?.program(program);
        Ok(sidecar.exit_without_minimum())
    }

    pub(crate) async fn stream(&self) -> Result<RawConnection> {
        RawConnection::open_stream(self.envoy.address("stream")).await
    }
}
