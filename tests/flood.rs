//! A flood of connections to the drainer's port: it neither puts off a drain nor has a hook return
//! before Envoy has drained. It takes the whole machine, so it is measured here alone.

use std::time::Duration;

use anyhow::{Result, ensure};
use drainer::DrainPhase;
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use tests::drainer::{Drainer, drainer};
use tests::due::{PATIENCE, SECOND, assert_due_by};
use tests::envoy::{Envoy, envoy};
use tests::flood::Flood;
use tests::held::Held;
use tests::listener::{http, tcp};
use tests::memory::Memory;
use tests::process::Signal;
use tests::until::until;
use tests::upstream::Upstream;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

/// What the flood tries, in connections a second, and what any machine is to reach.
const PER_SECOND: u32 = 5_000;
const AT_LEAST: u64 = 2_000;

/// How long it goes on before anything ends.
const BEFORE: Duration = Duration::from_secs(2);

/// In KiB. Half the container's default limit: what the kernel holds for connections counts too.
const MOST_MEMORY: u64 = 32 << 10;

/// Held by the test whose flood it is.
static ALONE: Mutex<()> = Mutex::const_new(());

/// An Envoy with a stream that holds its drain, its drainer, and a flood on the drainer's port.
struct Scene {
    drainer: Drainer,
    flood: Flood,
    stream: Held,
    envoy: Envoy,
    _upstream: Upstream,
}

// === impl Scene ===

impl Scene {
    async fn start() -> Result<Self> {
        let upstream = Upstream::start().await?;
        let envoy = envoy()?
            .upstream(&upstream)
            .listener(http("web")?)
            .listener(tcp("stream")?);
        let envoy = envoy.start().await?;
        let drainer = drainer(envoy.admin_address())?.hasty().start().await?;
        // What a container has where nobody raised that.
        let few = Rlimit {
            current: Some(1024),
            maximum: Some(1024),
        };
        let pid = Pid::from_raw(drainer.process().pid());
        prlimit(pid, Resource::Nofile, few)?;
        drainer.logs("Envoy answers", PATIENCE).await?;
        let stream = Held::stream(envoy.address("stream")).await?;
        let flood = Flood::start(drainer.address(), PER_SECOND)?;
        sleep(BEFORE).await;
        Ok(Self {
            drainer,
            flood,
            stream,
            envoy,
            _upstream: upstream,
        })
    }

    async fn is_draining(&self) -> Result<()> {
        until("Envoy is DRAINING", PATIENCE, || async {
            Ok(self.envoy.admin().state().await? == "DRAINING")
        })
        .await
    }

    /// Asserts that there was a flood, and that the drainer bore it.
    fn assert_flooded(&self) -> Result<()> {
        let rate = self.flood.per_second();
        let peak = Memory::Peak.of(self.drainer.process())?;
        println!("{rate} connections a second; the drainer's peak: {peak} KiB");
        assert!(rate >= AT_LEAST, "{rate} connections a second are no flood");
        assert!(peak <= MOST_MEMORY, "{peak} KiB");
        Ok(())
    }
}

#[tokio::test]
async fn a_flood_does_not_put_off_a_drain() -> Result<()> {
    let _alone = ALONE.lock().await;
    for envoy_first in [true, false] {
        for plain_container in [false, true] {
            println!("Envoy's hook first: {envoy_first}, plain container: {plain_container}");
            ends_in_a_flood(envoy_first, plain_container).await?;
        }
    }
    Ok(())
}

async fn ends_in_a_flood(envoy_first: bool, plain_container: bool) -> Result<()> {
    let scene = Scene::start().await?;
    let drainer = &scene.drainer;
    let began = Instant::now();
    let (envoys, own) = match envoy_first {
        true => {
            let envoys = drainer.envoy_hook();
            (envoys, drainer.own_hook()?)
        }
        false => {
            let own = drainer.own_hook()?;
            (drainer.envoy_hook(), own)
        }
    };
    scene.is_draining().await?;
    assert_due_by(began.elapsed(), SECOND);
    drainer.reaches(DrainPhase::Draining).await?;
    sleep(2 * SECOND).await;
    assert!(envoys.is_waiting() && own.is_waiting(), "undrained");
    assert!(drainer.logged("Told Envoy").is_some());
    scene.assert_flooded()?;
    drop(scene.stream);
    own.returned().await?;
    if plain_container {
        drainer.signal(Signal::TERM);
    }
    envoys.returned().await?;
    assert_eq!(drainer.last_words()?["outcome"], "drained");
    drainer.signal(Signal::TERM);
    let status = drainer.process().exited_within(PATIENCE).await?;
    ensure!(status.success(), "{status}");
    Ok(())
}

#[tokio::test]
async fn the_drainers_hook_alone_in_a_flood_returns_when_envoy_has_drained() -> Result<()> {
    let _alone = ALONE.lock().await;
    let scene = Scene::start().await?;
    let drainer = &scene.drainer;
    // Envoy's hook was called, and its connection lost.
    let own = drainer.own_hook()?;
    scene.is_draining().await?;
    assert_due_by(own.called().elapsed(), SECOND);
    while own.called().elapsed() < 11 * SECOND {
        assert!(own.is_waiting(), "undrained");
        sleep(SECOND / 4).await;
    }
    assert!(drainer.logged("/drain_listeners").is_none(), "not undone");
    scene.assert_flooded()?;
    drop(scene.stream);
    own.returned().await?;
    assert_eq!(drainer.last_words()?["outcome"], "drained");
    // The pod goes on after all, so Envoy does.
    drop(scene.flood);
    until("Envoy is LIVE", 2 * PATIENCE, || async {
        Ok(scene.envoy.admin().state().await? == "LIVE")
    })
    .await?;
    let end = drainer.pod_ends()?;
    end.returned().await?;
    Ok(())
}
