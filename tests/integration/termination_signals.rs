//! The hooks that are open, and SIGTERM, decide what ends: the pod, Envoy alone, or the drainer alone. Whatever happens
//! to the drainer, an Envoy that keeps running is healthy again.

use std::time::Duration;

use anyhow::{Result, ensure};
use drainer::{DrainPhase, Progress};
use tests::bootstrap::Bootstrap;
use tests::drainer::{Drainer, DrainerBuilder, HookCall, drainer};
use tests::envoy::{Envoy, envoy_with_upstream};
use tests::listener::{http, tcp};
use tests::parallel::for_each_case;
use tests::process::Signal;
use tests::raw_connection::RawConnection;
use tests::timing::{SECOND, TIMEOUT, assert_took, assert_took_at_most, assert_took_between};
use tests::until::wait_until;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

/// What happens to a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    /// Envoy's hook is called.
    Envoy,
    /// The drainer's own hook is called.
    Drainer,
    /// The hook of another container is called.
    Container,
    Sigterm,
    /// The connections of all hooks are closed.
    Close,
    /// Envoy gets this signal.
    EnvoySignal(Signal),
}

/// An Envoy with an HTTP listener and a TCP listener whose streams hold a drain, and its drainer.
pub(super) struct Pod {
    pub(super) envoy: Envoy,
    pub(super) drainer: Drainer,
}

/// The calls of a full drain, and of a soft one.
pub(super) const FULL_DRAIN: [&str; 2] = ["/healthcheck/fail", "/drain_listeners"];
const SOFT_DRAIN: [&str; 1] = ["/healthcheck/fail"];

// === impl Pod ===

impl Pod {
    /// Starts a pod whose drains end when no connection is left.
    pub(super) async fn start() -> Result<Self> {
        Self::start_with(DrainerBuilder::exit_without_minimum).await
    }

    /// Starts a pod with another drainer.
    pub(super) async fn start_with(
        change: impl FnOnce(DrainerBuilder) -> DrainerBuilder,
    ) -> Result<Self> {
        let pod = Self::launch(change).await?;
        pod.drainer.wait_until_serving().await?;
        Ok(pod)
    }

    /// Starts a pod, and does not wait until its drainer serves.
    pub(super) async fn launch(
        change: impl FnOnce(DrainerBuilder) -> DrainerBuilder,
    ) -> Result<Self> {
        Self::launch_with(|envoy| envoy, change).await
    }

    /// Starts a pod with its admin interface elsewhere.
    async fn launch_with(
        admin: fn(Bootstrap) -> Bootstrap,
        change: impl FnOnce(DrainerBuilder) -> DrainerBuilder,
    ) -> Result<Self> {
        let envoy = admin(envoy_with_upstream().await?).listener(http("web")?);
        let envoy = envoy.listener(tcp("stream")?).start().await?;
        Ok(Self {
            drainer: change(drainer(envoy.admin_address())?).launch().await?,
            envoy,
        })
    }

    /// Makes an event happen. The hooks that it calls are added to `hooks`.
    fn fire(&self, event: Event, hooks: &mut Vec<HookCall>) -> Result<()> {
        match event {
            Event::Envoy => hooks.push(self.drainer.call_envoy_hook()),
            Event::Drainer => hooks.push(self.drainer.call_drainer_hook()?),
            Event::Container => hooks.push(self.drainer.call_container_hook("app")),
            Event::Sigterm => self.drainer.signal(Signal::TERM),
            Event::Close => hooks.clear(),
            Event::EnvoySignal(signal) => self.envoy.signal(signal),
        }
        Ok(())
    }

