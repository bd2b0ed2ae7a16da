//! Envoys whose bootstrap is in a ConfigMap, so that nothing in their pods' manifests shows where their admin interface
//! is.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use drainer::DrainOutcome;
use futures_util::future::try_join_all;
use serde_json::{Value, json};
use tests::load::{EchoLoad, load};
use tests::timing::SECOND;
use tokio::time::Instant;

use super::adopt::{MAX_END, Observation, end_with_idle_client};
use super::drains::{count, wait_for_drain, watch_drains};
use super::live::wait_for_restarts;
use super::order::{self, AtSigterm};
use crate::cluster_fixture::ClusterFixture;
use crate::debug_container;
use crate::echo;
use crate::edge::{
    EnvoyDeployment, annotate, containers, deployment, drainer_status, into_pod, move_bootstrap,
    reconfigure, remove_inject,
};
use crate::eventually::eventually;
use crate::namespace::Namespace;
use crate::termination_message::DRAINER_CONTAINER;
use crate::traffic::{Requests, roll_under_load};

/// The ConfigMap with the bootstraps.
const CONFIG: &str = "bootstraps";

/// Clients that keep their connections, some of which always have a request in flight.
fn clients() -> EchoLoad {
    load()
        .keep_alive(50.0)
        .connection_per_request(20.0)
        .http2(20.0)
        .slow(4.0, Duration::from_secs(3))
        .slow_http2(2.0, Duration::from_secs(3))
}

const ROLLOUTS: usize = 2;

/// Shorter than the default, for the pods that are not drained, and longer than [`MAX_END`].
const DRAIN_TIMEOUT: &str = "20s";

/// Rolls Envoys with their admin interface at 127.0.0.1:19000, which no hint names, then deletes one that has an idle
/// client. The pods are not drained if an annotation names another address.
pub(crate) async fn roll(
    fixture: &ClusterFixture<'_>,
    annotated: Option<&str>,
    requests: Requests,
) -> Result<()> {
    let edge = start_hidden(fixture, admin(19000), annotated).await?;
    let report = roll_under_load(fixture, &edge, clients(), ROLLOUTS).await?;
    let end = end_with_idle_client(fixture, &edge).await?;
    Observation { report, end }.ensure(requests)
}

/// Rolls Envoys whose `admin.allow_paths` has these calls, beside what the drainer reads. If it forbids those of a drain,
/// clients keep their connections to the end; a drainer warns at its start of that, with what to write.
pub(crate) async fn roll_allowing(
    fixture: &ClusterFixture<'_>,
    calls: &[&str],
    requests: Requests,
) -> Result<()> {
    let mut admin = admin(19000);
    let paths = READ.iter().chain(calls);
    let paths: Vec<_> = paths.map(|path| json!({ "prefix": path })).collect();
    admin["allow_paths"] = json!(paths);
    let edge = start_hidden(fixture, admin, None).await?;
    let pod = edge.pods().await?.swap_remove(0);
    let log = format!("logs {pod} --container {DRAINER_CONTAINER}");
    let log = edge.namespace.run(&log).await?;
    let is_told = |path: &&str| log.contains(&format!("{{prefix: {path}}}"));
    let is_forbidden = requests == Requests::Fail;
    ensure!(CALLS.iter().all(is_told) == is_forbidden, "{log}");
    let report = roll_under_load(fixture, &edge, clients(), 1).await?;
    requests.ensure(&report)?;
    for message in edge.namespace.termination_messages.read_all()? {
        let is_shown = message.summary()?.outcome == DrainOutcome::CallsForbidden;
        ensure!(is_shown == is_forbidden, "{message}");
    }
    Ok(())
}

