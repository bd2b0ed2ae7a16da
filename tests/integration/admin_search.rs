//! Admin interfaces whose addresses the drainer finds. Each test runs in a network namespace of its own, like that of a pod.

use std::env;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tests::bootstrap::envoy;
use tests::drainer::{Drainer, quick_drainer};
use tests::envoy::{Envoy, envoy_with_upstream};
use tests::listener::http;
use tests::port::Port;
use tests::timing::assert_took;
use tests::until::wait_until;
use tests::upstream::Upstream;
use tokio::time::Instant;

/// Shorter than a drain's time limit in these tests.
const MINIMUM: Duration = Duration::from_secs(2);

/// Set to 1 where neither namespaces of the network nor of users are permitted.
const SKIP: &str = "SKIP_NAMESPACE_TESTS";

/// Set in the process that runs a test in a network namespace of its own.
const IS_INSIDE: &str = "IS_IN_TEST_NAMESPACE";

/// Runs a test of this module again, in a network namespace of its own; in a user namespace, so that this needs no root.
/// Returns false in that namespace, where the test itself is to run.
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
    // Another server, which answers 404, and an app that accepts connections and never answers.
    let _other = Upstream::start().await?;
    let mut silent = Some(std::net::TcpListener::bind("127.0.0.1:9901")?);
    for number in 0..4 {
        let envoy = envoy_with_upstream().await?.listener(http("web")?);
        let (drainer, envoy) = if number == 3 {
            // Envoy starts after the drainer.
            let drainer = searching_drainer().await?;
            (drainer, envoy.start().await?)
        } else {
            let envoy = match number {
                0 => envoy,
                1 => envoy.admin_ipv6(),
                _ => envoy.admin_abstract(),
            };
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
async fn ipv6_wildcard_is_called_at_its_loopback_address() -> Result<()> {
    if has_run_in_namespace("ipv6_wildcard_is_called_at_its_loopback_address")? {
        return Ok(());
    }
    // At the port of the hint, and at another one.
    for port in [Port::prefer(9901)?, Port::free()?] {
        let envoy = envoy_with_upstream().await?.admin_port(port);
        let envoy = envoy.admin_on_any_ipv6().start().await?;
        let drainer = searching_drainer().await?;
        wait_for_admin(&drainer, &envoy).await?;
        drainer.terminate().await?;
    }
    Ok(())
}

#[tokio::test]
async fn listener_that_routes_to_the_admin_interface_is_none() -> Result<()> {
    if has_run_in_namespace("listener_that_routes_to_the_admin_interface_is_none")? {
        return Ok(());
    }
    // The listener is at the hint.
    let web = http("web")?.port(Port::prefer(9901)?);
    let envoy = envoy()?.listener(web).route_to_admin().start().await?;
    let routed = envoy.client("web").get("/server_info").await?;
    ensure!(routed.status.is_success());
    let drainer = searching_drainer().await?;
    wait_for_admin(&drainer, &envoy).await
}

#[tokio::test]
async fn pod_whose_envoy_does_not_run_ends_at_once() -> Result<()> {
    if has_run_in_namespace("pod_whose_envoy_does_not_run_ends_at_once")? {
        return Ok(());
    }
    let drainer = searching_drainer().await?;
    let hook = drainer.call_drainer_hook()?;
    let held = hook.wait_for_return().await?;
    ensure!(held < Duration::from_secs(2), "{held:?}");
    let terminated_at = Instant::now();
    drainer.terminate().await?;
    let elapsed = terminated_at.elapsed();
    ensure!(elapsed < Duration::from_secs(2), "{elapsed:?}");
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

#[tokio::test]
async fn neither_of_two_envoys_is_taken_by_guess() -> Result<()> {
    if has_run_in_namespace("neither_of_two_envoys_is_taken_by_guess")? {
        return Ok(());
    }
    let [one, other] = [
        envoy_with_upstream().await?.start().await?,
        envoy_with_upstream().await?.start().await?,
    ];
    let drainer = searching_drainer().await?;
    assert_took(drainer.drain_pod().await?, MINIMUM);
    drainer.assert_message(&json!({"outcome": "unreachable"}))?;
    let log = drainer
        .find_log("Envoy cannot be drained")
        .context("no warning")?;
    for envoy in [&one, &other] {
        let address = envoy.admin_address().to_string();
        ensure!(log.to_string().contains(&address), "{log}");
        ensure!(envoy.admin().state().await? == "LIVE");
    }
    Ok(())
}

#[tokio::test]
async fn envoy_that_restarts_with_another_port_is_found_again() -> Result<()> {
    if has_run_in_namespace("envoy_that_restarts_with_another_port_is_found_again")? {
        return Ok(());
    }
    let first = envoy_with_upstream().await?.start().await?;
    let drainer = searching_drainer().await?;
    wait_for_admin(&drainer, &first).await?;
    first.terminate().await?;
    let second = envoy_with_upstream().await?.start().await?;
    wait_for_admin(&drainer, &second).await?;
    drainer.drain_pod().await?;
    drainer.assert_message(&json!({"outcome": "drained"}))
}
