//! The figures of `make bench-peers`, as JSON and as a table in Markdown.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::envoy_versions::EnvoyBinary;
use crate::figures::{Figure, Origin};
use crate::memory::MemoryMetric;
use crate::process::Process;
use crate::table::Table;

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

/// What is measured.
pub struct Kind {
    /// In the JSON.
    pub name: &'static str,
    /// In the table.
    pub label: &'static str,
    pub unit: &'static str,
}

/// The kinds of memory, at one moment.
pub struct MemoryKinds {
    pub resident: Kind,
    pub proportional: Kind,
    pub private: Kind,
}

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

/// Memory of some processes together, in MiB.
pub struct Memory {
    resident: f64,
    proportional: f64,
    private: f64,
}

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
    pub fn add(&mut self, kind: &Kind, program: Program, value: impl Into<Value>) {
        let index = self.measures.iter().position(|it| it.name == kind.name);
        let index = index.unwrap_or_else(|| {
            self.measures.push(Measure {
                name: kind.name.to_owned(),
                label: kind.label.to_owned(),
                unit: kind.unit.to_owned(),
                programs: BTreeMap::new(),
            });
            self.measures.len() - 1
        });
        let figure = self.measures[index].programs.entry(program);
        figure.or_default().add(&value.into());
    }

    /// Adds the memory of one run.
    pub fn add_memory(&mut self, kinds: &MemoryKinds, program: Program, memory: &Memory) {
        self.add(&kinds.resident, program, memory.resident);
        self.add(&kinds.proportional, program, memory.proportional);
        self.add(&kinds.private, program, memory.private);
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
        let sum = |metric: MemoryMetric| -> Result<f64> {
            let values = processes.iter().map(|process| metric.read(process));
            Ok(values.sum::<Result<u64>>()? as f64 / 1024.0)
        };
        Ok(Self {
            resident: sum(MemoryMetric::Resident)?,
            proportional: sum(MemoryMetric::Proportional)?,
            private: sum(MemoryMetric::Private)?,
        })
    }
}
