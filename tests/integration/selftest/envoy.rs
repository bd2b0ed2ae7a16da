//! Tests of the support code: every Envoy starts, and behaves as its builder says.

use std::time::Duration;

use anyhow::{Context, Result};
use tests::bootstrap::Bootstrap;
use tests::envoy::{envoy, envoy_with_upstream, web_envoy};
use tests::envoy_versions;
use tests::envoy_versions::newest;
use tests::listener::{DIRECT_PATH, DIRECT_RESPONSE, HEALTH_PATH, http, tcp};
use tests::process::Signal;
use tests::raw_connection::RawConnection;

#[tokio::test]
async fn every_variant_starts_on_every_envoy_version() -> Result<()> {
    type Configure = fn(Bootstrap) -> Bootstrap;
    let variants: [(&str, Configure); 8] = [
        ("plain", |envoy| envoy),
        ("admin on IPv6", Bootstrap::admin_ipv6),
        ("admin on a socket file", Bootstrap::admin_unix),
        ("admin on an abstract socket", Bootstrap::admin_abstract),
        ("some statistics", |envoy| envoy.include_stats(&["server."])),
        ("no statistics", |envoy| envoy.include_stats(&[])),
        ("some statistics hidden", |envoy| {
            envoy.exclude_stats(&["http."])
        }),
        ("strategy and times", |envoy| {
            envoy
                .flag("--drain-strategy immediate --drain-time-s 5")
                .stats_flush_interval(Duration::from_millis(500))
        }),
    ];
    for binary in envoy_versions::all()? {
        for (variant, configure) in variants {
            let envoy = envoy_with_upstream()
                .await?
                .binary(&binary)
                .listener(http("web")?)
                .listener(http("modify")?.modify_only())
                .listener(http("odd")?.stat_prefix("admin").http_stat_prefix("worker"))
                .listener(http("six")?.ipv6())
                .listener(
                    http("inside")?
                        .loopback()
                        .idle_timeout(Duration::from_secs(3)),
                )
                .listener(tcp("stream")?);
            let envoy = configure(envoy).start().await?;
            for listener in ["web", "modify", "odd", "six", "inside"] {
                let client = envoy.client(listener);
                let response = client.get(DIRECT_PATH).await?;
                assert_eq!(response.body, DIRECT_RESPONSE, "{binary}, {variant}");
                assert_eq!(client.get("/").await?.body, "", "{binary}, {variant}");
                assert_eq!(client.get(HEALTH_PATH).await?.status, 200);
            }
            let stream = RawConnection::open_stream(envoy.address("stream")).await;
            stream.with_context(|| format!("{binary}, {variant}"))?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn readiness_follows_envoys_health() -> Result<()> {
    let envoy = envoy()?.listener(http("web")?).start().await?;
    envoy.admin().post("/healthcheck/fail").await?;
    assert_eq!(envoy.admin().state().await?, "DRAINING");
    let response = envoy.client("web").get(HEALTH_PATH).await?;
    assert_eq!(response.status, 503);
    assert_eq!(envoy.admin().stat("server.live").await?, Some(0));
    assert_eq!(envoy.admin().stat("no.such").await?, None);
    Ok(())
}

#[tokio::test]
async fn envoy_without_xds_response_is_not_ready() -> Result<()> {
    let envoy = envoy()?.unresponsive_xds().start().await?;
    assert_eq!(envoy.admin().state().await?, "PRE_INITIALIZING");
    assert_eq!(envoy.terminate().await?.code(), Some(0));
    Ok(())
}

#[tokio::test]
async fn start_error_contains_envoys_output() -> Result<()> {
    let invalid = envoy()?.flag("--bogus").start().await;
    let error = format!("{:#}", invalid.unwrap_err());
    assert!(error.contains("--bogus"), "{error}");
    Ok(())
}

#[tokio::test]
async fn stopped_envoy_hangs_until_it_is_continued() -> Result<()> {
    let envoy = envoy()?.listener(http("web")?).start().await?;
    let short_timeout = envoy.client("web").with_timeout(Duration::from_millis(300));
    envoy.signal(Signal::STOP);
    assert!(short_timeout.get("/").await.is_err());
    envoy.signal(Signal::CONT);
    assert_eq!(envoy.client("web").get("/").await?.body, DIRECT_RESPONSE);
    Ok(())
}

#[tokio::test]
async fn upstream_delays_streams_and_upgrades() -> Result<()> {
    let envoy = web_envoy(&newest()?).await?;
    let start = tokio::time::Instant::now();
    assert_eq!(envoy.client("web").post("/slow?ms=300").await?.status, 200);
    assert!(start.elapsed() >= Duration::from_millis(300));
    let response = envoy.client("web").get("/stream?ms=300").await?;
    assert_eq!(response.body, "chunk\n".repeat(3));
    RawConnection::open_upgraded(envoy.address("web")).await?;
    Ok(())
}