    pub(super) async fn is_live(&self) -> Result<bool> {
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

    /// Asserts that the pod's end is drained in full, as if nothing had happened before.
    pub(super) async fn assert_drained_in_full(&self) -> Result<()> {
        let calls = self.drainer.accepted_calls().len();
        let hooks = self.drainer.call_pod_hooks()?;
        assert_took_at_most(hooks.wait_for_return().await?, SECOND);
        assert_eq!(self.drainer.accepted_calls()[calls..], FULL_DRAIN);
        assert!(!self.is_live().await?);
        assert_eq!(self.drainer.termination_message()?["outcome"], "drained");
        Ok(())
    }
}

#[tokio::test]
async fn hooks_open_together_drain_the_pod() -> Result<()> {
    use Event::{Close, Drainer, Envoy, EnvoySignal, Sigterm};
    // Events by the second, and when the pod's end was proven.
    let table: [(&[(u32, Event)], u32); _] = [
        (&[(0, Envoy), (0, Drainer)], 0),
        // During the soft drain, which the stream holds.
        (&[(0, Envoy), (12, Drainer)], 12),
        (&[(0, Drainer), (28, Envoy)], 28),
        (&[(0, Envoy), (20, Sigterm)], 20),
        (&[(0, Sigterm), (8, Envoy)], 8),
        // The pod is deleted during a restart of Envoy after its liveness probe failed.
        (&[(0, Envoy), (4, Close), (5, Envoy), (5, Drainer)], 5),
        (&[(0, Envoy), (0, Drainer), (2, Close)], 0),
        // Envoy hangs, for a while or to the end.
        (
            &[
                (0, Envoy),
                (1, EnvoySignal(Signal::STOP)),
                (6, EnvoySignal(Signal::CONT)),
                (8, Drainer),
            ],
            8,
        ),
        (
            &[(0, Envoy), (0, Drainer), (2, EnvoySignal(Signal::STOP))],
            0,
        ),
    ];
    for_each_case(table, |(events, since)| assert_drained(events, since)).await
}

/// Asserts that these events drain a pod until its deadline, which counts from the second `since`.
async fn assert_drained(events: &'static [(u32, Event)], since: u32) -> Result<()> {
    let drain_timeout = 16 * SECOND;
    let timing = |drainer: DrainerBuilder| {
        let drainer = drainer.exit_without_minimum();
        drainer.timing(|timing| timing.drain_timeout = drain_timeout)
    };
    let pod = Pod::start_with(timing).await?;
    let _stream = pod.open_stream().await?;
    let start = Instant::now();
    let mut hooks = Vec::new();
    for &(second, event) in events {
        sleep_until(start + second * SECOND).await;
        pod.fire(event, &mut hooks)?;
    }
    for hook in &hooks {
        hook.wait_for_return().await?;
    }
    wait_until("the drain has ended", TIMEOUT, || async {
        let message = pod.drainer.termination_message();
        Ok(message.is_ok_and(|message| message["final"].is_null()))
    })
    .await?;
    assert_took(start.elapsed(), since * SECOND + drain_timeout);
    assert_eq!(pod.drainer.accepted_calls(), FULL_DRAIN);
    assert_eq!(pod.drainer.termination_message()?["outcome"], "deadline");
    if !events.iter().any(|(_, event)| *event == Event::Sigterm) {
        ensure!(
            pod.drainer.process().is_running(),
            "the drainer exited without SIGTERM"
        );
        pod.drainer.signal(Signal::TERM);
    }
    let status = pod.drainer.process().wait_within(TIMEOUT).await?;
    assert_eq!(status.code(), Some(0));
    Ok(())
}

#[tokio::test]
async fn signal_alone_ends_after_its_time() -> Result<()> {
    use Event::{Container, Drainer, Envoy, Sigterm};
    let in_tcp: fn(Bootstrap) -> Bootstrap = |envoy| envoy;
    // Where Envoy is killed, the file of its socket is left.
    let in_file: fn(Bootstrap) -> Bootstrap = Bootstrap::admin_unix;
    // A signal, what has happened to Envoy, and after how many seconds the hook returns or the drainer exits.
    let table = [
        (in_tcp, Envoy, Some(Signal::STOP), 10, 10),
        (in_tcp, Envoy, Some(Signal::KILL), 0, 1),
        (in_file, Envoy, Some(Signal::STOP), 10, 10),
        (in_file, Envoy, Some(Signal::KILL), 0, 1),
        (in_tcp, Drainer, None, 30, 30),
        (in_tcp, Drainer, Some(Signal::STOP), 30, 30),
        (in_tcp, Drainer, Some(Signal::KILL), 1, 1),
        (in_tcp, Sigterm, None, 10, 10),
        (in_tcp, Sigterm, Some(Signal::STOP), 10, 10),
        (in_tcp, Sigterm, Some(Signal::KILL), 1, 1),
        (in_tcp, Container, None, 3, 3),
    ];
    for_each_case(
        table,
        |(admin, event, envoy_signal, at_least, at_most)| async move {
            let pod = Pod::launch_with(admin, DrainerBuilder::exit_without_minimum).await?;
            pod.drainer.wait_until_serving().await?;
            pod.drainer.wait_for_envoy().await?;
            if let Some(signal) = envoy_signal {
                pod.envoy.signal(signal);
            }
            let start = Instant::now();
            let mut hooks = Vec::new();
            pod.fire(event, &mut hooks)?;
            if envoy_signal.is_none() {
                pod.assert_live_until(start + at_least * SECOND).await?;
            }
            if let Some(hook) = hooks.pop() {
                hook.wait_for_return().await?;
            } else {
                let status = pod.drainer.process().wait_within(TIMEOUT).await?;
                assert_eq!(status.code(), Some(0));
            }
            assert_took_between(start.elapsed(), at_least * SECOND, at_most * SECOND);
            if envoy_signal != Some(Signal::KILL) {
                pod.envoy.signal(Signal::CONT);
                assert!(pod.is_live().await?);
            }
            assert!(pod.drainer.accepted_calls().is_empty());
            Ok(())
        },
    )
    .await
}

#[tokio::test]
async fn request_survives_where_no_exec_comes() -> Result<()> {
    let pod = Pod::start_with(|drainer| drainer).await?;
    let hook = pod.drainer.call_envoy_hook();
    let mut requests = JoinSet::new();
    for second in [0, 5, 9] {
        let client = pod.envoy.client("web").with_timeout(20 * SECOND);
        let at = hook.called_at() + second * SECOND;
        requests.spawn(async move {
            sleep_until(at).await;
            client.get("/?ms=12000").await
        });
    }
    hook.wait_for_return().await?;
    pod.envoy.terminate().await?;
    while let Some(response) = requests.join_next().await {
        assert!(response??.status.is_success());
    }
    Ok(())
}

#[tokio::test]
async fn each_envoy_is_drained_softly_once() -> Result<()> {
    let mut pod = Pod::start().await?;
    // Endless calls, as by a reader of the token.
    let mut hook = pod.drainer.call_envoy_hook();
    for want in [1, 2] {
        let start = Instant::now();
        while start.elapsed() < 45 * SECOND {
            if !hook.is_waiting() {
                hook = pod.drainer.call_envoy_hook();
            }
            let calls = pod.drainer.accepted_calls();
            assert_eq!(calls, vec![SOFT_DRAIN[0]; calls.len()]);
            assert!(calls.len() <= want, "{calls:?}");
            sleep(SECOND / 10).await;
        }
        assert_eq!(pod.drainer.accepted_calls().len(), want);
        assert!(pod.is_live().await?);
        pod.envoy = pod.envoy.restart().await?;
    }
    // The pod's end is drained at once nevertheless.
    let is_held = |status: &Progress| !matches!(status.phase, DrainPhase::Released(_));
    pod.drainer
        .wait_for_status("hooks are held", is_held)
        .await?;
    pod.assert_drained_in_full().await
}

#[tokio::test]
async fn killed_drainer_restores_health_at_its_start() -> Result<()> {
    use Event::{Drainer, Envoy};
    // The hooks that are called, whether the drain has ended, and whether Envoy's hook is called again.
    let table: [(&[Event], bool, bool); _] = [
        (&[Envoy], false, false),
        (&[Envoy], false, true),
        (&[Envoy, Drainer], false, false),
        (&[Envoy, Drainer], true, false),
        (&[Envoy, Drainer], true, true),
    ];
    for_each_case(table, |(events, has_ended, is_called_again)| async move {
        let mut pod = Pod::start().await?;
        let stream = pod.open_stream().await?;
        let mut hooks = Vec::new();
        for event in events {
            pod.fire(*event, &mut hooks)?;
        }
        pod.wait_for_state("DRAINING", TIMEOUT).await?;
        if has_ended {
            drop(stream);
            for hook in hooks.drain(..) {
                hook.wait_for_return().await?;
            }
        }
        pod.drainer.signal(Signal::KILL);
        for hook in hooks {
            ensure!(
                hook.wait_for_return().await.is_err(),
                "a killed drainer answered a hook"
            );
        }
        assert!(!pod.is_live().await?);
        let start = Instant::now();
        pod.drainer.restart().await?;
        let hook = is_called_again.then(|| pod.drainer.call_envoy_hook());
        pod.wait_for_state("LIVE", TIMEOUT).await?;
        assert_took_at_most(start.elapsed(), 2 * SECOND);
        if let Some(hook) = hook {
            let until = hook.called_at() + 10 * SECOND;
            pod.assert_live_until(until).await?;
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn container_hook_waits_for_any_drain() -> Result<()> {
    use Event::{Container, Drainer, Envoy};
    let table: [&[Event]; _] = [&[Container, Envoy, Drainer], &[Container, Envoy]];
    for_each_case(table, |events| async move {
        let pod = Pod::start().await?;
        let stream = pod.open_stream().await?;
        let mut hooks = Vec::new();
        for event in events {
            pod.fire(*event, &mut hooks)?;
        }
        pod.wait_for_state("DRAINING", TIMEOUT).await?;
        sleep(4 * SECOND).await;
        assert!(hooks.iter().all(HookCall::is_waiting));
        drop(stream);
        let start = Instant::now();
        for hook in hooks {
            hook.wait_for_return().await?;
        }
        let late = pod.drainer.call_container_hook("late");
        late.wait_for_return().await?;
        assert_took_at_most(start.elapsed(), SECOND);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn unread_log_decides_nothing() -> Result<()> {
    let without_reader = "os.close(reader)";
    let full = "
os.set_inheritable(reader, True)
os.set_blocking(writer, False)
try:
    while True: os.write(writer, bytes(4096))
except BlockingIOError:
    os.set_blocking(writer, True)";
    for_each_case([without_reader, full], |statements| async move {
        let script = format!(
            "import os, sys\nreader, writer = os.pipe()\n{statements}\n\
             os.dup2(writer, 1)\nos.dup2(writer, 2)\nos.execv(sys.argv[1], sys.argv[1:])"
        );
        let launched = |drainer: DrainerBuilder| {
            let drainer = drainer.launcher(&["/usr/bin/python3", "-c", &script]);
            let drainer = drainer.exit_without_minimum();
            drainer.with_config(|config| config.log_level = "trace".parse().unwrap())
        };
        let pod = Pod::start_with(launched).await?;
        let stream = pod.open_stream().await?;
        let hooks = pod.drainer.call_pod_hooks()?;
        pod.wait_for_state("DRAINING", TIMEOUT).await?;
        sleep(SECOND).await;
        assert!(hooks.is_waiting());
        drop(stream);
        assert_took_at_most(hooks.wait_for_return().await?, 2 * SECOND);
        assert_eq!(pod.drainer.termination_message()?["outcome"], "drained");
        pod.drainer.terminate().await?;
        // It has indeed written nothing that could be read.
        assert!(pod.drainer.log().is_empty());
        Ok(())
    })
    .await
}
