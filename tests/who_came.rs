//! Who came tells what ends: the pod, Envoy alone, or the drainer alone. And whatever becomes of the
//! drainer, an Envoy that lives on is healthy again.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use drainer::{AdminAddress, DrainPhase, Marker, MarkerReason, RUN_DIR};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use tests::at_once::at_once;
use tests::drainer::{Drainer, Hook, drainer};
use tests::due::{PATIENCE, SECOND, assert_due, assert_due_between, assert_due_by};
use tests::envoy::{Envoy, envoy};
use tests::held::Held;
use tests::http::Client;
use tests::installed;
use tests::kubelet::{Kubelet, Program, Step};
use tests::listener::{DIRECT_PATH, http, tcp};
use tests::port::Port;
use tests::process::Signal;
use tests::until::until;
use tests::upstream::Upstream;
use tokio::time::{Instant, sleep, sleep_until};

/// Who comes to a drainer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    Envoy,
    Drainer,
    Sigterm,
}

/// Where a drainer is in its life when it dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    MidLife,
    /// Envoy's hook alone: health has failed.
    MidRestart,
    /// Both hooks: the pod ends.
    MidDrain,
    /// The same, and all hooks have returned.
    AfterDrain,
}

/// How a drainer dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Death {
    /// A crash, or for want of memory.
    Sigkill,
    Sigterm,
    /// Its hook, then SIGTERM.
    NewImage,
}

/// An Envoy with a web listener and one whose streams hold a drain, and what stands behind it.
struct Scene {
    envoy: Envoy,
    _upstream: Upstream,
}

// === impl Who ===

impl Who {
    /// Comes; a hook is then under way.
    fn comes(self, drainer: &Drainer) -> Result<Option<Hook>> {
        match self {
            Self::Envoy => Ok(Some(drainer.envoy_hook())),
            Self::Drainer => drainer.own_hook().map(Some),
            Self::Sigterm => {
                drainer.signal(Signal::TERM);
                Ok(None)
            }
        }
    }
}

// === impl Scene ===

impl Scene {
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
    async fn is(&self, state: &str, limit: Duration) -> Result<()> {
        until(&format!("Envoy is {state}"), limit, || async {
            Ok(self.envoy.admin().state().await? == state)
        })
        .await
    }

    /// Asserts that Envoy is healthy until then.
    async fn stays_live_until(&self, then: Instant) -> Result<()> {
        while Instant::now() < then {
            let is_live = self.is_live().await?;
            let left = then.saturating_duration_since(Instant::now());
            // An answer that comes too late says nothing of the time before.
            assert!(is_live || left.is_zero(), "{left:?} early");
            sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    async fn hold(&self) -> Result<Held> {
        Held::stream(self.envoy.address("stream")).await
    }
}

/// Asserts that what the drainer has in hand is the whole drain of a pod.
fn assert_whole_drain(drainer: &Drainer) {
    let told = drainer.logged("Told Envoy");
    let told = told.map(|line| line["call"].clone());
    assert_eq!(told, Some(json!("/drain_listeners")));
}

#[tokio::test]
async fn two_signs_in_whatever_order_end_the_pod_from_the_first_on() -> Result<()> {
    use Who::{Drainer, Envoy, Sigterm};
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
            let scene = Scene::start().await?;
            let drainer = drainer(scene.envoy.admin_address())?
                .hasty()
                .timing(|t| t.drain_timeout = 6 * SECOND)
                .start()
                .await?;
            let _stream = scene.hold().await?;
            let mut hooks = Vec::new();
            let began = Instant::now();
            hooks.extend(who[0].comes(&drainer)?);
            scene.stays_live_until(began + apart * SECOND).await?;
            hooks.extend(who[1].comes(&drainer)?);
            scene.is("DRAINING", PATIENCE).await?;
            for hook in &hooks {
                hook.returned().await?;
            }
            assert_due(began.elapsed(), 6 * SECOND);
            assert_whole_drain(&drainer);
            assert_eq!(drainer.last_words()?["outcome"], "deadline");
            if !who.contains(&Sigterm) {
                ensure!(drainer.process().is_running(), "it ended without SIGTERM");
                drainer.signal(Signal::TERM);
            }
            let status = drainer.process().exited_within(PATIENCE).await?;
            assert_eq!(status.code(), Some(0));
            Ok(())
        };
        (name, case)
    });
    at_once(cases).await
}

