//! The programs that are measured, and what differs between them.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use drainer::AdminAddress;
use tests::binaries::drainer_of_image;
use tests::drainer::drainer;
use tests::peers_report::Program;
use tests::timing::SECOND;

use crate::manager::{Commands, Manager, Minimum};

/// The drainer, and those that it is compared with.
pub(crate) fn all() -> Result<[Manager; 3]> {
    Ok([this_drainer()?, envoy_gateway()?, contour()?])
}

/// <https://github.com/envoyproxy/gateway/blob/v1.9.1/internal/cmd/envoy/shutdown_manager.go>
fn envoy_gateway() -> Result<Manager> {
    let path = program("ENVOY_GATEWAY")?;
    Ok(Manager {
        program: Program::EnvoyGateway,
        version: module_version(&path)?,
        path,
        poll_interval: SECOND,
        grace_period: 360 * SECOND,
        // The liveness and the readiness probe.
        probes: &["/healthz", "/healthz"],
        admin_port: Some(19000),
        port: Some(19002),
        commands: |_, minimum| {
            let mut own_hook = words("envoy shutdown");
            if minimum == Minimum::None {
                own_hook.push("--min-drain-duration=0s".to_owned());
            }
            Ok(Commands {
                serve: words("envoy shutdown-manager"),
                own_hook,
                envoy_hook: "/shutdown/ready".to_owned(),
                ready_file: Some("/tmp/shutdown-ready"),
            })
        },
    })
}

/// It has no minimum. <https://github.com/projectcontour/contour/blob/v1.33.8/cmd/contour/shutdownmanager.go>
fn contour() -> Result<Manager> {
    let path = program("CONTOUR")?;
    Ok(Manager {
        program: Program::Contour,
        version: module_version(&path)?,
        path,
        poll_interval: 5 * SECOND,
        grace_period: 300 * SECOND,
        probes: &[],
        admin_port: None,
        port: None,
        commands: |addresses, _| {
            let AdminAddress::Path(socket) = addresses.admin else {
                bail!("{} is no Unix socket", addresses.admin);
            };
            let ready_file = format!("--ready-file={}", addresses.dir.join("ok").display());
            let mut serve = words("envoy shutdown-manager");
            serve.extend([
                format!("--serve-port={}", addresses.port),
                ready_file.clone(),
            ]);
            let mut own_hook = words("envoy shutdown");
            own_hook.extend([format!("--admin-address={socket}"), ready_file]);
            Ok(Commands {
                serve,
                own_hook,
                envoy_hook: "/shutdown".to_owned(),
                ready_file: None,
            })
        },
    })
}

/// With the defaults of a pod.
fn this_drainer() -> Result<Manager> {
    Ok(Manager {
        program: Program::Drainer,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        path: drainer_of_image()?.canonicalize()?,
        poll_interval: SECOND / 4,
        grace_period: 75 * SECOND,
        probes: &[],
        admin_port: None,
        port: None,
        commands: |addresses, minimum| {
            let port = addresses.port.try_into()?;
            let mut drainer = drainer(addresses.admin)?.with_config(|config| {
                config.settings.port = port;
                config.termination_log = addresses.dir.join("termination-log");
            });
            if minimum == Minimum::None {
                drainer = drainer.exit_without_minimum();
            }
            Ok(Commands {
                serve: drainer.serve_args(),
                own_hook: words(&format!("drain --port={port}")),
                envoy_hook: drainer.config().hook_path(),
                ready_file: None,
            })
        },
    })
}

/// The program that an environment variable of `make bench-peers` names.
fn program(variable: &str) -> Result<PathBuf> {
    let path = env::var_os(variable).map(PathBuf::from);
    let path = path.with_context(|| format!("{variable} is not set: run `make bench-peers`"))?;
    ensure!(
        path.is_file(),
        "{variable}={} is not a file",
        path.display()
    );
    Ok(path)
}

/// The version of the Go module that a program was built from, which is in the program.
fn module_version(program: &Path) -> Result<String> {
    let mut command = Command::new("go");
    let output = command.args(["version", "-m"]).arg(program).output();
    let output = String::from_utf8(output.context("starting go")?.stdout)?;
    let mut lines = output.lines();
    let version = lines.find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some("mod"))
            .then(|| words.nth(1))
            .flatten()
    });
    let version = version.with_context(|| format!("no version in {}", program.display()))?;
    Ok(version.trim_start_matches('v').to_owned())
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}
