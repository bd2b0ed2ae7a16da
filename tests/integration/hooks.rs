//! The hooks' waiting room: who waits gets an answer, and who misbehaves disturbs nobody.

use std::fs;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result};
use drainer::{AdminAddress, DrainPhase};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};
use tests::drainer::{Drainer, DrainerBuilder, HookCall, drainer};
use tests::envoy::envoy;
use tests::http::Client;
use tests::listener::http;
use tests::parallel::run_in_parallel;
use tests::port::Port;
use tests::process::Signal;
use tests::timing::{SECOND, TIMEOUT, assert_took, assert_took_at_most};
use tests::until::wait_until;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep, timeout};

/// A drainer without an Envoy: its hooks wait for the deadline, which is this far away.
fn drainer_without_envoy(deadline: Duration) -> Result<DrainerBuilder> {
    let nobody = Port::free()?;
    let address = AdminAddress::Tcp((Ipv4Addr::LOCALHOST, nobody.number()).into());
    let drainer = drainer(&address)?.exit_without_minimum();
    Ok(drainer.timing(|timing| timing.drain_timeout = deadline))
}

/// How many files the drainer has open.
fn open_files(drainer: &Drainer) -> Result<usize> {
    Ok(fs::read_dir(format!("/proc/{}/fd", drainer.process().pid()))?.count())
}

/// Says something to the drainer, and returns all that it answers until it closes.
async fn send(address: SocketAddr, bytes: &[u8]) -> Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(bytes).await?;
    read_response(&mut stream).await
}

async fn read_response(stream: &mut TcpStream) -> Result<String> {
    let mut answer = Vec::new();
    match timeout(TIMEOUT, stream.read_to_end(&mut answer)).await? {
        // What was sent too much is answered with a reset, after the answer or instead of it.
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        other => drop(other?),
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

#[tokio::test]
async fn a_hook_that_waits_15_s_still_gets_its_200() -> Result<()> {
    let drainer = drainer_without_envoy(15 * SECOND)?.start().await?;
    assert_took(
        drainer.call_pod_hooks()?.wait_for_return().await?,
        15 * SECOND,
    );
    Ok(())
}

#[tokio::test]
async fn a_thousand_callers_wait_through_sigterm_and_each_gets_its_200() -> Result<()> {
    // This process holds the other ends.
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: maximum,
            maximum,
        },
    )?;
    let drainer = drainer_without_envoy(20 * SECOND)?.start().await?;
    // What a container has where systemd's default was not raised.
    let few = Rlimit {
        current: Some(1024),
        maximum: Some(1024),
    };
    prlimit(
        Pid::from_raw(drainer.process().pid()),
        Resource::Nofile,
        few,
    )?;

    let own = drainer.call_drainer_hook()?;
    let callers: Vec<_> = (0..999).map(|_| drainer.call_envoy_hook()).collect();
    wait_until("all are there", TIMEOUT, || async {
        Ok(open_files(&drainer)? >= 1000)
    })
    .await?;
    drainer.signal(Signal::TERM);
    sleep(SECOND).await;
    // It goes on taking callers.
    let late = drainer.call_envoy_hook();
    assert!(
        callers
            .iter()
            .chain([&own, &late])
            .all(HookCall::is_waiting)
    );
    assert_took(own.wait_for_return().await?, 20 * SECOND);
    for caller in callers.iter().chain([&late]) {
        caller.wait_for_return().await?;
    }
    let status = drainer.process().wait_within(TIMEOUT).await?;
    assert_eq!(status.code(), Some(0));
    Ok(())
}

#[tokio::test]
async fn a_wrong_token_gets_403_and_changes_nothing() -> Result<()> {
    let envoy = envoy()?.listener(http("web")?).start().await?;
    let drainer = drainer(envoy.admin_address())?
        .exit_without_minimum()
        .start()
        .await?;
    let client = Client::from(drainer.address());
    let right = drainer.builder().settings().hook_path();
    let wrong = right.replace("0123", "3210");
    assert_ne!(right, wrong);
    let shorter = &right[..right.len() - 1];
    let longer = format!("{right}0");
    let upper = right.to_ascii_uppercase().replace("/DRAINED", "/drained");
    let other_container = format!("{wrong}/app");
    let table = [
        (wrong.as_str(), 403),
        (shorter, 403),
        (&longer, 403),
        (&upper, 403),
        ("/drained/", 403),
        (&other_container, 403),
        ("/drained", 404),
        ("/", 404),
        // The drainer's own hook and its status, which only its own container reaches.
        ("/drain", 404),
        ("/status", 404),
    ];
    for (path, status) in table {
        assert_eq!(client.get(path).await?.status, status, "{path}");
    }
    assert_eq!(client.post(&right).await?.status, 405);
    // Envoy's hook alone would have failed its health by then.
    sleep(4 * SECOND).await;
    assert_eq!(drainer.status().await?.phase, DrainPhase::Idle);
    assert_eq!(envoy.admin().state().await?, "LIVE");
    assert!(!drainer.has_marker());
    Ok(())
}