#[tokio::test]
async fn envoys_hook_alone_fails_its_health_without_delay_and_returns_and_undoes_it() -> Result<()>
{
    let upstream = Upstream::start().await?;
    let envoy = envoy()?
        .upstream(&upstream)
        .listener(http("modify")?.modify_only())
        .flag("--drain-strategy immediate");
    let scene = Scene {
        envoy: envoy.start().await?,
        _upstream: upstream,
    };
    let drainer = drainer(scene.envoy.admin_address())?
        .timing(|t| t.drain_delay = 30 * SECOND)
        .start()
        .await?;
    let mut client = Held::idle(scene.envoy.address("modify")).await?;
    let hook = drainer.envoy_hook();
    scene.stays_live_until(hook.called() + 3 * SECOND).await?;
    scene.is("DRAINING", PATIENCE).await?;
    assert!(drainer.has_marked());
    assert_due(hook.returned().await?, 13 * SECOND);
    // Nothing that cannot be undone.
    let head = client.get(DIRECT_PATH).await?;
    assert!(!head.contains("connection: close"), "{head}");
    assert_eq!(drainer.status().await?.phase, DrainPhase::Idle);
    assert!(drainer.last_words().is_err());
    // The kubelet would restart it now. It lives on, so its health comes back.
    assert!(
        !scene.is_live().await?,
        "an Envoy about to end is not to look healthy"
    );
    scene.is("LIVE", PATIENCE).await?;
    until("no marker", PATIENCE, || async {
        Ok(!drainer.has_marked())
    })
    .await
}

#[tokio::test]
async fn a_second_sign_that_is_late_brings_the_rest_of_the_drain() -> Result<()> {
    let cases = [Who::Drainer, Who::Sigterm].map(|late| {
        let case = async move {
            let scene = Scene::start().await?;
            let drainer = drainer(scene.envoy.admin_address())?
                .hasty()
                .timing(|t| t.drain_delay = 30 * SECOND)
                .start()
                .await?;
            let hook = drainer.envoy_hook();
            scene.is("DRAINING", PATIENCE).await?;
            sleep_until(hook.called() + 6 * SECOND).await;
            assert!(hook.is_waiting());
            let own = late.comes(&drainer)?;
            // Without the delay, which health that has failed cannot have any more.
            assert_due(hook.returned().await?, 6 * SECOND);
            if let Some(own) = own {
                own.returned().await?;
            }
            assert_whole_drain(&drainer);
            assert_eq!(drainer.last_words()?["outcome"], "drained");
            Ok(())
        };
        (format!("{late:?}"), case)
    });
    at_once(cases).await
}

#[tokio::test]
async fn the_hook_of_an_envoy_that_hangs_after_its_health_failed_returns_soon() -> Result<()> {
    let scene = Scene::start().await?;
    let drainer = drainer(scene.envoy.admin_address())?.start().await?;
    let hook = drainer.envoy_hook();
    scene.is("DRAINING", PATIENCE).await?;
    scene.envoy.signal(Signal::STOP);
    let hung = Instant::now();
    hook.returned().await?;
    let took = hung.elapsed();
    // A second to the next question, and 2.5 s for its answer.
    assert_due_by(took, 4 * SECOND);
    // One that goes on after all is healthy again.
    scene.envoy.signal(Signal::CONT);
    scene.is("LIVE", PATIENCE).await
}

#[tokio::test]
async fn both_hooks_of_a_pod_whose_envoy_hangs_wait_for_it_to_the_deadline() -> Result<()> {
    let scene = Scene::start().await?;
    let drainer = drainer(scene.envoy.admin_address())?
        .hasty()
        .timing(|t| t.drain_timeout = 7 * SECOND)
        .start()
        .await?;
    let stream = scene.hold().await?;
    let end = drainer.pod_ends()?;
    scene.is("DRAINING", PATIENCE).await?;
    scene.envoy.signal(Signal::STOP);
    drop(stream);
    assert_due(end.returned().await?, 7 * SECOND);
    assert_eq!(drainer.last_words()?["outcome"], "deadline");
    Ok(())
}

