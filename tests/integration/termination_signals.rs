//! The hooks and signals that arrive decide what terminates: the pod, Envoy alone, or the drainer alone. Whatever
//! happens to the drainer, an Envoy that keeps running is healthy again.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use drainer::{AdminAddress, DrainPhase, Marker, MarkerReason, RUN_DIR};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use tests::drainer::{Drainer, HookCall, drainer};
use tests::envoy::{Envoy, envoy};
use tests::envoy_versions;
use tests::http::Client;
use tests::kubelet::{Kubelet, Program, Step};
use tests::listener::{DIRECT_PATH, http, tcp};
use tests::parallel::run_in_parallel;
use tests::port::Port;
use tests::process::Signal;
use tests::raw_connection::RawConnection;
use tests::timing::{SECOND, TIMEOUT, assert_took, assert_took_at_most, assert_took_between};
use tests::until::wait_until;
use tests::upstream::Upstream;
use tokio::time::{Instant, sleep, sleep_until};

/// A hook or a signal that reaches a drainer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trigger {
    Envoy,
    Drainer,
    Sigterm,
}

/// The state of a drainer when it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CrashPoint {
    Standby,
    /// After Envoy's hook alone: health has failed.
    EnvoyRestart,
    /// After both hooks: the pod terminates.
    Draining,
    /// The same, and all hooks have returned.
    Drained,
}

/// How a drainer ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RestartCause {
    /// A crash, or out of memory.
    Sigkill,
    Sigterm,
    /// Its hook, then SIGTERM.
    NewImage,
}

/// An Envoy with an HTTP listener and a TCP listener whose streams hold a drain, and its upstream.
struct Fixture {
    envoy: Envoy,
    _upstream: Upstream,
}

// === impl Trigger ===

impl Trigger {
    /// Calls the hook or sends the signal. Returns the hook, which then waits.
    fn fire(self, drainer: &Drainer) -> Result<Option<HookCall>> {
        match self {
            Self::Envoy => Ok(Some(drainer.call_envoy_hook())),
            Self::Drainer => drainer.call_drainer_hook().map(Some),
            Self::Sigterm => {
                drainer.signal(Signal::TERM);
                Ok(None)
            }
        }
    }
}

// === impl Fixture ===

impl Fixture {
    async fn start() -> Result<Self> {
        let upstream = Upstream::start().await?;
        let envoy = envoy()?
            .upstream(&upstream)
            .listener(http("web")?)
            .listener(tcp("stream")?);
        Ok(Self {
            envoy: envoy.start().await?,
            _upstream: upstream,
        })
    }

    async fn is_live(&self) -> Result<bool> {
        Ok(self.envoy.admin().state().await? == "LIVE")
    }

    /// Waits until Envoy is `LIVE` or `DRAINING`.
    async fn wait_for_state(&self, state: &str, limit: Duration) -> Result<()> {
        wait_until(&format!("Envoy is {state}"), limit, || async {
            Ok(self.envoy.admin().state().await? == state)
        })
        .await
    }

