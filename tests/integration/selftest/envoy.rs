//! The support's own tests: every Envoy that the tests ask for starts, and is what was asked for.

use std::time::Duration;

use anyhow::Result;
use tests::bootstrap::{Bootstrap, HEALTH_PATH};
use tests::envoy::envoy;
use tests::envoy_versions;
use tests::listener::{DIRECT_PATH, DIRECT_RESPONSE, http, tcp};
use tests::process::Signal;
use tests::upstream::Upstream;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[tokio::test]
async fn every_situation_starts_on_the_oldest_and_the_newest_envoy() -> Result<()> {
    let upstream = Upstream::start().await?;
    type Set = fn(Bootstrap) -> Bootstrap;
    let situations: [(&str, Set); 8] = [
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
        for (situation, set) in situations {
            let envoy = envoy()?
                .binary(&binary)
                .upstream(&upstream)
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
            let envoy = set(envoy).start().await?;
            for listener in ["web", "modify", "odd", "six", "inside"] {
                let client = envoy.client(listener);
                let answer = client.get(DIRECT_PATH).await?;
                assert_eq!(answer.body, DIRECT_RESPONSE, "{binary}, {situation}");
                assert_eq!(client.get("/").await?.body, "", "{binary}, {situation}");
                assert_eq!(client.get(HEALTH_PATH).await?.status, 200);
            }
            let mut stream = TcpStream::connect(envoy.address("stream")).await?;
            stream.write_all(b"ping").await?;
            let mut pong = [0; 4];
            stream.read_exact(&mut pong).await?;
            assert_eq!(&pong, b"ping", "{binary}, {situation}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn readiness_follows_the_health_of_envoy() -> Result<()> {
    let envoy = envoy()?.listener(http("web")?).start().await?;
    envoy.admin().post("/healthcheck/fail").await?;
    assert_eq!(envoy.admin().state().await?, "DRAINING");
    let answer = envoy.client("web").get(HEALTH_PATH).await?;
    assert_eq!(answer.status, 503);
    assert_eq!(envoy.admin().stat("server.live").await?, Some(0));
    assert_eq!(envoy.admin().stat("no.such").await?, None);
    Ok(())
}

#[tokio::test]
async fn an_envoy_without_its_xds_is_handed_out_unready() -> Result<()> {
    let envoy = envoy()?.unresponsive_xds().start().await?;
    assert_eq!(envoy.admin().state().await?, "PRE_INITIALIZING");
    assert_eq!(envoy.terminate().await?.code(), Some(0));
    Ok(())
}

#[tokio::test]
async fn an_envoy_that_refuses_its_configuration_says_why() -> Result<()> {
    let unreadable = envoy()?.flag("--bogus").start().await;
    let error = format!("{:#}", unreadable.unwrap_err());
    assert!(error.contains("--bogus"), "{error}");
    Ok(())
}

#[tokio::test]
async fn a_stopped_envoy_hangs_until_it_goes_on() -> Result<()> {
    let envoy = envoy()?.listener(http("web")?).start().await?;
    let short = envoy.client("web").with_timeout(Duration::from_millis(300));
    envoy.signal(Signal::STOP);
    assert!(short.get("/").await.is_err());
    envoy.signal(Signal::CONT);
    assert_eq!(envoy.client("web").get("/").await?.body, DIRECT_RESPONSE);
    Ok(())
}

#[tokio::test]
async fn the_upstream_streams_upgrades_and_takes_its_time() -> Result<()> {
    let upstream = Upstream::start().await?;
    let envoy = envoy()?
        .upstream(&upstream)
        .listener(http("web")?)
        .start()
        .await?;
    let before = tokio::time::Instant::now();
    assert_eq!(envoy.client("web").post("/slow?ms=300").await?.status, 200);
    assert!(before.elapsed() >= Duration::from_millis(300));
    let answer = envoy.client("web").get("/stream?ms=300").await?;
    assert_eq!(answer.body, "chunk\n".repeat(3));

    let mut stream = TcpStream::connect(envoy.address("web")).await?;
    stream
        .write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n")
        .await?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    assert!(
        head.starts_with(b"HTTP/1.1 101 "),
        "{}",
        head.escape_ascii()
    );
    stream.write_all(b"ping").await?;
    let mut pong = [0; 4];
    stream.read_exact(&mut pong).await?;
    assert_eq!(&pong, b"ping");
    Ok(())
}