#[tokio::test]
async fn the_drainers_own_hook_alone_touches_nothing_and_returns_after_ten_seconds() -> Result<()> {
    let scene = Scene::start().await?;
    let mut drainer = drainer(scene.envoy.admin_address())?
        .hasty()
        .start()
        .await?;
    let hook = drainer.own_hook()?;
    scene.stays_live_until(hook.called() + 10 * SECOND).await?;
    assert_due(hook.returned().await?, 10 * SECOND);
    // A new image: SIGTERM after the hook, and another drainer.
    drainer.signal(Signal::TERM);
    let signalled = Instant::now();
    let status = drainer.process().exited_within(PATIENCE).await?;
    assert_eq!(status.code(), Some(0));
    assert_due(signalled.elapsed(), SECOND);
    assert!(scene.is_live().await? && !drainer.has_marked());
    drainer.start_again().await?;
    sleep(SECOND).await;
    assert!(scene.is_live().await?);
    drainer.pod_ends()?.returned().await?;
    assert_eq!(drainer.last_words()?["outcome"], "drained");
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
            let scene = Scene::start().await?;
            let drainer = drainer(scene.envoy.admin_address())?.start().await?;
            drainer.logs("Envoy answers", PATIENCE).await?;
            if let Some(signal) = signal {
                scene.envoy.signal(signal);
            }
            drainer.signal(Signal::TERM);
            let began = Instant::now();
            if signal.is_none() {
                scene.stays_live_until(began + due).await?;
            }
            let status = drainer.process().exited_within(PATIENCE).await?;
            let took = began.elapsed();
            assert_eq!(status.code(), Some(0));
            // A hung one has a second more: whoever gave no answer in time is asked once.
            assert_due_between(took, due, due + SECOND);
            assert!(!drainer.has_marked());
            Ok(())
        };
        (name.to_owned(), case)
    });
    at_once(cases).await
}

#[tokio::test]
async fn a_restarted_drainer_restores_envoys_health_unless_the_pod_ends() -> Result<()> {
    for death in [Death::Sigkill, Death::Sigterm, Death::NewImage] {
        let moments = [
            Moment::MidLife,
            Moment::MidRestart,
            Moment::MidDrain,
            Moment::AfterDrain,
        ];
        let cases = moments.map(|moment| {
            let name = format!("{death:?} {moment:?}");
            (name, dies_and_is_restarted(moment, death))
        });
        at_once(cases).await?;
    }
    Ok(())
}

async fn dies_and_is_restarted(moment: Moment, death: Death) -> Result<()> {
    let scene = Scene::start().await?;
    let drainer = drainer(scene.envoy.admin_address())?;
    let drainer = drainer.hasty().start().await?;
    let mut stream = Some(scene.hold().await?);
    let mut hooks = Vec::new();
    match moment {
        Moment::MidLife => {}
        Moment::MidRestart => {
            hooks.push(drainer.envoy_hook());
            drainer.reaches(DrainPhase::Restarting).await?;
            scene.is("DRAINING", PATIENCE).await?;
        }
        Moment::MidDrain | Moment::AfterDrain => {
            hooks.extend([drainer.envoy_hook(), drainer.own_hook()?]);
            scene.is("DRAINING", PATIENCE).await?;
        }
    }
    if moment == Moment::AfterDrain {
        stream = None;
        for hook in hooks.drain(..) {
            hook.returned().await?;
        }
    }
    let owes_answers = !hooks.is_empty();
    if death == Death::NewImage {
        let own = drainer.own_hook()?;
        match owes_answers {
            true => hooks.push(own),
            false => drop(own.returned().await?),
        }
    }
    match death {
        Death::Sigkill => {
            drainer.signal(Signal::KILL);
            drop(stream);
            for hook in hooks {
                assert!(hook.returned().await.is_err(), "who answered?");
            }
        }
        Death::Sigterm | Death::NewImage => {
            drainer.signal(Signal::TERM);
            if owes_answers {
                // While something is open.
                sleep(SECOND).await;
                assert!(hooks.iter().all(Hook::is_waiting));
            }
            drop(stream);
            for hook in hooks {
                hook.returned().await?;
            }
        }
    }
    drainer.process().exited_within(PATIENCE).await?;
    if moment != Moment::MidLife {
        assert!(!scene.is_live().await? && drainer.has_marked());
    }
    let pod_ends = match moment {
        Moment::MidLife => false,
        // SIGTERM, or the drainer's own hook, was the second signal.
        Moment::MidRestart => death != Death::Sigkill,
        Moment::MidDrain | Moment::AfterDrain => true,
    };
    match pod_ends {
        true => resumes_the_drain(scene, drainer).await,
        false => is_healthy_again(scene, drainer).await,
    }
}

