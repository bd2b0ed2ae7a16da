//! A StatefulSet, which replaces a pod only after it has terminated. With one replica it is out of service meanwhile, and
//! with a drainer that keeps health no longer than without, but for the start of a second container.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tests::load::load;
use tests::timing::SECOND;

use crate::cluster_fixture::ClusterFixture;
use crate::echo;
use crate::edge::{EnvoyDeployment, annotate, deployment, remove_inject};
use crate::traffic::{Requests, Traffic};

/// How much longer a restart may take for the second container, in seconds; failed health would cost ten.
const CONTAINER_START: f64 = 1.5;

/// New connections a second.
const RATE: f64 = 20.0;

/// A row: the name of the load, the number of replicas and of restarts, what changes the template, and whether drains keep
/// health to the end.
type Row = (&'static str, u32, usize, Change, bool);
type Change = fn(&mut Value) -> Result<()>;

const ROWS: [Row; 5] = [
    ("sigterm", 1, 5, remove_inject, false),
    ("kept-health", 1, 5, keep_health, true),
    // The drainer asks the webhook whether its pod is alone.
    ("drainer-api", 1, 5, |_| Ok(()), true),
    ("kept-health-of-three", 3, 1, keep_health, true),
    ("drainer-api-of-three", 3, 1, |_| Ok(()), false),
];

fn keep_health(template: &mut Value) -> Result<()> {
    annotate(template, "health-failure-delay", "end");
    Ok(())
}

/// A Service that has not answered within a second is out of service. With three replicas it never is.
pub(crate) async fn is_out_of_service_no_longer(fixture: &ClusterFixture<'_>) -> Result<()> {
    let values = json!({ "drainerAPI": { "enabled": true, "reports": true } });
    let (namespace, _release) = &fixture.release(values).await?;
    let upstream = echo::start(namespace).await?;
    let mut with_sigterm = None;
    for (name, replicas, restarts, change, keeps_health) in ROWS {
        let mut workload = deployment(replicas, upstream)?;
        workload["kind"] = json!("StatefulSet");
        change(&mut workload["spec"]["template"])?;
        let edge = EnvoyDeployment::deploy(namespace, &workload).await?;
        let clients = load().connection_per_request(RATE).request_timeout(SECOND);
        let traffic = Traffic::start(namespace, name, edge.address, clients).await?;
        for _ in 0..restarts {
            edge.rollout_restart().await?;
        }
        let report = traffic.stop_at_any_rate().await?;
        fixture.report_load(&report);
        let answered = (report.sent() - report.failed()) as f64;
        let seconds = report.elapsed.as_secs_f64() - answered / RATE;
        fixture.add_row(name, format!("out of service for {seconds:.1} s"));
        let limit = *with_sigterm.get_or_insert(seconds);
        let is_short = seconds <= limit + CONTAINER_START * restarts as f64;
        ensure!(is_short, "{seconds:.1} s, by SIGTERM {limit:.1} s");
        if replicas > 1 {
            Requests::Survive.ensure(&report)?;
        }
        // The last drain of each pod so far.
        for message in namespace.termination_messages.read_all()? {
            let failed = message.summary()?.seconds_to_failed_health;
            ensure!(failed.is_some() == keeps_health, "{message}");
        }
    }
    Ok(())
}
