//! The Service's part: which pod a new connection goes to.
//!
//! Like kube-proxy, it decides when a connection is opened and then stands aside: the client is
//! connected to the pod itself. Nothing in between can hide a refusal, delay the end of a connection
//! or keep one alive, so what a client sees is what the pod did. Nor is a connection ever tried at a
//! second pod.

mod rotation;

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1 as k8s;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use crate::http::Client;
use crate::listener::Protocol;
use crate::until::wait_until;
use rotation::LoadBalancer;

/// How long a client waits for a connection.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// One pod behind a Service.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// The pod's name.
    pub name: String,
    /// Where it takes HTTP; by UDP, HTTP/3.
    pub http: SocketAddr,
    /// Where it takes TCP streams, if it does.
    pub tcp: Option<SocketAddr>,
}

/// A pod's readiness probe: an HTTP GET to its HTTP port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// The path asked for.
    pub path: String,
    /// The pause between two probes.
    pub period: Duration,
    /// How long an answer may take.
    pub timeout: Duration,
    /// So many failures in a row make the pod unready.
    pub failure_threshold: u32,
}

/// A Service in front of pods. Dropped, it probes no more.
#[derive(Debug)]
pub struct Service {
    balancer: Arc<Mutex<LoadBalancer>>,
    probes: Mutex<JoinSet<()>>,
}

/// A client's connection to a pod.
#[derive(Debug)]
pub struct ServiceConnection {
    /// The connection itself.
    pub stream: TcpStream,
    /// Counted by [`Service::open`] until it is dropped; it goes wherever the stream goes.
    pub guard: ConnectionGuard,
}

/// Counts one connection as open for as long as it lives.
#[derive(Debug)]
pub struct ConnectionGuard {
    _count: Arc<()>,
}

// === impl Probe ===

impl Probe {
    /// The readiness probe of a container, with Kubernetes' defaults; `None` without an HTTP probe.
    #[must_use]
    pub fn for_container(container: &k8s::Container) -> Option<Self> {
        let probe = container.readiness_probe.as_ref()?;
        let get = probe.http_get.as_ref()?;
        let seconds = |given: Option<i32>, default| {
            let given = given.and_then(|seconds| seconds.try_into().ok());
            Duration::from_secs(given.unwrap_or(default))
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
    /// A Service without pods. What becomes of a pod is known to its clients' side `lag` later: at
    /// once or a second behind kube-proxy, 15 s behind a slow cloud balancer. That a pod has become
    /// ready is known at once.
    #[must_use]
    pub fn new(lag: Duration) -> Self {
        Self {
            balancer: Arc::new(Mutex::new(LoadBalancer::new(lag))),
            probes: Mutex::default(),
        }
    }

    /// What is at this address, always ready: a Service of a cluster, which does all that by itself.
    #[must_use]
    pub fn at(address: SocketAddr) -> Self {
        let service = Self::new(Duration::ZERO);
        service.add_ready(Endpoint {
            name: address.to_string(),
            http: address,
            tcp: None,
        });
        service
    }

    /// Adds a pod that is ready, and is not probed.
    pub fn add_ready(&self, endpoint: Endpoint) {
        let mut rotation = lock(&self.balancer);
        let name = endpoint.name.clone();
        rotation.add(endpoint);
        rotation.record_probe(&name, true, Instant::now());
    }

    /// Adds a pod, which gets connections once its first probe succeeds.
    pub fn add(&self, endpoint: Endpoint, probe: Probe) {
        let (name, address) = (endpoint.name.clone(), endpoint.http);
        lock(&self.balancer).add(endpoint);
        let rotation = Arc::clone(&self.balancer);
        let probing = async move {
            let client = Client::from(address).with_timeout(probe.timeout);
            let mut tick = interval(probe.period);
            tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut failed = 0;
            loop {
                tick.tick().await;
                let answer = client.get(&probe.path).await;
                // As the kubelet sees it: 200 to 399 is success.
                let passed = answer.is_ok_and(|answer| answer.status.as_u16() < 400);
                failed = if passed { 0 } else { failed + 1 };
                if passed || failed == probe.failure_threshold {
                    lock(&rotation).record_probe(&name, passed, Instant::now());
                }
            }
        };
        lock(&self.probes).spawn(probing);
    }

    /// Marks a pod as deleted, as the API server does at the moment when its end begins.
    pub fn mark_terminating(&self, name: &str) {
        lock(&self.balancer).mark_terminating(name, Instant::now());
    }

    /// Waits until so many pods get connections.
    ///
    /// # Errors
    /// When they do not within `limit`.
    pub async fn wait_until_ready(&self, pods: usize, limit: Duration) -> Result<()> {
        wait_until(&format!("{pods} pods are ready"), limit, || async {
            Ok(self.serving_pods() >= pods)
        })
        .await
    }

    /// How many pods get connections now.
    #[must_use]
    pub fn serving_pods(&self) -> usize {
        lock(&self.balancer).candidates(Instant::now()).len()
    }

    /// Whether this pod gets connections now.
    #[must_use]
    pub fn is_serving(&self, name: &str) -> bool {
        let rotation = lock(&self.balancer);
        let mut candidates = rotation.candidates(Instant::now()).into_iter();
        candidates.any(|candidate| candidate.endpoint.name == name)
    }

    /// How many connections to this pod its clients hold open.
    #[must_use]
    pub fn open_connections(&self, name: &str) -> usize {
        lock(&self.balancer).open_connections(name)
    }

    /// Opens a connection to the pod whose turn it is.
    ///
    /// # Errors
    /// With what the pod answered, and as a refusal when there is no pod.
    pub async fn connect(&self, protocol: Protocol) -> io::Result<ServiceConnection> {
        let (address, open) = self.endpoint(protocol)?;
        let stream = timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await??;
        stream.set_nodelay(true)?;
        Ok(ServiceConnection {
            stream,
            guard: open,
        })
    }

    /// Where a new connection goes to: to the pod whose turn it is.
    ///
    /// # Errors
    /// A refusal when there is no pod, or it does not speak that.
    pub(crate) fn endpoint(&self, protocol: Protocol) -> io::Result<(SocketAddr, ConnectionGuard)> {
        let next = lock(&self.balancer).next_backend(protocol, Instant::now());
        let refused = |why| io::Error::new(io::ErrorKind::ConnectionRefused, why);
        let (endpoint, counted) = next.ok_or_else(|| refused("no pod is ready"))?;
        let address = match protocol {
            Protocol::Http | Protocol::Http3 => Some(endpoint.http),
            Protocol::Tcp => endpoint.tcp,
        };
        let address = address.ok_or_else(|| refused("the pod has no such port"))?;
        let open = ConnectionGuard { _count: counted };
        Ok((address, open))
    }
}

/// Locks; a panic elsewhere cannot leave half a change behind.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
