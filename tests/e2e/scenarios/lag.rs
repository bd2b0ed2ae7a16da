//! A Service whose endpoints are updated late, as behind a slow load balancer: until the update, terminating
//! pods get new connections and new pods get none.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tests::load::Report;
use tokio::select;
use tokio::time::{Instant, interval};

use crate::cluster_fixture::ClusterFixture;
use crate::edge::{APP, EnvoyDeployment};
use crate::namespace::Namespace;
use crate::service;
use crate::traffic::{Traffic, sparse};

/// The delay of endpoint updates.
const LAG: Duration = Duration::from_secs(15);

/// The interval between two polls of the endpoints.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

const ROLLOUTS: usize = 2;

/// The Service with the lag, and its EndpointSlice.
pub(super) const LAGGING_SERVICE: &str = "edge-lagging";

/// Restarts Envoys behind endpoints that lag, under sparse traffic.
pub(super) async fn roll_behind_lag(
    fixture: &ClusterFixture<'_>,
    edge: &EnvoyDeployment,
) -> Result<Report> {
    let mirror = EndpointMirror::new(&edge.namespace).await?;
    let traffic = Traffic::start(&edge.namespace, "load", mirror.address, sparse()).await?;
    let rollouts = async {
        for _ in 0..ROLLOUTS {
            edge.rollout_restart().await?;
        }
        traffic.stop().await
    };
    let report = select! {
        report = rollouts => report?,
        never = mirror.copy() => match never? {},
    };
    fixture.report_load(&report);
    Ok(report)
}

/// Copies the endpoints of the Envoys' Service to the one with the lag, after [`LAG`].
pub(super) struct EndpointMirror<'a> {
    namespace: &'a Namespace,
    /// The address of the Service with the lag.
    pub(super) address: SocketAddr,
    slice: Value,
}

// === impl EndpointMirror ===

impl<'a> EndpointMirror<'a> {
    pub(super) async fn new(namespace: &'a Namespace) -> Result<Self> {
        let address = service::create_without_selector(namespace, LAGGING_SERVICE).await?;
        let slice = endpoints(namespace).await?;
        namespace.apply(slice.clone()).await?;
        Ok(Self {
            namespace,
            address,
            slice,
        })
    }

    /// Copies until an error.
    pub(super) async fn copy(self) -> Result<Infallible> {
        let namespace = self.namespace;
        let apply = async |slice| namespace.apply(slice).await.map(drop);
        copy_endpoints(namespace, LAG, self.slice, apply).await
    }
}

/// Applies the endpoints of the Envoys' Service this much later, each time when they differ from those before, which at
/// first are `slice`. Runs until an error.
pub(super) async fn copy_endpoints(
    namespace: &Namespace,
    lag: Duration,
    mut slice: Value,
    apply: impl AsyncFn(Value) -> Result<()>,
) -> Result<Infallible> {
    let mut ticks = interval(POLL_INTERVAL);
    let mut pending = VecDeque::new();
    loop {
        ticks.tick().await;
        pending.push_back((Instant::now(), endpoints(namespace).await?));
        while let Some((_, next)) = pending.pop_front_if(|(at, _)| at.elapsed() >= lag) {
            if next != slice {
                apply(next.clone()).await?;
                slice = next;
            }
        }
    }
}

/// Returns the endpoints of the Envoys as the EndpointSlice of the Service with the lag.
async fn endpoints(namespace: &Namespace) -> Result<Value> {
    let selector = format!("kubernetes.io/service-name={APP}");
    let slices = namespace
        .json(&["get", "endpointslices", "--selector", &selector])
        .await?;
    let slices = slices["items"].as_array();
    let slice = slices.and_then(|all| all.first());
    let slice = slice.context("the Service has no EndpointSlice")?;
    // The controller may have created several.
    let endpoints = slices.into_iter().flatten();
    let endpoints = endpoints.flat_map(|it| it["endpoints"].as_array().into_iter().flatten());
    Ok(json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": LAGGING_SERVICE,
            "labels": { "kubernetes.io/service-name": LAGGING_SERVICE },
        },
        "addressType": slice["addressType"],
        "ports": slice["ports"],
        "endpoints": endpoints.cloned().collect::<Value>(),
    }))
}
