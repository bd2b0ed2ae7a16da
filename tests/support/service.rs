//! A fake Service: chooses the pod for each new connection, and probes the readiness of its pods.
//!
//! Like kube-proxy, it chooses a pod when a connection is opened, and the client connects to the pod itself. Nothing in
//! between hides a refused connection, delays the end of one or keeps one open, and no connection is retried at a
//! second pod: a client sees what the pod did.

mod load_balancer;

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::load::{ConnectionGuard, Endpoints, Protocol};
use anyhow::Result;
use k8s_openapi::api::core::v1 as k8s;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::http::Client;
use crate::until::wait_until;
use load_balancer::LoadBalancer;

pub use load_balancer::Endpoint;

/// A pod's readiness probe: an HTTP GET to its HTTP port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// The path of the request.
    pub path: String,
    /// The interval between two probes.
    pub period: Duration,
    /// The timeout of a probe.
    pub timeout: Duration,
    /// The number of consecutive failures after which the pod is not ready.
    pub failure_threshold: u32,
}

/// A Service in front of pods. It stops probing them when it is dropped.
#[derive(Debug)]
pub struct Service {
    balancer: Arc<Mutex<LoadBalancer>>,
    probes: Mutex<JoinSet<()>>,
}

// === impl Endpoint ===

impl Endpoint {
    /// A pod without a TCP port.
    pub fn new(name: &str, http: SocketAddr) -> Self {
        Self {
            name: name.to_owned(),
            http,
            tcp: None,
        }
    }
}

// === impl Probe ===

impl Probe {
    /// The readiness probe of a container, with Kubernetes' defaults; `None` without an HTTP probe.
    pub fn for_container(container: &k8s::Container) -> Option<Self> {
        let probe = container.readiness_probe.as_ref()?;
        let get = probe.http_get.as_ref()?;
        let seconds = |value: Option<i32>, default| {
            let value = value.and_then(|seconds| seconds.try_into().ok());
            Duration::from_secs(value.unwrap_or(default))
        };
        let failures = probe.failure_threshold.and_then(|n| n.try_into().ok());
        Some(Self {
            path: get.path.clone().unwrap_or_else(|| "/".to_owned()),
            period: seconds(probe.period_seconds, 10),
            timeout: seconds(probe.timeout_seconds, 1),
            failure_threshold: failures.unwrap_or(3),
        })
    }
}

// === impl Service ===

impl Service {
    /// A Service without pods. Clients learn `lag` later that a pod terminates or is not ready: at once or after a
    /// second with kube-proxy, after 15 s with a slow cloud load balancer. They learn at once that a pod has become
    /// ready.
    pub fn new(lag: Duration) -> Self {
        Self {
            balancer: Arc::new(Mutex::new(LoadBalancer::new(lag))),
            probes: Mutex::default(),
        }
    }

    /// Adds a pod that is ready and is not probed.
    pub fn add_ready(&self, endpoint: Endpoint) {
        let mut balancer = lock(&self.balancer);
        let name = endpoint.name.clone();
        balancer.add(endpoint);
        balancer.record_probe(&name, true, Instant::now());
    }

    /// Adds a pod that gets connections from its first successful probe on.
    pub fn add(&self, endpoint: Endpoint, probe: Probe) {
        let (name, address) = (endpoint.name.clone(), endpoint.http);
        lock(&self.balancer).add(endpoint);
        let balancer = Arc::clone(&self.balancer);
        let probes = async move {
            let client = Client::from(address).with_timeout(probe.timeout);
            let mut tick = interval(probe.period);
            tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut failures = 0;
            loop {
                tick.tick().await;
                let response = client.get(&probe.path).await;
                // The kubelet takes 200 to 399 for success.
                let passed = response.is_ok_and(|response| response.status.as_u16() < 400);
                failures = if passed { 0 } else { failures + 1 };
                if passed || failures == probe.failure_threshold {
                    lock(&balancer).record_probe(&name, passed, Instant::now());
                }
            }
        };
        lock(&self.probes).spawn(probes);
    }

    /// Marks a pod as terminating, as the API server does when it is deleted.
    pub fn mark_terminating(&self, name: &str) {
        lock(&self.balancer).mark_terminating(name, Instant::now());
    }

    /// Waits until this many pods get connections.
    ///
    /// # Errors
    /// When fewer do within `limit`.
    pub async fn wait_until_ready(&self, pods: usize, limit: Duration) -> Result<()> {
        wait_until(&format!("{pods} pods are ready"), limit, || async {
            Ok(self.serving_pods() >= pods)
        })
        .await
    }

    /// The number of pods that get connections now.
    pub fn serving_pods(&self) -> usize {
        lock(&self.balancer).candidates(Instant::now()).len()
    }

    /// When this pod was chosen for a connection.
    pub fn chosen_at(&self, name: &str) -> Vec<Instant> {
        lock(&self.balancer).chosen_at(name)
    }

    /// The number of connections to this pod that clients hold open.
    pub fn open_connections(&self, name: &str) -> usize {
        lock(&self.balancer).open_connections(name)
    }
}

impl Endpoints for Service {
    fn next(&self, protocol: Protocol) -> io::Result<(SocketAddr, ConnectionGuard)> {
        let next = lock(&self.balancer).next_backend(protocol, Instant::now());
        let refused = |reason| io::Error::new(io::ErrorKind::ConnectionRefused, reason);
        let (endpoint, guard) = next.ok_or_else(|| refused("no pod is ready"))?;
        let address = match protocol {
            Protocol::Http | Protocol::Http3 => Some(endpoint.http),
            Protocol::Tcp => endpoint.tcp,
        };
        let address = address.ok_or_else(|| refused("the pod has no such port"))?;
        Ok((address, guard))
    }
}

/// Locks. A poisoned lock is used as well: no change is ever partial.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