/// Deploys two Envoys with this admin interface in a ConfigMap, and an annotation with its address if there is one.
async fn start_hidden(
    fixture: &ClusterFixture<'_>,
    admin: Value,
    annotated: Option<&str>,
) -> Result<EnvoyDeployment> {
    let namespace = fixture.namespace().await?;
    let mut workload = deployment(2, echo::start(&namespace).await?)?;
    let template = &mut workload["spec"]["template"];
    reconfigure(template, |bootstrap| bootstrap["admin"] = admin)?;
    let bootstrap = move_bootstrap(template, CONFIG, "envoy.json")?;
    annotate(template, "drain-timeout", DRAIN_TIMEOUT);
    if let Some(address) = annotated {
        annotate(template, "admin-address", address);
    }
    apply_bootstraps(&namespace, &json!({ "envoy.json": bootstrap })).await?;
    EnvoyDeployment::deploy(&namespace, &workload).await
}

/// A pod whose Envoy has never come up, beside an app that listens, takes at most [`MAX_DELAY`] more to end than without a
/// drainer.
pub(crate) async fn envoy_that_never_came_up_holds_nothing(
    fixture: &ClusterFixture<'_>,
) -> Result<()> {
    let namespace = fixture.namespace().await?;
    let nowhere = SocketAddr::from(([127, 0, 0, 1], 1));
    let mut ends = Vec::new();
    for name in ["without-drainer", "with-drainer"] {
        let mut template = deployment(1, nowhere)?["spec"]["template"].take();
        template["spec"]["containers"][0]["args"] = json!(["--config-yaml", "{admin: 1}"]);
        containers(&mut template)?.push(order::app(AtSigterm::ServeOn(2 * SECOND)));
        if name == "without-drainer" {
            remove_inject(&mut template)?;
        }
        namespace.apply(into_pod(template, name)).await?;
        eventually("Envoy has failed, and the app listens", || async {
            let app = namespace.container_status(name, order::APP).await;
            let envoy = namespace.container_status(name, "envoy").await;
            let has_failed = envoy.is_ok_and(|envoy| envoy["restartCount"].as_u64() > Some(0));
            Ok(has_failed && app.is_ok_and(|app| app["ready"] == true))
        })
        .await?;
        let started = Instant::now();
        namespace.run(&format!("delete pod {name}")).await?;
        let end = started.elapsed();
        fixture.add_row(name, format!("{:.1} s", end.as_secs_f64()));
        ends.push(end);
    }
    ensure!(ends[1] <= ends[0] + MAX_DELAY, "{ends:?}");
    Ok(())
}

/// The paths that a drainer reads.
const READ: [&str; 4] = ["/server_info", "/stats", "/listeners", "/config_dump"];

/// The paths that a drainer calls.
pub(super) const CALLS: [&str; 2] = ["/healthcheck/", "/drain_listeners"];

/// The drainer looks for two seconds whether an Envoy comes up after all.
const MAX_DELAY: Duration = Duration::from_secs(3);

/// A pod with one or more Envoys, and what its drainer knows of their admin interfaces at its start: none.
struct Case {
    name: &'static str,
    /// The port of each Envoy's admin interface on loopback. The container of the first Envoy is called `envoy`.
    admin_ports: &'static [Option<u16>],
    what: What,
    /// Why the drainer knows none.
    unknown: &'static str,
    /// The drainer's setup warning.
    warning: &'static str,
    /// The outcome of the pod's termination.
    outcome: &'static str,
}

/// What is special about a pod.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Nothing,
    /// The drainer restarts when all is ready.
    RestartedDrainer,
    /// As [`Self::RestartedDrainer`], and the other Envoy ends after the drain.
    HeldEnvoys,
    /// The other Envoy starts some seconds before the one with the hook.
    OtherEnvoyFirst,
}

/// How long after another Envoy one starts, in seconds.
const LATER: u64 = 5;

const NONE: Case = Case {
    name: "none",
    admin_ports: &[None],
    what: What::Nothing,
    unknown: "no admin interface of an Envoy was found",
    warning: "admin-none",
    outcome: "unreachable",
};

