//! The support's own tests: a Service follows its pods, and tells its clients late.

use std::time::Duration;

use anyhow::Result;
use tests::bootstrap::HEALTH_PATH;
use tests::envoy::{Envoy, envoy};
use tests::listener::{Protocol, http};
use tests::service::{Endpoint, Probe, Service};
use tests::until::until;
use tokio::time::{Instant, sleep};

const LAG: Duration = Duration::from_secs(1);
const PERIOD: Duration = Duration::from_millis(200);
const FAILURES: u32 = 3;

/// A Service before this Envoy, which it knows to be ready.
async fn before(envoy: &Envoy) -> Result<Service> {
    let service = Service::new(LAG);
    let endpoint = Endpoint {
        name: "envoy".into(),
        http: envoy.address("web"),
        tcp: None,
    };
    let probe = Probe {
        path: HEALTH_PATH.into(),
        period: PERIOD,
        limit: Duration::from_secs(1),
        failures: FAILURES,
    };
    service.add(endpoint, probe);
    service.ready(1, Duration::from_secs(10)).await?;
    Ok(service)
}

/// How long it takes until the Service sends, or no longer sends, connections to the pod.
async fn serves(service: &Service, serves: bool) -> Result<Duration> {
    let start = Instant::now();
    until(
        "a change of the rotation",
        Duration::from_secs(10),
        || async { Ok(service.serves("envoy") == serves) },
    )
    .await?;
    Ok(start.elapsed())
}

#[tokio::test]
async fn a_pod_that_is_unready_is_left_after_its_probes_and_the_lag() -> Result<()> {
    let envoy = envoy()?.listener(http("web")?).start().await?;
    let service = before(&envoy).await?;
    let kept = service.connect(Protocol::Http).await?;
    envoy.admin().command("/healthcheck/fail").await?;
    let took = serves(&service, false).await?;
    let least = LAG + PERIOD * (FAILURES - 1);
    assert!(took >= least && took < least + LAG, "{took:?}");

    let refused = service.connect(Protocol::Http).await.unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    assert_eq!(service.open("envoy"), 1);
    kept.stream.writable().await?;
    assert_eq!(kept.stream.try_write(b"GET")?, 3);
    drop(kept);
    assert_eq!(service.open("envoy"), 0);

    envoy.admin().command("/healthcheck/ok").await?;
    assert!(serves(&service, true).await? < PERIOD + LAG / 2);
    Ok(())
}

#[tokio::test]
async fn a_hanging_pod_is_unready() -> Result<()> {
    let envoy = envoy()?.listener(http("web")?).start().await?;
    let service = before(&envoy).await?;
    envoy.signal(tests::process::Signal::STOP);
    serves(&service, false).await?;
    Ok(())
}

#[tokio::test]
async fn a_deleted_pod_is_left_after_the_lag_where_there_is_another() -> Result<()> {
    let envoy = envoy()?.listener(http("web")?).listener(http("other")?);
    let envoy = envoy.start().await?;
    let service = before(&envoy).await?;
    service.terminating("envoy");
    sleep(LAG + LAG / 2).await;
    assert!(service.serves("envoy"));

    let other = Endpoint {
        name: "other".into(),
        http: envoy.address("other"),
        tcp: None,
    };
    let probe = Probe {
        path: HEALTH_PATH.into(),
        period: PERIOD,
        limit: Duration::from_secs(1),
        failures: FAILURES,
    };
    service.add(other, probe);
    serves(&service, false).await?;
    assert_eq!(service.serving(), 1);
    Ok(())
}
