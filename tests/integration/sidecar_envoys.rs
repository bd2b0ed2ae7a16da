//! Pods of an app behind its Envoy, as the webhook injects them: the order in which a kubelet ends their containers,
//! and whether the app's outbound calls through Envoy fail.

use std::time::Duration;

use admission::AdmissionOutcome;
use anyhow::{Context, Result, ensure};
use drainer::local_client::fetch_status;
use drainer::{DrainPhase, Progress, duration};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use tempfile::TempDir;
use tests::admin::Admin;
use tests::binaries;
use tests::bootstrap::Bootstrap;
use tests::envoy::envoy;
use tests::envoy_versions;
use tests::http::Client;
use tests::kubelet::{Kubelet, PodTermination, Program, RunningPod, Step};
use tests::listener::http;
use tests::outbound_report::OutboundReport;
use tests::parallel::for_each_case;
use tests::port::Port;
use tests::review::{ReviewBuilder, defaults};
use tests::timing::{SECOND, assert_took, assert_took_at_most};
use tests::until::wait_until;
use tokio::net::TcpStream;
use tokio::time::Instant;

/// The minimum duration of the drains, in which no connection is open: they last so long.
const DRAIN: Duration = Duration::from_secs(2);

/// How long the app serves on after SIGTERM.
const SERVE_ON: Duration = Duration::from_secs(4);

const HOOKS: (&str, &str) = ("extra-lifecycle-hooks", "app");
const NATIVE: (&str, &str) = ("envoy-native-sidecar", "true");

/// A running pod, whose app makes outbound calls through its Envoy.
struct SidecarPod {
    pod: RunningPod,
    admin: Admin,
    _bootstrap: Bootstrap,
    /// The drainer's, and the app's.
    ports: [Port; 2],
    _config: TempDir,
}

// === impl SidecarPod ===

impl SidecarPod {
    /// Starts the pod that the webhook makes of one with an Envoy and an app.
    async fn start(annotations: &[(&str, &str)]) -> Result<Self> {
        let outbound = http("outbound")?.loopback();
        let bootstrap = envoy()?.listener(http("web")?).listener(outbound);
        let config = TempDir::new()?;
        let config_file = config.path().join("envoy.json");
        std::fs::write(&config_file, bootstrap.json().to_string())?;
        let (drainer, app) = (Port::free()?, Port::free()?);
        let app_address = format!("127.0.0.1:{}", app.number());
        let outbound = bootstrap.address("outbound").to_string();
        let mut pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": "order",
                "annotations": {
                    "envoy-drainer.dev/inject": "true",
                    "envoy-drainer.dev/admin-address": bootstrap.admin_address().to_string(),
                    "envoy-drainer.dev/port": drainer.number().to_string(),
                    "envoy-drainer.dev/min-drain-duration": "2s",
                    "envoy-drainer.dev/quiet-period": "0s",
                },
            },
            "spec": { "terminationGracePeriodSeconds": 60, "containers": [
                { "name": "envoy", "args": bootstrap.args(&config_file.to_string_lossy()) },
                { "name": "app", "args": [
                    "app", app_address, outbound, "--serve-on", duration::format(SERVE_ON).to_string(),
                    "--report", "/dev/termination-log",
                ] },
            ] },
        });
        for (name, value) in annotations {
            pod["metadata"]["annotations"][format!("envoy-drainer.dev/{name}")] = json!(value);
        }
        let admitted = ReviewBuilder::for_pod(&pod).admit(&defaults());
        ensure!(
            admitted.outcome == AdmissionOutcome::Injected,
            "{}",
            admitted.message
        );
        let pod = Kubelet::new(serde_json::from_value::<Pod>(admitted.pod)?)?
            .program("envoy", Program::envoy(&envoy_versions::newest()?))
            .program("app", Program::new(binaries::pod_tools()?))
            .program("envoy-drainer", Program::drainer()?)
            .start()?;
        let sidecar_pod = Self {
            pod,
            admin: Admin::new(Client::new(bootstrap.admin_address().clone())),
            _bootstrap: bootstrap,
            ports: [drainer, app],
            _config: config,
        };
        wait_until("Envoy and the app serve", 30 * SECOND, || async {
            Ok(sidecar_pod.is_live().await && TcpStream::connect(&app_address).await.is_ok())
        })
        .await?;
        Ok(sidecar_pod)
    }

    async fn is_live(&self) -> bool {
        self.admin.state().await.is_ok_and(|state| state == "LIVE")
    }

    /// Returns true if the drainer responds, and nothing is ending for it.
    async fn is_standing_by(&self) -> bool {
        let port = self.ports[0].number().try_into().unwrap();
        let status = fetch_status(port).await.unwrap_or_default();
        let status = serde_json::from_slice::<Progress>(&status);
        status.is_ok_and(|status| status.phase == DrainPhase::Standby)
    }

    /// Terminates the pod. Returns the app's report on its calls after SIGTERM.
    async fn terminate(&self) -> Result<(PodTermination, OutboundReport)> {
        let termination = self.pod.terminate().await;
        let report = self.pod.termination_message("app")?;
        let report = serde_json::from_str(&report).with_context(|| report.clone())?;
        Ok((termination, report))
    }
}

