//! The figures of benchmarks, as the files in `docs/measured` hold them.

use std::env::consts;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, ensure};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Where figures come from.
#[derive(Debug, Serialize, Deserialize)]
pub struct Origin<Versions> {
    /// The make target.
    pub command: String,
    /// Of the machine.
    pub cores: usize,
    architecture: String,
    /// Of what is measured.
    pub versions: Versions,
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
    let json = serde_json::to_string_pretty(figures)? + "\n";
    let file = file(name);
    fs::write(&file, json).with_context(|| format!("writing {}", file.display()))
}

/// Reads the figures of `docs/measured/NAME.json`.
///
/// # Errors
/// If the file is missing or invalid.
pub fn read<T: DeserializeOwned>(name: &str) -> Result<T> {
    let file = file(name);
    let context = || file.display().to_string();
    let json = fs::read_to_string(&file).with_context(context)?;
    serde_json::from_str(&json).with_context(context)
}

/// Reads the runs of `docs/measured/NAME.json`; none if there is no such file.
///
/// # Errors
/// If it is invalid.
pub fn read_runs<T: DeserializeOwned>(name: &str) -> Result<Vec<T>> {
    let runs = file(name).exists().then(|| read(name));
    runs.unwrap_or(Ok(Vec::new()))
}

/// The trees in Git of the code that decides what a pod's termination loses: the drainer's, the admission's, and that of the
/// tests in `harness`.
///
/// # Errors
/// If Git does not tell them, or if the code has changed since the last commit.
pub fn code(harness: &[&str]) -> Result<String> {
    let paths = [&["drainer/src", "webhook/admission/src"], harness].concat();
    let changes = git(&[&["status", "--porcelain"], &paths[..]].concat())?;
    ensure!(changes.is_empty(), "not committed: {changes}");
    let trees =
        (paths.iter()).map(|path| git(&["rev-parse", "--short=12", &format!("HEAD:{path}")]));
    Ok(trees.collect::<Result<Vec<_>>>()?.join(" "))
}

fn git(args: &[&str]) -> Result<String> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let output = Command::new("git").current_dir(root).args(args).output();
    let output = output.context("git")?;
    ensure!(output.status.success(), "git {args:?}: {output:?}");
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// The path of `docs/measured/NAME.json`.
pub(crate) fn file(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/measured");
    folder.join(name).with_extension("json")
}

// === impl Origin ===

impl<Versions> Origin<Versions> {
    /// This machine, the make target, and the versions of the programs that it measures.
    pub fn new(command: &str, versions: Versions) -> Self {
        Self {
            command: command.to_owned(),
            cores: thread::available_parallelism().map_or(0, usize::from),
            architecture: consts::ARCH.to_owned(),
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
