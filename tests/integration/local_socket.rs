//! The drainer's local socket, in the abstract namespace: any process of the pod's network can connect to it, or take
//! its name, and none but those of the drainer's own container are served.

use std::fs;
use std::process::Output;

use anyhow::{Context, Result, ensure};
use drainer::{AdminAddress, DEFAULT_PORT, DrainPhase};
use http_body_util::Full;
use hyper::{Request, StatusCode};
use tests::binaries;
use tests::drainer::{Drainer, DrainerBuilder};
use tests::http::exchange;
use tests::process::{Process, Signal};
use tests::timing::{SECOND, TIMEOUT, assert_took_at_most};
use tests::until::wait_until;
use tokio::process::Command;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::termination_signals::{FULL_DRAIN, Pod};

/// A user that is not the one of the tests.
const OTHER_USER: u32 = 60_000;

/// The maximum number of waiting calls of the drainer's own hook.
const MAX_OWN_HOOKS: usize = 32;

/// Requests a path of the drainer on a port, and prints the response.
const CLIENT: &str = r"
import socket, sys
client = socket.socket(socket.AF_UNIX)
client.connect('\0envoy-drainer:' + sys.argv[1])
try:
    client.sendall(b'GET ' + sys.argv[2].encode() + b' HTTP/1.1\r\n\r\n')
    print(client.recv(4096).decode(), end='')
except OSError: pass
";

/// Listens on the socket of a drainer, and answers 200 to everything.
const OTHER_SERVER: &str = r"
import socket, sys
server = socket.socket(socket.AF_UNIX)
server.bind('\0envoy-drainer:' + sys.argv[1])
server.listen()
print('listening', flush=True)
while True:
    peer = server.accept()[0]
    try:
        peer.recv(4096)
        peer.sendall(b'HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n')
    except OSError: pass
    peer.close()
";

/// Denies sockets of the family AF_UNIX with EACCES, as a seccomp profile may: classic BPF, as in
/// <https://man7.org/linux/man-pages/man2/seccomp.2.html>.
const WITHOUT_UNIX_SOCKETS: &str = r"
import ctypes, os, platform, struct, sys
number = {'x86_64': 41, 'aarch64': 198}[platform.machine()]
rules = [
    (0x20, 0, 0, 0),           # load the number of the system call
    (0x15, 0, 3, number),      # not socket(): allow
    (0x20, 0, 0, 16),          # load its first argument
    (0x15, 0, 1, 1),           # not AF_UNIX: allow
    (0x06, 0, 0, 0x5000d),     # return EACCES
    (0x06, 0, 0, 0x7fff0000),  # allow
]
code = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *rule) for rule in rules))
class Program(ctypes.Structure):
    _fields_ = [('length', ctypes.c_ushort), ('code', ctypes.c_void_p)]
program = Program(len(rules), ctypes.addressof(code))
prctl = ctypes.CDLL(None).prctl
assert prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
assert prctl(22, 2, ctypes.byref(program), 0, 0) == 0  # PR_SET_SECCOMP
os.execv(sys.argv[1], sys.argv[1:])
";

const PYTHON: &str = "/usr/bin/python3";

/// Starts a program as process 1 of a process namespace.
const UNSHARE: [&str; 4] = ["/usr/bin/unshare", "--pid", "--fork", "--kill-child"];

const BIND_ERROR: &str = "Cannot listen for the drainer's own hook";

fn port(drainer: &Drainer) -> String {
    drainer.builder().config().settings.port.to_string()
}

/// Returns true if the tests may change users and namespaces; prints what is skipped otherwise.
fn is_root(subject: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("skipped without root: {subject}");
    }
    is_root
}

/// The response to a request of a process of this user; empty if the drainer closed the connection.
async fn request_as(user: u32, drainer: &Drainer, path: &str) -> Result<String> {
    let mut client = Command::new(PYTHON);
    client.args(["-c", CLIENT, &port(drainer), path]).uid(user);
    let output = client.output().await?;
    ensure!(output.status.success(), "{output:?}");
    Ok(String::from_utf8(output.stdout)?)
}

