//! Two Envoys behind one Service, and clients that use it while one of the two ends.

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
use tests::load::{Load, Report, load};
use tests::port::Port;
use tests::service::{Endpoint, Probe, Service};
use tests::upstream::Upstream;
use tokio::time::{Instant, sleep};

use crate::screen::Screen;
use crate::timeline::TerminationMonitor;

/// What the API server sent for one pod of a Deployment.
const REVIEW: &str = include_str!("review.json");

/// The container's name in the review.
pub(crate) const ENVOY_CONTAINER: &str = "envoy";

/// The container that is injected.
const DRAINER_CONTAINER: &str = "envoy-drainer";

/// The pod that is deleted.
pub(crate) const DELETED_POD: &str = "edge-1";

/// The pod that stays.
const REMAINING_POD: &str = "edge-2";

/// How long the Service goes on sending connections to a pod that is deleted, as kube-proxy does on
/// a busy cluster.
const LAG: Duration = Duration::from_secs(1);

/// How long the load runs before the pod is deleted, and after it is gone.
const LOAD_BEFORE: Duration = Duration::from_secs(4);
const LOAD_AFTER: Duration = Duration::from_secs(3);

/// The pause between two looks at what happens.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// How long the admin may take to answer a look.
const ADMIN_TIMEOUT: Duration = Duration::from_millis(200);

/// How long a pod may take until it is ready.
const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// The place: what stays the same while the pod comes and goes.
pub(crate) struct DemoCluster {
    envoy: EnvoyBinary,
    drainer: Program,
    deleted: Bootstrap,
    drainer_port: Port,
    remaining: Envoy,
    _upstream: Upstream,
}

/// A pod's end, as its clients saw it.
pub(crate) struct TerminationResult {
    /// What became of their requests.
    pub(crate) report: Report,
    /// From the deletion to the end of the pod's last process.
    pub(crate) elapsed: Duration,
    /// Connections that clients held to Envoy when it got SIGTERM.
    pub(crate) open_connections: usize,
    /// The drainer's termination message; empty where there was none.
    pub(crate) termination_message: String,
}

/// The clients, with their requests a second.
fn clients() -> Load {
    load()
        .idle()
        .keep_alive(120.0)
        .connection_per_request(80.0)
        .slow(20.0, Duration::from_secs(2))
        .http2(100.0)
        .stream(20.0, Duration::from_secs(8))
}

// === impl Shop ===

impl DemoCluster {
    /// Opens the shop with the Envoy that stays.
    pub(crate) async fn start() -> Result<Self> {
        let binary = envoy_versions::newest()?;
        let upstream = Upstream::start().await?;
        let deleted = envoy()?
            .admin_port(Port::prefer(9901)?)
            .listener(http("http")?.port(Port::prefer(8080)?))
            .listener(tcp("tcp")?.port(Port::prefer(9000)?))
            .upstream(&upstream);
        let stays = envoy()?
            .binary(&binary)
            .listener(http("http")?)
            .listener(tcp("tcp")?)
            .upstream(&upstream)
            .start()
            .await?;
        Ok(Self {
            envoy: binary,
            drainer: Program::drainer()?,
            deleted,
            drainer_port: Port::prefer(9902)?,
            remaining: stays,
            _upstream: upstream,
        })
    }

    /// The review of the pod that will be deleted. Where this machine uses one of its ports for
    /// something else, it says another.
    pub(crate) fn review(&self) -> Result<Value> {
        let mut review: Value = serde_json::from_str(REVIEW)?;
        let pod = &mut review["request"]["object"];
        let annotations = &mut pod["metadata"]["annotations"];
        let admin = self.deleted.admin_address().to_string();
        if admin != "127.0.0.1:9901" {
            annotations["envoy-drainer.dev/admin-address"] = json!(admin);
        }
        if self.drainer_port.number() != 9902 {
            annotations["envoy-drainer.dev/port"] = json!(self.drainer_port.number().to_string());
        }
        let container = &mut pod["spec"]["containers"][0];
        let (http, tcp) = (self.deleted.address("http"), self.deleted.address("tcp"));
        container["ports"][0]["containerPort"] = json!(http.port());
        container["ports"][1]["containerPort"] = json!(tcp.port());
        container["readinessProbe"]["httpGet"]["port"] = json!(http.port());
        Ok(review)
    }

    /// Tells who is there, for a person.
    pub(crate) fn describe_traffic(&self) -> String {
        format!(
            "   Two pods with {} are one Service, which learns {} s late that one goes. {} POSTs a
   second, none sent twice: keep-alive, a connection each, 2 s answers, HTTP/2, a TCP stream, one idle.",
            self.envoy,
            LAG.as_secs(),
            clients().rate(),
        )
    }

    /// Runs the pod and deletes it under load. The load lasts for `length`, or for a while longer
    /// than the pod.
    pub(crate) async fn delete_pod(
        &self,
        pod: Pod,
        length: Option<Duration>,
        screen: &Screen,
    ) -> Result<TerminationResult> {
        let probe = readiness_probe(&pod)?;
        let pod = self.run(pod)?;
        let service = Arc::new(Service::new(LAG));
        let deleted = endpoint(DELETED_POD, |listener| self.deleted.address(listener));
        service.add(deleted, probe.clone());
        let stays = endpoint(REMAINING_POD, |listener| self.remaining.address(listener));
        service.add(stays, probe);
        let ready = service.wait_until_ready(2, READY_TIMEOUT).await;
        ready.with_context(|| pod.log(ENVOY_CONTAINER).unwrap_or_default())?;

        let start = Instant::now();
        let clients = clients().start(&service);
        screen.live(Duration::ZERO, "the traffic has begun");
        sleep(LOAD_BEFORE).await;

        let admin = Client::new(self.deleted.admin_address().clone());
        let admin = Admin::new(admin.with_timeout(ADMIN_TIMEOUT));
        let mut watch = TerminationMonitor::new(&pod, &service, &clients, &admin, screen);
        service.mark_terminating(DELETED_POD);
        let mut ending = pin!(pod.terminate());
        let end = loop {
            let look = async {
                watch.poll().await;
                sleep(POLL_INTERVAL).await;
            };
            tokio::select! {
                biased;
                end = &mut ending => break end,
                () = look => {}
            }
        };
        let until = length.map_or_else(|| Instant::now() + LOAD_AFTER, |length| start + length);
        while Instant::now() < until {
            watch.poll().await;
            sleep(POLL_INTERVAL).await;
        }
        let left = watch.finish();
        Ok(TerminationResult {
            report: clients.stop().await,
            elapsed: end.elapsed,
            open_connections: left,
            termination_message: pod
                .termination_message(DRAINER_CONTAINER)
                .unwrap_or_default(),
        })
    }

    /// Starts the pod: its images are this machine's programs, and its ConfigMap is made here.
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

// === impl Ending ===

impl TerminationResult {
    /// How long the load lasted.
    pub(crate) fn length(&self) -> Duration {
        self.report.elapsed
    }
}
