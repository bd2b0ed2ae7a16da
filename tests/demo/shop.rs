//! Two Envoy pods behind one Service, and its clients while one of the pods is terminated.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use tests::admin::Admin;
use tests::bootstrap::Bootstrap;
use tests::envoy::{Envoy, envoy};
use tests::envoy_versions::{self, EnvoyBinary};
use tests::http::Client;
use tests::kubelet::{Kubelet, Program, RunningPod};
use tests::listener::{http, tcp};
use tests::load::{EchoLoad, Report, load};
use tests::port::Port;
use tests::service::{Endpoint, Probe, Service};
use tests::upstream::Upstream;
use tokio::time::{Instant, sleep};

use crate::monitor::{DELETED_POD, ENVOY_CONTAINER, TerminationMonitor};
use crate::screen::Screen;

/// The AdmissionReview that an API server sent for a pod of a Deployment.
const REVIEW: &str = include_str!("review.json");

/// The name of the injected container.
const DRAINER_CONTAINER: &str = "envoy-drainer";

/// The pod that keeps running.
const REMAINING_POD: &str = "edge-2";

/// How long the Service keeps sending new connections to a deleted pod, as kube-proxy does on a busy
/// cluster.
const ENDPOINT_LAG: Duration = Duration::from_secs(1);

/// How long the load runs before the pod is deleted.
const LOAD_BEFORE: Duration = Duration::from_secs(4);

/// How long the load runs after the pod's last process exited.
const LOAD_AFTER: Duration = Duration::from_secs(3);

/// The interval between two polls of the pod and its traffic.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Timeout of a request to Envoy's admin interface.
const ADMIN_TIMEOUT: Duration = Duration::from_millis(200);

/// How long the pods may take to become ready.
const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// The parts that both runs share: programs, ports, the upstream and the pod that keeps running.
pub(crate) struct DemoCluster {
    envoy: EnvoyBinary,
    drainer: Program,
    deleted: Bootstrap,
    drainer_port: Port,
    remaining: Envoy,
    _upstream: Upstream,
}

/// The result of a pod's termination under load.
pub(crate) struct TerminationResult {
    /// The results of the clients' requests.
    pub(crate) report: Report,
    /// From the deletion to the exit of the pod's last process.
    pub(crate) elapsed: Duration,
    /// Clients' connections to Envoy when it received SIGTERM.
    pub(crate) open_connections: usize,
    /// The drainer's termination message; empty without a drainer.
    pub(crate) termination_message: String,
}

/// Returns the load: each kind of client with its requests per second.
fn clients() -> EchoLoad {
    load()
        .idle()
        .keep_alive(120.0)
        .connection_per_request(80.0)
        .slow(20.0, Duration::from_secs(2))
        .http2(100.0)
        .stream(20.0, Duration::from_secs(8))
}

// === impl DemoCluster ===

impl DemoCluster {
    /// Starts the upstream and the Envoy that keeps running.
    pub(crate) async fn start() -> Result<Self> {
        let binary = envoy_versions::newest()?;
        let upstream = Upstream::start().await?;
        let deleted = envoy()?
            .admin_port(Port::prefer(9901)?)
            .listener(http("http")?.port(Port::prefer(8080)?))
            .listener(tcp("tcp")?.port(Port::prefer(9000)?))
            .upstream(&upstream);
        let remaining = envoy()?.binary(&binary).listener(http("http")?);
        let remaining = remaining.listener(tcp("tcp")?).upstream(&upstream);
        let remaining = remaining.start().await?;
        Ok(Self {
            envoy: binary,
            drainer: Program::drainer()?,
            deleted,
            drainer_port: Port::prefer(15902)?,
            remaining,
            _upstream: upstream,
        })
    }

