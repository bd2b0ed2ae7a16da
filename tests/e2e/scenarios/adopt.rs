//! Pods as Envoy Gateway, Contour and MARIN3R build them, with a real Envoy: with the annotation `adopt`, with the drainer's image in
//! the place of the shutdown manager's, and with the real one.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};
use tests::json::push;
use tests::load::{Report, load};
use tokio::time::{Instant, timeout};

use super::lag::roll_behind_lag;
use crate::cluster_fixture::ClusterFixture;
use crate::echo;
use crate::edge::{EnvoyDeployment, containers, deployment, reconfigure, remove_inject};
use crate::images;
use crate::restricted;
use crate::traffic::{Requests, Traffic};

/// The longest that a pod may take to end beside an idle client: a drain of 10 s, and the kubelet's time on a node that
/// also starts the pods of other scenarios.
pub(super) const MAX_END: Duration = Duration::from_secs(14);

/// How long a pod's end is observed.
const OBSERVED: Duration = Duration::from_secs(20);

/// What a product's pods have beside those of [`deployment`].
#[derive(Deserialize)]
pub(super) struct Product {
    labels: Value,
    /// The address of Envoy's admin interface in the bootstrap.
    admin: Value,
    args: Vec<Value>,
    /// The port of the listener for readiness.
    ready_port: u16,
    /// Envoy's preStop hook, which calls the manager.
    hook: Value,
    pub(super) manager: Value,
    /// The manager's program in [`images::POD_TOOLS_IMAGE`].
    program: String,
    grace_period: i64,
    /// The volume of the manager, and of the admin's socket. The manager's root file system cannot be written to.
    volume: Value,
}

/// What drains the pods of a product.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Manager {
    Adopted,
    Own,
    DropIn,
}

/// What is observed of pods that are rolled and deleted.
pub(super) struct Observation {
    /// The load during the rollouts.
    pub(super) report: Report,
    /// The time from the deletion of a pod with an idle client to its end; `None` if it takes longer than [`OBSERVED`].
    pub(super) end: Option<Duration>,
}

/// Pods of a product that this drains lose no request in rollouts behind endpoints that lag, and do not wait for an idle
/// client. [`super::drill`] drills the same pods with their own manager.
pub(crate) async fn loses_no_request(
    fixture: &ClusterFixture<'_>,
    of: Product,
    by: Manager,
) -> Result<()> {
    let namespace = fixture.namespace().await?;
    let upstream = echo::start(&namespace).await?;
    let mut deployment = deployment(2, upstream)?;
    of.change(&mut deployment["spec"]["template"], by)?;
    let edge = EnvoyDeployment::deploy(&namespace, &deployment).await?;
    let report = roll_behind_lag(fixture, &edge).await?;
    let end = end_with_idle_client(fixture, &edge).await?;
    if by == Manager::Adopted {
        fixture.report_drains(&namespace)?;
    }
    Observation { report, end }.ensure(Requests::Survive)
}

/// Scales to one pod, deletes it while a client has an idle connection to it, and returns how long it takes to end;
/// `None` after [`OBSERVED`].
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
    /// Returns an error unless no request failed and the pod with the idle client ended soon, or neither.
    pub(super) fn ensure(&self, requests: Requests) -> Result<()> {
        let Self { report, end } = self;
        requests.ensure(report)?;
        let is_soon = end.is_some_and(|end| end <= MAX_END);
        ensure!(
            is_soon == (requests == Requests::Survive),
            "a pod with an idle client ended after {end:?}"
        );
        Ok(())
    }
}

// === impl Product ===

impl Product {
    pub(super) fn envoy_gateway() -> Self {
        Self::read(include_str!("adopt/envoy-gateway.json"))
    }

    pub(super) fn contour() -> Self {
        Self::read(include_str!("adopt/contour.json"))
    }

    pub(super) fn marin3r() -> Self {
        Self::read(include_str!("adopt/marin3r.json"))
    }

    fn read(file: &str) -> Self {
        serde_json::from_str(file).expect("the file describes a product")
    }

    /// Turns the pod template of a [`deployment`] into the product's.
    pub(super) fn change(self, template: &mut Value, by: Manager) -> Result<()> {
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
            push(listeners, ready);
        })?;
        for (name, value) in labels.as_object().into_iter().flatten() {
            template["metadata"]["labels"][name] = value.clone();
        }
        template["spec"]["terminationGracePeriodSeconds"] = json!(grace_period);
        template["spec"]["volumes"] = json!([volume]);
        let envoy = &mut template["spec"]["containers"][0];
        envoy["command"] = json!(["envoy"]);
        args.into_iter()
            .for_each(|word| push(&mut envoy["args"], word));
        envoy["readinessProbe"]["httpGet"]["port"] = json!(ready_port);
        envoy["lifecycle"]["preStop"]["httpGet"] = hook;
        envoy["volumeMounts"] = manager["volumeMounts"].clone();
        match by {
            Manager::Adopted => {
                template["metadata"]["annotations"]["envoy-drainer.dev/adopt"] = json!("true");
            }
            Manager::Own => {
                manager["image"] = json!(images::POD_TOOLS_IMAGE);
                manager["command"] = json!([program]);
                let hook = &mut manager["lifecycle"]["preStop"];
                if let Some(command) = hook.pointer_mut("/exec/command/0") {
                    *command = json!(program);
                }
            }
            Manager::DropIn => {
                manager["image"] = json!(images::DRAINER_IMAGE);
                remove_inject(template)?;
            }
        }
        manager["securityContext"] = restricted::container();
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
