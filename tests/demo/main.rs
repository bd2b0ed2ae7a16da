//! `make demo`: injects a drainer into a pod's manifest and drains a real Envoy under load, without a cluster.

mod admission;
mod monitor;
mod screen;
mod shop;

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tests::load::FailureKind;
use tokio::signal::unix::{SignalKind, signal};

use screen::{BOLD, DIMMED, Screen, thousands};
use shop::{DemoCluster, TerminationResult};

/// Minimum number of requests of each run; fewer make the comparison meaningless.
const MIN_REQUESTS: u64 = 5_000;

/// Minimum number of failed requests without the drainer; fewer mean that the load did not test the termination.
const MIN_FAILED_WITHOUT: u64 = 20;

/// Minimum ratio of the request rate that was reached to the one that was configured.
const MIN_RATE_RATIO: f64 = 0.95;

/// Runs on one thread, so that no state changes between two reads within one poll.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let result = tokio::select! {
        result = run_demo() => result,
        // Dropping the demo's future kills the processes that it started.
        result = wait_for_interrupt() => result,
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("\ndemo: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs all steps. Returns true if every expectation was met.
async fn run_demo() -> Result<bool> {
    let screen = Screen::of_stdout();
    let cluster = DemoCluster::start().await?;
    screen.print(
        "Kubernetes terminates a pod with SIGTERM. Envoy then closes all connections at once, although the\n\
         Service still routes clients to it. With one annotation, envoy-drainer injects a sidecar that drains\n\
         Envoy first.\n",
    );

    screen.heading(
        "1  Admission: the webhook receives a pod as from an API server and responds with a patch:",
    );
    let review = cluster.review()?;
    let mut pod = review["request"]["object"].clone();
    let annotations = &pod["metadata"]["annotations"];
    screen.note(&admission::render("pod", "annotations", annotations));
    let without = parse_pod(&pod)?;
    let mut sleeping = pod.clone();
    sleeping["spec"]["containers"][0]["lifecycle"] = json!({"preStop": {"sleep": {"seconds": 15}}});
    let patch = admission::admit(&review).await?;
    for operation in patch.as_array().into_iter().flatten() {
        let [name, path] = ["op", "path"].map(|key| operation[key].as_str().unwrap_or_default());
        screen.added(&admission::render(name, path, &operation["value"]));
    }
    json_patch::patch(
        &mut pod,
        &serde_json::from_value::<json_patch::Patch>(patch)?,
    )?;

    screen.heading(
        "2  With the drainer: the pod is deleted under load and terminated as the kubelet does it:",
    );
    screen.note(&cluster.describe_traffic());
    let with = cluster.delete_pod(parse_pod(&pod)?, None, &screen).await?;
    let message = &with.termination_message;
    screen.note(&format!("   The drainer's termination message: {message}"));

    screen.heading("3  Without the drainer: the unpatched pod is deleted under the same load:");
    let load_duration = Some(with.report.elapsed);
    let without = cluster.delete_pod(without, load_duration, &screen).await?;

    screen.heading("4  With a preStop hook `sleep 15` instead:");
    let sleeping = parse_pod(&sleeping)?;
    let sleeping = cluster.delete_pod(sleeping, None, &screen).await?;

    let failures = failed_expectations(&with, &without);
    screen.heading(if failures.is_empty() {
        "5  Result: no request failed with the drainer."
    } else {
        "5  Result: not as expected."
    });
    print_comparison(&screen, [&with, &sleeping, &without]);
    for failure in &failures {
        screen.failure(failure);
    }
    Ok(failures.is_empty())
}

async fn wait_for_interrupt() -> Result<bool> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    bail!("interrupted")
}

fn parse_pod(pod: &Value) -> Result<k8s_openapi::api::core::v1::Pod> {
    serde_json::from_value(pod.clone()).context("parsing the pod")
}

/// Returns a message for each expectation that was not met.
fn failed_expectations(with: &TerminationResult, without: &TerminationResult) -> Vec<String> {
    let mut failures = Vec::new();
    let mut expect = |is_met: bool, failure: String| {
        if !is_met {
            failures.push(failure);
        }
    };
    for (name, report) in [("with", &with.report), ("without", &without.report)] {
        let (sent, percent) = (report.sent(), report.reached() * 100.0);
        let few = format!("only {sent} requests were sent {name} the drainer");
        expect(sent >= MIN_REQUESTS, few);
        let slow = format!(
            "clients reached only {percent:.0} % of the configured request rate {name} the drainer:\n{report}"
        );
        expect(report.reached() >= MIN_RATE_RATIO, slow);
    }
    let (failed, report) = (with.report.failed(), &with.report);
    let lost = format!("{failed} requests failed with the drainer:\n{report}");
    expect(failed == 0, lost);
    let failed = without.report.failed();
    let few = format!("only {failed} requests failed without the drainer");
    expect(failed >= MIN_FAILED_WITHOUT, few);
    for kind in [FailureKind::Refused, FailureKind::CutInFlight] {
        let none = format!("no request failed without the drainer as \"{kind}\"");
        expect(without.report.failed_of_kind(kind) > 0, none);
    }
    failures
}

/// Prints the results with the drainer and without it as a table.
fn print_comparison(screen: &Screen, results: [&TerminationResult; 3]) {
    let row = |style, name: &str, value: &dyn Fn(&TerminationResult) -> String| {
        let [with, sleeping, without] = results.map(value);
        let line = format!("   {name:<36}{with:>18}{sleeping:>18}{without:>18}\n");
        screen.print(&screen.styled(style, &line));
    };
    let header = ["with the drainer", "`sleep 15`", "without"];
    let header = header.map(|name| format!("{name:>18}")).concat();
    screen.print(&screen.styled(DIMMED, &format!("{:39}{header}\n", "")));
    let sent = |result: &TerminationResult| {
        let percent = result.report.reached() * 100.0;
        format!("{} ({percent:.0} %)", thousands(result.report.sent()))
    };
    row(screen::PLAIN, "requests sent (of configured rate)", &sent);
    row(BOLD, "requests failed", &|result| {
        thousands(result.report.failed())
    });
    for &kind in FailureKind::ALL {
        let count = |result: &TerminationResult| result.report.failed_of_kind(kind);
        // The kinds after `CutOnReused` occur only when something is wrong.
        if kind <= FailureKind::CutOnReused || results.map(count) != [0, 0, 0] {
            let name = format!("  {kind}");
            row(screen::PLAIN, &name, &|result| thousands(count(result)));
        }
    }
    row(screen::PLAIN, "connections open at SIGTERM", &|result| {
        result.open_connections.to_string()
    });
    row(screen::PLAIN, "duration of the termination", &|result| {
        format!("{:.1} s", result.elapsed.as_secs_f64())
    });
    let timing = drainer::Timing::default();
    let (minimum, idle) = (timing.min_drain_duration, timing.idle_exit);
    screen.note(&format!(
        "\n   A drain lasts at least {minimum:?}, for clients that learn late of the termination, and until no\n   \
         request is in flight. Connections that stay idle for {:?} do not postpone the exit.\n\n   \
         What it would add to your own pods: envoy-drainer explain FILE. How to install it: README.md.",
        idle.unwrap_or_default()
    ));
}
