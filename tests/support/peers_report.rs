//! The figures of `make bench-peers`, as JSON and as a table in Markdown.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::envoy_versions::EnvoyBinary;
use crate::figures::{Figure, Origin};
use crate::memory::MemoryMetric;
use crate::process::Process;
use crate::table::{Table, rows};

/// All figures of a run of the benchmark; the documentation of `bench/peers/main.rs` shows it as JSON.
#[derive(Serialize, Deserialize)]
pub struct PeersReport {
    #[serde(flatten)]
    origin: Origin<Versions>,
    measures: Vec<Measure>,
}

#[derive(Serialize, Deserialize)]
struct Versions {
    envoy: String,
    #[serde(flatten)]
    programs: BTreeMap<Program, String>,
}

/// A program that is measured. The order is that of the table's columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Program {
    Drainer,
    EnvoyGateway,
    Contour,
}

#[derive(Serialize, Deserialize)]
struct Measure {
    name: String,
    label: String,
    unit: String,
    programs: BTreeMap<Program, BoundedFigure>,
}

/// What is measured: the name in the JSON, the unit and the label in the table, whose rows have this order.
const MEASURES: &str = "
    binary_size                  | MiB           | size of the binary
    standby_resident_memory      | MiB           | in standby: resident memory
    standby_proportional_memory  | MiB           | in standby: proportional memory (PSS)
    standby_private_memory       | MiB           | in standby: private memory
    standby_cpu_time             | ms per minute | in standby: CPU time
    standby_context_switches     | per minute    | in standby: context switches
    drain_resident_memory        | MiB           | in a drain, with the hook's process: resident memory
    drain_proportional_memory    | MiB           | in a drain, with the hook's process: proportional memory (PSS)
    drain_private_memory         | MiB           | in a drain, with the hook's process: private memory
    reaction                     | s             | from the close of the last connection to the return of the hook
    termination_with_idle_client | s             | from the call of the hooks to their return, with one idle keep-alive client
";

/// The kinds of memory, by their part of a measure's name.
const MEMORY: [(&str, MemoryMetric); 3] = [
    ("resident", MemoryMetric::Resident),
    ("proportional", MemoryMetric::Proportional),
    ("private", MemoryMetric::Private),
];

/// The values of the runs, of which some may have been ended before.
#[derive(Serialize, Deserialize, Default)]
struct BoundedFigure {
    #[serde(flatten)]
    figure: Figure,
    #[serde(default, skip_serializing_if = "is_false")]
    at_least: bool,
}

/// What one run has measured.
pub enum Value {
    Exact(f64),
    /// The run was ended before.
    AtLeast(f64),
}

/// Memory of some processes together, of each of the kinds, in MiB.
pub struct Memory([f64; MEMORY.len()]);

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_false(value: &bool) -> bool {
    !value
}

// === impl PeersReport ===

impl PeersReport {
    /// A report without measures.
    pub fn new(programs: BTreeMap<Program, String>, envoy: &EnvoyBinary) -> Self {
        let versions = Versions {
            envoy: envoy.version.clone(),
            programs,
        };
        Self {
            origin: Origin::new("make bench-peers", versions),
            measures: Vec::new(),
        }
    }

    /// Adds the value of one run.
    ///
    /// # Panics
    /// When there is no such measure.
    pub fn add(&mut self, name: &str, program: Program, value: impl Into<Value>) {
        let index = self.measures.iter().position(|it| it.name == name);
        let index = index.unwrap_or_else(|| {
            let row = rows(MEASURES).find(|[row, _, _]| *row == name);
            let [name, unit, label] = row.expect("a measure").map(str::to_owned);
            self.measures.push(Measure {
                name,
                label,
                unit,
                programs: BTreeMap::new(),
            });
            self.measures.len() - 1
        });
        let figure = self.measures[index].programs.entry(program);
        figure.or_default().add(&value.into());
    }

    /// Adds the memory of one run, in this state.
    pub fn add_memory(&mut self, state: &str, program: Program, memory: &Memory) {
        for ((kind, _), value) in MEMORY.into_iter().zip(memory.0) {
            self.add(&format!("{state}_{kind}_memory"), program, value);
        }
    }

