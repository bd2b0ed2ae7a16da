//! Admin interfaces whose addresses the drainer finds. Each test runs in a network namespace of its own, like that of a
//! pod.

use std::env;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use drainer::{AdminAddress, DrainPhase};
use serde_json::json;
use tests::bootstrap::Bootstrap;
use tests::drainer::{Drainer, DrainerBuilder, quick_drainer};
use tests::envoy::{Envoy, envoy, envoy_with_upstream, web_envoy};
use tests::envoy_versions;
use tests::listener::http;
use tests::port::Port;
use tests::process::Signal;
use tests::timing::{SECOND, assert_took, assert_took_at_most};
use tests::until::wait_until;
use tests::upstream::Upstream;
use tokio::net::{TcpListener, TcpStream};
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

/// Runs the rest of the test of this name in a network namespace of its own.
macro_rules! in_namespace {
    ($test:literal) => {
        if has_run_in_namespace($test)? {
            return Ok(());
        }
    };
}

/// Prepares a drainer without an annotated address, with this hint.
fn hinted_drainer(hint: &AdminAddress) -> Result<DrainerBuilder> {
    let drainer = quick_drainer(hint)?.timing(|timing| {
        timing.min_drain_duration = MINIMUM;
        timing.drain_timeout = 10 * MINIMUM;
    });
    Ok(drainer.with_config(|config| config.admin_hints.extend(config.admin_address.take())))
}

/// Starts one whose hint is Envoy's usual address.
async fn searching_drainer() -> Result<Drainer> {
    hinted_drainer(&"127.0.0.1:9901".parse()?)?.start().await
}

/// A drainer that has found an Envoy looks whether it still answers each 4 s.
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
    in_namespace!("admin_interface_is_found_at_any_address");
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
    in_namespace!("pod_whose_envoy_never_started_ends_at_once");
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
    in_namespace!("envoy_without_admin_interface_holds_a_pod_for_the_minimum_only");
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
async fn envoy_of_another_pod_on_the_node_is_left_alone() -> Result<()> {
    in_namespace!("envoy_of_another_pod_on_the_node_is_left_alone");
    for binary in envoy_versions::all()? {
        let (own, other) = (web_envoy(&binary).await?, web_envoy(&binary).await?);
        let drainer = |hint: &AdminAddress| -> Result<_> {
            Ok(hinted_drainer(hint)?.with_config(|config| {
                config.host_network = true;
                let path = own.config_path().into();
                config.envoy_flags.insert("config_path".to_owned(), path);
            }))
        };
        // In a drain of its own, which a drainer that starts must not undo.
        other.admin().post("/healthcheck/fail").await?;
        let confused = drainer(other.admin_address())?.start().await?;
        confused.drain_pod().await?;
        confused.assert_message(&json!({"outcome": "unreachable"}))?;
        ensure!(other.admin().state().await? == "DRAINING" && own.admin().state().await? == "LIVE");
        let right = drainer(own.admin_address())?.start().await?;
        right.wait_for_envoy().await?;
        right.drain_pod().await?;
        right.assert_message(&json!({"outcome": "drained"}))?;
    }
    Ok(())
}

/// Passes connections on to an address.
async fn relay(to: &AdminAddress) -> Result<std::net::SocketAddr> {
    let AdminAddress::Tcp(to) = *to else {
        bail!("{to} is no TCP address");
    };
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut server = TcpStream::connect(to).await?;
                tokio::io::copy_bidirectional(&mut client, &mut server).await
            });
        }
    });
    Ok(address)
}