#[tokio::test]
async fn callers_who_hang_up_disturb_nothing_and_leave_nothing() -> Result<()> {
    let drainer = drainer_without_envoy(12 * SECOND)?.start().await?;
    let before = open_files(&drainer)?;
    let end = drainer.call_pod_hooks()?;
    for _ in 0..3 {
        let callers: Vec<_> = (0..100).map(|_| drainer.call_envoy_hook()).collect();
        wait_until("all are there", TIMEOUT, || async {
            Ok(open_files(&drainer)? >= before + 100)
        })
        .await?;
        drop(callers);
        wait_until("all are gone", TIMEOUT, || async {
            Ok(open_files(&drainer)? <= before + 3)
        })
        .await?;
    }
    assert_took(end.wait_for_return().await?, 12 * SECOND);
    Ok(())
}

#[tokio::test]
async fn a_drain_goes_on_when_all_who_asked_for_it_have_hung_up() -> Result<()> {
    let envoy = envoy()?.listener(http("web")?).start().await?;
    let drainer = drainer(envoy.admin_address())?
        .timing(|timing| timing.min_drain_duration = 3 * SECOND)
        .start()
        .await?;
    let end = drainer.call_pod_hooks()?;
    drainer.wait_for_phase(DrainPhase::Draining).await?;
    drop(end);
    // A kubelet that was restarted asks once more.
    let took = drainer.call_pod_hooks()?.wait_for_return().await?;
    assert_took_at_most(took, 3 * SECOND);
    assert_eq!(drainer.termination_message()?["outcome"], "drained");
    Ok(())
}

#[tokio::test]
async fn garbage_and_slow_heads_get_no_hook_and_hurt_none() -> Result<()> {
    let drainer = drainer_without_envoy(9 * SECOND)?.start().await?;
    let address = drainer.address();
    let before = open_files(&drainer)?;
    let end = drainer.call_pod_hooks()?;

    let long = format!("GET / HTTP/1.1\r\nx: {}\r\n", "y".repeat(4000));
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "x: y\r\n".repeat(40));
    let garbage: [&[u8]; 5] = [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\0\0\0\0\0\0\0\0\r\n\r\n",
        long.as_bytes(),
        many.as_bytes(),
    ];
    for bytes in garbage {
        let answer = send(address, bytes).await?;
        let shown = bytes[..bytes.len().min(40)].escape_ascii();
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 400 "),
            "{shown}: {answer}"
        );
    }
    // A drop at a time, and silence: both are shown out after two seconds.
    let mut silent = TcpStream::connect(address).await?;
    let mut slow = TcpStream::connect(address).await?;
    let began = Instant::now();
    slow.write_all(b"GET /dra").await?;
    let (mut slow_answer, mut slow_head) = slow.split();
    let dripping = async {
        loop {
            sleep(SECOND / 4).await;
            if slow_head.write_all(b"x").await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    };
    let mut nothing = Vec::new();
    tokio::select! {
        () = dripping => {}
        read = timeout(TIMEOUT, slow_answer.read_to_end(&mut nothing)) => drop(read?),
    }
    assert_took(began.elapsed(), 2 * SECOND);
    assert_eq!(read_response(&mut silent).await?, "");
    wait_until("nobody is left but the hooks", TIMEOUT, || async {
        Ok(open_files(&drainer)? <= before + 3)
    })
    .await?;
    // A head in pieces is a head.
    let mut pieces = TcpStream::connect(address).await?;
    for piece in ["GET /dra", "ined/x HT", "TP/1.1\r\nhost: x", "\r\n", "\r\n"] {
        pieces.write_all(piece.as_bytes()).await?;
        sleep(SECOND / 10).await;
    }
    let answered = read_response(&mut pieces).await?;
    assert!(answered.starts_with("HTTP/1.1 403 "), "{answered}");
    assert_took(end.wait_for_return().await?, 9 * SECOND);
    Ok(())
}

