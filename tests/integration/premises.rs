//! Premises of a drain, which the drainer tests when it starts and not when it needs them.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tests::drainer::{drainer, quick_drainer};
use tests::envoy::{Envoy, envoy};
use tests::envoy_versions::EnvoyBinary;
use tests::listener::http;

tests::for_each_envoy! { new_listener_without_a_connection_is_read }

async fn new_listener_without_a_connection_is_read(binary: EnvoyBinary) -> Result<()> {
    let envoy = envoy()?.binary(&binary).lds().start().await?;
    let drainer = drainer(envoy.admin_address())?.start().await?;
    drainer.wait_for_envoy().await?;
    ensure!(drainer.find_log("MODIFY_ONLY").is_none());
    let listener = http("late")?.modify_only();
    envoy.set_lds_listeners(&[listener]).await?;
    let warning = drainer.wait_for_warning("MODIFY_ONLY").await?;
    let message = warning["message"].as_str().context("no text")?;
    ensure!(message.ends_with("(late)"), "{message}");
    Ok(())
}

/// An Envoy whose admin interface allows these paths. Older ones than 1.37 reject the setting.
async fn envoy_that_allows(paths: &[Value]) -> Result<Envoy> {
    let ready = [json!({"exact": "/ready"})];
    let paths: Vec<_> = ready.iter().chain(paths).collect();
    let envoy = envoy()?.allow_paths(json!(paths));
    envoy.listener(http("web")?).start().await
}

#[tokio::test]
async fn forbidden_calls_are_told_with_what_allows_them() -> Result<()> {
    // An exact path does not match the call, which has a query.
    let exact = ["/healthcheck/fail", "/drain_listeners"].map(|path| json!({"exact": path}));
    let read = ["/server_info", "/stats", "/listeners", "/config_dump"];
    let read = read.map(|path| json!({"prefix": path}));
    let envoy = envoy_that_allows(&[&exact[..], &read].concat()).await?;
    let drainer = quick_drainer(envoy.admin_address())?.start().await?;
    let warning = drainer.wait_for_warning("admin.allow_paths").await?;
    let warning = warning["message"].as_str().context("no text")?;
    let forbidden = "(/drain_listeners, /healthcheck/ok)";
    ensure!(warning.ends_with(forbidden), "{warning}");
    // The tests have changed nothing.
    assert_eq!(envoy.admin().state().await?, "LIVE");
    drainer.drain_pod().await?;
    drainer.assert_message(&json!({"outcome": "calls-forbidden"}))?;
    let error = drainer.find_log("Envoy has not told all clients");
    assert_eq!(error.context("no error")?["level"], "ERROR");

    // As the warning says.
    let prefixes = warning.split("{prefix: ").skip(1);
    let prefixes = prefixes.filter_map(|rest| Some(rest.split_once('}')?.0));
    let prefixes: Vec<_> = prefixes.map(|path| json!({"prefix": path})).collect();
    let envoy = envoy_that_allows(&prefixes).await?;
    let drainer = quick_drainer(envoy.admin_address())?.start().await?;
    drainer.wait_for_envoy().await?;
    drainer.drain_pod().await?;
    assert_eq!(envoy.admin().state().await?, "DRAINING");
    drainer.assert_message(&json!({"outcome": "drained"}))?;
    let warnings = drainer.log().into_iter();
    let warnings: Vec<_> = warnings.filter(|line| line["level"] != "INFO").collect();
    assert!(warnings.is_empty(), "{warnings:?}");
    Ok(())
}
