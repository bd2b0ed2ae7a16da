//! A flood of connections to the drainer's port: it neither puts off a drain nor has a hook return
//! before Envoy has drained. It takes the whole machine, so it is measured here alone.

use std::time::Duration;

use anyhow::{Result, ensure};
use drainer::DrainPhase;
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use tests::drainer::{Drainer, drainer};
use tests::envoy::{Envoy, envoy};
use tests::flood::Flood;
use tests::listener::{http, tcp};
use tests::memory::MemoryMetric;
use tests::process::Signal;
use tests::raw_connection::RawConnection;
use tests::timing::{SECOND, TIMEOUT, assert_took_at_most};
use tests::until::wait_until;
use tests::upstream::Upstream;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

/// What the flood tries, in connections a second, and what any machine is to reach.
const CONNECTION_RATE: u32 = 5_000;
const MIN_CONNECTION_RATE: u64 = 2_000;

/// How long it goes on before anything ends.
const LEAD_TIME: Duration = Duration::from_secs(2);

/// In KiB. Half the container's default limit: what the kernel holds for connections counts too.
const MAX_MEMORY: u64 = 32 << 10;

/// Held by the test whose flood it is.
static FLOOD_LOCK: Mutex<()> = Mutex::const_new(());

/// An Envoy with a stream that holds its drain, its drainer, and a flood on the drainer's port.
struct Fixture {
    drainer: Drainer,
    flood: Flood,
    stream: RawConnection,
    envoy: Envoy,
    _upstream: Upstream,
}

// === impl Scene ===

impl Fixture {
    async fn start() -> Result<Self> {
        let upstream = Upstream::start().await?;
        let envoy = envoy()?
            .upstream(&upstream)
            .listener(http("web")?)
            .listener(tcp("stream")?);
        let envoy = envoy.start().await?;
        let drainer = drainer(envoy.admin_address())?
            .exit_without_minimum()
            .start()
            .await?;
        // What a container has where nobody raised that.
        let few = Rlimit {
            current: Some(1024),
            maximum: Some(1024),
        };
        let pid = Pid::from_raw(drainer.process().pid());
        prlimit(pid, Resource::Nofile, few)?;
        drainer.wait_for_log("Envoy is responding", TIMEOUT).await?;
        let stream = RawConnection::open_stream(envoy.address("stream")).await?;
        let flood = Flood::start(drainer.address(), CONNECTION_RATE)?;
        sleep(LEAD_TIME).await;
        Ok(Self {
            drainer,
            flood,
            stream,
            envoy,
            _upstream: upstream,
        })
    }

    async fn wait_until_draining(&self) -> Result<()> {
        wait_until("Envoy is DRAINING", TIMEOUT, || async {
            Ok(self.envoy.admin().state().await? == "DRAINING")
        })
        .await
    }

    /// Asserts that there was a flood, and that the drainer bore it.
    fn assert_flood_survived(&self) -> Result<()> {
        let rate = self.flood.per_second();
        let peak = MemoryMetric::Peak.read(self.drainer.process())?;
        println!("{rate} connections a second; the drainer's peak: {peak} KiB");
        assert!(
            rate >= MIN_CONNECTION_RATE,
            "{rate} connections a second are no flood"
        );
        assert!(peak <= MAX_MEMORY, "{peak} KiB");
        Ok(())
    }
}

#[tokio::test]
async fn a_flood_does_not_put_off_a_drain() -> Result<()> {
    let _alone = FLOOD_LOCK.lock().await;
    for envoy_first in [true, false] {
        for plain_container in [false, true] {
            println!("Envoy's hook first: {envoy_first}, plain container: {plain_container}");
            terminate_during_flood(envoy_first, plain_container).await?;
        }
    }
    Ok(())
}

async fn terminate_during_flood(envoy_first: bool, plain_container: bool) -> Result<()> {
    let scene = Fixture::start().await?;
    let drainer = &scene.drainer;
    let began = Instant::now();
    let (envoys, own) = match envoy_first {
        true => {
            let envoys = drainer.call_envoy_hook();
            (envoys, drainer.call_drainer_hook()?)
        }
        false => {
            let own = drainer.call_drainer_hook()?;
            (drainer.call_envoy_hook(), own)
        }
    };
    scene.wait_until_draining().await?;
    assert_took_at_most(began.elapsed(), SECOND);
    drainer.wait_for_phase(DrainPhase::Draining).await?;
    sleep(2 * SECOND).await;
    assert!(envoys.is_waiting() && own.is_waiting(), "undrained");
    assert!(drainer.find_log("Called Envoy admin").is_some());
    scene.assert_flood_survived()?;
    drop(scene.stream);
    own.wait_for_return().await?;
    if plain_container {
        drainer.signal(Signal::TERM);
    }
    envoys.wait_for_return().await?;
    assert_eq!(drainer.termination_message()?["outcome"], "drained");
    drainer.signal(Signal::TERM);
    let status = drainer.process().wait_within(TIMEOUT).await?;
    ensure!(status.success(), "{status}");
    Ok(())
}

#[tokio::test]
async fn the_drainers_hook_alone_in_a_flood_returns_when_envoy_has_drained() -> Result<()> {
    let _alone = FLOOD_LOCK.lock().await;
    let scene = Fixture::start().await?;
    let drainer = &scene.drainer;
    // Envoy's hook was called, and its connection lost.
    let own = drainer.call_drainer_hook()?;
    scene.wait_until_draining().await?;
    assert_took_at_most(own.called_at().elapsed(), SECOND);
    while own.called_at().elapsed() < 11 * SECOND {
        assert!(own.is_waiting(), "undrained");
        sleep(SECOND / 4).await;
    }
    assert!(drainer.find_log("/drain_listeners").is_none(), "not undone");
    scene.assert_flood_survived()?;
    drop(scene.stream);
    own.wait_for_return().await?;
    assert_eq!(drainer.termination_message()?["outcome"], "drained");
    // The pod goes on after all, so Envoy does.
    drop(scene.flood);
    wait_until("Envoy is LIVE", 2 * TIMEOUT, || async {
        Ok(scene.envoy.admin().state().await? == "LIVE")
    })
    .await?;
    let end = drainer.call_pod_hooks()?;
    end.wait_for_return().await?;
    Ok(())
}
