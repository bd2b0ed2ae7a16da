//! Measures the cost of an admission over TLS, and compares it with a straightforward webhook and with a constant
//! response, on the same server. `make bench` prints the comparison. `make bench-admission` adds latencies by rate, by
//! connections and by CPUs, costs by size, and the memory after a million requests; it writes all figures to
//! `docs/measured/admission.json` too. Both print tables in Markdown. Figures per second of wall time and latencies
//! need an idle machine; those of the server's CPU time at saturation do not.
//!
//! ```json
//! {
//!   "command": "make bench-admission",
//!   "cores": 2,
//!   "architecture": "x86_64",
//!   "versions": { "envoy-drainer": "0.1.0" },
//!   "measures": [
//!     {
//!       "server_cpus": 1,
//!       "pod_kib": 8,
//!       "review_bytes": 8966,
//!       "connections": "kept",
//!       "clients": 16,
//!       "rate": 1000,
//!       "servers": {
//!         "baseline": …,
//!         "envoy-drainer": {
//!           "per_second": { "median": 1000.0, "values": [1000.0, 1000.0, 999.0] },
//!           "cpu_micros": …,
//!           "waited_percent": …,
//!           "p50_micros": …,
//!           "p99_micros": …,
//!           "p99.9_micros": …
//!         },
//!         "limit": …
//!       }
//!     },
//!     …
//!   ],
//!   "memory": [
//!     { "server": "envoy-drainer", "answered": 0, "in_flight": 0, "resident_kib": 9132, "private_kib": 1300 },
//!     …
//!   ]
//! }
//! ```
//!
//! Values have three significant digits, one for each round.
//!
//! - A measure is one load, which all its `servers` bear in turn. With one of `server_cpus` the server is pinned to it,
//!   and the client to the other; with two neither is pinned.
//! - `rate` is the requests per second that were sent however slow the server was, and `per_second` the responses. If
//!   it is `null`, the server is saturated: each of `clients` sends the next request after the response to its last.
//!   `connections` are `kept`, or `new` for each request.
//! - `cpu_micros` is the server's CPU time for each response; `review_bytes` over it is in MB/s, and its quotient for
//!   two servers their relative cost. In `waited_percent` of the time, a thread of the server waited for a CPU that
//!   another process had.
//! - Latencies are from the time when a request was due to the end of its response, a new connection included.
//! - `memory` is read after `answered` responses, with `in_flight` requests that lack their last byte.

mod baseline;
mod load;
mod measure;
mod pods;

use std::collections::BTreeMap;
use std::env;
use std::path::Path;

use anyhow::{Context, Result};
use tests::admission_report::Connections::{Kept, New};
use tests::admission_report::{AdmissionReport, Load, Measure, PRODUCT, USUAL};
use tests::binaries;
use tests::figures::{self, Origin};
use tests::webhook_process::{IMAGE, WebhookAddresses, WebhookProcess};
use tokio::process::Command;
use tokio::runtime;

use baseline::Role;
use measure::{MeasureRun, Subject};
use pods::{LARGE, Review, SIZES};

/// Number of rounds, in which the servers alternate; each figure is the median of all rounds.
const ROUNDS: usize = 3;

/// Requests per second, up to more than a server answers.
const RATES: [u32; 6] = [100, COMPARED_RATE, 2_000, 5_000, 10_000, 15_000];

/// Requests per second that all servers answer.
const COMPARED_RATE: u32 = 1_000;

/// Numbers of responses after which memory is measured.
const RESPONSES: [usize; 2] = [100_000, 1_000_000];

/// The argument for all measures.
const ALL: &str = "all";

fn main() -> Result<()> {
    let mut args = env::args().skip(1);
    // Cargo adds `--bench`.
    let first = args.next().unwrap_or_default();
    runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(async {
            match Role::of_arg(&first) {
                Some(role) => baseline::serve(role, args).await,
                None => bench(first == ALL).await,
            }
        })
}

