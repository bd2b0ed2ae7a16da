//! Tests of the support code: a Service follows the readiness of its pods, after a lag.

use std::time::Duration;

use anyhow::Result;
use tests::envoy::{Envoy, envoy};
use tests::listener::{HEALTH_PATH, http};
use tests::load::{Endpoints, Protocol};
use tests::service::{Endpoint, Probe, Service};
use tests::until::wait_until;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

const LAG: Duration = Duration::from_secs(1);
const PERIOD: Duration = Duration::from_millis(200);
const FAILURES: u32 = 3;

fn probe() -> Probe {
    Probe {
        path: HEALTH_PATH.into(),
        period: PERIOD,
        timeout: Duration::from_secs(1),
        failure_threshold: FAILURES,
    }
}

/// Returns a Service in front of this Envoy, after it became ready.
async fn service_for(envoy: &Envoy) -> Result<Service> {
    let service = Service::new(LAG);
    service.add(Endpoint::new("envoy", envoy.address("web")), probe());
    service.wait_until_ready(1, Duration::from_secs(10)).await?;
    Ok(service)
}

/// Waits until the Service sends, or no longer sends, connections to the pod. Returns how long that took.
async fn wait_for_serving(service: &Service, is_serving: bool) -> Result<Duration> {
    let start = Instant::now();
    wait_until(
        "the endpoint is added or removed",
        Duration::from_secs(10),
        || async { Ok(service.is_serving("envoy") == is_serving) },
    )
    .await?;
    Ok(start.elapsed())
}

#[tokio::test]
async fn unready_pod_is_removed_after_probes_and_lag() -> Result<()> {
    let envoy = envoy()?.listener(http("web")?).start().await?;
    let service = service_for(&envoy).await?;
    let (address, guard) = service.next(Protocol::Http)?;
    let kept = TcpStream::connect(address).await?;
    envoy.admin().post("/healthcheck/fail").await?;
    let took = wait_for_serving(&service, false).await?;
    let at_least = LAG + PERIOD * (FAILURES - 1);
    assert!(took >= at_least && took < at_least + LAG, "{took:?}");

    let error = service.next(Protocol::Http).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    assert_eq!(service.open_connections("envoy"), 1);
    kept.writable().await?;
    assert_eq!(kept.try_write(b"GET")?, 3);
    drop((kept, guard));
    assert_eq!(service.open_connections("envoy"), 0);

    envoy.admin().post("/healthcheck/ok").await?;
    assert!(wait_for_serving(&service, true).await? < PERIOD + LAG / 2);
    Ok(())
}

#[tokio::test]
async fn hanging_pod_becomes_unready() -> Result<()> {
    let envoy = envoy()?.listener(http("web")?).start().await?;
    let service = service_for(&envoy).await?;
    envoy.signal(tests::process::Signal::STOP);
    wait_for_serving(&service, false).await?;
    Ok(())
}

#[tokio::test]
async fn deleted_pod_is_removed_once_another_is_ready() -> Result<()> {
    let envoy = envoy()?.listener(http("web")?).listener(http("other")?);
    let envoy = envoy.start().await?;
    let service = service_for(&envoy).await?;
    service.mark_terminating("envoy");
    sleep(LAG + LAG / 2).await;
    assert!(service.is_serving("envoy"));

    service.add(Endpoint::new("other", envoy.address("other")), probe());
    wait_for_serving(&service, false).await?;
    assert_eq!(service.serving_pods(), 1);
    Ok(())
}