/// The other Envoy has no hook and ends at once, so that the one with the hook is left and found.
const TWO: Case = Case {
    name: "two",
    admin_ports: &[Some(19000), Some(19001)],
    what: What::RestartedDrainer,
    unknown: "127.0.0.1:19000, 127.0.0.1:19001",
    warning: "admin-ambiguous",
    outcome: "drained",
};

const TWO_HELD: Case = Case {
    name: "two-held",
    what: What::HeldEnvoys,
    outcome: "unreachable",
    ..TWO
};

const LATER_ENVOY: Case = Case {
    name: "later",
    what: What::OtherEnvoyFirst,
    ..TWO
};

const ABSENT: [Case; 3] = [NONE, TWO, TWO_HELD];

/// An Envoy without an admin interface holds its pod as long as endpoints take to be removed, and no longer. So do two
/// that both have one. The termination message, `drains`, a metric and a setup warning say so.
pub(crate) async fn absent_one_is_a_plain_delay(fixture: &ClusterFixture<'_>) -> Result<()> {
    let drainer_api =
        json!({ "drainerAPI": { "enabled": true, "replacement": false, "reports": true } });
    let (namespace, release) = &fixture.release(drainer_api).await?;
    start(namespace, &ABSENT).await?;
    try_join_all(ABSENT.iter().map(|it| it.observe(fixture, namespace))).await?;
    let ensure_counted = async |metric: &str, of: fn(&Case) -> &str, value: &str| {
        let expected = ABSENT.iter().filter(|it| of(it) == value).count() as u64;
        eventually(&format!("{metric} counts {value}"), || async {
            Ok(count(release, &[metric, &format!("=\"{value}\"")]).await? == expected)
        })
        .await
    };
    for warning in ["admin-none", "admin-ambiguous"] {
        ensure_counted("setup_warnings_total{", |it| it.warning, warning).await?;
    }
    let drains = watch_drains(namespace)?;
    let ended = ABSENT.iter().map(|Case { name, .. }| async move {
        let started = Instant::now();
        namespace.run(&format!("delete pod {name}")).await?;
        let end = started.elapsed();
        ensure!(end <= MAX_END, "{name} ended after {end:?}");
        Ok(end)
    });
    let ends = try_join_all(ended).await?;
    ensure_counted("drains_total{", |it| it.outcome, "unreachable").await?;

    let messages = namespace.termination_messages.read_all()?;
    for (Case { name, outcome, .. }, end) in ABSENT.iter().zip(ends) {
        let message = messages.iter().find(|it| it.pod() == *name);
        let message = message.with_context(|| format!("{name} has no message"))?;
        let shown = format!("{:.1} s; {}", end.as_secs_f64(), message.text());
        fixture.add_row(&format!("{name}: pod's end"), shown);
        let told = message.summary()?.outcome.to_string();
        ensure!(told == *outcome, "{message}");
        wait_for_drain(&drains, name, outcome).await?;
    }
    Ok(())
}

/// The Envoy with the hook is drained although another one, which answers first and ends at once, was all that the
/// drainer could find at its start.
pub(crate) async fn later_envoy_is_drained(fixture: &ClusterFixture<'_>) -> Result<()> {
    let namespace = fixture.namespace().await?;
    let Case { name, outcome, .. } = LATER_ENVOY;
    start(&namespace, &[LATER_ENVOY]).await?;
    LATER_ENVOY.wait_until_ready(&namespace).await?;
    let status = drainer_status(&namespace, name).await?;
    fixture.add_row("status", status.to_string());
    namespace.run(&format!("delete pod {name}")).await?;
    let summary = namespace.first_summary().await?;
    fixture.report_drains(&namespace)?;
    ensure!(summary.outcome.to_string() == outcome, "{summary:?}");
    Ok(())
}