async fn bench(all: bool) -> Result<()> {
    let program = binaries::envoy_drainer_of_image().await?;
    let subjects = [
        start(PRODUCT, |addresses| addresses.serve(&program, IMAGE)).await?,
        start_reference(Role::Limit).await?,
        start_reference(Role::Baseline).await?,
    ];
    let reviews = SIZES.map(Review::of_pod);
    let reviews = reviews.into_iter().collect::<Result<Vec<_>>>()?;
    let usual = reviews.iter().find(|it| it.pod_kib == USUAL);
    let usual = usual.context("no size is the usual one")?;
    let mut memory = Vec::new();
    eprintln!("memory");
    for subject in &subjects {
        let is_loaded = all && subject.name == PRODUCT;
        let responses = if is_loaded { &RESPONSES[..] } else { &[] };
        memory.extend(measure::memory(subject, usual, responses).await?);
    }
    let mut runs = runs(&subjects, &reviews, usual, all);
    for round in 1..=ROUNDS {
        eprintln!("round {round} of {ROUNDS}");
        for run in &mut runs {
            run.round().await?;
        }
    }
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let versions = [(PRODUCT.to_owned(), version)].into();
    let report = AdmissionReport {
        origin: Origin::new("make bench-admission", versions),
        measures: runs.into_iter().map(|run| run.measure).collect(),
        memory,
    };
    println!("{}", report.tables());
    if all {
        figures::write("admission", &report)?;
    }
    Ok(())
}

/// The runs of all measures, or of the comparison with the baseline only.
fn runs<'a>(
    subjects: &'a [Subject],
    reviews: &'a [Review],
    usual: &'a Review,
    all: bool,
) -> Vec<MeasureRun<'a>> {
    let without_baseline = &subjects[..2];
    let mut runs = Vec::new();
    let mut add = |is_compared, server_cpus, review: &'a Review, load| {
        if all || is_compared {
            runs.push(MeasureRun {
                measure: Measure {
                    server_cpus,
                    pod_kib: review.pod_kib,
                    review_bytes: review.body.len(),
                    load,
                    servers: BTreeMap::new(),
                },
                body: &review.body,
                subjects: if is_compared {
                    subjects
                } else {
                    without_baseline
                },
            });
        }
    };
    for review in reviews {
        let load = load::saturating(review, Kept);
        add([USUAL, LARGE].contains(&review.pod_kib), 1, review, load);
    }
    let at = |rate, connections| Load {
        rate,
        ..load::saturating(usual, connections)
    };
    for rate in RATES {
        let load = at(Some(rate), Kept);
        add(rate == COMPARED_RATE, 1, usual, load);
    }
    for (server_cpus, connections) in [(1, New), (2, Kept), (2, New)] {
        for rate in [Some(RATES[0]), Some(COMPARED_RATE), None] {
            add(false, server_cpus, usual, at(rate, connections));
        }
    }
    runs
}

/// Starts a server by this command. Its log is formatted and discarded.
async fn start(
    name: &'static str,
    command: impl FnOnce(&WebhookAddresses) -> Command,
) -> Result<Subject> {
    let process = WebhookProcess::run(Some(Path::new("/dev/null")), command).await?;
    Ok(Subject { name, process })
}

async fn start_reference(role: Role) -> Result<Subject> {
    start(role.arg(), |addresses| reference(role, addresses)).await
}

fn reference(role: Role, addresses: &WebhookAddresses) -> Command {
    let WebhookAddresses {
        tls,
        health,
        metrics,
        ca_file,
        ..
    } = addresses;
    let this = env::current_exe().unwrap_or_else(|_| "/proc/self/exe".into());
    let mut command = Command::new(this);
    let addresses = [tls, health, metrics].map(ToString::to_string);
    command.arg(role.arg()).args(addresses).arg(ca_file);
    command
}