#[tokio::test]
async fn another_containers_hook_waits_for_the_drain_and_starts_none() -> Result<()> {
    let envoy = envoy()?.listener(http("web")?).start().await?;
    let alone = drainer(envoy.admin_address())?
        .exit_without_minimum()
        .start()
        .await?;
    let pod = drainer_without_envoy(4 * SECOND)?.start().await?;
    let begun_late = drainer_without_envoy(3 * SECOND)?.start().await?;
    let cases = [
        ("alone", alone),
        ("with the pod", pod),
        ("before the others", begun_late),
    ];
    let cases = cases.map(|(name, drainer)| {
        let case = async move {
            let hook = drainer.call_container_hook("app");
            match name {
                "alone" => {
                    while hook.is_waiting() {
                        assert_eq!(drainer.status().await?.phase, DrainPhase::Idle);
                        sleep(SECOND / 4).await;
                    }
                    assert_took(hook.wait_for_return().await?, 10 * SECOND);
                    assert!(!drainer.has_marker() && drainer.termination_message().is_err());
                }
                "with the pod" => {
                    assert_took(
                        drainer.call_pod_hooks()?.wait_for_return().await?,
                        4 * SECOND,
                    );
                    let took = hook.wait_for_return().await?;
                    assert_took_at_most(took, 4 * SECOND);
                    // All is over: it need not wait.
                    let late = drainer
                        .call_container_hook("late")
                        .wait_for_return()
                        .await?;
                    assert_took_at_most(late, Duration::ZERO);
                }
                _ => {
                    sleep(2 * SECOND).await;
                    let end = drainer.call_pod_hooks()?;
                    assert_took(hook.wait_for_return().await?, 5 * SECOND);
                    end.wait_for_return().await?;
                }
            }
            Ok(())
        };
        (name.to_owned(), case)
    });
    run_in_parallel(cases).await?;
    assert_eq!(envoy.admin().state().await?, "LIVE");
    Ok(())
}

#[tokio::test]
async fn a_socket_file_that_an_earlier_life_left_is_replaced() -> Result<()> {
    let mut drainer = drainer_without_envoy(SECOND)?.start().await?;
    let socket = drainer.builder().settings().socket();
    drainer.signal(Signal::KILL);
    drainer.process().wait().await;
    assert!(socket.exists());
    let refused = drainer.status().await.unwrap_err();
    assert!(format!("{refused:#}").contains("refused"), "{refused:#}");
    drainer.restart().await?;
    assert_took(drainer.call_pod_hooks()?.wait_for_return().await?, SECOND);
    Ok(())
}

#[tokio::test]
async fn a_port_that_is_taken_is_bound_when_it_is_free() -> Result<()> {
    let cases = [
        (false, SocketAddr::from((Ipv4Addr::LOCALHOST, 0))),
        (false, (Ipv6Addr::UNSPECIFIED, 0).into()),
        (true, (Ipv4Addr::UNSPECIFIED, 0).into()),
    ];
    let cases = cases.map(|(host_network, address)| {
        let case = async move {
            let stranger = TcpListener::bind(address).await?;
            let port = stranger.local_addr()?.port();
            let sidecar = drainer_without_envoy(3 * SECOND)?.config(|config| {
                config.settings.port = port.try_into().expect("a bound port is not zero");
                config.host_network = host_network;
            });
            // It runs, and answers on its Unix socket.
            let drainer = sidecar.start().await?;
            let line = drainer
                .wait_for_log("Cannot listen for Envoy's hook", TIMEOUT)
                .await?;
            assert_eq!(
                (&line["level"], &line["port"]),
                (&"ERROR".into(), &port.into())
            );
            sleep(2 * SECOND).await;
            assert_eq!(drainer.status().await?.phase, DrainPhase::Idle);
            drop(stranger);
            let bound = Instant::now();
            drainer
                .wait_for_log("Listening for Envoy's hook", TIMEOUT)
                .await?;
            assert_took_at_most(bound.elapsed(), SECOND);
            assert_took(
                drainer.call_pod_hooks()?.wait_for_return().await?,
                3 * SECOND,
            );
            Ok(())
        };
        (format!("{address}, {host_network}"), case)
    });
    run_in_parallel(cases).await
}

