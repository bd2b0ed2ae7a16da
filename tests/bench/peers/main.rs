//! Measures the drainer beside the shutdown managers of Envoy Gateway and of Contour: the programs themselves, as their
//! images hold them, each with an Envoy of its own that is configured alike. Prints a table in Markdown, and writes the
//! same figures to `docs/measured/peers.json`. Both state values with three significant digits.
//!
//! ```json
//! {
//!   "command": "make bench-peers",
//!   "cores": 2,
//!   "architecture": "x86_64",
//!   "versions": { "envoy": "1.40.0", "drainer": "0.1.0", "envoy_gateway": "1.9.1", "contour": "1.33.8" },
//!   "measures": [
//!     {
//!       "name": "standby_resident_memory",
//!       "label": "in standby: resident memory",
//!       "unit": "MiB",
//!       "programs": {
//!         "drainer": { "median": 1.4, "values": [1.41, 1.4, 1.4, 1.4, 1.4] },
//!         "envoy_gateway": …,
//!         "contour": …
//!       }
//!     },
//!     …
//!   ]
//! }
//! ```
//!
//! Measures are in the order of the table's rows. A measure has one value for each run, in the order of the runs; the
//! binary's size has one. `"at_least": true` beside the values says that a run was ended before what it measured had
//! happened: its value is a lower bound.

mod drains;
mod idle_client;
mod manager;
mod programs;
mod standby;

use std::fs;

use anyhow::Result;
use tests::peers_report::PeersReport;
use tests::{envoy_versions, figures};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let managers = programs::all()?;
    let versions = managers.iter().map(|it| (it.program, it.version.clone()));
    let mut report = PeersReport::new(versions.collect(), &envoy_versions::newest()?);
    for manager in &managers {
        let mebibytes = fs::metadata(&manager.path)?.len() as f64 / f64::from(1 << 20);
        report.add("binary_size", manager.program, mebibytes);
    }
    standby::measure(&managers, &mut report).await?;
    drains::measure(&managers, &mut report).await?;
    idle_client::measure(&managers, &mut report).await?;
    println!("{}", report.table(&[])?);
    figures::write("peers", &report)
}
