//! Ten Envoys with drainers and two replicas of the webhook, under load and disturbed all the time.

use std::time::Duration;

use anyhow::{Context, Result};
use fastrand::Rng;
use serde_json::{Value, json};
use tests::soak_report::{ClusterReport, DisruptionCounts, LoadReport};
use tokio::select;

use super::api_server::ApiServer;
use super::disruptions::Disruptor;
use super::sampler::Sampler;
use crate::cluster_fixture::ClusterFixture;
use crate::echo;
use crate::edge::{EnvoyDeployment, deployment};
use crate::namespace::Namespace;
use crate::traffic::{Traffic, mixed, sparse};

const ENVOYS: u32 = 10;

/// Disturbs a cluster for this long, and measures it.
///
/// # Errors
/// If something is not well again in time after a disruption.
pub(crate) async fn run(
    fixture: &ClusterFixture<'_>,
    length: Duration,
    rng: Rng,
    api_server: Option<&ApiServer>,
) -> Result<ClusterReport> {
    let (namespace, release) = fixture.release(values()).await?;
    let mut workload = deployment(ENVOYS, echo::start(&namespace).await?)?;
    // All at once.
    workload["spec"]["strategy"]["rollingUpdate"] = json!({ "maxSurge": "100%" });
    let edge = EnvoyDeployment::deploy(&namespace, &workload).await?;
    let kept = release.pods().await?.into_iter().next();
    let kept = kept.context("the webhook has no pod")?;
    let traffic = [
        Traffic::start(&namespace, "mixed", edge.address, mixed()).await?,
        Traffic::start(&namespace, "sparse", edge.address, sparse()).await?,
    ];
    let mut sampler = Sampler::new(&release, &namespace, &traffic, &kept).await?;
    let mut disruptor = Disruptor {
        edge: &edge,
        release: &release,
        kept: &kept,
        rng,
        counts: DisruptionCounts::default(),
    };
    select! {
        disturbed = disruptor.run(length, api_server) => disturbed?,
        never = sampler.run() => match never {},
    }
    let due_rotations = sampler.due_rotations();
    let Sampler { series, missed, .. } = sampler;
    let disruptions = disruptor.counts;
    let mut loads = Vec::new();
    for (name, traffic) in ["mixed", "sparse"].into_iter().zip(traffic) {
        let report = traffic.stop_at_any_rate().await?;
        println!("{name} load:\n{report}");
        loads.push(LoadReport {
            name: name.to_owned(),
            sent: report.sent(),
            failed: report.failed(),
            reached: report.reached(),
        });
    }
    Ok(ClusterReport {
        loads,
        disruptions,
        due_rotations,
        restarts: restarts(&namespace).await? + restarts(&release.namespace).await?,
        missed_samples: missed,
        trends: series.trends(),
    })
}

/// Returns values with a CA that is due after a minute. Pods wait for the webhook rather than to start without a
/// drainer, whose end would fail requests.
fn values() -> Value {
    json!({
        "admission": { "failurePolicy": "Fail" },
        "certificates": {
            "caActivationDelay": "5s",
            "self": { "caLifetime": "90s", "leafLifetime": "30s" },
        },
    })
}

/// Returns how often containers of the present pods have restarted.
async fn restarts(namespace: &Namespace) -> Result<u64> {
    let pods = namespace.json(&["get", "pods"]).await?;
    let pods = pods["items"].as_array().into_iter().flatten();
    let statuses = pods.flat_map(|pod| {
        let lists = ["containerStatuses", "initContainerStatuses"];
        lists.map(|list| pod["status"][list].as_array())
    });
    let counts = statuses.flatten().flatten();
    Ok(counts
        .filter_map(|status| status["restartCount"].as_u64())
        .sum())
}
