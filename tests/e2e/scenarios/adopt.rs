//! Pods as Envoy Gateway and Contour build them, with a real Envoy: with the annotation `adopt`, and with the shutdown
//! manager that they have otherwise, the real one.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tests::golden;
use tests::load::{Report, load};
use tokio::time::{Instant, timeout};

use super::lag::roll_behind_lag;
use crate::cluster_fixture::ClusterFixture;
use crate::echo;
use crate::edge::{EnvoyDeployment, containers, deployment, reconfigure};
use crate::images;
use crate::restricted;
use crate::traffic::{Traffic, ensure_no_failure, light, roll_under_load};

/// The longest that a pod may take to end beside an idle client: a drain of 10 s, and the kubelet's time on a node that
/// also starts the pods of other scenarios.
pub(super) const MAX_END: Duration = Duration::from_secs(14);

/// How long a pod's end is observed.
const OBSERVED: Duration = Duration::from_secs(20);

const GATEWAY_ROLLOUTS: usize = 2;

/// What a product's pods have beside those of [`deployment`].
pub(super) struct Product {
    labels: Value,
    /// The address of Envoy's admin interface in the bootstrap.
    admin: Value,
    args: &'static [&'static str],
    /// The port of the listener for readiness.
    ready_port: u16,
    /// Envoy's preStop hook, which calls the manager.
    hook: Value,
    manager: Value,
    /// The manager's program in [`images::POD_TOOLS_IMAGE`].
    program: &'static str,
    grace_period: i64,
    /// The volume of the manager, and of the admin's socket.
    volume: Value,
}

/// What is observed of pods that are rolled and deleted.
pub(super) struct Observation {
    /// The load during the rollouts.
    pub(super) report: Report,
    /// The time from the deletion of a pod with an idle client to its end; `None` if it takes longer than [`OBSERVED`].
    pub(super) end: Option<Duration>,
}

/// An adopted pod of Envoy Gateway loses no request, and does not wait for an idle client.
pub(crate) async fn envoy_gateway_loses_no_request(fixture: &ClusterFixture<'_>) -> Result<()> {
    let observation = observe(fixture, Product::envoy_gateway(), true).await?;
    observation.ensure_no_loss()
}

/// An adopted pod of Contour loses no request, and does not wait for an idle client.
pub(crate) async fn contour_loses_no_request(fixture: &ClusterFixture<'_>) -> Result<()> {
    let observation = observe(fixture, Product::contour(), true).await?;
    observation.ensure_no_loss()
}

/// A pod of Envoy Gateway that is not adopted does both: otherwise [`envoy_gateway_loses_no_request`] would prove nothing.
pub(crate) async fn envoy_gateway_loses_requests_with_its_manager(
    fixture: &ClusterFixture<'_>,
) -> Result<()> {
    let observation = observe(fixture, Product::envoy_gateway(), false).await?;
    observation.ensure_loss()
}

/// A pod of Contour that is not adopted does both: otherwise [`contour_loses_no_request`] would prove nothing.
pub(crate) async fn contour_loses_requests_with_its_manager(
    fixture: &ClusterFixture<'_>,
) -> Result<()> {
    let observation = observe(fixture, Product::contour(), false).await?;
    observation.ensure_loss()
}

/// Rollouts of pods as Envoy Gateway builds them lose no request, with the annotations that a Gateway passes on to them
/// (`spec.infrastructure.annotations`).
pub(crate) async fn gateway_annotations_lose_no_request(
    fixture: &ClusterFixture<'_>,
) -> Result<()> {
    let namespace = fixture.namespace().await?;
    let edge = EnvoyDeployment::start(&namespace, 2, put_into_gateway_pod).await?;
    let report = roll_under_load(fixture, &edge, light(), GATEWAY_ROLLOUTS).await?;
    ensure_no_failure(&report)
}

