//! A flood of connections to the drainer's port neither delays a drain nor makes a hook return before Envoy
//! has drained. It takes the whole machine, so one flood runs at a time.

use std::time::Duration;

use anyhow::Result;
use drainer::DrainPhase;
use tests::drainer::quick_drainer;
use tests::envoy::proxy;
use tests::envoy_versions::newest;
use tests::flood::Flood;
use tests::listener::{http, tcp};
use tests::memory::MemoryMetric;
use tests::process::Signal;
use tests::raw_connection::RawConnection;
use tests::timing::{SECOND, TIMEOUT, assert_took_at_most};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

/// The attempted rate, and the rate that any machine must reach, in connections per second.
const CONNECTION_RATE: u32 = 5_000;
const MIN_CONNECTION_RATE: u64 = 2_000;

/// How long the flood lasts before the termination begins.
const LEAD_TIME: Duration = Duration::from_secs(2);

/// In KiB. Half the container's default limit, which also counts the kernel's memory for connections.
const MAX_MEMORY: u64 = 32 << 10;

#[tokio::test]
async fn flood_does_not_delay_drain() -> Result<()> {
    for envoy_first in [true, false] {
        for plain_container in [false, true] {
            println!("Envoy's hook first: {envoy_first}, plain container: {plain_container}");
            terminate_during_flood(envoy_first, plain_container).await?;
        }
    }
    Ok(())
}

async fn terminate_during_flood(envoy_first: bool, plain_container: bool) -> Result<()> {
    let envoy = proxy(&newest()?, [http("web")?, tcp("stream")?]).await?;
    // Without optimization it takes half a processor to accept the flood. Beside other tests it then gets too little,
    // and the kernel drops the SYN of Envoy's hook, which is sent again a second later.
    let drainer = quick_drainer(envoy.admin_address())?.optimized().await?;
    let drainer = drainer.start().await?;
    drainer.process().limit_open_files()?;
    drainer.wait_for_envoy().await?;
    // Keeps the drain from ending.
    let stream = RawConnection::open_stream(envoy.address("stream")).await?;
    let flood = Flood::start(drainer.address(), CONNECTION_RATE)?;
    sleep(LEAD_TIME).await;
    let start = Instant::now();
    let (envoy_hook, drainer_hook) = if envoy_first {
        let envoy_hook = drainer.call_envoy_hook();
        (envoy_hook, drainer.call_drainer_hook()?)
    } else {
        let drainer_hook = drainer.call_drainer_hook()?;
        (drainer.call_envoy_hook(), drainer_hook)
    };
    envoy.wait_until_draining().await?;
    assert_took_at_most(start.elapsed(), SECOND);
    drainer.wait_for_phase(DrainPhase::Draining).await?;
    sleep(2 * SECOND).await;
    assert!(
        envoy_hook.is_waiting() && drainer_hook.is_waiting(),
        "a hook returned before the drain ended"
    );
    assert!(drainer.find_log("Envoy accepted the call").is_some());
    let rate = flood.per_second();
    let peak = MemoryMetric::Peak.read(drainer.process())?;
    println!("{rate} connections per second; the drainer's peak: {peak} KiB");
    assert!(rate >= MIN_CONNECTION_RATE, "{rate} connections per second");
    assert!(peak <= MAX_MEMORY, "the drainer's peak: {peak} KiB");
    drop(stream);
    drainer_hook.wait_for_return().await?;
    if plain_container {
        drainer.signal(Signal::TERM);
    }
    envoy_hook.wait_for_return().await?;
    assert_eq!(drainer.termination_message()?["outcome"], "drained");
    drainer.terminate().await
}

#[tokio::test]
async fn lack_of_file_descriptors_is_logged_at_a_limited_rate() -> Result<()> {
    let envoy = proxy(&newest()?, [http("web")?]).await?;
    let limited = ["sh", "-c", "ulimit -n 20 && exec \"$@\"", "sh"];
    let drainer = quick_drainer(envoy.admin_address())?.launcher(&limited);
    let drainer = drainer.start().await?;
    let mut connections = Vec::new();
    for _ in 0..40 {
        connections.push(TcpStream::connect(drainer.address()).await?);
    }
    let error = "Cannot accept a connection";
    drainer.wait_for_log(error, TIMEOUT).await?;
    // It tries again each 100 ms.
    sleep(SECOND).await;
    let log = drainer.log().into_iter();
    assert_eq!(log.filter(|line| line["message"] == error).count(), 1);
    Ok(())
}