/// Applies the bootstraps of all pods, and then the pods.
async fn start(namespace: &Namespace, cases: &[Case]) -> Result<()> {
    let upstream = echo::start(namespace).await?;
    let (mut pods, mut bootstraps) = (Vec::new(), json!({}));
    for case in cases {
        pods.push(case.pod(upstream, &mut bootstraps)?);
    }
    apply_bootstraps(namespace, &bootstraps).await?;
    try_join_all(pods.into_iter().map(|pod| namespace.apply(pod))).await?;
    Ok(())
}

async fn apply_bootstraps(namespace: &Namespace, files: &Value) -> Result<()> {
    let config = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": CONFIG },
        "data": files,
    });
    namespace.apply(config).await.map(drop)
}

/// Returns the bootstrap's `admin` at this port on loopback.
fn admin(port: u16) -> Value {
    let address = json!({ "address": "127.0.0.1", "port_value": port });
    json!({ "address": { "socket_address": address } })
}

// === impl Case ===

impl Case {
    /// Returns the pod, and adds its bootstraps.
    fn pod(&self, upstream: SocketAddr, bootstraps: &mut Value) -> Result<Value> {
        let mut pod = Value::Null;
        for (number, port) in (0..).zip(self.admin_ports) {
            let mut template = deployment(1, upstream)?["spec"]["template"].take();
            reconfigure(&mut template, |bootstrap| {
                bootstrap["admin"] = port.map_or(Value::Null, admin);
                let listener = &mut bootstrap["static_resources"]["listeners"][0];
                listener["address"]["socket_address"]["port_value"] = json!(8080 + number);
            })?;
            let key = format!("{}-{number}.json", self.name);
            bootstraps[&key] = json!(move_bootstrap(&mut template, CONFIG, &key)?);
            if number == 0 {
                pod = template;
                continue;
            }
            let mut other = template["spec"]["containers"][0].take();
            other["name"] = json!(format!("envoy-{number}"));
            other["ports"] = Value::Null;
            other["readinessProbe"] = Value::Null;
            if self.what == What::OtherEnvoyFirst {
                // The kubelet starts the containers in order, each after the hook of the one before it.
                other["lifecycle"]["postStart"]["sleep"]["seconds"] = json!(LATER);
                containers(&mut pod)?.insert(0, other);
            } else {
                containers(&mut pod)?.push(other);
            }
        }
        if self.what == What::HeldEnvoys {
            annotate(&mut pod, "extra-lifecycle-hooks", "*");
        }
        if self.restarts_drainer() {
            // Process 1 cannot be killed from within its own PID namespace.
            pod["spec"]["shareProcessNamespace"] = json!(true);
        }
        Ok(into_pod(pod, self.name))
    }

    /// Waits until the drainer knows why it has found no admin interface, after its restart if it is restarted.
    async fn observe(&self, fixture: &ClusterFixture<'_>, namespace: &Namespace) -> Result<()> {
        self.wait_until_ready(namespace).await?;
        if self.restarts_drainer() {
            // Process 1 of the drainer's container, which the kubelet starts again at once.
            debug_container::exec_in_pod(namespace, self.name, &["kill", "drainer"]).await?;
            wait_for_restarts(namespace, self.name, 1).await?;
        }
        let what = format!("the drainer of {} knows no admin interface", self.name);
        eventually(&what, || async {
            let status = drainer_status(namespace, self.name).await;
            Ok(status.is_ok_and(|status| {
                let unknown = status["unknown"].as_str().unwrap_or_default();
                status["admin"].is_null() && unknown.contains(self.unknown)
            }))
        })
        .await?;
        fixture.add_row(self.name, self.unknown);
        Ok(())
    }

    fn restarts_drainer(&self) -> bool {
        matches!(self.what, What::RestartedDrainer | What::HeldEnvoys)
    }

    async fn wait_until_ready(&self, namespace: &Namespace) -> Result<()> {
        let wait = "wait --for=condition=Ready --timeout=120s";
        let wait = format!("{wait} pod/{}", self.name);
        namespace.run(&wait).await.map(drop)
    }
}
