//! The figures, as JSON and as a table in Markdown.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::Result;
use serde::Serialize;
use tests::envoy_versions::EnvoyBinary;
use tests::figures::{self, Origin};
use tests::memory::MemoryMetric;
use tests::process::Process;

use crate::manager::Manager;

/// All figures of a run of the benchmark; the documentation of `main.rs` shows it as JSON.
#[derive(Serialize)]
pub(crate) struct Report {
    #[serde(flatten)]
    origin: Origin,
    measures: Vec<Measure>,
}

#[derive(Serialize)]
struct Measure {
    #[serde(flatten)]
    kind: Kind,
    programs: BTreeMap<&'static str, Figure>,
}

/// What is measured.
#[derive(Clone, Serialize)]
pub(crate) struct Kind {
    /// In the JSON.
    pub(crate) name: &'static str,
    /// In the table.
    pub(crate) label: &'static str,
    pub(crate) unit: &'static str,
}

/// The kinds of memory, at one moment.
pub(crate) struct MemoryKinds {
    pub(crate) resident: Kind,
    pub(crate) proportional: Kind,
    pub(crate) private: Kind,
}

#[derive(Serialize, Default)]
struct Figure {
    #[serde(flatten)]
    values: figures::Figure,
    #[serde(skip_serializing_if = "is_false")]
    at_least: bool,
}

/// What one run has measured.
pub(crate) enum Value {
    Exact(f64),
    /// The run was ended before.
    AtLeast(f64),
}

/// Memory of some processes together, in MiB.
pub(crate) struct Memory {
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

// === impl Report ===

impl Report {
    /// A report without measures.
    pub(crate) fn new(managers: &[Manager], envoy: &EnvoyBinary) -> Self {
        let managers = managers.iter().map(|it| (it.key, it.version.clone()));
        let versions = managers.chain([("envoy", envoy.version.clone())]);
        Self {
            origin: Origin::new("make bench-peers", versions.collect()),
            measures: Vec::new(),
        }
    }

    /// Adds the value of one run.
    pub(crate) fn add(&mut self, kind: &Kind, manager: &Manager, value: impl Into<Value>) {
        let is_of_kind = |it: &Measure| it.kind.name == kind.name;
        let index = self.measures.iter().position(is_of_kind);
        let index = index.unwrap_or_else(|| {
            self.measures.push(Measure {
                kind: kind.clone(),
                programs: BTreeMap::new(),
            });
            self.measures.len() - 1
        });
        let figure = self.measures[index].programs.entry(manager.key);
        figure.or_default().add(&value.into());
    }

    /// Adds the memory of one run.
    pub(crate) fn add_memory(&mut self, kinds: &MemoryKinds, manager: &Manager, memory: &Memory) {
        self.add(&kinds.resident, manager, memory.resident);
        self.add(&kinds.proportional, manager, memory.proportional);
        self.add(&kinds.private, manager, memory.private);
    }

    /// The medians in Markdown, a row for each measure; of durations the longest too.
    pub(crate) fn table(&self, managers: &[Manager]) -> String {
        let mut table = String::from("| measured |");
        for manager in managers {
            let _ = write!(table, " {} {} |", manager.name, manager.version);
        }
        table += "\n| --- |";
        table += &" --: |".repeat(managers.len());
        for Measure { kind, programs } in &self.measures {
            let _ = write!(table, "\n| {}, {} |", kind.label, kind.unit);
            for manager in managers {
                let figure = programs.get(manager.key);
                let cell = figure.map_or_else(String::new, |it| it.cell(kind.unit == "s"));
                let _ = write!(table, " {cell} |");
            }
        }
        table
    }
}

// === impl Figure ===

impl Figure {
    fn add(&mut self, value: &Value) {
        let (Value::Exact(number) | Value::AtLeast(number)) = value;
        self.values.add(*number);
        self.at_least |= matches!(value, Value::AtLeast(_));
    }

    fn cell(&self, has_worst: bool) -> String {
        let figures::Figure { median, values } = &self.values;
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
    pub(crate) fn read(processes: &[&Process]) -> Result<Self> {
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