    /// Asserts that Envoy is healthy until `deadline`.
    async fn assert_live_until(&self, deadline: Instant) -> Result<()> {
        while Instant::now() < deadline {
            let is_live = self.is_live().await?;
            let remaining = deadline.saturating_duration_since(Instant::now());
            // A response after the deadline says nothing about the time before it.
            assert!(is_live || remaining.is_zero(), "{remaining:?} early");
            sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    async fn open_stream(&self) -> Result<RawConnection> {
        RawConnection::open_stream(self.envoy.address("stream")).await
    }
}

/// Asserts that the drainer runs the whole drain of a pod, which calls `/drain_listeners` too.
fn assert_full_drain(drainer: &Drainer) {
    let line = drainer.find_log("Envoy accepted the call");
    let call = line.map(|line| line["call"].clone());
    assert_eq!(call, Some(json!("/drain_listeners")));
}

#[tokio::test]
async fn two_triggers_in_any_order_drain_the_pod() -> Result<()> {
    use Trigger::{Drainer, Envoy, Sigterm};
    let table = [
        ([Envoy, Drainer], 0),
        ([Drainer, Envoy], 0),
        ([Envoy, Drainer], 2),
        ([Drainer, Envoy], 4),
        ([Envoy, Sigterm], 0),
        ([Envoy, Sigterm], 2),
        ([Sigterm, Envoy], 4),
    ];
    let cases = table.map(|(triggers, apart)| {
        let name = format!("{triggers:?}, {apart} s apart");
        let case = async move {
            let fixture = Fixture::start().await?;
            let drainer = drainer(fixture.envoy.admin_address())?
                .exit_without_minimum()
                .timing(|t| t.drain_timeout = 6 * SECOND)
                .start()
                .await?;
            let _stream = fixture.open_stream().await?;
            let mut hooks = Vec::new();
            let start = Instant::now();
            hooks.extend(triggers[0].fire(&drainer)?);
            fixture.assert_live_until(start + apart * SECOND).await?;
            hooks.extend(triggers[1].fire(&drainer)?);
            fixture.wait_for_state("DRAINING", TIMEOUT).await?;
            for hook in &hooks {
                hook.wait_for_return().await?;
            }
            assert_took(start.elapsed(), 6 * SECOND);
            assert_full_drain(&drainer);
            assert_eq!(drainer.termination_message()?["outcome"], "deadline");
            if !triggers.contains(&Sigterm) {
                ensure!(
                    drainer.process().is_running(),
                    "the drainer exited without SIGTERM"
                );
                drainer.signal(Signal::TERM);
            }
            let status = drainer.process().wait_within(TIMEOUT).await?;
            assert_eq!(status.code(), Some(0));
            Ok(())
        };
        (name, case)
    });
    run_in_parallel(cases).await
}

#[tokio::test]
async fn envoy_hook_alone_fails_and_restores_health() -> Result<()> {
    let upstream = Upstream::start().await?;
    let envoy = envoy()?
        .upstream(&upstream)
        .listener(http("modify")?.modify_only())
        .flag("--drain-strategy immediate");
    let fixture = Fixture {
        envoy: envoy.start().await?,
        _upstream: upstream,
    };
    let drainer = drainer(fixture.envoy.admin_address())?
        .timing(|t| t.drain_delay = 30 * SECOND)
        .start()
        .await?;
    let mut client = RawConnection::open_idle(fixture.envoy.address("modify")).await?;
    let hook = drainer.call_envoy_hook();
    fixture
        .assert_live_until(hook.called_at() + 3 * SECOND)
        .await?;
    fixture.wait_for_state("DRAINING", TIMEOUT).await?;
    assert!(drainer.has_marker());
    assert_took(hook.wait_for_return().await?, 13 * SECOND);
    // Connections are not closed: that could not be undone.
    let head = client.get(DIRECT_PATH).await?;
    assert!(!head.contains("connection: close"), "{head}");
    assert_eq!(drainer.status().await?.phase, DrainPhase::Standby);
    assert!(drainer.termination_message().is_err());
    // A kubelet would restart Envoy now. Here it keeps running, so its health is restored.
    assert!(
        !fixture.is_live().await?,
        "an Envoy about to terminate looks healthy"
    );
    fixture.wait_for_state("LIVE", TIMEOUT).await?;
    wait_until("no marker", TIMEOUT, || async { Ok(!drainer.has_marker()) }).await
}

#[tokio::test]
async fn late_second_trigger_completes_the_drain() -> Result<()> {
    let cases = [Trigger::Drainer, Trigger::Sigterm].map(|late| {
        let case = async move {
            let fixture = Fixture::start().await?;
            let drainer = drainer(fixture.envoy.admin_address())?
                .exit_without_minimum()
                .timing(|t| t.drain_delay = 30 * SECOND)
                .start()
                .await?;
            let hook = drainer.call_envoy_hook();
            fixture.wait_for_state("DRAINING", TIMEOUT).await?;
            sleep_until(hook.called_at() + 6 * SECOND).await;
            assert!(hook.is_waiting());
            let drainer_hook = late.fire(&drainer)?;
            // Without the drain delay, since health has failed already.
            assert_took(hook.wait_for_return().await?, 6 * SECOND);
            if let Some(drainer_hook) = drainer_hook {
                drainer_hook.wait_for_return().await?;
            }
            assert_full_drain(&drainer);
            assert_eq!(drainer.termination_message()?["outcome"], "drained");
            Ok(())
        };
        (format!("{late:?}"), case)
    });
    run_in_parallel(cases).await
}

#[tokio::test]
async fn envoy_hook_returns_soon_when_envoy_hangs() -> Result<()> {
    let fixture = Fixture::start().await?;
    let drainer = drainer(fixture.envoy.admin_address())?.start().await?;
    let hook = drainer.call_envoy_hook();
    fixture.wait_for_state("DRAINING", TIMEOUT).await?;
    fixture.envoy.signal(Signal::STOP);
    let hung_at = Instant::now();
    hook.wait_for_return().await?;
    let took = hung_at.elapsed();
    // Up to a second until the next poll, and 2.5 s for its response.
    assert_took_at_most(took, 4 * SECOND);
    // An Envoy that resumes is healthy again.
    fixture.envoy.signal(Signal::CONT);
    fixture.wait_for_state("LIVE", TIMEOUT).await
}

#[tokio::test]
async fn pod_hooks_wait_for_hung_envoy_until_deadline() -> Result<()> {
    let fixture = Fixture::start().await?;
    let drainer = drainer(fixture.envoy.admin_address())?
        .exit_without_minimum()
        .timing(|t| t.drain_timeout = 7 * SECOND)
        .start()
        .await?;
    let stream = fixture.open_stream().await?;
    let hooks = drainer.call_pod_hooks()?;
    fixture.wait_for_state("DRAINING", TIMEOUT).await?;
    fixture.envoy.signal(Signal::STOP);
    drop(stream);
    assert_took(hooks.wait_for_return().await?, 7 * SECOND);
    assert_eq!(drainer.termination_message()?["outcome"], "deadline");
    Ok(())
}

#[tokio::test]
async fn drainer_hook_alone_leaves_envoy_live() -> Result<()> {
    let fixture = Fixture::start().await?;
    let mut drainer = drainer(fixture.envoy.admin_address())?
        .exit_without_minimum()
        .start()
        .await?;
    let hook = drainer.call_drainer_hook()?;
    fixture
        .assert_live_until(hook.called_at() + 10 * SECOND)
        .await?;
    assert_took(hook.wait_for_return().await?, 10 * SECOND);
    // As with a new image: SIGTERM after the hook, then another drainer.
    drainer.signal(Signal::TERM);
    let signalled_at = Instant::now();
    let status = drainer.process().wait_within(TIMEOUT).await?;
    assert_eq!(status.code(), Some(0));
    assert_took(signalled_at.elapsed(), SECOND);
    assert!(fixture.is_live().await? && !drainer.has_marker());
    drainer.restart().await?;
    sleep(SECOND).await;
    assert!(fixture.is_live().await?);
    drainer.call_pod_hooks()?.wait_for_return().await?;
    assert_eq!(drainer.termination_message()?["outcome"], "drained");
    Ok(())
}

#[tokio::test]
async fn sigterm_alone_ends_drainer_after_its_grace() -> Result<()> {
    let table = [
        ("alive", None, 10 * SECOND),
        ("dead", Some(Signal::KILL), SECOND),
        ("hung", Some(Signal::STOP), 2 * SECOND),
    ];
    let cases = table.map(|(name, signal, due)| {
        let case = async move {
            let fixture = Fixture::start().await?;
            let drainer = drainer(fixture.envoy.admin_address())?.start().await?;
            drainer.wait_for_log("Envoy is responding", TIMEOUT).await?;
            if let Some(signal) = signal {
                fixture.envoy.signal(signal);
            }
            drainer.signal(Signal::TERM);
            let start = Instant::now();
            if signal.is_none() {
                fixture.assert_live_until(start + due).await?;
            }
            let status = drainer.process().wait_within(TIMEOUT).await?;
            let took = start.elapsed();
            assert_eq!(status.code(), Some(0));
            // The range covers a hung Envoy: the drainer exits after two calls in a row without a response.
            assert_took_between(took, due, due + SECOND);
            assert!(!drainer.has_marker());
            Ok(())
        };
        (name.to_owned(), case)
    });
    run_in_parallel(cases).await
}

#[tokio::test]
async fn restarted_drainer_restores_health_unless_pod_terminates() -> Result<()> {
    for cause in [
        RestartCause::Sigkill,
        RestartCause::Sigterm,
        RestartCause::NewImage,
    ] {
        let crash_points = [
            CrashPoint::Standby,
            CrashPoint::EnvoyRestart,
            CrashPoint::Draining,
            CrashPoint::Drained,
        ];
        let cases = crash_points.map(|crash_point| {
            let name = format!("{cause:?} {crash_point:?}");
            (name, restart_and_assert(crash_point, cause))
        });
        run_in_parallel(cases).await?;
    }
    Ok(())
}

async fn restart_and_assert(crash_point: CrashPoint, cause: RestartCause) -> Result<()> {
    let fixture = Fixture::start().await?;
    let drainer = drainer(fixture.envoy.admin_address())?;
    let drainer = drainer.exit_without_minimum().start().await?;
    let mut stream = Some(fixture.open_stream().await?);
    let mut hooks = Vec::new();
    match crash_point {
        CrashPoint::Standby => {}
        CrashPoint::EnvoyRestart => {
            hooks.push(drainer.call_envoy_hook());
            drainer.wait_for_phase(DrainPhase::Restarting).await?;
            fixture.wait_for_state("DRAINING", TIMEOUT).await?;
        }
        CrashPoint::Draining | CrashPoint::Drained => {
            hooks.extend([drainer.call_envoy_hook(), drainer.call_drainer_hook()?]);
            fixture.wait_for_state("DRAINING", TIMEOUT).await?;
        }
    }
    if crash_point == CrashPoint::Drained {
        stream = None;
        for hook in hooks.drain(..) {
            hook.wait_for_return().await?;
        }
    }
    let hooks_wait = !hooks.is_empty();
    if cause == RestartCause::NewImage {
        let drainer_hook = drainer.call_drainer_hook()?;
        match hooks_wait {
            true => hooks.push(drainer_hook),
            false => drop(drainer_hook.wait_for_return().await?),
        }
    }
    match cause {
        RestartCause::Sigkill => {
            drainer.signal(Signal::KILL);
            drop(stream);
            for hook in hooks {
                assert!(
                    hook.wait_for_return().await.is_err(),
                    "a killed drainer answered a hook"
                );
            }
        }
        RestartCause::Sigterm | RestartCause::NewImage => {
            drainer.signal(Signal::TERM);
            if hooks_wait {
                // While the stream is open.
                sleep(SECOND).await;
                assert!(hooks.iter().all(HookCall::is_waiting));
            }
            drop(stream);
            for hook in hooks {
                hook.wait_for_return().await?;
            }
        }
    }
    drainer.process().wait_within(TIMEOUT).await?;
    if crash_point != CrashPoint::Standby {
        assert!(!fixture.is_live().await? && drainer.has_marker());
    }
    let pod_terminates = match crash_point {
        CrashPoint::Standby => false,
        // SIGTERM, or the drainer's own hook, was the second signal.
        CrashPoint::EnvoyRestart => cause != RestartCause::Sigkill,
        CrashPoint::Draining | CrashPoint::Drained => true,
    };
    match pod_terminates {
        true => assert_drain_resumes(fixture, drainer).await,
        false => assert_healthy_again(fixture, drainer).await,
    }
}

/// Asserts that a restarted drainer resumes the drain: the pod terminates, and hooks are not called again
/// (KEP-4438).
async fn assert_drain_resumes(fixture: Fixture, mut drainer: Drainer) -> Result<()> {
    let stream = fixture.open_stream().await?;
    drainer.restart().await?;
    drainer.wait_for_log("Resuming the drain", TIMEOUT).await?;
    drainer.wait_for_phase(DrainPhase::Draining).await?;
    let until = Instant::now() + 3 * SECOND;
    while Instant::now() < until {
        assert!(
            !fixture.is_live().await?,
            "Envoy of a terminating pod is healthy"
        );
        sleep(SECOND / 10).await;
    }
    assert_eq!(drainer.status().await?.phase, DrainPhase::Draining);
    assert_full_drain(&drainer);
    drop(stream);
    drainer.wait_for_phase(DrainPhase::Standby).await?;
    assert_eq!(drainer.termination_message()?["outcome"], "drained");
    assert!(!fixture.is_live().await? && drainer.has_marker());
    // Hooks that arrive nevertheless are drained for.
    drainer.call_pod_hooks()?.wait_for_return().await?;
    assert!(!fixture.is_live().await? && drainer.has_marker());
    Ok(())
}

#[tokio::test]
async fn restart_of_all_containers_leaves_envoy_live() -> Result<()> {
    let cases = [MarkerReason::Provisional, MarkerReason::PodTerminating].map(|reason| {
        let case = async move {
            // Only the emptyDir survives a restart of all containers (KEP-5532).
            let fixture = Fixture::start().await?;
            let sidecar = drainer(fixture.envoy.admin_address())?.exit_without_minimum();
            Marker::new(&sidecar.config().run_dir).write(reason)?;
            let drainer = sidecar.start().await?;
            let start = Instant::now();
            wait_until("no marker", TIMEOUT, || async { Ok(!drainer.has_marker()) }).await?;
            fixture.assert_live_until(start + 3 * SECOND).await?;
            assert_eq!(drainer.status().await?.phase, DrainPhase::Standby);
            drainer.call_pod_hooks()?.wait_for_return().await?;
            assert_eq!(drainer.termination_message()?["outcome"], "drained");
            Ok(())
        };
        (format!("{reason:?}"), case)
    });
    run_in_parallel(cases).await
}

#[tokio::test]
async fn resumed_drain_is_undone_when_pod_survives() -> Result<()> {
    let fixture = Fixture::start().await?;
    fixture.envoy.admin().post("/healthcheck/fail").await?;
    let sidecar = drainer(fixture.envoy.admin_address())?.exit_without_minimum();
    let sidecar = sidecar.timing(|t| t.drain_timeout = 3 * SECOND);
    Marker::new(&sidecar.config().run_dir).write(MarkerReason::PodTerminating)?;
    let drainer = sidecar.start().await?;
    let start = Instant::now();
    // After the longest drain and 30 s.
    fixture
        .wait_for_state("LIVE", 33 * SECOND + TIMEOUT)
        .await?;
    let took = start.elapsed();
    assert!(took >= 32 * SECOND, "{took:?}");
    wait_until("no marker", TIMEOUT, || async { Ok(!drainer.has_marker()) }).await
}

#[tokio::test]
async fn endless_hook_calls_leave_envoy_live() -> Result<()> {
    let fixture = Fixture::start().await?;
    let drainer = drainer(fixture.envoy.admin_address())?
        .exit_without_minimum()
        .start()
        .await?;
    let start = Instant::now();
    let (mut polls, mut live) = (0, 0);
    let mut hook = drainer.call_envoy_hook();
    while start.elapsed() < 55 * SECOND {
        if !hook.is_waiting() {
            hook = drainer.call_envoy_hook();
        }
        polls += 1;
        live += u32::from(fixture.is_live().await?);
        sleep(SECOND / 10).await;
    }
    // Healthy for 3 s, unhealthy for 20 s, then healthy again.
    let share = f64::from(live) / f64::from(polls);
    assert!(share > 0.5, "LIVE in a share of {share} of the polls");
    assert!(fixture.is_live().await?);
    // A termination of the pod is drained at once nevertheless.
    let drainer_hook = drainer.call_drainer_hook()?;
    fixture.wait_for_state("DRAINING", TIMEOUT).await?;
    assert_took_at_most(drainer_hook.called_at().elapsed(), SECOND);
    drainer_hook.wait_for_return().await?;
    assert_eq!(drainer.termination_message()?["outcome"], "drained");
    // After repeated calls of Envoy's hook it may be the drainer alone that is restarted.
    let log = drainer.log();
    assert!(log.iter().all(|line| line["call"] != "/drain_listeners"));
    Ok(())
}

/// Asserts that a restarted drainer restores Envoy's health.
async fn assert_healthy_again(fixture: Fixture, mut drainer: Drainer) -> Result<()> {
    drainer.restart().await?;
    fixture.wait_for_state("LIVE", TIMEOUT).await?;
    wait_until("no marker", TIMEOUT, || async { Ok(!drainer.has_marker()) }).await?;
    // A later termination is drained.
    let hooks = drainer.call_pod_hooks()?;
    hooks.wait_for_return().await?;
    assert!(!fixture.is_live().await? && drainer.has_marker());
    assert_eq!(drainer.termination_message()?["outcome"], "drained");
    Ok(())
}

#[tokio::test]
async fn marker_stays_until_envoy_responds() -> Result<()> {
    let fixture = Fixture::start().await?;
    let mut drainer = drainer(fixture.envoy.admin_address())?.start().await?;
    let _hook = drainer.call_envoy_hook();
    fixture.wait_for_state("DRAINING", TIMEOUT).await?;
    drainer.signal(Signal::KILL);
    fixture.envoy.signal(Signal::STOP);
    for _ in 0..2 {
        drainer.restart().await?;
        sleep(2 * SECOND).await;
        assert!(drainer.has_marker());
        drainer.signal(Signal::KILL);
    }
    drainer.restart().await?;
    fixture.envoy.signal(Signal::CONT);
    fixture.wait_for_state("LIVE", TIMEOUT).await?;
    wait_until("no marker", TIMEOUT, || async { Ok(!drainer.has_marker()) }).await
}

#[tokio::test]
async fn health_failed_by_others_is_not_restored() -> Result<()> {
    let fixture = Fixture::start().await?;
    fixture.envoy.admin().post("/healthcheck/fail").await?;
    let drainer = drainer(fixture.envoy.admin_address())?.start().await?;
    drainer.wait_for_log("Envoy is responding", TIMEOUT).await?;
    sleep(SECOND).await;
    assert!(!fixture.is_live().await?);
    Ok(())
}

#[tokio::test]
async fn wrong_admin_address_is_logged_at_start() -> Result<()> {
    let closed_port = Port::free()?;
    let closed = AdminAddress::Tcp((Ipv4Addr::LOCALHOST, closed_port.number()).into());
    let missing = AdminAddress::Path("/nowhere/admin.sock".into());
    let cases = [closed, missing].map(|address| {
        let name = address.to_string();
        let case = async move {
            let drainer = drainer(&address)?
                .exit_without_minimum()
                .timing(|t| {
                    t.drain_delay = SECOND;
                    t.drain_timeout = 4 * SECOND;
                })
                .start()
                .await?;
            let line = drainer
                .wait_for_log("admin interface cannot be read", TIMEOUT)
                .await?;
            assert_eq!(line["level"], "ERROR");
            let hooks = drainer.call_pod_hooks()?;
            assert_took(hooks.wait_for_return().await?, 5 * SECOND);
            assert_eq!(drainer.termination_message()?["outcome"], "deadline");
            Ok(())
        };
        (name, case)
    });
    run_in_parallel(cases).await
}

/// A pod of Envoy and the drainer, with the injected fields that matter to a kubelet.
fn pod(envoy: &[String], drainer: &[String], hook_port: u16, hook_path: &str) -> Result<Pod> {
    Ok(serde_json::from_value(json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "spec": {
            "terminationGracePeriodSeconds": 90,
            "volumes": [{ "name": "envoy-drainer", "emptyDir": {} }],
            "initContainers": [{
                "name": "envoy-drainer",
                "restartPolicy": "Always",
                "args": drainer,
                "lifecycle": { "preStop": { "exec": { "command": ["/drainer", "drain"] } } },
                "volumeMounts": [{ "name": "envoy-drainer", "mountPath": RUN_DIR }],
            }],
            "containers": [{
                "name": "envoy",
                "args": envoy,
                "lifecycle": { "preStop": { "httpGet": { "port": hook_port, "path": hook_path } } },
            }],
        },
    }))?)
}

