//! Tests of the support code: pods are started, restarted and terminated in the kubelet's order.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use tests::kubelet::{Kubelet, PodTermination, Program, RunningPod, Step};
use tests::port::Port;
use tests::until::wait_until;

/// A script that exits at SIGTERM.
const EXITS_ON_SIGTERM: &str = "trap 'exit 0' TERM; echo ready; while :; do sleep 0.02; done";

/// A script that ignores SIGTERM.
const IGNORES_SIGTERM: &str = "trap '' TERM; echo ready; while :; do sleep 0.02; done";

/// How much later than due a step may happen, in seconds.
const TOLERANCE: f64 = 2.0;

/// A container that runs a shell script.
fn container(name: &str, script: &str) -> Value {
    json!({ "name": name, "command": ["sh"], "args": ["-c", script] })
}

/// Makes a container a native sidecar.
fn sidecar(mut container: Value) -> Value {
    container["restartPolicy"] = json!("Always");
    container
}

fn with_hook(mut container: Value, hook: Value) -> Value {
    container["lifecycle"]["preStop"] = hook;
    container
}

/// A container with this hook, which exits at SIGTERM.
fn hooked(name: &str, hook: Value) -> Value {
    with_hook(container(name, EXITS_ON_SIGTERM), hook)
}

fn exec(script: &str) -> Value {
    json!({ "exec": { "command": ["sh", "-c", script] } })
}

async fn run(sidecars: &[Value], mains: &[Value], grace: u32) -> Result<RunningPod> {
    let pod: Pod = serde_json::from_value(json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "spec": {
            "initContainers": sidecars,
            "containers": mains,
            "terminationGracePeriodSeconds": grace,
        },
    }))?;
    let mut kubelet = Kubelet::new(pod)?;
    for container in sidecars.iter().chain(mains) {
        let name = container["name"].as_str().unwrap_or_default();
        kubelet = kubelet.program(name, Program::new("/bin/sh"));
    }
    let pod = kubelet.start()?;
    for container in sidecars.iter().chain(mains) {
        let name = container["name"].as_str().unwrap_or_default();
        wait_for_output(&pod, name, "ready\n").await?;
    }
    Ok(pod)
}

/// Waits until a container's output over all its restarts is exactly `text`.
async fn wait_for_output(pod: &RunningPod, container: &str, text: &str) -> Result<()> {
    wait_until(text, Duration::from_secs(10), || async {
        Ok(pod.log(container)? == text)
    })
    .await
}

/// Asserts when each container reached a step, in seconds from the start of the termination.
#[track_caller]
fn assert_times(termination: &PodTermination, want: &[(&str, Step, f64)]) {
    for (container, step, due) in want {
        let at = termination.time_of(container, *step);
        let matches =
            at.is_some_and(|at| (due - 0.01..due + TOLERANCE).contains(&at.as_secs_f64()));
        assert!(
            matches,
            "{container} {step:?} at {at:?}, due at {due}\n{}",
            termination.timeline
        );
    }
}

#[tokio::test]
async fn hooks_start_together_and_containers_end_separately() -> Result<()> {
    let pod = run(
        &[],
        &[
            hooked("slow", exec("sleep 1.5")),
            hooked("quick", exec("true")),
            container("bare", EXITS_ON_SIGTERM),
        ],
        30,
    )
    .await?;
    let termination = pod.terminate().await;
    assert_times(
        &termination,
        &[
            ("slow", Step::HookStarted, 0.0),
            ("quick", Step::HookStarted, 0.0),
            ("bare", Step::Sigterm, 0.0),
            ("bare", Step::Exited, 0.0),
            ("quick", Step::Sigterm, 0.0),
            ("slow", Step::HookReturned, 1.5),
            ("slow", Step::Sigterm, 1.5),
            ("slow", Step::Exited, 1.5),
        ],
    );
    assert_eq!(termination.time_of("bare", Step::HookStarted), None);
    assert!(
        pod.exit_status("slow")?
            .is_some_and(|status| status.success())
    );
    Ok(())
}

#[tokio::test]
async fn failed_hook_is_followed_by_sigterm() -> Result<()> {
    let closed_port = Port::free()?;
    let get = json!({ "httpGet": { "port": closed_port.number(), "path": "/" } });
    let pod = run(
        &[],
        &[hooked("exec", exec("exit 1")), hooked("get", get)],
        30,
    )
    .await?;
    let termination = pod.terminate().await;
    for name in ["exec", "get"] {
        let want = [(name, Step::HookFailed, 0.0), (name, Step::Sigterm, 0.0)];
        assert_times(&termination, &want);
        assert_eq!(termination.time_of(name, Step::HookReturned), None);
    }
    Ok(())
}

#[tokio::test]
async fn sigterm_and_sigkill_follow_the_grace_period() -> Result<()> {
    let pod = run(
        &[sidecar(container("side", IGNORES_SIGTERM))],
        &[
            with_hook(container("hangs", IGNORES_SIGTERM), exec("sleep 60")),
            container("stubborn", IGNORES_SIGTERM),
        ],
        1,
    )
    .await?;
    let termination = pod.terminate().await;
    assert_times(
        &termination,
        &[
            ("stubborn", Step::Sigterm, 0.0),
            ("hangs", Step::HookFailed, 1.0),
            ("hangs", Step::Sigterm, 1.0),
            ("side", Step::Sigterm, 1.0),
            ("stubborn", Step::Sigkill, 2.0),
            ("hangs", Step::Sigkill, 3.0),
            ("side", Step::Sigkill, 3.0),
        ],
    );
    Ok(())
}
