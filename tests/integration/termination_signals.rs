//! Who came tells what ends: the pod, Envoy alone, or the drainer alone. And whatever becomes of the
//! drainer, an Envoy that lives on is healthy again.

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

/// Who comes to a drainer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trigger {
    Envoy,
    Drainer,
    Sigterm,
}

/// Where a drainer is in its life when it dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CrashPoint {
    Standby,
    /// Envoy's hook alone: health has failed.
    EnvoyRestart,
    /// Both hooks: the pod ends.
    Draining,
    /// The same, and all hooks have returned.
    Drained,
}

/// How a drainer dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RestartCause {
    /// A crash, or for want of memory.
    Sigkill,
    Sigterm,
    /// Its hook, then SIGTERM.
    NewImage,
}

/// An Envoy with a web listener and one whose streams hold a drain, and what stands behind it.
struct Fixture {
    envoy: Envoy,
    _upstream: Upstream,
}

// === impl Who ===

impl Trigger {
    /// Comes; a hook is then under way.
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

// === impl Scene ===

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

    /// Asserts that Envoy is healthy until then.
    async fn assert_live_until(&self, then: Instant) -> Result<()> {
        while Instant::now() < then {
            let is_live = self.is_live().await?;
            let left = then.saturating_duration_since(Instant::now());
            // An answer that comes too late says nothing of the time before.
            assert!(is_live || left.is_zero(), "{left:?} early");
            sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    async fn open_stream(&self) -> Result<RawConnection> {
        RawConnection::open_stream(self.envoy.address("stream")).await
    }
}

/// Asserts that what the drainer has in hand is the whole drain of a pod.
fn assert_full_drain(drainer: &Drainer) {
    let told = drainer.find_log("Called Envoy admin");
    let told = told.map(|line| line["call"].clone());
    assert_eq!(told, Some(json!("/drain_listeners")));
}

#[tokio::test]
async fn two_signs_in_whatever_order_end_the_pod_from_the_first_on() -> Result<()> {
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
    let cases = table.map(|(who, apart)| {
        let name = format!("{who:?}, {apart} s apart");
        let case = async move {
            let scene = Fixture::start().await?;
            let drainer = drainer(scene.envoy.admin_address())?
                .exit_without_minimum()
                .timing(|t| t.drain_timeout = 6 * SECOND)
                .start()
                .await?;
            let _stream = scene.open_stream().await?;
            let mut hooks = Vec::new();
            let began = Instant::now();
            hooks.extend(who[0].fire(&drainer)?);
            scene.assert_live_until(began + apart * SECOND).await?;
            hooks.extend(who[1].fire(&drainer)?);
            scene.wait_for_state("DRAINING", TIMEOUT).await?;
            for hook in &hooks {
                hook.wait_for_return().await?;
            }
            assert_took(began.elapsed(), 6 * SECOND);
            assert_full_drain(&drainer);
            assert_eq!(drainer.termination_message()?["outcome"], "deadline");
            if !who.contains(&Sigterm) {
                ensure!(drainer.process().is_running(), "it ended without SIGTERM");
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
async fn envoys_hook_alone_fails_its_health_without_delay_and_returns_and_undoes_it() -> Result<()>
{
    let upstream = Upstream::start().await?;
    let envoy = envoy()?
        .upstream(&upstream)
        .listener(http("modify")?.modify_only())
        .flag("--drain-strategy immediate");
    let scene = Fixture {
        envoy: envoy.start().await?,
        _upstream: upstream,
    };
    let drainer = drainer(scene.envoy.admin_address())?
        .timing(|t| t.drain_delay = 30 * SECOND)
        .start()
        .await?;
    let mut client = RawConnection::open_idle(scene.envoy.address("modify")).await?;
    let hook = drainer.call_envoy_hook();
    scene
        .assert_live_until(hook.called_at() + 3 * SECOND)
        .await?;
    scene.wait_for_state("DRAINING", TIMEOUT).await?;
    assert!(drainer.has_marker());
    assert_took(hook.wait_for_return().await?, 13 * SECOND);
    // Nothing that cannot be undone.
    let head = client.get(DIRECT_PATH).await?;
    assert!(!head.contains("connection: close"), "{head}");
    assert_eq!(drainer.status().await?.phase, DrainPhase::Idle);
    assert!(drainer.termination_message().is_err());
    // The kubelet would restart it now. It lives on, so its health comes back.
    assert!(
        !scene.is_live().await?,
        "an Envoy about to end is not to look healthy"
    );
    scene.wait_for_state("LIVE", TIMEOUT).await?;
    wait_until("no marker", TIMEOUT, || async { Ok(!drainer.has_marker()) }).await
}

#[tokio::test]
async fn a_second_sign_that_is_late_brings_the_rest_of_the_drain() -> Result<()> {
    let cases = [Trigger::Drainer, Trigger::Sigterm].map(|late| {
        let case = async move {
            let scene = Fixture::start().await?;
            let drainer = drainer(scene.envoy.admin_address())?
                .exit_without_minimum()
                .timing(|t| t.drain_delay = 30 * SECOND)
                .start()
                .await?;
            let hook = drainer.call_envoy_hook();
            scene.wait_for_state("DRAINING", TIMEOUT).await?;
            sleep_until(hook.called_at() + 6 * SECOND).await;
            assert!(hook.is_waiting());
            let own = late.fire(&drainer)?;
            // Without the delay, which health that has failed cannot have any more.
            assert_took(hook.wait_for_return().await?, 6 * SECOND);
            if let Some(own) = own {
                own.wait_for_return().await?;
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
async fn the_hook_of_an_envoy_that_hangs_after_its_health_failed_returns_soon() -> Result<()> {
    let scene = Fixture::start().await?;
    let drainer = drainer(scene.envoy.admin_address())?.start().await?;
    let hook = drainer.call_envoy_hook();
    scene.wait_for_state("DRAINING", TIMEOUT).await?;
    scene.envoy.signal(Signal::STOP);
    let hung = Instant::now();
    hook.wait_for_return().await?;
    let took = hung.elapsed();
    // A second to the next question, and 2.5 s for its answer.
    assert_took_at_most(took, 4 * SECOND);
    // One that goes on after all is healthy again.
    scene.envoy.signal(Signal::CONT);
    scene.wait_for_state("LIVE", TIMEOUT).await
}

#[tokio::test]
async fn both_hooks_of_a_pod_whose_envoy_hangs_wait_for_it_to_the_deadline() -> Result<()> {
    let scene = Fixture::start().await?;
    let drainer = drainer(scene.envoy.admin_address())?
        .exit_without_minimum()
        .timing(|t| t.drain_timeout = 7 * SECOND)
        .start()
        .await?;
    let stream = scene.open_stream().await?;
    let end = drainer.call_pod_hooks()?;
    scene.wait_for_state("DRAINING", TIMEOUT).await?;
    scene.envoy.signal(Signal::STOP);
    drop(stream);
    assert_took(end.wait_for_return().await?, 7 * SECOND);
    assert_eq!(drainer.termination_message()?["outcome"], "deadline");
    Ok(())
}

#[tokio::test]
async fn the_drainers_own_hook_alone_touches_nothing_and_returns_after_ten_seconds() -> Result<()> {
    let scene = Fixture::start().await?;
    let mut drainer = drainer(scene.envoy.admin_address())?
        .exit_without_minimum()
        .start()
        .await?;
    let hook = drainer.call_drainer_hook()?;
    scene
        .assert_live_until(hook.called_at() + 10 * SECOND)
        .await?;
    assert_took(hook.wait_for_return().await?, 10 * SECOND);
    // A new image: SIGTERM after the hook, and another drainer.
    drainer.signal(Signal::TERM);
    let signalled = Instant::now();
    let status = drainer.process().wait_within(TIMEOUT).await?;
    assert_eq!(status.code(), Some(0));
    assert_took(signalled.elapsed(), SECOND);
    assert!(scene.is_live().await? && !drainer.has_marker());
    drainer.restart().await?;
    sleep(SECOND).await;
    assert!(scene.is_live().await?);
    drainer.call_pod_hooks()?.wait_for_return().await?;
    assert_eq!(drainer.termination_message()?["outcome"], "drained");
    Ok(())
}

#[tokio::test]
async fn sigterm_alone_ends_a_drainer_after_ten_seconds_or_when_envoy_is_silent() -> Result<()> {
    let table = [
        ("alive", None, 10 * SECOND),
        ("dead", Some(Signal::KILL), SECOND),
        ("hung", Some(Signal::STOP), 2 * SECOND),
    ];
    let cases = table.map(|(name, signal, due)| {
        let case = async move {
            let scene = Fixture::start().await?;
            let drainer = drainer(scene.envoy.admin_address())?.start().await?;
            drainer.wait_for_log("Envoy is responding", TIMEOUT).await?;
            if let Some(signal) = signal {
                scene.envoy.signal(signal);
            }
            drainer.signal(Signal::TERM);
            let began = Instant::now();
            if signal.is_none() {
                scene.assert_live_until(began + due).await?;
            }
            let status = drainer.process().wait_within(TIMEOUT).await?;
            let took = began.elapsed();
            assert_eq!(status.code(), Some(0));
            // A hung one has a second more: whoever gave no answer in time is asked once.
            assert_took_between(took, due, due + SECOND);
            assert!(!drainer.has_marker());
            Ok(())
        };
        (name.to_owned(), case)
    });
    run_in_parallel(cases).await
}

#[tokio::test]
async fn a_restarted_drainer_restores_envoys_health_unless_the_pod_ends() -> Result<()> {
    for death in [
        RestartCause::Sigkill,
        RestartCause::Sigterm,
        RestartCause::NewImage,
    ] {
        let moments = [
            CrashPoint::Standby,
            CrashPoint::EnvoyRestart,
            CrashPoint::Draining,
            CrashPoint::Drained,
        ];
        let cases = moments.map(|moment| {
            let name = format!("{death:?} {moment:?}");
            (name, restart_and_assert(moment, death))
        });
        run_in_parallel(cases).await?;
    }
    Ok(())
}

async fn restart_and_assert(moment: CrashPoint, death: RestartCause) -> Result<()> {
    let scene = Fixture::start().await?;
    let drainer = drainer(scene.envoy.admin_address())?;
    let drainer = drainer.exit_without_minimum().start().await?;
    let mut stream = Some(scene.open_stream().await?);
    let mut hooks = Vec::new();
    match moment {
        CrashPoint::Standby => {}
        CrashPoint::EnvoyRestart => {
            hooks.push(drainer.call_envoy_hook());
            drainer.wait_for_phase(DrainPhase::Restarting).await?;
            scene.wait_for_state("DRAINING", TIMEOUT).await?;
        }
        CrashPoint::Draining | CrashPoint::Drained => {
            hooks.extend([drainer.call_envoy_hook(), drainer.call_drainer_hook()?]);
            scene.wait_for_state("DRAINING", TIMEOUT).await?;
        }
    }
    if moment == CrashPoint::Drained {
        stream = None;
        for hook in hooks.drain(..) {
            hook.wait_for_return().await?;
        }
    }
    let owes_answers = !hooks.is_empty();
    if death == RestartCause::NewImage {
        let own = drainer.call_drainer_hook()?;
        match owes_answers {
            true => hooks.push(own),
            false => drop(own.wait_for_return().await?),
        }
    }
    match death {
        RestartCause::Sigkill => {
            drainer.signal(Signal::KILL);
            drop(stream);
            for hook in hooks {
                assert!(hook.wait_for_return().await.is_err(), "who answered?");
            }
        }
        RestartCause::Sigterm | RestartCause::NewImage => {
            drainer.signal(Signal::TERM);
            if owes_answers {
                // While something is open.
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
    if moment != CrashPoint::Standby {
        assert!(!scene.is_live().await? && drainer.has_marker());
    }
    let pod_ends = match moment {
        CrashPoint::Standby => false,
        // SIGTERM, or the drainer's own hook, was the second signal.
        CrashPoint::EnvoyRestart => death != RestartCause::Sigkill,
        CrashPoint::Draining | CrashPoint::Drained => true,
    };
    match pod_ends {
        true => assert_drain_resumes(scene, drainer).await,
        false => assert_healthy_again(scene, drainer).await,
    }
}

/// The pod ends, and no hook comes again (KEP-4438).
async fn assert_drain_resumes(scene: Fixture, mut drainer: Drainer) -> Result<()> {
    let stream = scene.open_stream().await?;
    drainer.restart().await?;
    drainer.wait_for_log("Resuming the drain", TIMEOUT).await?;
    drainer.wait_for_phase(DrainPhase::Draining).await?;
    let until = Instant::now() + 3 * SECOND;
    while Instant::now() < until {
        assert!(!scene.is_live().await?, "a pod that ends is healthy");
        sleep(SECOND / 10).await;
    }
    assert_eq!(drainer.status().await?.phase, DrainPhase::Draining);
    assert_full_drain(&drainer);
    drop(stream);
    drainer.wait_for_phase(DrainPhase::Idle).await?;
    assert_eq!(drainer.termination_message()?["outcome"], "drained");
    assert!(!scene.is_live().await? && drainer.has_marker());
    // Hooks that come after all have their drain.
    drainer.call_pod_hooks()?.wait_for_return().await?;
    assert!(!scene.is_live().await? && drainer.has_marker());
    Ok(())
}

#[tokio::test]
async fn a_restart_of_all_containers_leaves_the_new_envoy_live() -> Result<()> {
    let cases = [MarkerReason::Provisional, MarkerReason::PodTerminating].map(|reason| {
        let case = async move {
            // Its emptyDir is what is left of the pod's containers (KEP-5532).
            let scene = Fixture::start().await?;
            let sidecar = drainer(scene.envoy.admin_address())?.exit_without_minimum();
            Marker::new(&sidecar.settings().run_dir).write(reason)?;
            let drainer = sidecar.start().await?;
            let began = Instant::now();
            wait_until("no marker", TIMEOUT, || async { Ok(!drainer.has_marker()) }).await?;
            scene.assert_live_until(began + 3 * SECOND).await?;
            assert_eq!(drainer.status().await?.phase, DrainPhase::Idle);
            drainer.call_pod_hooks()?.wait_for_return().await?;
            assert_eq!(drainer.termination_message()?["outcome"], "drained");
            Ok(())
        };
        (format!("{reason:?}"), case)
    });
    run_in_parallel(cases).await
}

#[tokio::test]
async fn a_resumed_drain_of_a_pod_that_goes_on_is_undone() -> Result<()> {
    let scene = Fixture::start().await?;
    scene.envoy.admin().post("/healthcheck/fail").await?;
    let sidecar = drainer(scene.envoy.admin_address())?.exit_without_minimum();
    let sidecar = sidecar.timing(|t| t.drain_timeout = 3 * SECOND);
    Marker::new(&sidecar.settings().run_dir).write(MarkerReason::PodTerminating)?;
    let drainer = sidecar.start().await?;
    let began = Instant::now();
    // The longest drain, and 30 s.
    scene.wait_for_state("LIVE", 33 * SECOND + TIMEOUT).await?;
    let took = began.elapsed();
    assert!(took >= 32 * SECOND, "{took:?}");
    wait_until("no marker", TIMEOUT, || async { Ok(!drainer.has_marker()) }).await
}

#[tokio::test]
async fn a_caller_that_never_stops_leaves_envoy_live() -> Result<()> {
    let scene = Fixture::start().await?;
    let drainer = drainer(scene.envoy.admin_address())?
        .exit_without_minimum()
        .start()
        .await?;
    let began = Instant::now();
    let (mut looks, mut live) = (0, 0);
    let mut hook = drainer.call_envoy_hook();
    while began.elapsed() < 55 * SECOND {
        if !hook.is_waiting() {
            hook = drainer.call_envoy_hook();
        }
        looks += 1;
        live += u32::from(scene.is_live().await?);
        sleep(SECOND / 10).await;
    }
    // Healthy for 3 s, failed for 20 s, and healthy then.
    let share = f64::from(live) / f64::from(looks);
    assert!(share > 0.5, "LIVE for {share} of a minute");
    assert!(scene.is_live().await?);
    // The pod's end is drained at once all the same.
    let own = drainer.call_drainer_hook()?;
    scene.wait_for_state("DRAINING", TIMEOUT).await?;
    assert_took_at_most(own.called_at().elapsed(), SECOND);
    own.wait_for_return().await?;
    assert_eq!(drainer.termination_message()?["outcome"], "drained");
    // Such calls prove nothing: it may be the drainer that is restarted.
    let log = drainer.log();
    assert!(log.iter().all(|line| line["call"] != "/drain_listeners"));
    Ok(())
}

async fn assert_healthy_again(scene: Fixture, mut drainer: Drainer) -> Result<()> {
    drainer.restart().await?;
    scene.wait_for_state("LIVE", TIMEOUT).await?;
    wait_until("no marker", TIMEOUT, || async { Ok(!drainer.has_marker()) }).await?;
    // And it drains as ever.
    let end = drainer.call_pod_hooks()?;
    end.wait_for_return().await?;
    assert!(!scene.is_live().await? && drainer.has_marker());
    assert_eq!(drainer.termination_message()?["outcome"], "drained");
    Ok(())
}

#[tokio::test]
async fn the_marker_stays_until_envoy_has_heard() -> Result<()> {
    let scene = Fixture::start().await?;
    let mut drainer = drainer(scene.envoy.admin_address())?.start().await?;
    let _hook = drainer.call_envoy_hook();
    scene.wait_for_state("DRAINING", TIMEOUT).await?;
    drainer.signal(Signal::KILL);
    scene.envoy.signal(Signal::STOP);
    for _ in 0..2 {
        drainer.restart().await?;
        sleep(2 * SECOND).await;
        assert!(drainer.has_marker());
        drainer.signal(Signal::KILL);
    }
    drainer.restart().await?;
    scene.envoy.signal(Signal::CONT);
    scene.wait_for_state("LIVE", TIMEOUT).await?;
    wait_until("no marker", TIMEOUT, || async { Ok(!drainer.has_marker()) }).await
}

#[tokio::test]
async fn health_that_somebody_else_failed_is_not_restored() -> Result<()> {
    let scene = Fixture::start().await?;
    scene.envoy.admin().post("/healthcheck/fail").await?;
    let drainer = drainer(scene.envoy.admin_address())?.start().await?;
    drainer.wait_for_log("Envoy is responding", TIMEOUT).await?;
    sleep(SECOND).await;
    assert!(!scene.is_live().await?);
    Ok(())
}

#[tokio::test]
async fn with_a_wrong_admin_address_the_pod_ends_at_its_deadline_and_the_log_said_so_at_start()
-> Result<()> {
    let nobody = Port::free()?;
    let wrong = AdminAddress::Tcp((Ipv4Addr::LOCALHOST, nobody.number()).into());
    let nowhere = AdminAddress::Path("/nowhere/admin.sock".into());
    let cases = [wrong, nowhere].map(|address| {
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
                .wait_for_log("admin interface does not respond", TIMEOUT)
                .await?;
            assert_eq!(line["level"], "ERROR");
            let end = drainer.call_pod_hooks()?;
            assert_took(end.wait_for_return().await?, 5 * SECOND);
            assert_eq!(drainer.termination_message()?["outcome"], "deadline");
            Ok(())
        };
        (name, case)
    });
    run_in_parallel(cases).await
}

/// A pod of Envoy and the drainer, as injected, so far as this test goes.
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
async fn a_pod_whose_envoy_was_restarted_by_the_kubelet_is_drained_as_ever() -> Result<()> {
    let bootstrap = envoy()?.listener(http("web")?);
    let (admin, web) = (bootstrap.admin_address().clone(), bootstrap.address("web"));
    let folder = tempfile::tempdir()?;
    let config = folder.path().join("envoy.json");
    std::fs::write(&config, bootstrap.json().to_string())?;
    let port = Port::free()?;
    let mut settings = drainer::Config::new(admin.clone(), drainer::Token::new(7));
    settings.settings.port = port.number().try_into()?;
    let args = ["serve".to_owned()].into_iter().chain(settings.args());
    let pod = pod(
        &bootstrap.args(&config.to_string_lossy()),
        &args.collect::<Vec<_>>(),
        port.number(),
        &settings.hook_path(),
    )?;
    let mut pod = Kubelet::new(pod)?
        .program("envoy", Program::envoy(&envoy_versions::newest()?))
        .program("envoy-drainer", Program::drainer()?)
        .start()?;
    let admin = tests::admin::Admin::new(Client::new(admin));
    let is = async |state: &str, limit| {
        wait_until(&format!("Envoy is {state}"), limit, || async {
            Ok(admin.state().await.is_ok_and(|now| now == state))
        })
        .await
    };
    is("LIVE", 30 * SECOND).await?;

    pod.restart("envoy").await?;
    assert_eq!(pod.timeline().count("envoy", Step::HookReturned), 1);
    is("LIVE", 30 * SECOND).await?;
    assert_eq!(pod.timeline().count("envoy-drainer", Step::Exited), 0);
    let _idle = RawConnection::open_idle(web).await?;

    let end = pod.terminate().await;
    let took = end
        .time_of("envoy", Step::HookReturned)
        .context("no hook returned")?;
    assert_took(took, 10 * SECOND);
    assert_eq!(
        end.time_of("envoy", Step::Sigkill),
        None,
        "{}",
        end.timeline
    );
    assert!(end.time_of("envoy", Step::Exited) <= end.time_of("envoy-drainer", Step::Sigterm));
    let words = pod.termination_message("envoy-drainer")?;
    assert!(words.contains(r#""outcome":"idle""#), "{words}");
    for container in ["envoy", "envoy-drainer"] {
        let status = pod.exit_status(container)?.context("it runs on")?;
        assert!(status.success(), "{container}: {status}");
    }
    Ok(())
}