/// The pod ends, and no hook comes again (KEP-4438).
async fn resumes_the_drain(scene: Scene, mut drainer: Drainer) -> Result<()> {
    let stream = scene.hold().await?;
    drainer.start_again().await?;
    drainer.logs("resuming the drain", PATIENCE).await?;
    drainer.reaches(DrainPhase::Draining).await?;
    let until = Instant::now() + 3 * SECOND;
    while Instant::now() < until {
        assert!(!scene.is_live().await?, "a pod that ends is healthy");
        sleep(SECOND / 10).await;
    }
    assert_eq!(drainer.status().await?.phase, DrainPhase::Draining);
    assert_whole_drain(&drainer);
    drop(stream);
    drainer.reaches(DrainPhase::Idle).await?;
    assert_eq!(drainer.last_words()?["outcome"], "drained");
    assert!(!scene.is_live().await? && drainer.has_marked());
    // Hooks that come after all have their drain.
    drainer.pod_ends()?.returned().await?;
    assert!(!scene.is_live().await? && drainer.has_marked());
    Ok(())
}

#[tokio::test]
async fn a_restart_of_all_containers_leaves_the_new_envoy_live() -> Result<()> {
    let cases = [MarkerReason::Provisional, MarkerReason::PodTerminating].map(|reason| {
        let case = async move {
            // Its emptyDir is what is left of the pod's containers (KEP-5532).
            let scene = Scene::start().await?;
            let sidecar = drainer(scene.envoy.admin_address())?.hasty();
            Marker::new(&sidecar.settings().run_dir).write(reason)?;
            let drainer = sidecar.start().await?;
            let began = Instant::now();
            until("no marker", PATIENCE, || async {
                Ok(!drainer.has_marked())
            })
            .await?;
            scene.stays_live_until(began + 3 * SECOND).await?;
            assert_eq!(drainer.status().await?.phase, DrainPhase::Idle);
            drainer.pod_ends()?.returned().await?;
            assert_eq!(drainer.last_words()?["outcome"], "drained");
            Ok(())
        };
        (format!("{reason:?}"), case)
    });
    at_once(cases).await
}

#[tokio::test]
async fn a_resumed_drain_of_a_pod_that_goes_on_is_undone() -> Result<()> {
    let scene = Scene::start().await?;
    scene.envoy.admin().command("/healthcheck/fail").await?;
    let sidecar = drainer(scene.envoy.admin_address())?.hasty();
    let sidecar = sidecar.timing(|t| t.drain_timeout = 3 * SECOND);
    Marker::new(&sidecar.settings().run_dir).write(MarkerReason::PodTerminating)?;
    let drainer = sidecar.start().await?;
    let began = Instant::now();
    // The longest drain, and 30 s.
    scene.is("LIVE", 33 * SECOND + PATIENCE).await?;
    let took = began.elapsed();
    assert!(took >= 32 * SECOND, "{took:?}");
    until("no marker", PATIENCE, || async {
        Ok(!drainer.has_marked())
    })
    .await
}

