//! The figures of `make bench-admission`, as JSON and as tables in Markdown.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

use crate::figures::{Figure, Origin};
use crate::table::Table;

/// The name of the product's server.
pub const PRODUCT: &str = "envoy-drainer";

/// The server with a constant response.
pub const LIMIT: &str = "limit";

/// The straightforward webhook.
pub const BASELINE: &str = "baseline";

/// The size of an ordinary pod, in KiB, whose latencies are measured.
pub const USUAL: usize = 8;

/// The sizes of pods, in KiB, whose costs per byte are compared.
const COMPARED_SIZES: [usize; 2] = [3072, 64];

/// All figures of a run of the benchmark; the documentation of `bench/admission/main.rs` shows it as JSON.
#[derive(Debug, Serialize, Deserialize)]
pub struct AdmissionReport {
    #[serde(flatten)]
    pub origin: Origin<BTreeMap<String, String>>,
    pub measures: Vec<Measure>,
    pub memory: Vec<Memory>,
}

/// A load, and how servers bear it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Measure {
    /// One: the server has one CPU, and the client the other. Two: both share both.
    pub server_cpus: usize,
    /// The size of the pod.
    pub pod_kib: usize,
    /// The size of its review.
    pub review_bytes: usize,
    #[serde(flatten)]
    pub load: Load,
    /// By the server's name.
    pub servers: BTreeMap<String, Figures>,
}

/// What clients send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    pub connections: Connections,
    /// Number of clients. Each has one request in flight at a time.
    pub clients: u32,
    /// Requests per second of all clients together, however slow the server is. Without it, each client sends the next
    /// request after the response to the last.
    pub rate: Option<u32>,
}

/// The TLS connections of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Connections {
    /// One for all its requests.
    Kept,
    /// One for each request.
    New,
}

/// How one server bears a load: a value for each round.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Figures {
    /// Responses per second of wall time.
    pub per_second: Figure,
    /// The server's CPU time for a response, including the kernel's part.
    pub cpu_micros: Figure,
    /// The part of the time in which a thread of the server waited for a CPU.
    pub waited_percent: Figure,
    pub p50_micros: Figure,
    pub p99_micros: Figure,
    #[serde(rename = "p99.9_micros")]
    pub p99_9_micros: Figure,
}

/// Memory of a server.
#[derive(Debug, Serialize, Deserialize)]
pub struct Memory {
    pub server: String,
    /// Number of responses before.
    pub answered: usize,
    /// Number of requests that lack their last byte.
    pub in_flight: usize,
    /// Resident memory.
    pub resident_kib: u64,
    /// Its anonymous part, which is private to the process and not backed by a file.
    pub private_kib: u64,
}

/// The quotient of two figures with two decimals, if both were measured.
fn ratio(of: Option<f64>, to: Option<f64>) -> String {
    let ratio = of.zip(to).map(|(of, to)| format!("{:.2}", of / to));
    ratio.unwrap_or_default()
}

// === impl AdmissionReport ===

impl AdmissionReport {
    /// The medians of all rounds in Markdown, as several tables.
    pub fn tables(&self) -> String {
        let tables = [self.costs(), self.latencies(), self.memory(), self.waits()];
        tables.join("\n\n")
    }

    /// The table of this name, or a sentence in its place.
    ///
    /// # Errors
    /// If there is none.
    pub fn table(&self, name: &str) -> Result<String> {
        match name {
            "costs" => Ok(self.costs()),
            "latencies" => Ok(self.latencies()),
            "memory" => Ok(self.memory()),
            "waits" => Ok(self.waits()),
            _ => bail!("admission.json has no table `{name}`"),
        }
    }