#[tokio::test]
async fn name_taken_by_another_user_is_bound_later() -> Result<()> {
    if !is_root("a server of another user") {
        return Ok(());
    }
    let mut pod = Pod::start().await?;
    pod.drainer.signal(Signal::KILL);
    pod.drainer.process().wait_within(TIMEOUT).await?;
    let dir = tempfile::tempdir()?;
    let mut other = Command::new(PYTHON);
    other
        .args(["-c", OTHER_SERVER, &port(&pod.drainer)])
        .uid(OTHER_USER);
    let other = Process::start("other server", other, &dir.path().join("log"))?;
    wait_until("the other server listens", TIMEOUT, || async {
        Ok(other.log() == "listening\n")
    })
    .await?;

    pod.drainer.relaunch().await?;
    let Pod { drainer, .. } = &pod;
    let warning = drainer.wait_for_log(BIND_ERROR, TIMEOUT);
    assert_eq!(warning.await?["level"], "ERROR");
    let hook = drainer.call_envoy_hook();
    let own = drainer.builder().run("drain", &["drain"])?;
    assert_eq!(own.wait_within(TIMEOUT).await?.code(), Some(1));
    let log = drainer.process().log();
    assert!(log.contains("a process other than the drainer"), "{log}");
    assert!(hook.is_waiting());

    other.signal(Signal::KILL);
    let freed_at = Instant::now();
    let bound = drainer.wait_for_log("Listening for the drainer's own hook", TIMEOUT);
    bound.await?;
    assert_took_at_most(freed_at.elapsed(), SECOND);
    pod.assert_drained_in_full().await
}

#[tokio::test]
async fn process_of_another_user_is_not_served() -> Result<()> {
    if !is_root("clients of another user") {
        return Ok(());
    }
    let Pod { drainer, .. } = &Pod::start().await?;
    for path in ["/status", "/drain"] {
        assert_eq!(request_as(OTHER_USER, drainer, path).await?, "");
        assert_eq!(drainer.status().await?.phase, DrainPhase::Standby);
    }
    // With `shareProcessNamespace`, one of the same user cannot be told apart from the drainer's own.
    let own = rustix::process::geteuid().as_raw();
    let response = request_as(own, drainer, "/status").await?;
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
    Ok(())
}

/// Starts a pod whose drainer is process 1 of a process namespace, as in a container. Returns its process ID outside.
async fn start_as_process_one() -> Result<(Pod, String)> {
    let pod = Pod::launch(|drainer| drainer.launcher(&UNSHARE)).await?;
    let started = pod.drainer.wait_for_log("Drainer started", TIMEOUT);
    started.await?;
    let pid = children(&pod.drainer.process().pid().to_string())?;
    Ok((pod, pid.trim().to_owned()))
}

/// The process IDs of a process's children.
fn children(pid: &str) -> Result<String> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    fs::read_to_string(&path).context(path)
}

/// Runs a program in the process namespace of a process.
async fn run_beside(pid: &str, program: &[&str]) -> Result<Output> {
    let mut command = Command::new("/usr/bin/nsenter");
    command.args(["--target", pid, "--pid", "--"]).args(program);
    Ok(command.output().await?)
}

#[tokio::test]
async fn process_of_another_container_is_not_served() -> Result<()> {
    if !is_root("process namespaces") {
        return Ok(());
    }
    let (pod, pid) = start_as_process_one().await?;
    let Pod { drainer, .. } = &pod;
    let own = rustix::process::geteuid().as_raw();
    for path in ["/status", "/drain"] {
        assert_eq!(request_as(own, drainer, path).await?, "");
    }
    let program = binaries::drainer()?.display().to_string();
    let status = [program.as_str(), "status", "--port", &port(drainer)];
    let output = run_beside(&pid, &status).await?;
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.starts_with("phase        standby\n"), "{output:?}");
    // The client does not take a process that it cannot see for its drainer either.
    let outside = Pod::start().await?;
    let mut client = Command::new(UNSHARE[0]);
    client.args(&UNSHARE[1..]);
    client.args([
        program.as_str(),
        "status",
        "--port",
        &port(&outside.drainer),
    ]);
    let output = client.output().await?;
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("a process other than the drainer"), "{text}");
    Ok(())
}