/// When a container reached a step, after the start of the termination.
fn time_of(termination: &PodTermination, container: &str, step: Step) -> Result<Duration> {
    let at = termination.time_of(container, step);
    at.with_context(|| format!("{container}: no {step:?}\n{}", termination.timeline))
}

/// Asserts that Envoy got SIGTERM when the app had exited, and the drainer when Envoy had.
fn assert_ended_in_order(termination: &PodTermination) -> Result<()> {
    let [app, envoy] = ["app", "envoy"].map(|name| time_of(termination, name, Step::Exited));
    let (app, envoy) = (app?, envoy?);
    assert!(app <= time_of(termination, "envoy", Step::Sigterm)?);
    assert!(envoy <= time_of(termination, "envoy-drainer", Step::Sigterm)?);
    assert_took_at_most(envoy - app, SECOND);
    Ok(())
}

#[tokio::test]
async fn app_calls_through_a_native_envoy_to_its_end() -> Result<()> {
    // The annotations, and when the app gets SIGTERM. A plain Envoy ends before the app.
    let table: [(&[(&str, &str)], Duration); _] = [
        (&[HOOKS, NATIVE], DRAIN),
        (&[NATIVE], Duration::ZERO),
        (&[], Duration::ZERO),
    ];
    for_each_case(table, |(annotations, sigterm)| async move {
        let pod = SidecarPod::start(annotations).await?;
        let (termination, report) = pod.terminate().await?;
        let at = |container, step| time_of(&termination, container, step);
        assert_took(at("app", Step::Sigterm)?, sigterm);
        assert_took(at("envoy", Step::HookReturned)?, DRAIN);
        assert_took(at("app", Step::Exited)?, sigterm + SERVE_ON);
        if annotations.is_empty() {
            assert_took(at("envoy", Step::Sigterm)?, DRAIN);
            assert!(report.failed > 10, "{report:?}");
            return Ok(());
        }
        assert_ended_in_order(&termination)?;
        assert!(report.sent > 10 && report.failed == 0, "{report:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn updated_containers_leave_envoy_live() -> Result<()> {
    let orders = [["envoy", "envoy-drainer"], ["envoy-drainer", "envoy"]];
    for_each_case(orders, |order| async move {
        let mut pod = SidecarPod::start(&[]).await?;
        let start = Instant::now();
        for container in order {
            pod.pod.restart(container).await?;
            wait_until("Envoy is LIVE", 30 * SECOND, || async {
                Ok(pod.is_live().await && pod.is_standing_by().await)
            })
            .await?;
        }
        // Envoy's hook waits for an exec and drains softly; the drainer's waits for Envoy's, and SIGTERM does so too.
        assert_took_at_most(
            start.elapsed(),
            10 * SECOND + DRAIN + 30 * SECOND + 10 * SECOND,
        );
        let log = pod.pod.log("envoy-drainer")?;
        assert!(!log.contains("/drain_listeners"), "{log}");
        // The pod's end is drained.
        let (termination, _) = pod.terminate().await?;
        assert_took(time_of(&termination, "envoy", Step::Sigterm)?, DRAIN);
        assert_eq!(termination.time_of("envoy", Step::Sigkill), None);
        let message = pod.pod.termination_message("envoy-drainer")?;
        assert!(message.contains(r#""outcome":"drained""#), "{message}");
        for container in ["envoy", "envoy-drainer"] {
            let status = pod.pod.exit_status(container)?;
            assert!(status.is_some_and(|status| status.success()), "{container}");
        }
        Ok(())
    })
    .await
}
