//! `make soak`: what holds for minutes holds for hours, while everything changes that changes in a cluster.
//!
//! First in the cluster: ten Envoys with drainers and two replicas of the webhook, under load and [disturbed] all
//! the time. Then a drainer beside a [busy Envoy], for half as long. They do not run at the same time, since the
//! cluster may be on this machine, whose processors the busy Envoy uses.
//!
//! The soak fails if a request fails, a load does not reach its rate, a container restarts, or a measure [grows].
//!
//! The results are printed, and written to `docs/measured/soak.json`:
//!
//! ```text
//! version, minutes, seed, passed
//! cluster
//!   loads[]           name, sent, failed, reached: the fraction of the intended rate
//!   disruptions       rollouts, evictions, terminations of Envoys by these, requestedRotations, kills; outageSeconds, null without an outage
//!   dueRotations      of the CA, beside those that were requested
//!   restarts          of containers
//!   missedSamples     not taken, as while the API server is away
//!   trends[]
//! busyEnvoy           envoy: its version; listeners, statistics
//!   trends[]
//!
//! trends[]            subject, measure, unit
//!   samples           how many
//!   firstQuarter      the median of the first quarter of them
//!   lastQuarter       the median of the last quarter
//!   slope             per hour, by least squares
//!   standardError     of the slope
//!   bound             of the slope; null if it is not judged
//!   grows             whether the slope is above the bound beyond noise
//! ```
//!
//! [disturbed]: disruptions
//! [busy Envoy]: busy_envoy
//! [grows]: series

mod api_server;
mod busy_envoy;
mod cluster;
mod disruptions;
mod sampler;
mod series;

use std::env;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use fastrand::Rng;
use tests::figures;
use tests::soak_report::SoakReport;
use tokio::select;

use self::api_server::ApiServer;
use crate::cluster_fixture::ClusterFixture;
use crate::interrupt::Interrupt;
use crate::namespace::wait_until_gone;
use crate::outcome::MIN_RATE_RATIO;
use crate::{images, prerequisites};

/// Minimum duration, in minutes: less does not suffice for every kind of disruption.
const MIN_MINUTES: u64 = 10;

/// Runs the soak for this many minutes in the cluster, and half as many beside the busy Envoy.
pub(crate) async fn run(minutes: &str) -> Result<ExitCode> {
    let minutes: u64 = minutes.parse().context("MINUTES")?;
    ensure!(
        minutes >= MIN_MINUTES,
        "MINUTES must be at least {MIN_MINUTES}"
    );
    let length = Duration::from_secs(minutes * 60);
    let seed = match env::var("SEED") {
        Ok(seed) if !seed.is_empty() => seed.parse().context("SEED")?,
        _ => fastrand::u64(..),
    };
    println!("SEED={seed}");
    let interrupt = Interrupt::listen()?;
    let helm = prerequisites::check_all().await?;
    prerequisites::ensure_no_leftovers(&helm).await?;
    images::load_images().await?;

    let api_server = ApiServer::from_env();
    let fixture = ClusterFixture::new("soak", &helm, &[]);
    let rng = Rng::with_seed(seed);
    let cluster = select! {
        cluster = cluster::run(&fixture, length, rng, api_server.as_ref()) => cluster,
        () = interrupt.wait() => Err(anyhow!("interrupted")),
    };
    if cluster.is_err() && !interrupt.is_requested() {
        println!("{}", fixture.diagnostics().await);
    }
    let cleanup = fixture.clean_up().await.and(wait_until_gone().await);
    let cluster = cluster?;
    cleanup?;
    let busy_envoy = select! {
        measured = busy_envoy::run(length / 2) => measured?,
        () = interrupt.wait() => return Err(anyhow!("interrupted")),
    };

    let report = SoakReport {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        minutes,
        seed,
        passed: false,
        cluster,
        busy_envoy,
    };
    let report = report.judge(MIN_RATE_RATIO);
    figures::write("soak", &report)?;
    println!("\n{}\n", report.text());
    Ok(if report.passed {
        println!("passed");
        ExitCode::SUCCESS
    } else {
        println!("FAILED");
        ExitCode::FAILURE
    })
}