    /// The programs with their versions, in the order of the table's columns.
    pub fn programs(&self) -> impl Iterator<Item = (Program, &str)> {
        let programs = self.origin.versions.programs.iter();
        programs.map(|(program, version)| (*program, version.as_str()))
    }

    /// The number of runs whose medians the figures are.
    pub fn runs(&self) -> usize {
        let figures = self.measures.iter().flat_map(|it| it.programs.values());
        figures
            .map(|it| it.figure.values.len())
            .max()
            .unwrap_or_default()
    }

    /// The median of a measure, in its unit.
    ///
    /// # Errors
    /// When there is none.
    pub fn median(&self, measure: &str, program: Program) -> Result<f64> {
        Ok(self.measure(measure)?.figure(program)?.figure.median)
    }

    /// A figure for a sentence, with its unit.
    ///
    /// # Errors
    /// When it was not measured.
    pub fn text(&self, measure: &str, program: Program) -> Result<String> {
        let measure = self.measure(measure)?;
        let figure = measure.figure(program)?.cell(false);
        Ok(format!("{figure} {}", measure.unit))
    }

    /// The medians of these measures, or of all if none is named, in Markdown: a row for each, and below how they were
    /// measured. Durations have the longest run too.
    ///
    /// # Errors
    /// When one of the figures was not measured.
    pub fn table(&self, measures: &[&str]) -> Result<String> {
        let all = self.measures.iter().map(|it| it.name.as_str());
        let measures = if measures.is_empty() {
            all.collect()
        } else {
            measures.to_vec()
        };
        let columns = self.programs();
        let columns = columns.map(|(program, version)| format!("{} {version}", program.name()));
        let mut table = Table::new("measured", columns);
        for name in measures {
            let measure = self.measure(name)?;
            let cell = |(program, _)| Ok(measure.figure(program)?.cell(measure.unit == "s"));
            let cells: Vec<_> = self.programs().map(cell).collect::<Result<_>>()?;
            table.add(format!("{}, {}", measure.label, measure.unit), cells);
        }
        Ok(format!(
            "{table}\n\nMeasured by `{}`: medians of {} runs on {} cores, with Envoy {}; for durations, also the \
             longest run.",
            self.origin.command,
            self.runs(),
            self.origin.cores,
            self.origin.versions.envoy
        ))
    }

    fn measure(&self, name: &str) -> Result<&Measure> {
        let measure = self.measures.iter().find(|it| it.name == name);
        measure.with_context(|| format!("no measure {name}"))
    }
}

// === impl Program ===

impl Program {
    pub fn name(self) -> &'static str {
        match self {
            Self::Drainer => "drainer",
            Self::EnvoyGateway => "Envoy Gateway",
            Self::Contour => "Contour",
        }
    }
}

// === impl Measure ===

impl Measure {
    fn figure(&self, program: Program) -> Result<&BoundedFigure> {
        let figure = self.programs.get(&program);
        figure.with_context(|| format!("no {} of {}", self.name, program.name()))
    }
}

// === impl BoundedFigure ===

impl BoundedFigure {
    fn add(&mut self, value: &Value) {
        let (Value::Exact(number) | Value::AtLeast(number)) = value;
        self.figure.add(*number);
        self.at_least |= matches!(value, Value::AtLeast(_));
    }

    fn cell(&self, has_worst: bool) -> String {
        let Figure { median, values } = &self.figure;
        if self.at_least {
            return format!("≥ {median}");
        }
        let worst = values.iter().copied().fold(*median, f64::max);
        if has_worst {
            format!("{median} (worst {worst})")
        } else {
            median.to_string()
        }
    }
}

// === impl Value ===

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Exact(value)
    }
}

// === impl Memory ===

impl Memory {
    /// Reads the memory of these processes. Resident memory that they share is counted for each of them.
    pub fn read(processes: &[&Process]) -> Result<Self> {
        let mut sums = [0.0; MEMORY.len()];
        for process in processes {
            for (sum, (_, metric)) in sums.iter_mut().zip(MEMORY) {
                *sum += metric.read(process)? as f64 / 1024.0;
            }
        }
        Ok(Self(sums))
    }
}
