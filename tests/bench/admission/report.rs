//! The figures, as JSON and as tables in Markdown.

use serde::Serialize;
use tests::figures::Origin;

use crate::PRODUCT;
use crate::baseline::Role;
use crate::measure::{Measure, Memory};
use crate::pods::USUAL;

/// All figures of a run of the benchmark; the documentation of `main.rs` shows it as JSON.
#[derive(Debug, Serialize)]
pub(crate) struct Report<'a> {
    #[serde(flatten)]
    pub(crate) origin: Origin,
    pub(crate) measures: Vec<Measure<'a>>,
    pub(crate) memory: Vec<Memory>,
}

/// The sizes of pods, in KiB, whose costs per byte are compared.
const COMPARED_SIZES: [usize; 2] = [3072, 64];

fn row(cells: &[String]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

/// The first two rows of a table.
fn header(names: &[&str]) -> String {
    let rules = " --: |".repeat(names.len() - 1);
    format!("| {} |\n| --- |{rules}\n", names.join(" | "))
}

/// The quotient of two figures with two decimals, if both were measured.
fn ratio(of: Option<f64>, to: Option<f64>) -> String {
    let ratio = of.zip(to).map(|(of, to)| format!("{:.2}", of / to));
    ratio.unwrap_or_default()
}

// === impl Report ===

impl Report<'_> {
    /// The medians of all rounds in Markdown.
    pub(crate) fn tables(&self) -> String {
        [self.costs(), self.latencies(), self.memory(), self.waits()].join("\n")
    }

    fn costs(&self) -> String {
        let [limit, baseline] = [Role::Limit, Role::Baseline].map(Role::arg);
        let mut table = header(&[
            "CPU time of an admission, µs (MB/s)",
            PRODUCT,
            limit,
            "envoy-drainer / limit",
            baseline,
            "baseline / envoy-drainer",
        ]);
        let measures: Vec<_> = self.measures.iter().filter(|it| it.is_of_cost()).collect();
        for measure in &measures {
            let bytes = measure.review.review_bytes as f64;
            let cell = |micros: f64| format!("{micros} ({:.0})", bytes / micros);
            let costs = [PRODUCT, limit, baseline].map(|name| measure.cost(name));
            let [product_cell, limit_cell, baseline_cell] =
                costs.map(|cost| cost.map(cell).unwrap_or_default());
            let [product, limit, baseline] = costs;
            table += &row(&[
                format!("a pod of {} KiB", measure.review.pod_kib),
                product_cell,
                limit_cell,
                ratio(product, limit),
                baseline_cell,
                ratio(baseline, product),
            ]);
        }
        let per_byte = |name, kib| {
            let measure = measures.iter().find(|it| it.review.pod_kib == kib)?;
            Some(measure.cost(name)? / measure.review.review_bytes as f64)
        };
        let [large, small] = COMPARED_SIZES;
        let ratio_of = |name| ratio(per_byte(name, large), per_byte(name, small));
        let (product, limit) = (ratio_of(PRODUCT), ratio_of(limit));
        if !product.is_empty() {
            table += &format!(
                "\nA byte of {large} KiB costs {product} times one of {small} KiB; in the limit {limit} times.\n"
            );
        }
        table
    }

    fn latencies(&self) -> String {
        let names = [PRODUCT, Role::Limit.arg(), Role::Baseline.arg()];
        let mut table = header(&[&["latency p50 / p99 / p99.9, µs"], &names[..]].concat());
        let measures = self.measures.iter();
        let mut measures: Vec<_> = measures.filter(|it| it.review.pod_kib == USUAL).collect();
        measures.sort_by_key(|it| {
            let rate = it.load.rate.unwrap_or(u32::MAX);
            (it.server_cpus, it.load.connections, rate)
        });
        for Measure {
            server_cpus,
            load,
            servers,
            ..
        } in measures
        {
            let cells = names.map(|name| servers.get(name).map(|it| it.cell(load.rate)));
            let [product, limit, baseline] = cells.map(Option::unwrap_or_default);
            let cpus = ["one CPU", "two CPUs"][server_cpus - 1];
            table += &row(&[format!("{load}, {cpus}"), product, limit, baseline]);
        }
        table
    }

    fn memory(&self) -> String {
        let mut table = header(&["memory, MiB", "resident", "private"]);
        for memory in &self.memory {
            let mebibytes = |kibibytes: u64| format!("{:.2}", kibibytes as f64 / 1024.0);
            let state = match (memory.answered, memory.in_flight) {
                (0, 0) => "idle".to_owned(),
                (answered, 0) => format!("after {answered} responses"),
                (_, in_flight) => format!("{in_flight} requests in flight"),
            };
            table += &row(&[
                format!("{}, {state}", memory.server),
                mebibytes(memory.resident_kib),
                mebibytes(memory.private_kib),
            ]);
        }
        table
    }

    /// How much other processes disturbed the measures.
    fn waits(&self) -> String {
        let measures = self.measures.iter().filter(|it| it.server_cpus == 1);
        let mut waits: Vec<_> = measures
            .flat_map(|it| it.servers.values().flat_map(|it| &it.waited_percent.values))
            .collect();
        waits.sort_by(|a, b| a.total_cmp(b));
        let (median, most) = (waits[waits.len() / 2], waits[waits.len() - 1]);
        format!("A server on one CPU waited for it {median} % of the time, and at most {most} %.")
    }
}