#[tokio::test]
async fn a_pods_end_is_drained_although_the_port_is_taken() -> Result<()> {
    let envoy = envoy()?.listener(http("web")?).start().await?;
    let stranger = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let port = stranger.local_addr()?.port();
    let sidecar = drainer(envoy.admin_address())?
        .exit_without_minimum()
        .config(|config| {
            config.settings.port = port.try_into().expect("a bound port is not zero");
        });
    let drainer = sidecar.start().await?;
    drainer.wait_for_log("Envoy is responding", TIMEOUT).await?;
    drainer.call_drainer_hook()?.wait_for_return().await?;
    assert_eq!(drainer.termination_message()?["outcome"], "drained");
    assert_eq!(envoy.admin().state().await?, "DRAINING");
    Ok(())
}

#[tokio::test]
async fn a_folder_that_is_not_there_is_an_error() -> Result<()> {
    let sidecar =
        drainer_without_envoy(SECOND)?.config(|config| config.run_dir = "/nowhere".into());
    let serve = sidecar.run("drainer", &sidecar.serve_args())?;
    let status = serve.wait_within(TIMEOUT).await?;
    assert_eq!(status.code(), Some(1));
    let log = serve.log();
    assert!(
        log.starts_with("drainer: cannot listen on /nowhere/"),
        "{log}"
    );
    Ok(())
}

#[tokio::test]
async fn an_admin_address_of_another_host_is_refused() -> Result<()> {
    let sidecar = drainer_without_envoy(SECOND)?;
    let mut args = sidecar.serve_args();
    let address = args
        .iter_mut()
        .find(|arg| arg.starts_with("--admin-address="));
    *address.context("no admin address")? = "--admin-address=169.254.169.254:80".to_owned();
    let serve = sidecar.run("drainer", &args)?;
    let status = serve.wait_within(TIMEOUT).await?;
    assert_eq!(status.code(), Some(64));
    let log = serve.log();
    assert!(log.contains("it is not a loopback address"), "{log}");
    Ok(())
}

#[tokio::test]
async fn with_the_nodes_network_only_the_node_itself_reaches_the_port() -> Result<()> {
    for host_network in [false, true] {
        let sidecar =
            drainer_without_envoy(SECOND)?.config(|config| config.host_network = host_network);
        let drainer = sidecar.start().await?;
        let port = drainer.address().port();
        // 127.0.0.2 is as foreign to 127.0.0.1 as the node's own address is.
        let elsewhere = SocketAddr::from((Ipv4Addr::new(127, 0, 0, 2), port));
        assert_eq!(TcpStream::connect(elsewhere).await.is_err(), host_network);
        let here = Client::from(drainer.address()).get("/drained/x").await?;
        assert_eq!(here.status, 403);
    }
    Ok(())
}

#[tokio::test]
async fn the_drainers_hook_waits_a_moment_for_a_drainer_that_is_restarted() -> Result<()> {
    let sidecar = drainer_without_envoy(SECOND)?;
    let early = sidecar.run("drain", &["drain"])?;
    let alone = drainer_without_envoy(SECOND)?;
    let began = Instant::now();
    let without = alone.run("drain", &["drain"])?;
    sleep(SECOND / 2).await;
    let drainer = sidecar.start().await?;
    let _envoy = drainer.call_envoy_hook();
    let status = early.wait_within(TIMEOUT).await?;
    assert!(status.success(), "{status}");
    // And where there is none, says so, since a hook that fails ends the wait.
    let status = without.wait_within(TIMEOUT).await?;
    assert_eq!(status.code(), Some(1));
    assert!(began.elapsed() >= 3 * SECOND);
    let log = without.log();
    assert!(log.starts_with("drainer: no drainer in "), "{log}");
    Ok(())
}

#[tokio::test]
async fn the_status_is_shown_to_a_person_and_to_a_program() -> Result<()> {
    let drainer = drainer_without_envoy(60 * SECOND)?.start().await?;
    let _end = drainer.call_pod_hooks()?;
    drainer.wait_for_phase(DrainPhase::Draining).await?;
    wait_until("a look was refused", TIMEOUT, || async {
        Ok(drainer.status().await?.unknown.is_some())
    })
    .await?;
    let shown = drainer.builder().run("status", &["status"])?;
    assert!(shown.wait_within(TIMEOUT).await?.success());
    let text = "phase        draining\nunknown      connection refused\n";
    assert!(shown.log().contains(text), "{}", shown.log());
    let shown = drainer.builder().run("status", &["status", "-o", "json"])?;
    assert!(shown.wait_within(TIMEOUT).await?.success());
    let log = shown.log();
    let json = log.lines().find(|line| line.starts_with(r#"{"phase":"#));
    let json: serde_json::Value = serde_json::from_str(json.context("no status")?)?;
    assert_eq!(json["phase"]["name"], "draining");
    Ok(())
}