/// Replaces the pod of a [`deployment`] by that of a golden file, which has these annotations. Its Envoy gets the listener
/// and the upstream of the former in its bootstrap, as there is no control plane; its volumes and its account belong to
/// that too.
fn put_into_gateway_pod(template: &mut Value) -> Result<()> {
    let mut resources = Value::Null;
    reconfigure(template, |bootstrap| {
        resources = bootstrap["static_resources"].take();
    })?;
    let listeners = resources["listeners"].as_array_mut();
    let listeners = listeners.context("the bootstrap has no listeners")?;
    listeners.push(ready_listener(listeners[0].clone(), 19003));
    let own = template["spec"]["containers"][0].take();

    let mut pod: Value = serde_norway::from_str(&golden::read("adopt/envoy-gateway.yaml"))?;
    pod["metadata"]["labels"]["app"] = template["metadata"]["labels"]["app"].take();
    for part in ["labels", "annotations"] {
        template["metadata"][part] = pod["metadata"][part].take();
    }
    let mut spec = pod["spec"].take();
    (spec["volumes"], spec["serviceAccountName"]) = (Value::Null, Value::Null);
    let envoy = &mut spec["containers"][0];
    (envoy["image"], envoy["volumeMounts"]) = (own["image"].clone(), Value::Null);
    let args = envoy["args"].as_array_mut();
    let mut args = args.context("the Envoy has no args")?.iter_mut();
    let bootstrap = args
        .find(|arg| *arg == "--config-yaml")
        .and_then(|_| args.next());
    let bootstrap = bootstrap.context("the Envoy has no bootstrap")?;
    let mut merged: Value = serde_norway::from_str(bootstrap.as_str().unwrap_or_default())?;
    // It names a cluster of the control plane.
    (merged["cluster_manager"], merged["static_resources"]) = (Value::Null, resources);
    *bootstrap = json!(merged.to_string());
    let ports = envoy["ports"].as_array_mut();
    ports
        .context("the Envoy has no ports")?
        .push(own["ports"][0].clone());
    template["spec"] = spec;
    Ok(())
}

/// Rolls the product's pods behind endpoints that lag, then deletes one that has an idle client.
async fn observe(
    fixture: &ClusterFixture<'_>,
    product: Product,
    adopts: bool,
) -> Result<Observation> {
    let namespace = fixture.namespace().await?;
    let upstream = echo::start(&namespace).await?;
    let mut deployment = deployment(2, upstream)?;
    product.change(&mut deployment["spec"]["template"], adopts)?;
    let edge = EnvoyDeployment::apply(&namespace, &deployment).await?;
    edge.ensure_drainers(adopts).await?;
    let report = roll_behind_lag(fixture, &edge).await?;
    let end = end_with_idle_client(fixture, &edge).await?;
    fixture.report_drains(&namespace)?;
    Ok(Observation { report, end })
}

/// Scales to one pod, deletes it while a client has an idle connection to it, and returns how long it takes to end; `None`
/// after [`OBSERVED`].
pub(super) async fn end_with_idle_client(
    fixture: &ClusterFixture<'_>,
    edge: &EnvoyDeployment,
) -> Result<Option<Duration>> {
    edge.scale(1).await?;
    let traffic = Traffic::start(&edge.namespace, "idle", edge.address, load().idle()).await?;
    let pod = edge.only_pod().await?;
    let started = Instant::now();
    let delete = ["delete", "pod", &pod];
    let end = match timeout(OBSERVED, edge.namespace.kubectl(&delete)).await {
        Ok(deleted) => Some(deleted.map(|_| started.elapsed())?),
        Err(_) => None,
    };
    // Closes the connection, for which the pod may be waiting.
    traffic.stop().await?;
    let shown = match end {
        Some(end) => format!("{:.1} s", end.as_secs_f64()),
        None => format!("more than {} s", OBSERVED.as_secs()),
    };
    fixture.add_row("pod's end with an idle client", shown);
    Ok(end)
}

// === impl Observation ===

impl Observation {
    /// Returns an error unless no request failed and the pod with the idle client ended soon.
    pub(super) fn ensure_no_loss(&self) -> Result<()> {
        let Self { report, end } = self;
        ensure_no_failure(report)?;
        ensure!(
            end.is_some_and(|end| end <= MAX_END),
            "a pod with an idle client ended after {end:?}"
        );
        Ok(())
    }

    /// Returns an error unless requests failed and the pod waited for the idle client.
    pub(super) fn ensure_loss(&self) -> Result<()> {
        let Self { report, end } = self;
        ensure!(report.failed() > 0, "no request failed:\n{report}");
        ensure!(
            end.is_none_or(|end| end > MAX_END),
            "a pod with an idle client ended after {end:?}"
        );
        Ok(())
    }
}

// === impl Product ===

