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
use tests::http::Client;
use tests::installed::{self, Installed};
use tests::kubelet::{Kubelet, Program, RunningPod};
use tests::listener::{http, tcp};
use tests::load::{Load, Report, load};
use tests::port::Port;
use tests::service::{Endpoint, Probe, Service};
use tests::upstream::Upstream;
use tokio::time::{Instant, sleep};

use crate::screen::Screen;
use crate::timeline::Watch;

/// What the API server sent for one pod of a Deployment.
const REVIEW: &str = include_str!("review.json");

/// The container's name in the review.
pub(crate) const ENVOY: &str = "envoy";

/// The container that is injected.
const DRAINER: &str = "envoy-drainer";

/// The pod that is deleted.
pub(crate) const DELETED: &str = "edge-1";

/// The pod that stays.
const STAYS: &str = "edge-2";

/// How long the Service goes on sending connections to a pod that is deleted, as kube-proxy does on
/// a busy cluster.
const LAG: Duration = Duration::from_secs(1);

/// How long the load runs before the pod is deleted, and after it is gone.
const BEFORE: Duration = Duration::from_secs(4);
const AFTER: Duration = Duration::from_secs(3);

/// The pause between two looks at what happens.
const LOOK: Duration = Duration::from_millis(20);

/// How long the admin may take to answer a look.
const ASK: Duration = Duration::from_millis(200);

/// How long a pod may take until it is ready.
const READY: Duration = Duration::from_secs(30);

/// The place: what stays the same while the pod comes and goes.
pub(crate) struct Shop {
    envoy: Installed,
    drainer: Program,
    deleted: Bootstrap,
    drainer_port: Port,
    stays: Envoy,
    _upstream: Upstream,
}

/// A pod's end, as its clients saw it.
pub(crate) struct Ending {
    /// What became of their requests.
    pub(crate) report: Report,
    /// From the deletion to the end of the pod's last process.
    pub(crate) took: Duration,
    /// Connections that clients held to Envoy when it got SIGTERM.
    pub(crate) left: usize,
    /// The drainer's termination message; empty where there was none.
    pub(crate) last_words: String,
}

/// The clients, with their requests a second.
fn clients() -> Load {
    load()
        .idle()
        .keep_alive(120.0)
        .connection_each(80.0)
        .slow(20.0, Duration::from_secs(2))
        .http2(100.0)
        .stream(20.0, Duration::from_secs(8))
}

// === impl Shop ===

impl Shop {
    /// Opens the shop with the Envoy that stays.
    pub(crate) async fn open() -> Result<Self> {
        let binary = installed::newest()?;
        let upstream = Upstream::start().await?;
        let deleted = envoy()?
            .admin_port(Port::prefer(9901)?)
            .listener(http("http")?.port(Port::prefer(8080)?))
            .listener(tcp("tcp")?.port(Port::prefer(9000)?))
            .upstream(&upstream);
        let stays = envoy()?
            .on(&binary)
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
            stays,
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
    pub(crate) fn traffic(&self) -> String {
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
    pub(crate) async fn end(
        &self,
        pod: Pod,
        length: Option<Duration>,
        screen: &Screen,
    ) -> Result<Ending> {
        let probe = readiness(&pod)?;
        let pod = self.run(pod)?;
        let service = Arc::new(Service::new(LAG));
        let deleted = endpoint(DELETED, |listener| self.deleted.address(listener));
        service.add(deleted, probe.clone());
        let stays = endpoint(STAYS, |listener| self.stays.address(listener));
        service.add(stays, probe);
        let ready = service.ready(2, READY).await;
        ready.with_context(|| pod.log(ENVOY).unwrap_or_default())?;

        let start = Instant::now();
        let clients = clients().start(&service);
        screen.live(Duration::ZERO, "the traffic has begun");
        sleep(BEFORE).await;

        let admin = Client::new(self.deleted.admin_address().clone());
        let admin = Admin::new(admin.limit(ASK));
        let mut watch = Watch::new(&pod, &service, &clients, &admin, screen);
        service.terminating(DELETED);
        let mut ending = pin!(pod.end());
        let end = loop {
            let look = async {
                watch.look().await;
                sleep(LOOK).await;
            };
            tokio::select! {
                biased;
                end = &mut ending => break end,
                () = look => {}
            }
        };
        let until = length.map_or_else(|| Instant::now() + AFTER, |length| start + length);
        while Instant::now() < until {
            watch.look().await;
            sleep(LOOK).await;
        }
        let left = watch.close();
        Ok(Ending {
            report: clients.stop().await,
            took: end.took,
            left,
            last_words: pod.termination_message(DRAINER).unwrap_or_default(),
        })
    }

    /// Starts the pod: its images are this machine's programs, and its ConfigMap is made here.
    fn run(&self, pod: Pod) -> Result<RunningPod> {
        Kubelet::new(pod)?
            .program(ENVOY, Program::envoy(&self.envoy))
            .program(DRAINER, self.drainer.clone())
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

fn readiness(pod: &Pod) -> Result<Probe> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut probes = containers.filter_map(Probe::of);
    probes.next().context("the pod has no readiness probe")
}

// === impl Ending ===

impl Ending {
    /// How long the load lasted.
    pub(crate) fn length(&self) -> Duration {
        self.report.elapsed
    }
}
