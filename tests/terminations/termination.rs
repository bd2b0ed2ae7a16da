//! One termination: a pod as the webhook injects it, with a real Envoy, behind a Service with another pod.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use admission::AdmissionOutcome;
use anyhow::{Context, Result, ensure};
use drainer::{DrainSummary, Timing};
use k8s_openapi::api::core::v1::Pod;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tests::admin::Admin;
use tests::bootstrap::Bootstrap;
use tests::envoy::envoy;
use tests::envoy_versions::{self, EnvoyBinary};
use tests::http::Client;
use tests::kubelet::{Kubelet, Program, RunningPod, Step};
use tests::listener::{http, tcp};
use tests::load::{FailureKind, Report};
use tests::port::Port;
use tests::process::{Process, Signal};
use tests::review::{ReviewBuilder, defaults};
use tests::service::{Endpoint, Service};
use tests::until::wait_until;
use tests::upstream::Upstream;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, sleep_until};

use crate::scenario::{Fault, LOAD_BEFORE, Scenario};

/// The result of a termination.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct TerminationResult {
    pub(crate) seed: u64,
    pub(crate) scenario: String,
    /// From the pod's end to SIGTERM to Envoy, in seconds; `None` if Envoy got none.
    pub(crate) seconds_to_sigterm: Option<f64>,
    /// The drainer's termination message.
    pub(crate) message: Option<DrainSummary>,
    /// Requests sent, and failed.
    pub(crate) sent: u64,
    pub(crate) failed: u64,
    /// See [`TerminationRun::after_quiet`](tests::termination_report::TerminationRun::after_quiet).
    pub(crate) came_after_quiet: bool,
    /// What happened, if a request failed.
    pub(crate) details: String,
}

impl fmt::Display for TerminationResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let message = self.message.as_ref();
        let outcome = message.map_or("no message", |it| it.outcome.into());
        let Self {
            seed, sent, failed, ..
        } = self;
        let seconds = self.seconds_to_sigterm.unwrap_or(f64::NAN);
        write!(
            f,
            "{seed}: {failed} of {sent} failed, {outcome} after {seconds:.1} s, {}",
            self.scenario
        )
    }
}

const ENVOY: &str = "envoy";
const DRAINER: &str = "envoy-drainer";
const ENDED_POD: &str = "edge-1";
const OTHER_POD: &str = "edge-2";

/// How long the load runs after the pod's end, and after all clients have learned of it.
const LOAD_AFTER: Duration = Duration::from_secs(2);

const START_TIMEOUT: Duration = Duration::from_secs(60);

/// A pod that runs, and what it needs.
struct GatewayPod {
    pod: RunningPod,
    binary: EnvoyBinary,
    bootstrap: Bootstrap,
    admin: Admin,
    /// Started by a hot restart, which no container does.
    next_epoch: Option<Process>,
    drainer_port: Port,
}

/// Runs the termination of a scenario.
///
/// # Errors
/// When the pod does not start, or its fault cannot be injected.
pub(crate) async fn run(scenario: &Scenario) -> Result<TerminationResult> {
    let binary = if scenario.newest_envoy {
        envoy_versions::newest()?
    } else {
        envoy_versions::all()?.remove(0)
    };
    let upstream = Upstream::start().await?;
    let mut gateway = GatewayPod::start(scenario, binary, &upstream).await?;
    let service = Arc::new(Service::new(scenario.endpoint_lag));
    service.add_ready(Endpoint {
        name: ENDED_POD.to_owned(),
        http: gateway.bootstrap.address("http"),
        tcp: Some(gateway.bootstrap.address("tcp")),
    });
    // No Envoy, whose admin interface the drainer would find.
    service.add_ready(Endpoint {
        name: OTHER_POD.to_owned(),
        http: upstream.http(),
        tcp: Some(upstream.tcp()),
    });
    let fault = |is_before| {
        let fault = (scenario.fault).filter(|fault| fault.is_before_end() == is_before);
        fault.map(|fault| (fault, scenario.fault_at))
    };
    if scenario.fault == Some(Fault::EnvoyRestart) {
        gateway.pod.restart(ENVOY).await?;
        gateway.wait_until_live().await?;
    }
    let load = scenario.load().start(&service);
    let start = Instant::now();
    gateway.inject_before_end(fault(true)).await?;
    sleep((start + LOAD_BEFORE).saturating_duration_since(Instant::now())).await;
    let ended_at = start.elapsed();
    service.mark_terminating(ENDED_POD);
    let in_drain = gateway.inject_in_drain(fault(false));
    let (termination, injected) = tokio::join!(gateway.pod.terminate(), in_drain);
    injected?;
    // A hot restarter ends the new process with the old one.
    gateway.next_epoch = None;
    let known_at = start + ended_at + scenario.endpoint_lag;
    sleep_until(known_at.max(Instant::now()) + LOAD_AFTER).await;
    let report = load.stop().await;
    let message = gateway.pod.termination_message(DRAINER)?;
    let sigterm = termination.time_of(ENVOY, Step::Sigterm);
    let failed = report.failed();
    let is_limit = sigterm.is_some_and(|after| {
        let defaults = Timing::default();
        let at = ended_at + after;
        let quiet = start + at - defaults.quiet_period..start + at;
        let mut chosen = service.chosen_at(ENDED_POD).into_iter();
        scenario.drain_delay().is_none()
            && after >= defaults.min_drain_duration
            && !chosen.any(|chosen| quiet.contains(&chosen))
            && are_refused_after(&report, at)
    });
    let mut details = String::new();
    if failed > 0 {
        details = format!("{report}\n{}\n{message}", termination.timeline);
        details += &gateway.pod.log(DRAINER)?;
    }
    Ok(TerminationResult {
        seed: scenario.seed,
        scenario: format!("{scenario:?}"),
        seconds_to_sigterm: sigterm.map(|at| at.as_secs_f64()),
        message: serde_json::from_str(&message).ok(),
        sent: report.sent(),
        failed,
        came_after_quiet: failed > 0 && is_limit,
        details,
    })
}