impl Product {
    pub(super) fn envoy_gateway() -> Self {
        Self {
            labels: json!({ "app.kubernetes.io/managed-by": "envoy-gateway" }),
            admin: json!({ "socket_address": { "address": "127.0.0.1", "port_value": 19000 } }),
            args: &["--drain-strategy", "immediate", "--drain-time-s", "60"],
            ready_port: 19003,
            hook: json!({ "path": "/shutdown/ready", "port": 19002 }),
            manager: json!({
                "name": "shutdown-manager",
                "image": "docker.io/envoyproxy/gateway:v1.9.0",
                "imagePullPolicy": "IfNotPresent",
                "command": ["envoy-gateway"],
                "args": ["envoy", "shutdown-manager"],
                "lifecycle": {
                    "preStop": { "exec": { "command": ["envoy-gateway", "envoy", "shutdown"] } },
                },
                "volumeMounts": [{ "name": "tmp", "mountPath": "/tmp" }],
                "securityContext": restricted::container(),
            }),
            program: "/envoy-gateway",
            grace_period: 360,
            // For the manager, since the root file system cannot be written to.
            volume: json!({ "name": "tmp", "emptyDir": {} }),
        }
    }

    pub(super) fn contour() -> Self {
        let mount = json!([{ "name": "envoy-admin", "mountPath": "/admin" }]);
        Self {
            labels: json!({}),
            admin: json!({ "pipe": { "path": "/admin/admin.sock" } }),
            args: &[],
            ready_port: 8002,
            hook: json!({ "path": "/shutdown", "port": 8090 }),
            manager: json!({
                "name": "shutdown-manager",
                "image": "ghcr.io/projectcontour/contour:v1.33.6",
                "imagePullPolicy": "IfNotPresent",
                "command": ["/bin/contour"],
                "args": ["envoy", "shutdown-manager"],
                "lifecycle": {
                    "preStop": { "exec": { "command": ["/bin/contour", "envoy", "shutdown"] } },
                },
                "volumeMounts": mount,
                "securityContext": restricted::container(),
            }),
            program: "/contour",
            grace_period: 300,
            volume: json!({ "name": "envoy-admin", "emptyDir": {} }),
        }
    }

    /// Turns the pod template of a [`deployment`] into the product's, which asks for adoption or keeps its manager.
    pub(super) fn change(self, template: &mut Value, adopts: bool) -> Result<()> {
        let Self {
            labels,
            admin,
            args,
            ready_port,
            hook,
            mut manager,
            program,
            grace_period,
            volume,
        } = self;
        reconfigure(template, |bootstrap| {
            bootstrap["admin"]["address"] = admin;
            let listeners = &mut bootstrap["static_resources"]["listeners"];
            let ready = ready_listener(listeners[0].clone(), ready_port);
            listeners
                .as_array_mut()
                .into_iter()
                .for_each(|all| all.push(ready.clone()));
        })?;
        for (name, value) in labels.as_object().into_iter().flatten() {
            template["metadata"]["labels"][name] = value.clone();
        }
        template["spec"]["terminationGracePeriodSeconds"] = json!(grace_period);
        template["spec"]["volumes"] = json!([volume]);
        let envoy = &mut template["spec"]["containers"][0];
        envoy["command"] = json!(["envoy"]);
        let words = envoy["args"].as_array_mut();
        words
            .context("the Envoy has no args")?
            .extend(args.iter().map(|word| json!(word)));
        envoy["readinessProbe"]["httpGet"]["port"] = json!(ready_port);
        envoy["lifecycle"]["preStop"]["httpGet"] = hook;
        envoy["volumeMounts"] = manager["volumeMounts"].clone();
        if adopts {
            template["metadata"]["annotations"]["envoy-drainer.dev/adopt"] = json!("true");
        } else {
            manager["image"] = json!(images::POD_TOOLS_IMAGE);
            manager["command"] = json!([program]);
            manager["lifecycle"]["preStop"]["exec"]["command"][0] = json!(program);
        }
        containers(template)?.push(manager);
        Ok(())
    }
}

/// Turns the listener of [`deployment`] into one for readiness probes alone.
fn ready_listener(mut listener: Value, port: u16) -> Value {
    listener["name"] = json!("stats-health");
    listener["address"]["socket_address"]["port_value"] = json!(port);
    listener["filter_chains"][0]["filters"][0]["typed_config"]["stat_prefix"] = json!("stats");
    listener
}
