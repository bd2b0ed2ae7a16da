//! Admin interfaces whose addresses the drainer finds. Each test runs in a network namespace of its own, like that of a
//! pod.

use std::env;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tests::bootstrap::Bootstrap;
use tests::drainer::{Drainer, quick_drainer};
use tests::envoy::{Envoy, envoy_with_upstream};
use tests::listener::http;
use tests::port::Port;
use tests::timing::{SECOND, assert_took, assert_took_at_most};
use tests::until::wait_until;
use tests::upstream::Upstream;
use tokio::time::Instant;

/// Shorter than a drain's time limit in these tests.
const MINIMUM: Duration = Duration::from_secs(2);

/// Set to 1 where neither namespaces of the network nor of users are permitted.
const SKIP: &str = "SKIP_NAMESPACE_TESTS";

/// Set in the process that runs a test in a network namespace of its own.
const IS_INSIDE: &str = "IS_IN_TEST_NAMESPACE";

/// Runs a test of this module again, in a network namespace of its own; in a user namespace, so that this needs no
/// root. Returns false in that namespace, where the test itself is to run.
fn has_run_in_namespace(test: &str) -> Result<bool> {
    if env::var_os(IS_INSIDE).is_some() {
        return Ok(false);
    }
    if env::var_os(SKIP).is_some_and(|value| value == "1") {
        println!("skipped, since {SKIP} is set: {test}");
        return Ok(true);
    }
    let script = r#"ip link set lo up && exec "$@""#;
    let (_, module) = module_path!().split_once("::").context("a module")?;
    let output = Command::new("unshare")
        .args(["--map-root-user", "--net", "sh", "-c", script, "sh"])
        .arg(env::current_exe()?)
        .args(["--exact", "--nocapture", &format!("{module}::{test}")])
        .env(IS_INSIDE, "1")
        .output()?;
    let [text, log] = [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it));
    ensure!(
        output.status.success() && text.contains("1 passed"),
        "{text}{log}\n{SKIP}=1 skips the tests in a network namespace of their own"
    );
    Ok(true)
}

/// Starts a drainer without an annotated address, whose hint is Envoy's usual address.
async fn searching_drainer() -> Result<Drainer> {
    let hint = "127.0.0.1:9901".parse()?;
    let drainer = quick_drainer(&hint)?.timing(|timing| {
        timing.min_drain_duration = MINIMUM;
        timing.drain_timeout = 10 * MINIMUM;
    });
    let drainer = drainer.with_config(|config| {
        config.admin_hints.extend(config.admin_address.take());
    });
    drainer.start().await
}

/// A drainer that has found an Envoy looks whether it still answers each 30 s.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(60);

async fn wait_for_admin(drainer: &Drainer, envoy: &Envoy) -> Result<()> {
    let address = envoy.admin_address().to_string();
    wait_until(&address, SEARCH_TIMEOUT, || async {
        Ok(drainer.status().await?.admin.as_ref() == Some(&address))
    })
    .await
}

#[tokio::test]
async fn admin_interface_is_found_at_any_address() -> Result<()> {
    if has_run_in_namespace("admin_interface_is_found_at_any_address")? {
        return Ok(());
    }
    type AdminPlacement = fn(Bootstrap) -> Bootstrap;
    let at_hint: AdminPlacement = |envoy| match Port::prefer(9901) {
        Ok(port) => envoy.admin_port(port).admin_on_any_ipv6(),
        Err(_) => envoy,
    };
    // Another server, which answers 404, and an app that accepts connections and never answers.
    let _other = Upstream::start().await?;
    let mut silent = Some(std::net::TcpListener::bind("127.0.0.1:9901")?);
    // The admin interface, and whether Envoy starts after the drainer.
    let table: [(AdminPlacement, bool); _] = [
        (|envoy| envoy, false),
        (Bootstrap::admin_ipv6, false),
        (Bootstrap::admin_abstract, false),
        (|envoy| envoy, true),
        (Bootstrap::admin_on_any_ipv6, false),
        (at_hint, false),
    ];
    for (placement, is_late) in table {
        let envoy = placement(envoy_with_upstream().await?.listener(http("web")?));
        let (drainer, envoy) = if is_late {
            let drainer = searching_drainer().await?;
            (drainer, envoy.start().await?)
        } else {
            let envoy = envoy.start().await?;
            (searching_drainer().await?, envoy)
        };
        wait_for_admin(&drainer, &envoy).await?;
        let kept = envoy.client("web").get("/").await?;
        ensure!(kept.status.is_success());
        drainer.drain_pod().await?;
        drainer.assert_message(&json!({"outcome": "drained"}))?;
        drainer.terminate().await?;
        drop(silent.take());
    }
    Ok(())
}

#[tokio::test]
async fn pod_whose_envoy_never_started_ends_at_once() -> Result<()> {
    if has_run_in_namespace("pod_whose_envoy_never_started_ends_at_once")? {
        return Ok(());
    }
    let _other = Upstream::start().await?;
    // Servers that do not answer, and how long the pod may take to end.
    for (silent, limit) in [(0, 2), (8, 6)] {
        let silent = (0..silent).map(|_| std::net::TcpListener::bind("127.0.0.1:0"));
        let _silent: Vec<_> = silent.collect::<Result<_, _>>()?;
        let drainer = searching_drainer().await?;
        let start = Instant::now();
        drainer.call_drainer_hook()?.wait_for_return().await?;
        drainer.terminate().await?;
        assert_took_at_most(start.elapsed(), limit * SECOND);
    }
    Ok(())
}

#[tokio::test]
async fn envoy_without_admin_interface_holds_a_pod_for_the_minimum_only() -> Result<()> {
    if has_run_in_namespace("envoy_without_admin_interface_holds_a_pod_for_the_minimum_only")? {
        return Ok(());
    }
    let _other = Upstream::start().await?;
    let drainer = searching_drainer().await?;
    assert_took(drainer.drain_pod().await?, MINIMUM);
    drainer.assert_message(&json!({"outcome": "unreachable", "peak": 0}))?;
    ensure!(drainer.find_log("Envoy was not drained").is_some());
    // Envoy's hook, which may still come after SIGTERM, would be held no longer.
    let drainer = searching_drainer().await?;
    let terminated_at = Instant::now();
    drainer.terminate().await?;
    assert_took(terminated_at.elapsed(), MINIMUM);
    Ok(())
}
