//! The figures of benchmarks, as the files in `docs/measured` hold them.

use std::collections::BTreeMap;
use std::env::consts;
use std::fs;
use std::path::Path;
use std::thread;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// Where figures come from.
#[derive(Debug, Serialize)]
pub struct Origin {
    command: &'static str,
    cores: usize,
    architecture: &'static str,
    versions: BTreeMap<&'static str, String>,
}

/// The values of one measure, each with three significant digits, in the order of the runs.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Figure {
    /// Of the values.
    pub median: f64,
    /// One for each run.
    pub values: Vec<f64>,
}

/// Writes figures as `docs/measured/NAME.json`.
///
/// # Errors
/// When the file cannot be written.
pub fn write(name: &str, figures: &impl Serialize) -> Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/measured");
    let json = serde_json::to_string_pretty(figures)? + "\n";
    fs::create_dir_all(&folder)?;
    let file = folder.join(name).with_extension("json");
    fs::write(&file, json).with_context(|| format!("writing {}", file.display()))
}

// === impl Origin ===

impl Origin {
    /// This machine, the make target, and the versions of the programs that it measures.
    pub fn new(command: &'static str, versions: BTreeMap<&'static str, String>) -> Self {
        Self {
            command,
            cores: thread::available_parallelism().map_or(0, usize::from),
            architecture: consts::ARCH,
            versions,
        }
    }
}

// === impl Figure ===

impl Figure {
    /// Adds the value of a run.
    pub fn add(&mut self, value: f64) {
        // Written and read, so that the result is the number that is closest to its decimal digits.
        let digits = format!("{value:.2e}");
        self.values.push(digits.parse().unwrap_or(value));
        let mut sorted = self.values.clone();
        sorted.sort_by(f64::total_cmp);
        self.median = sorted[sorted.len() / 2];
    }
}