#[tokio::test]
async fn reverse_proxy_to_the_admin_interface_is_no_second_envoy() -> Result<()> {
    in_namespace!("reverse_proxy_to_the_admin_interface_is_no_second_envoy");
    for binary in envoy_versions::all()? {
        let envoy = web_envoy(&binary).await?;
        let proxy = relay(envoy.admin_address()).await?;
        for hint in ["127.0.0.1:9901".parse()?, AdminAddress::Tcp(proxy)] {
            let drainer = hinted_drainer(&hint)?.start().await?;
            wait_for_admin(&drainer, &envoy).await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn listener_that_leads_to_another_envoy_is_not_taken() -> Result<()> {
    in_namespace!("listener_that_leads_to_another_envoy_is_not_taken");
    for binary in envoy_versions::all()? {
        // As in another pod: nothing of it listens here but its socket in a volume.
        let other = envoy()?.binary(&binary).admin_unix().start().await?;
        let AdminAddress::Path(socket) = other.admin_address() else {
            bail!("the admin interface has no path");
        };
        let own = || async {
            let own = envoy_with_upstream().await?.binary(&binary);
            anyhow::Ok(own.listener(http("web")?).route_to_socket(socket))
        };
        let envoy = own().await?.start().await?;
        let web = AdminAddress::Tcp(envoy.address("web"));
        let drainer = hinted_drainer(&web)?.start().await?;
        wait_for_admin(&drainer, &envoy).await?;
        drainer.drain_pod().await?;
        drainer.assert_message(&json!({"outcome": "drained"}))?;
        ensure!(other.admin().state().await? == "LIVE");
        drop(envoy);
        if !binary.to_string().contains("1.40") {
            continue;
        }
        let paths = ["/stats", "/healthcheck", "/drain_listeners", "/ready"];
        let paths = paths.map(|path| json!({ "prefix": path }));
        let forbidding = own().await?.allow_paths(json!(paths));
        let hint = forbidding.admin_address().clone();
        forbidding.write()?;
        let _envoy = forbidding.spawn(&binary, 0)?;
        let drainer = hinted_drainer(&hint)?.start().await?;
        drainer.wait_for_envoy().await?;
        drainer.drain_pod().await?;
        drainer.assert_message(&json!({"outcome": "drained"}))?;
        ensure!(other.admin().state().await? == "LIVE");
    }
    Ok(())
}

#[tokio::test]
async fn silent_servers_do_not_delay_a_drain() -> Result<()> {
    in_namespace!("silent_servers_do_not_delay_a_drain");
    let silent = (101..=140).map(|port| std::net::TcpListener::bind(("127.0.0.1", port)));
    let _silent: Vec<_> = silent.collect::<std::io::Result<_>>()?;
    let envoy = envoy_with_upstream().await?.listener(http("web")?);
    let envoy = envoy.start().await?;
    let drainer = searching_drainer().await?;
    let _hooks = drainer.call_pod_hooks()?;
    let called_at = Instant::now();
    envoy.wait_until_draining().await?;
    assert_took_at_most(called_at.elapsed(), SECOND / 2);
    Ok(())
}

#[tokio::test]
async fn envoy_that_is_restarted_with_another_address_is_found_again() -> Result<()> {
    in_namespace!("envoy_that_is_restarted_with_another_address_is_found_again");
    for binary in envoy_versions::all()? {
        // Before the pod's end is known, and while its drain waits.
        for is_known in [false, true] {
            let envoy = web_envoy(&binary).await?;
            let drainer = hinted_drainer(&"127.0.0.1:9901".parse()?)?;
            let drainer = drainer.timing(|timing| timing.drain_delay = 5 * SECOND);
            let drainer = drainer.start().await?;
            wait_for_admin(&drainer, &envoy).await?;
            let envoy_hook = drainer.call_envoy_hook();
            let drainer_hook = is_known.then(|| drainer.call_drainer_hook()).transpose()?;
            let phase = if is_known {
                DrainPhase::Delaying
            } else {
                DrainPhase::Waiting
            };
            drainer.wait_for_phase(phase).await?;
            let moved = web_envoy(&binary).await?;
            envoy.signal(Signal::KILL);
            wait_for_admin(&drainer, &moved).await?;
            let _drainer_hook = match drainer_hook {
                Some(hook) => hook,
                None => drainer.call_drainer_hook()?,
            };
            moved.wait_until_draining().await?;
            envoy_hook.wait_for_return().await?;
            drainer.assert_message(&json!({"outcome": "drained"}))?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn another_envoy_does_not_follow_one_that_has_exited() -> Result<()> {
    in_namespace!("another_envoy_does_not_follow_one_that_has_exited");
    let binary = envoy_versions::newest()?;
    let (envoy, other) = (web_envoy(&binary).await?, web_envoy(&binary).await?);
    let drainer = hinted_drainer(envoy.admin_address())?.start().await?;
    drainer.wait_for_envoy().await?;
    let hook = drainer.call_envoy_hook();
    let _drainer_hook = drainer.call_drainer_hook()?;
    envoy.wait_until_draining().await?;
    envoy.signal(Signal::KILL);
    hook.wait_for_return().await?;
    drainer.assert_message(&json!({"outcome": "gone"}))?;
    ensure!(other.admin().state().await? == "LIVE");
    Ok(())
}