#[tokio::test]
async fn pod_with_restarted_envoy_is_drained() -> Result<()> {
    let bootstrap = envoy()?.listener(http("web")?);
    let (admin, web) = (bootstrap.admin_address().clone(), bootstrap.address("web"));
    let directory = tempfile::tempdir()?;
    let envoy_json = directory.path().join("envoy.json");
    std::fs::write(&envoy_json, bootstrap.json().to_string())?;
    let port = Port::free()?;
    let mut config = drainer::Config::new(admin.clone(), drainer::Token::new(7));
    config.settings.port = port.number().try_into()?;
    let args = ["serve".to_owned()].into_iter().chain(config.args());
    let pod = pod(
        &bootstrap.args(&envoy_json.to_string_lossy()),
        &args.collect::<Vec<_>>(),
        port.number(),
        &config.hook_path(),
    )?;
    let mut pod = Kubelet::new(pod)?
        .program("envoy", Program::envoy(&envoy_versions::newest()?))
        .program("envoy-drainer", Program::drainer()?)
        .start()?;
    let admin = tests::admin::Admin::new(Client::new(admin));
    let wait_for_state = async |state: &str, limit| {
        wait_until(&format!("Envoy is {state}"), limit, || async {
            Ok(admin.state().await.is_ok_and(|now| now == state))
        })
        .await
    };
    wait_for_state("LIVE", 30 * SECOND).await?;

    pod.restart("envoy").await?;
    assert_eq!(pod.timeline().count("envoy", Step::HookReturned), 1);
    wait_for_state("LIVE", 30 * SECOND).await?;
    assert_eq!(pod.timeline().count("envoy-drainer", Step::Exited), 0);
    let _idle = RawConnection::open_idle(web).await?;

    let termination = pod.terminate().await;
    let took = termination
        .time_of("envoy", Step::HookReturned)
        .context("no hook returned")?;
    assert_took(took, 10 * SECOND);
    assert_eq!(
        termination.time_of("envoy", Step::Sigkill),
        None,
        "{}",
        termination.timeline
    );
    assert!(
        termination.time_of("envoy", Step::Exited)
            <= termination.time_of("envoy-drainer", Step::Sigterm)
    );
    let message = pod.termination_message("envoy-drainer")?;
    assert!(message.contains(r#""outcome":"idle""#), "{message}");
    for container in ["envoy", "envoy-drainer"] {
        let status = pod
            .exit_status(container)?
            .context("the container still runs")?;
        assert!(status.success(), "{container}: {status}");
    }
    Ok(())
}