    fn costs(&self) -> String {
        let columns = [
            PRODUCT,
            LIMIT,
            "envoy-drainer / limit",
            BASELINE,
            "baseline / envoy-drainer",
        ];
        let mut table = Table::new("CPU time of an admission, µs (MB/s)", columns);
        let measures: Vec<_> = self.measures.iter().filter(|it| it.is_of_cost()).collect();
        for measure in &measures {
            let bytes = measure.review_bytes as f64;
            let cell = |micros: f64| format!("{micros} ({:.0})", bytes / micros);
            let costs = [PRODUCT, LIMIT, BASELINE].map(|name| measure.cost(name));
            let [product_cell, limit_cell, baseline_cell] =
                costs.map(|cost| cost.map(cell).unwrap_or_default());
            let [product, limit, baseline] = costs;
            let cells = [
                product_cell,
                limit_cell,
                ratio(product, limit),
                baseline_cell,
                ratio(baseline, product),
            ];
            table.add(format!("a pod of {} KiB", measure.pod_kib), cells);
        }
        let per_byte = |name, kib| {
            let measure = measures.iter().find(|it| it.pod_kib == kib)?;
            Some(measure.cost(name)? / measure.review_bytes as f64)
        };
        let [large, small] = COMPARED_SIZES;
        let ratio_of = |name| ratio(per_byte(name, large), per_byte(name, small));
        let (product, limit) = (ratio_of(PRODUCT), ratio_of(LIMIT));
        if product.is_empty() {
            return table.to_string();
        }
        format!(
            "{table}\n\nA byte of {large} KiB costs {product} times one of {small} KiB; in the limit {limit} times."
        )
    }

    fn latencies(&self) -> String {
        let names = [PRODUCT, LIMIT, BASELINE];
        let mut table = Table::new("latency p50 / p99 / p99.9, µs", names);
        let measures = self.measures.iter();
        let mut measures: Vec<_> = measures.filter(|it| it.pod_kib == USUAL).collect();
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
            let cpus = if *server_cpus == 1 {
                "one CPU"
            } else {
                "two CPUs"
            };
            let cells = cells.map(Option::unwrap_or_default);
            table.add(format!("{load}, {cpus}"), cells);
        }
        table.to_string()
    }

    fn memory(&self) -> String {
        let mut table = Table::new("memory, MiB", ["resident", "private"]);
        for memory in &self.memory {
            let sizes = [memory.resident_kib, memory.private_kib];
            let sizes = sizes.map(|kibibytes| format!("{:.2}", kibibytes as f64 / 1024.0));
            let state = match (memory.answered, memory.in_flight) {
                (0, 0) => "idle".to_owned(),
                (answered, 0) => format!("after {answered} responses"),
                (_, in_flight) => format!("{in_flight} requests in flight"),
            };
            table.add(format!("{}, {state}", memory.server), sizes);
        }
        table.to_string()
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

// === impl Measure ===

impl Measure {
    /// Whether it measures the cost of an admission: of a saturated server, on a CPU of its own.
    fn is_of_cost(&self) -> bool {
        let Load {
            connections, rate, ..
        } = self.load;
        self.server_cpus == 1 && connections == Connections::Kept && rate.is_none()
    }

    /// The server's CPU time for a response, in µs; `None` if this server was not measured.
    fn cost(&self, server: &str) -> Option<f64> {
        Some(self.servers.get(server)?.cpu_micros.median)
    }
}

// === impl Load ===

impl Display for Load {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.rate {
            Some(rate) => write!(f, "{rate}/s")?,
            None => write!(f, "{} clients", self.clients)?,
        }
        f.write_str(match self.connections {
            Connections::Kept => ", kept connections",
            Connections::New => ", new connections",
        })
    }
}

// === impl Figures ===

impl Figures {
    /// The latencies in a table, and the rate that was reached if it is not the one of the load.
    fn cell(&self, rate: Option<u32>) -> String {
        let quantiles = [&self.p50_micros, &self.p99_micros, &self.p99_9_micros];
        let [p50, p99, p99_9] = quantiles.map(|it| it.median);
        let cell = format!("{p50} / {p99} / {p99_9}");
        let reached = self.per_second.median;
        let is_reached = rate.is_some_and(|rate| reached > 0.98 * f64::from(rate));
        if is_reached {
            cell
        } else {
            format!("{cell} at {reached}/s")
        }
    }
}