#[tokio::test]
async fn process_one_reaps_orphans() -> Result<()> {
    if !is_root("process namespaces") {
        return Ok(());
    }
    let (_pod, pid) = start_as_process_one().await?;
    let orphan = "(sleep 3 > /dev/null 2>&1 &)";
    run_beside(&pid, &["/bin/sh", "-c", orphan]).await?;
    assert_ne!(
        children(&pid)?,
        "",
        "no process became a child of process 1"
    );
    wait_until("the orphan is reaped", TIMEOUT, || async {
        Ok(children(&pid)?.is_empty())
    })
    .await
}

#[tokio::test]
async fn drainers_of_one_node_network_are_apart() -> Result<()> {
    let host_network = |drainer: DrainerBuilder| {
        let drainer = drainer.exit_without_minimum();
        drainer.with_config(|config| config.host_network = true)
    };
    let ends = Pod::start_with(host_network).await?;
    let stays = Pod::start_with(host_network).await?;
    ends.assert_drained_in_full().await?;
    assert!(stays.is_live().await?);
    assert_eq!(stays.drainer.status().await?.phase, DrainPhase::Standby);
    stays.assert_drained_in_full().await
}

#[tokio::test]
async fn drainer_without_unix_sockets_drains_at_sigterm() -> Result<()> {
    let launched = |drainer: DrainerBuilder| {
        let drainer = drainer.launcher(&[PYTHON, "-c", WITHOUT_UNIX_SOCKETS]);
        drainer.exit_without_minimum()
    };
    let pod = Pod::launch(launched).await?;
    let warning = pod.drainer.wait_for_log(BIND_ERROR, TIMEOUT).await?;
    assert_eq!(warning["level"], "ERROR");
    assert_eq!(warning["error"], "Permission denied (os error 13)");
    let hook = pod.drainer.call_envoy_hook();
    sleep(SECOND).await;
    assert!(hook.is_waiting());
    pod.drainer.signal(Signal::TERM);
    hook.wait_for_return().await?;
    let status = pod.drainer.process().wait_within(TIMEOUT).await?;
    assert_eq!(status.code(), Some(0));
    assert_eq!(pod.drainer.accepted_calls(), FULL_DRAIN);
    Ok(())
}

#[tokio::test]
async fn held_hooks_do_not_block_the_status() -> Result<()> {
    let Pod { drainer, .. } = &Pod::start().await?;
    let mut hooks = JoinSet::new();
    for _ in 0..=MAX_OWN_HOOKS {
        let address = AdminAddress::Abstract(format!("envoy-drainer:{}", port(drainer)));
        let request = Request::get("/drain").body(Full::default())?;
        hooks.spawn(async move { exchange(&address, request).await });
    }
    // One too many is rejected; the others wait.
    let rejected = hooks.join_next().await.context("no hook")???;
    assert_eq!(rejected.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(hooks.try_join_next().is_none());
    assert_eq!(drainer.status().await?.phase, DrainPhase::Waiting);
    let hook = drainer.call_envoy_hook();
    assert_took_at_most(hook.wait_for_return().await?, SECOND);
    for response in hooks.join_all().await {
        assert_eq!(response?.status, StatusCode::OK);
    }
    Ok(())
}

#[tokio::test]
async fn client_without_a_port_takes_the_default() -> Result<()> {
    let mut client = Command::new(binaries::drainer()?);
    let output = client.arg("status").output().await?;
    let text = String::from_utf8(output.stderr)?;
    assert!(text.contains(&format!("port {DEFAULT_PORT} ")), "{text}");
    Ok(())
}