#[tokio::test]
async fn a_caller_that_never_stops_leaves_envoy_live() -> Result<()> {
    let scene = Scene::start().await?;
    let drainer = drainer(scene.envoy.admin_address())?
        .hasty()
        .start()
        .await?;
    let began = Instant::now();
    let (mut looks, mut live) = (0, 0);
    let mut hook = drainer.envoy_hook();
    while began.elapsed() < 55 * SECOND {
        if !hook.is_waiting() {
            hook = drainer.envoy_hook();
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
    let own = drainer.own_hook()?;
    scene.is("DRAINING", PATIENCE).await?;
    assert_due_by(own.called().elapsed(), SECOND);
    own.returned().await?;
    assert_eq!(drainer.last_words()?["outcome"], "drained");
    // Such calls prove nothing: it may be the drainer that is restarted.
    let log = drainer.log();
    assert!(log.iter().all(|line| line["call"] != "/drain_listeners"));
    Ok(())
}

async fn is_healthy_again(scene: Scene, mut drainer: Drainer) -> Result<()> {
    drainer.start_again().await?;
    scene.is("LIVE", PATIENCE).await?;
    until("no marker", PATIENCE, || async {
        Ok(!drainer.has_marked())
    })
    .await?;
    // And it drains as ever.
    let end = drainer.pod_ends()?;
    end.returned().await?;
    assert!(!scene.is_live().await? && drainer.has_marked());
    assert_eq!(drainer.last_words()?["outcome"], "drained");
    Ok(())
}

#[tokio::test]
async fn the_marker_stays_until_envoy_has_heard() -> Result<()> {
    let scene = Scene::start().await?;
    let mut drainer = drainer(scene.envoy.admin_address())?.start().await?;
    let _hook = drainer.envoy_hook();
    scene.is("DRAINING", PATIENCE).await?;
    drainer.signal(Signal::KILL);
    scene.envoy.signal(Signal::STOP);
    for _ in 0..2 {
        drainer.start_again().await?;
        sleep(2 * SECOND).await;
        assert!(drainer.has_marked());
        drainer.signal(Signal::KILL);
    }
    drainer.start_again().await?;
    scene.envoy.signal(Signal::CONT);
    scene.is("LIVE", PATIENCE).await?;
    until("no marker", PATIENCE, || async {
        Ok(!drainer.has_marked())
    })
    .await
}

#[tokio::test]
async fn health_that_somebody_else_failed_is_not_restored() -> Result<()> {
    let scene = Scene::start().await?;
    scene.envoy.admin().command("/healthcheck/fail").await?;
    let drainer = drainer(scene.envoy.admin_address())?.start().await?;
    drainer.logs("Envoy answers", PATIENCE).await?;
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
                .hasty()
                .timing(|t| {
                    t.drain_delay = SECOND;
                    t.drain_timeout = 4 * SECOND;
                })
                .start()
                .await?;
            let line = drainer
                .logs("admin interface does not answer", PATIENCE)
                .await?;
            assert_eq!(line["level"], "ERROR");
            let end = drainer.pod_ends()?;
            assert_due(end.returned().await?, 5 * SECOND);
            assert_eq!(drainer.last_words()?["outcome"], "deadline");
            Ok(())
        };
        (name, case)
    });
    at_once(cases).await
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
    let settings = drainer::Config {
        port: port.number().try_into()?,
        ..drainer::Config::new(admin.clone(), drainer::Token::new(7))
    };
    let args = ["serve".to_owned()].into_iter().chain(settings.args());
    let pod = pod(
        &bootstrap.args(&config.to_string_lossy()),
        &args.collect::<Vec<_>>(),
        port.number(),
        &settings.hook_path(),
    )?;
    let mut pod = Kubelet::new(pod)?
        .program("envoy", Program::envoy(&installed::newest()?))
        .program("envoy-drainer", Program::drainer()?)
        .start()?;
    let admin = tests::admin::Admin::new(Client::new(admin));
    let is = async |state: &str, limit| {
        until(&format!("Envoy is {state}"), limit, || async {
            Ok(admin.state().await.is_ok_and(|now| now == state))
        })
        .await
    };
    is("LIVE", 30 * SECOND).await?;

    pod.restart("envoy").await?;
    assert_eq!(pod.timeline().count("envoy", Step::HookReturned), 1);
    is("LIVE", 30 * SECOND).await?;
    assert_eq!(pod.timeline().count("envoy-drainer", Step::Exited), 0);
    let _idle = Held::idle(web).await?;

    let end = pod.end().await;
    let took = end
        .at("envoy", Step::HookReturned)
        .context("no hook returned")?;
    assert_due(took, 10 * SECOND);
    assert_eq!(end.at("envoy", Step::Sigkill), None, "{}", end.timeline);
    assert!(end.at("envoy", Step::Exited) <= end.at("envoy-drainer", Step::Sigterm));
    let words = pod.termination_message("envoy-drainer")?;
    assert!(words.contains(r#""outcome":"idle""#), "{words}");
    for container in ["envoy", "envoy-drainer"] {
        let status = pod.exit(container)?.context("it runs on")?;
        assert!(status.success(), "{container}: {status}");
    }
    Ok(())
}