/// Returns true if no request failed but those whose connection was refused after `at`, from the start of the load.
fn are_refused_after(report: &Report, at: Duration) -> bool {
    report.kinds.iter().all(|kind| {
        let mut failures = kind.failed.keys();
        failures.all(|failure| *failure == FailureKind::Refused)
            && kind.failed_at.iter().all(|it| *it >= at.as_secs_f64())
    })
}

// === impl GatewayPod ===

impl GatewayPod {
    /// Starts the pod that the webhook makes of one with an Envoy.
    async fn start(scenario: &Scenario, binary: EnvoyBinary, upstream: &Upstream) -> Result<Self> {
        let bootstrap = envoy()?.listener(http("http")?).listener(tcp("tcp")?);
        let mut bootstrap = bootstrap.upstream(upstream).lds();
        if scenario.fault == Some(Fault::HotRestart) {
            bootstrap = bootstrap.hot_restart();
        }
        if scenario.immediate {
            bootstrap = bootstrap.flag("--drain-strategy immediate");
        }
        let config = bootstrap.write()?;
        let drainer_port = Port::free()?;
        let args = bootstrap.args(&config.to_string_lossy());
        let mut annotations = json!({
            "envoy-drainer.dev/inject": "true",
            "envoy-drainer.dev/port": drainer_port.number().to_string(),
            "envoy-drainer.dev/native-sidecar": scenario.native_sidecar.to_string(),
        });
        if !scenario.searches_admin {
            let admin = bootstrap.admin_address().to_string();
            annotations["envoy-drainer.dev/admin-address"] = json!(admin);
        }
        if let Some(delay) = scenario.drain_delay() {
            annotations["envoy-drainer.dev/drain-delay"] =
                json!(format!("{}ms", delay.as_millis()));
        }
        let pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": ENDED_POD, "annotations": annotations},
            "spec": {"containers": [{"name": ENVOY, "args": args}]},
        });
        let admitted = ReviewBuilder::for_pod(&pod).admit(&defaults());
        let is_injected = admitted.outcome == AdmissionOutcome::Injected;
        ensure!(is_injected, "{}", admitted.message);
        let pod: Pod = serde_json::from_value(admitted.pod)?;
        let mut kubelet = Kubelet::new(pod)?
            .program(ENVOY, Program::envoy(&binary))
            .program(DRAINER, Program::drainer()?);
        match scenario.fault {
            Some(Fault::LateExec(delay)) => kubelet = kubelet.hook_delay(DRAINER, delay),
            Some(Fault::LateHttpGet(delay)) => kubelet = kubelet.hook_delay(ENVOY, delay),
            _ => {}
        }
        let gateway = Self {
            pod: kubelet.start()?,
            binary,
            admin: Admin::new(Client::new(bootstrap.admin_address().clone())),
            bootstrap,
            next_epoch: None,
            drainer_port,
        };
        gateway.wait_until_live().await?;
        Ok(gateway)
    }

    async fn wait_until_live(&self) -> Result<()> {
        wait_until("Envoy is LIVE", START_TIMEOUT, || async {
            Ok(self.admin.state().await.is_ok_and(|state| state == "LIVE"))
        })
        .await
        .with_context(|| self.pod.log(ENVOY).unwrap_or_default())
    }

    /// Injects a fault before the pod ends, but for a restart of Envoy.
    async fn inject_before_end(&mut self, fault: Option<(Fault, Duration)>) -> Result<()> {
        let Some((fault, at)) = fault else {
            return Ok(());
        };
        sleep(at).await;
        match fault {
            Fault::DrainerRestart => {
                self.pod.restart(DRAINER).await?;
                // Until it listens, a kubelet that ends the pod is refused: docs/limitations.md tells that.
                wait_until("the drainer listens", START_TIMEOUT, || async {
                    let address = ("127.0.0.1", self.drainer_port.number());
                    Ok(TcpStream::connect(address).await.is_ok())
                })
                .await?;
            }
            Fault::ListenerUpdate { .. } => self.update_listeners()?,
            Fault::HotRestart => {
                self.next_epoch = Some(self.bootstrap.spawn(&self.binary, 1)?);
            }
            _ => {}
        }
        Ok(())
    }

    /// Injects a fault while the pod ends.
    async fn inject_in_drain(&self, fault: Option<(Fault, Duration)>) -> Result<()> {
        let Some((fault, at)) = fault else {
            return Ok(());
        };
        sleep(at).await;
        match fault {
            Fault::ListenerUpdate { .. } => self.update_listeners()?,
            Fault::Pause { envoy, time } => {
                let container = if envoy { ENVOY } else { DRAINER };
                self.pod.signal(container, Signal::STOP)?;
                sleep(time).await;
                self.pod.signal(container, Signal::CONT)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn update_listeners(&self) -> Result<()> {
        Ok(self.bootstrap.write_lds_listeners(&[http("added")?])?)
    }
}