    /// Returns the AdmissionReview of the pod that will be deleted. A port of the manifest that is in
    /// use on this machine is replaced with a free one.
    pub(crate) fn review(&self) -> Result<Value> {
        let mut review: Value = serde_json::from_str(REVIEW)?;
        let pod = &mut review["request"]["object"];
        let annotations = &mut pod["metadata"]["annotations"];
        let admin = self.deleted.admin_address().to_string();
        if admin != "127.0.0.1:9901" {
            annotations["envoy-drainer.dev/admin-address"] = json!(admin);
        }
        if self.drainer_port.number() != 15902 {
            annotations["envoy-drainer.dev/port"] = json!(self.drainer_port.number().to_string());
        }
        let container = &mut pod["spec"]["containers"][0];
        let (http, tcp) = (self.deleted.address("http"), self.deleted.address("tcp"));
        container["ports"][0]["containerPort"] = json!(http.port());
        container["ports"][1]["containerPort"] = json!(tcp.port());
        container["readinessProbe"]["httpGet"]["port"] = json!(http.port());
        Ok(review)
    }

    /// Describes the pods and the load for the demo's output.
    pub(crate) fn describe_traffic(&self) -> String {
        format!(
            "   Two pods behind one Service run {}. The Service still routes to a deleted pod for {} s.
   Clients send {:.0} POSTs per second and never retry: over keep-alive connections, over a new connection
   for each request, with responses that take 2 s, over HTTP/2 and over a TCP stream. One more connection
   is idle.",
            self.envoy,
            ENDPOINT_LAG.as_secs(),
            clients().rate(),
        )
    }

    /// Runs the pod and deletes it under load. The load lasts for `duration`, or else for [`LOAD_AFTER`]
    /// longer than the pod.
    pub(crate) async fn delete_pod(
        &self,
        pod: Pod,
        duration: Option<Duration>,
        screen: &Screen,
    ) -> Result<TerminationResult> {
        let probe = readiness_probe(&pod)?;
        let pod = self.run(pod)?;
        let service = Arc::new(Service::new(ENDPOINT_LAG));
        let deleted = endpoint(DELETED_POD, |listener| self.deleted.address(listener));
        service.add(deleted, probe.clone());
        let remaining = endpoint(REMAINING_POD, |listener| self.remaining.address(listener));
        service.add(remaining, probe);
        let ready = service.wait_until_ready(2, READY_TIMEOUT).await;
        ready.with_context(|| pod.log(ENVOY_CONTAINER).unwrap_or_default())?;

        let start = Instant::now();
        let clients = clients().start(&service);
        sleep(LOAD_BEFORE).await;

        let admin = Client::new(self.deleted.admin_address().clone());
        let admin = Admin::new(admin.with_timeout(ADMIN_TIMEOUT));
        let mut monitor = TerminationMonitor::new(&pod, &service, &clients, &admin, screen);
        service.mark_terminating(DELETED_POD);
        let mut terminate = pin!(pod.terminate());
        let termination = loop {
            let poll = async {
                monitor.print_changes().await;
                sleep(POLL_INTERVAL).await;
            };
            tokio::select! {
                biased;
                termination = &mut terminate => break termination,
                () = poll => {}
            }
        };
        let load_end =
            duration.map_or_else(|| Instant::now() + LOAD_AFTER, |duration| start + duration);
        while Instant::now() < load_end {
            monitor.print_changes().await;
            sleep(POLL_INTERVAL).await;
        }
        let open_connections = monitor.connections;
        Ok(TerminationResult {
            report: clients.stop().await,
            elapsed: termination.elapsed,
            open_connections,
            termination_message: pod
                .termination_message(DRAINER_CONTAINER)
                .unwrap_or_default(),
        })
    }

    /// Starts the pod: programs of this machine stand for its images, and its ConfigMap is created here.
    fn run(&self, pod: Pod) -> Result<RunningPod> {
        Kubelet::new(pod)?
            .program(ENVOY_CONTAINER, Program::envoy(&self.envoy))
            .program(DRAINER_CONTAINER, self.drainer.clone())
            .file("config", "envoy.yaml", &self.deleted.json().to_string())?
            .start()
    }
}

fn endpoint(name: &str, address: impl Fn(&str) -> SocketAddr) -> Endpoint {
    Endpoint {
        name: name.to_owned(),
        http: address("http"),
        tcp: Some(address("tcp")),
    }
}

fn readiness_probe(pod: &Pod) -> Result<Probe> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut probes = containers.filter_map(Probe::for_container);
    probes.next().context("the pod has no readiness probe")
}
